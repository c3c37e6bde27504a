"""How often a key may read: a token bucket per key in this process. Changes are counted in the database."""

from collections import OrderedDict
from typing import Final

from sutler.service.web.errors import TooManyRequestsError

BURST_S: Final = 2.0  # chosen: a page that loads several lists at once is no flood
MOST_BUCKETS: Final = 10_000  # chosen: as many keys as the authenticator remembers


class ReadLimits:
    """`per_second` reads for every actor, and a burst of twice that after a pause."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_S)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, actor: str, *, now_s: float) -> None:
        """Counts one read; `now_s` is a monotonic clock's. Raises TooManyRequestsError."""
        left, at_s = self._buckets.get(actor, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_second)
        allowed = left >= 1.0
        self._buckets[actor] = left - allowed, now_s
        self._buckets.move_to_end(actor)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)  # unused for longest: most likely full again
        if not allowed:
            raise TooManyRequestsError(
                f"this key may read {self._per_second:g} times per second: slow down, or raise "
                "SUTLER_READS_PER_SECOND",
                retry_after_s=(1.0 - left) / self._per_second,
            )
