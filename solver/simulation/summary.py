"""What a simulation comes to: rates, percentiles, goodput under the limits, and how busy each replica was.

Flow: outcome.py -> summarise (here) -> the service shows it.

Requests that arrive before `warm_up_s` are left out, since they find empty replicas; rates are of what finishes from
then to the last arrival, or, where all arrive at once, to the last end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.problem import LatencyLimit, LatencyMetric
from solver.simulation.outcome import Outcome
from solver.throughput.base import BoolArray, FloatArray

PERCENTILES: Final = (10, 25, 50, 75, 90, 95, 99, 100)
METRICS: Final[tuple[LatencyMetric, ...]] = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds over the requests that have it; `percentiles` in the order of PERCENTILES. NaN where none has."""

    mean_s: float
    percentiles: tuple[float, ...]

    def at(self, percentile: int) -> float:
        return self.percentiles[PERCENTILES.index(percentile)]


@dataclass(frozen=True, slots=True)
class LimitResult:
    """`within_fraction` of the requests is within the limit; a request that nobody served is not."""

    limit: LatencyLimit
    within_fraction: float
    at_percentile_s: float

    @property
    def is_met(self) -> bool:
        return self.within_fraction >= self.limit.percentile / 100.0 - 1e-12


@dataclass(frozen=True, slots=True)
class TrafficSummary:
    """Of a model, or of one workload of it (`workload` None: all).

    `goodput_rps`: requests/s within all limits of their model at once, of those that were counted.
    """

    model: str
    workload: str | None
    requests: int
    unserved: int
    offered_rps: float
    throughput_rps: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    goodput_rps: float
    latencies: Mapping[LatencyMetric, Latency]
    limits: tuple[LimitResult, ...]


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """Means over time, empty times included, from the warm-up on."""

    name: str
    requests: int
    busy_fraction: float
    running: float
    waiting: float
    most_waiting: float
    cache_fraction: float
    most_cache_fraction: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Summary:
    """`models`: each as a whole; `workloads`: in the order of the requests' kinds."""

    warm_up_s: float
    end_s: float
    models: tuple[TrafficSummary, ...]
    workloads: tuple[TrafficSummary, ...]
    replicas: tuple[ReplicaSummary, ...]

    @property
    def meets_all_limits(self) -> bool:
        return all(result.is_met for model in self.models for result in model.limits)


def summarise(
    outcome: Outcome, names: Sequence[str], limits: Mapping[str, Sequence[LatencyLimit]], *, warm_up_s: float
) -> Summary:
    """`names`: of the replicas; `limits`: by model."""
    requests = outcome.requests
    end_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
    if end_s <= warm_up_s and outcome.is_served.any():
        end_s = float(np.nanmax(outcome.finish_s))
    counted = requests.arrival_s >= warm_up_s
    kinds = requests.kinds
    models = tuple(dict.fromkeys(kind.model for kind in kinds))
    part = _Part(outcome, counted, warm_up_s, end_s)
    of_model = {name: np.isin(requests.kind, [i for i, k in enumerate(kinds) if k.model == name]) for name in models}
    return Summary(
        warm_up_s=warm_up_s,
        end_s=end_s,
        models=tuple(part.summary(name, None, of_model[name], limits.get(name, ())) for name in models),
        workloads=tuple(
            part.summary(kind.model, kind.workload, requests.kind == index, limits.get(kind.model, ()))
            for index, kind in enumerate(kinds)
        ),
        replicas=tuple(_replica(outcome, index, name, counted, warm_up_s) for index, name in enumerate(names)),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    outcome: Outcome
    counted: BoolArray
    warm_up_s: float
    end_s: float

    def summary(
        self, model: str, workload: str | None, chosen: BoolArray, limits: Sequence[LatencyLimit]
    ) -> TrafficSummary:
        outcome, requests = self.outcome, self.outcome.requests
        mine = chosen & self.counted
        seconds = max(self.end_s - self.warm_up_s, 1e-9)
        ends = chosen & (outcome.finish_s >= self.warm_up_s) & (outcome.finish_s <= self.end_s)
        values = {"ttft": outcome.ttft_s[mine], "tpot": outcome.tpot_s[mine], "e2e": outcome.e2e_s[mine]}
        served = outcome.is_served[mine]
        within = served.copy()
        for limit in limits:
            within &= _holds(values[limit.metric], served, limit)
        return TrafficSummary(
            model=model,
            workload=workload,
            requests=int(mine.sum()),
            unserved=int((~served).sum()),
            offered_rps=float(mine.sum()) / seconds,
            throughput_rps=float(ends.sum()) / seconds,
            input_tokens_per_s=float(requests.input_tokens[ends].sum()) / seconds,
            output_tokens_per_s=float(requests.output_tokens[ends].sum()) / seconds,
            goodput_rps=float(within.sum()) / seconds,
            latencies={metric: _latency(values[metric]) for metric in METRICS},
            limits=tuple(_result(values[limit.metric], served, limit) for limit in limits),
        )


def _latency(seconds: FloatArray) -> Latency:
    known = seconds[np.isfinite(seconds)]
    if not len(known):
        return Latency(float("nan"), (float("nan"),) * len(PERCENTILES))
    return Latency(float(known.mean()), tuple(np.percentile(known, PERCENTILES).tolist()))


def _replica(outcome: Outcome, index: int, name: str, counted: BoolArray, warm_up_s: float) -> ReplicaSummary:
    timeline = outcome.timelines[index]
    first = min(int(warm_up_s / timeline.span_s), len(timeline.running) - 1)
    return ReplicaSummary(
        name=name,
        requests=int((counted & ((outcome.replica == index) | (outcome.decode == index))).sum()),
        busy_fraction=float(timeline.busy_fraction[first:].mean()),
        running=float(timeline.running[first:].mean()),
        waiting=float(timeline.waiting[first:].mean()),
        most_waiting=float(timeline.waiting[first:].max()),
        cache_fraction=float(timeline.cache_fraction[first:].mean()),
        most_cache_fraction=float(timeline.cache_fraction[first:].max()),
        preemptions=int(outcome.preemptions[index]),
    )


def group_results(
    outcome: Outcome,
    group_of_replica: Sequence[int],
    limits_of_group: Sequence[Sequence[LatencyLimit]],
    *,
    warm_up_s: float,
) -> tuple[tuple[LimitResult, ...], ...]:
    """By group of replicas, how its own requests did under its limits; a group without requests meets all.

    A request is of the group that prefills it and of the one that decodes it.
    """
    counted = outcome.requests.arrival_s >= warm_up_s
    groups = np.append(np.asarray(group_of_replica, dtype=np.int64), -1)  # -1: of none
    prefill, decode = groups[outcome.replica], groups[outcome.decode]
    seconds = {"ttft": outcome.ttft_s, "tpot": outcome.tpot_s, "e2e": outcome.e2e_s}
    found = []
    for index, limits in enumerate(limits_of_group):
        mine = counted & ((prefill == index) | (decode == index))
        found.append(tuple(_result(seconds[limit.metric][mine], outcome.is_served[mine], limit) for limit in limits))
    return tuple(found)


def _result(seconds: FloatArray, served: BoolArray, limit: LatencyLimit) -> LimitResult:
    holds = _holds(seconds, served, limit)
    return LimitResult(limit, float(holds.mean()) if len(holds) else 1.0, _latency(seconds).at(limit.percentile))


def _holds(seconds: FloatArray, served: BoolArray, limit: LatencyLimit) -> BoolArray:
    """A single token has no TPOT and misses none."""
    return np.asarray(served & ~(seconds > limit.seconds))
