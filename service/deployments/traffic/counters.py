"""What an engine has counted since it began, and what came between two readings of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sutler.service.deployments.traffic.histograms import Histogram

CLOCKS_DIFFER_S: Final = 120.0  # an engine's clock by that much from ours
KEPT: Final = "_kept_fraction"
QUANTILES: Final = {"p50": 0.5, "p90": 0.9}


WARM_S: Final = 300.0  # chosen: a new engine compiles, captures graphs and fills its caches for minutes
LEAST_IN_FLIGHT: Final = 0.5  # chosen: below, most steps are of an engine that waits


class AnotherEngineError(ValueError):
    """An address that leads to one engine and then to another: their counts are of no use."""


@dataclass(frozen=True, slots=True)
class Total:
    """So many values, and their sum."""

    count: float
    total: float

    def since(self, before: "Total | None") -> "Total | None":
        """What came since; None where it was not counted before, or has begun anew."""
        if before is None or self.count < before.count or self.total < before.total:
            return None
        return Total(self.count - before.count, self.total - before.total)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Operating:
    """How an engine fared between two readings: `requests` finished, whose mean time in it was `residence_s`, their
    wait for a place left out; by Little's law `in_flight` were in it on average. `cached_fraction`: what of their
    prompts was in the prefix cache."""

    requests: float
    residence_s: float
    in_flight: float
    cached_fraction: float


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine has counted so far; `began_s`: when the counting began, by the engine's clock, if it says so.

    `e2e` and `queue`: seconds of the finished requests from their arrival, and of their waits for a place. `waiting`:
    requests that wait now. `cache_asked` and `cache_found`: tokens of prompts that were sought in the prefix cache,
    and found. `served`: how many models the counts are of.
    """

    prompt: Histogram
    generation: Histogram
    finished: float | None = None
    ttft: Histogram | None = None
    tpot: Histogram | None = None
    began_s: float | None = None
    e2e: Total | None = None
    queue: Total | None = None
    waiting: float | None = None
    cache_asked: float | None = None
    cache_found: float | None = None
    served: int = 1

    @property
    def requests(self) -> float:
        return self.prompt.count if self.finished is None else self.finished

    def latencies(self, limits: Mapping[str, float] | None = None) -> dict[str, float]:
        """The quantiles of the latencies that were counted at all, in seconds; and of each limit (`ttft_p90_s`, in
        seconds) the share of the requests that kept it: `ttft_p90_s_kept_fraction`."""
        counted = {name: one for name, one in (("ttft", self.ttft), ("tpot", self.tpot)) if one is not None}
        found = {
            f"{name}_{quantile}_s": histogram.quantile(fraction)
            for name, histogram in counted.items()
            for quantile, fraction in QUANTILES.items()
        }
        for limit, limit_s in (limits or {}).items():
            histogram = counted.get(limit.partition("_")[0])
            if histogram is not None:
                found[f"{limit}{KEPT}"] = histogram.fraction_within(limit_s)
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine said last, and when it was last asked in vain after that."""

    at: datetime
    counters: Counters
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Increase:
    """What came between two instants."""

    started_at: datetime
    ended_at: datetime
    counters: Counters
    is_from_start: bool = False

    def operating(self) -> Operating | None:
        """How the engine fared; None where that says nothing of how fast it is: it began anew or is still warming up,
        is all but idle, serves several models, or does not say how long requests waited for a place."""
        counters, seconds = self.counters, (self.ended_at - self.started_at).total_seconds()
        is_warm = counters.began_s is None or self.started_at >= _instant(counters.began_s + WARM_S)
        if self.is_from_start or not is_warm or counters.served > 1 or counters.e2e is None:
            return None
        if counters.queue is None and counters.waiting != 0:
            return None
        waited_s = 0.0 if counters.queue is None else counters.queue.mean
        residence_s, requests = counters.e2e.mean - waited_s, counters.e2e.count
        in_flight = requests * residence_s / seconds
        if not in_flight >= LEAST_IN_FLIGHT:
            return None
        asked, hit = counters.cache_asked or 0.0, counters.cache_found or 0.0
        return Operating(requests, residence_s, in_flight, min(hit / asked, 1.0) if asked > 0 else 0.0)


def increase(before: Reading | None, at: datetime, after: Counters, *, longest: timedelta) -> Increase | None:
    """What came since the reading before; None where nothing can be said: the next one will tell.

    An engine that began anew has counted from zero: all of it is new. It was not running when it was last asked in
    vain, so it is counted from then. Raises AnotherEngineError for one that counts differently without having begun
    anew.
    """
    if before is None or not before.at < at <= before.at + longest:
        return None
    if not _began_anew(before.counters, after):
        return Increase(before.at, at, _difference(before.counters, after))
    if after.began_s is not None and _instant(after.began_s) < before.at - timedelta(seconds=CLOCKS_DIFFER_S):
        raise AnotherEngineError
    started_at = before.at if before.failed_at is None else max(before.at, before.failed_at)
    return Increase(started_at, at, after, is_from_start=True) if started_at < at else None


def _began_anew(before: Counters, after: Counters) -> bool:
    if None not in (before.began_s, after.began_s) and before.began_s != after.began_s:
        return True
    if before.finished is not None and after.finished is not None and after.finished < before.finished:
        return True
    pairs = ((after.prompt, before.prompt), (after.generation, before.generation))
    return any(now.has_less_than(then) for now, then in pairs)


def _difference(before: Counters, after: Counters) -> Counters:
    finished = None
    if before.finished is not None and after.finished is not None:
        finished = after.finished - before.finished
    return Counters(
        after.prompt.since(before.prompt),
        after.generation.since(before.generation),
        finished,
        _since(before.ttft, after.ttft),
        _since(before.tpot, after.tpot),
        began_s=after.began_s,
        e2e=None if after.e2e is None else after.e2e.since(before.e2e),
        queue=None if after.queue is None else after.queue.since(before.queue),
        waiting=after.waiting,
        cache_asked=_more(before.cache_asked, after.cache_asked),
        cache_found=_more(before.cache_found, after.cache_found),
        served=after.served,
    )


def _since(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """What came since; None where it is another histogram than before."""
    if before is None or after is None or after.has_less_than(before):
        return None
    return after.since(before)


def _more(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _instant(at_s: float) -> datetime:
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=UTC)
