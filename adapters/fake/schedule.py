"""Which failure is due at which cloud, and how often still."""

import threading
from dataclasses import asdict, dataclass

from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.clouds.cloud import Cloud
from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.failures import FAILURES, Failure, kinds_of


@dataclass(slots=True)
class PlannedFailure:
    """A failure of the next `times` requests to a cloud; None: of all until told otherwise."""

    provider: str
    kind: str
    times: int | None = None


class FailureSchedule:
    """Holds at most one failure per cloud; it is safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: dict[str, PlannedFailure] = {}

    def plan(self, provider: str, kind: str, times: int | None = None) -> None:
        """The next `times` requests to this cloud fail in this way. Raises FakeSetupError."""
        if provider not in CLOUDS:
            raise FakeSetupError(f"provider: {provider!r} must be one of {', '.join(CLOUDS)}")
        if kind not in kinds_of(provider):
            raise FakeSetupError(f"kind: {kind!r} must be one of {', '.join(kinds_of(provider))}")
        if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
            raise FakeSetupError(f"times: {times!r} must be a whole number from 1")
        with self._lock:
            self._planned[provider] = PlannedFailure(provider, kind, times)

    def clear(self, provider: str | None = None) -> None:
        """Ends the failure of this cloud, or of all of them."""
        with self._lock:
            if provider is None:
                self._planned.clear()
            else:
                self._planned.pop(provider, None)

    def due(self, cloud: Cloud, path: str) -> Failure | None:
        """The failure of this request, which counts as one of its times."""
        with self._lock:
            planned = self._planned.get(cloud.name)
            if planned is None or not FAILURES[planned.kind].happens_at(cloud, path):
                return None
            if planned.times is not None:
                planned.times -= 1
                if planned.times == 0:
                    del self._planned[cloud.name]
            return FAILURES[planned.kind]

    def listed(self) -> list[dict[str, object]]:
        """What is planned, for people."""
        with self._lock:
            return [asdict(each) for each in self._planned.values()]


def parsed_failure(text: str) -> tuple[str, str, int | None]:
    """`vastai=truncated:3` as provider, kind and times. Raises FakeSetupError for another form."""
    provider, _, rest = text.partition("=")
    kind, colon, times = rest.partition(":")
    if not provider or not kind or (colon and not times.isdecimal()):
        raise FakeSetupError(f"{text!r} must be PROVIDER=KIND or PROVIDER=KIND:TIMES, like vastai=truncated:3")
    return provider, kind, int(times) if colon else None
