"""Histograms as Prometheus counts them: read, subtracted, scaled, and asked for quantiles. Pure.

https://prometheus.io/docs/concepts/metric_types/#histogram
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, isfinite
from typing import Final

# Chosen: several times those of any engine; what is counted in them is fitted in their square
MOST_BOUNDS: Final = 300
MOST_COUNTED: Final = 1e15  # of which a double still knows every unit


class NotAHistogramError(ValueError):
    """Counts that no histogram has."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts` are of the bins that end at each of `bounds`, and of one beyond the last; `total` is of the values."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return sum(self.counts)

    def has_less_than(self, before: "Histogram") -> bool:
        """Whether this is no continuation of what was counted before."""
        if self.bounds != before.bounds or self.total < before.total:
            return True
        return any(now < then for now, then in zip(self.counts, before.counts, strict=True))

    def since(self, before: "Histogram") -> "Histogram":
        """What came since, where nothing is less than before."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Histogram(self.bounds, counts, self.total - before.total)

    def times(self, factor: float) -> "Histogram":
        return Histogram(self.bounds, tuple(count * factor for count in self.counts), self.total * factor)

    def quantile(self, fraction: float) -> float | None:
        """Interpolates linearly within a bin; beyond the last bound, that bound. None: nothing was counted."""
        if self.count <= 0 or not self.bounds:
            return None
        wanted = fraction * self.count
        reached = list(accumulate(self.counts))
        place = min(bisect_left(reached, wanted), len(self.counts) - 1)
        if place == len(self.bounds):
            return self.bounds[-1]
        low, high = (self.bounds[place - 1] if place else 0.0), self.bounds[place]
        inside = self.counts[place]
        return low + (high - low) * (wanted - (reached[place] - inside)) / inside if inside > 0 else high

    def fraction_within(self, value: float) -> float | None:
        """Of what was counted, the share that is at most this; within the bounds the inverse of `quantile`."""
        if self.count <= 0 or not self.bounds:
            return None
        place = bisect_left(self.bounds, value)
        below = sum(self.counts[:place])
        if place == len(self.bounds):
            return below / self.count
        low, high = (self.bounds[place - 1] if place else 0.0), self.bounds[place]
        inside = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0
        return (below + self.counts[place] * inside) / self.count


def histogram_of(cumulative: Mapping[float, float], total: float, *, tolerance_fraction: float = 0.0) -> Histogram:
    """Makes one from counts by upper bound (`le`), one of which is infinite.

    `tolerance_fraction`: by how much of all a count may be below the one before, as extrapolated ones are. Raises
    NotAHistogramError.
    """
    bounds = sorted(cumulative)
    if not bounds or bounds[-1] != inf:
        raise NotAHistogramError("has no bucket with le=+Inf")
    if len(bounds) > MOST_BOUNDS:
        raise NotAHistogramError(f"has more than {MOST_BOUNDS} buckets")
    counted = [cumulative[bound] for bound in bounds]
    if not all(isfinite(bound) for bound in bounds[:-1]):
        raise NotAHistogramError("has buckets whose bounds are no numbers")
    if not all(0 <= value <= MOST_COUNTED for value in (*counted, total)):
        raise NotAHistogramError("has counts that cannot be")
    slack = tolerance_fraction * max(counted)
    if any(after < before - slack for before, after in pairwise(counted)):
        raise NotAHistogramError("has buckets that count less than smaller ones")
    rising = list(accumulate(counted, max))
    counts = tuple(after - before for before, after in pairwise([0.0, *rising]))
    return Histogram(tuple(bounds[:-1]), counts, total)


def summed(parts: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """Sums cumulative counts by upper bound, on the bounds that all have: there the sums are exact."""
    shared = set(parts[0]).intersection(*parts[1:]) if parts else set()
    return {bound: sum(part[bound] for part in parts) for bound in shared}


def first(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """The first that has counted anything."""
    return next((found for found in histograms if found is not None and found.count > 0), None)
