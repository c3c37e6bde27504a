"""Amounts that change in steps: added up, sampled, and paid over time. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Spell:
    """An amount in USD per hour from one instant to another; `ended_at` None: it still holds."""

    began_at: datetime
    ended_at: datetime | None
    usd_per_hour: float


def spells(changes: Sequence[tuple[datetime, float | None]], ended_at: datetime | None = None) -> list[Spell]:
    """Each amount holds until the next; None: there is none meanwhile.

    `changes` by time, `ended_at` is when there was no more of it."""
    ends = [*(at for at, _ in changes[1:]), ended_at]
    each = ((at, end, usd) for (at, usd), end in zip(changes, ends, strict=False) if end is None or at < end)
    return [Spell(at, end, usd) for at, end, usd in each if usd is not None]


class Sum:
    """All spells together, as a step function."""

    def __init__(self, every: Iterable[Spell]) -> None:
        changes: dict[datetime, tuple[float, int]] = {}
        for one in every:
            usd, count = changes.get(one.began_at, (0.0, 0))
            changes[one.began_at] = usd + one.usd_per_hour, count + 1
            if one.ended_at is not None:
                usd, count = changes.get(one.ended_at, (0.0, 0))
                changes[one.ended_at] = usd - one.usd_per_hour, count - 1
        self._at = sorted(changes)
        self._levels = [(0.0, 0)]
        for at in self._at:
            count = self._levels[-1][1] + changes[at][1]
            usd = self._levels[-1][0] + changes[at][0]
            self._levels.append((usd if count else 0.0, count))  # what rounding leaves of nothing is nothing

    def at(self, instant: datetime) -> tuple[float, int]:
        """USD per hour then, and how many spells that is."""
        return self._levels[bisect_right(self._at, instant)]

    def usd(self, since: datetime, until: datetime) -> float:
        """USD from one instant to another."""
        edges = [since, *(at for at in self._at if since < at < until), until]
        return sum(self.at(begin)[0] * (end - begin).total_seconds() / 3600 for begin, end in pairwise(edges))


def instants(since: datetime, until: datetime, points: int) -> list[datetime]:
    """So many, two at least, at equal distances, both ends included."""
    whole: timedelta = until - since
    return [since + whole * i / (points - 1) for i in range(points)]
