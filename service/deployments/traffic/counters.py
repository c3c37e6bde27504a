"""What an engine has counted since it began, and what came between two readings of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sutler.service.deployments.traffic.histograms import Histogram

CLOCKS_DIFFER_S: Final = 120.0  # an engine's clock by that much from ours
KEPT: Final = "_kept_fraction"
QUANTILES: Final = {"p50": 0.5, "p90": 0.9}


class AnotherEngineError(ValueError):
    """An address that leads to one engine and then to another: their counts are of no use."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine has counted so far; `began_s`: when the counting began, by the engine's clock, if it says so."""

    prompt: Histogram
    generation: Histogram
    finished: float | None = None
    ttft: Histogram | None = None
    tpot: Histogram | None = None
    began_s: float | None = None

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
    return Increase(started_at, at, after) if started_at < at else None


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
    )


def _since(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """What came since; None where it is another histogram than before."""
    if before is None or after is None or after.has_less_than(before):
        return None
    return after.since(before)


def _instant(at_s: float) -> datetime:
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=UTC)
