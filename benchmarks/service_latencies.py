"""Percentiles of what was measured; every one is a value that was measured, never one between two."""

from collections.abc import Sequence
from math import ceil
from typing import TypedDict


class Latencies(TypedDict):
    """Milliseconds, of `count` answers."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


def latencies_of(seconds: Sequence[float]) -> Latencies:
    """Raises ValueError without any: nothing measured is no good news."""
    if not seconds:
        raise ValueError("no latency was measured: look at the errors")
    ordered = sorted(seconds)
    p50, p90, p99 = (1e3 * percentile(ordered, fraction) for fraction in (0.5, 0.9, 0.99))
    return Latencies(count=len(ordered), p50_ms=p50, p90_ms=p90, p99_ms=p99, max_ms=1e3 * ordered[-1])


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of all does not exceed (nearest rank)."""
    return ordered[max(0, ceil(fraction * len(ordered)) - 1)]
