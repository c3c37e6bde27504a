"""How often a key may ask: token buckets per key in this process. Changes that are made count in the database."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sutler.service.web.errors import QuotaUsedUpError, RequestError, TooManyRequestsError

BURST_S: Final = 2.0  # chosen: a page that loads several lists at once is no flood
MOST_BUCKETS: Final = 10_000  # chosen: as many keys as the authenticator remembers


class Limits:
    """`per_second` requests for every actor, and `most` at once after a pause; `told` is what refusals say, `refusal`
    makes one that says something else, given when to ask again."""

    def __init__(
        self,
        per_second: float,
        *,
        most: float,
        told: str = "",
        refusal: Callable[[float], RequestError] | None = None,
    ) -> None:
        self._per_second, self._most = per_second, max(1.0, most)
        self._refusal = refusal or (lambda wait_s: TooManyRequestsError(told, retry_after_s=wait_s))
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, actor: str, *, now_s: float) -> None:
        """Counts one request; `now_s` is a monotonic clock's. Raises TooManyRequestsError, or the other `refusal`."""
        left, at_s = self._buckets.get(actor, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_second)
        allowed = left >= 1.0
        self._buckets[actor] = left - allowed, now_s
        self._buckets.move_to_end(actor)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)  # unused for longest: most likely full again
        if not allowed:
            raise self._refusal((1.0 - left) / self._per_second)


def read_limits(per_second: float) -> Limits:
    """Those of reads."""
    told = f"this key may read {per_second:g} times per second: slow down, or raise SUTLER_READS_PER_SECOND"
    return Limits(per_second, most=per_second * BURST_S, told=told)


def change_limits(per_minute: int) -> Limits:
    """Those of changes that are asked for, whatever comes of them. After a pause they let through what the fixed
    minutes do by which changes are counted that are made: twice as many."""
    told = f"this key may ask for {per_minute} changes per minute, refused ones included: slow down, or raise "
    return Limits(per_minute / 60.0, most=2.0 * per_minute, told=f"{told}SUTLER_CHANGES_PER_MINUTE")


def project_limits(project: str, per_minute: int) -> Limits:
    """Those of all requests of a project's keys together."""

    def refusal(wait_s: float) -> RequestError:
        return QuotaUsedUpError.of(project, "most_requests_per_minute", per_minute, "slow down", retry_after_s=wait_s)

    return Limits(per_minute / 60.0, most=float(per_minute), refusal=refusal)
