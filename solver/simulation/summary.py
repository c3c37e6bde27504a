"""What a simulation comes to: rates, percentiles, goodput under the limits, and how busy each replica was.

Flow: outcome.py -> summarise (here) -> the service shows it.

A limit of a model holds for all requests that are under it, together; that of a single workload for its own.

Requests that arrive before `warm_up_s` are left out, since they find empty replicas; rates are of what finishes from
then to the last arrival, or, where all arrive at once, to the last end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.problem import LatencyLimit, LatencyMetric, ServedModel
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.requests import RequestKind

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
    """`within_fraction` of the requests is within the limit; a request that nobody served is not.

    `workload`: whose own limit it is; None: of all requests that it was asked of.
    """

    limit: LatencyLimit
    within_fraction: float
    at_percentile_s: float
    workload: str | None = None

    @property
    def is_met(self) -> bool:
        return self.within_fraction >= self.limit.percentile / 100.0 - 1e-12


@dataclass(frozen=True, slots=True)
class TrafficSummary:
    """What came of the requests of a model, or of one workload of it (`workload` None: all).

    `goodput_rps`: requests/s within all limits of their workload at once, of those that were counted. `limits`: of a
    model, its own over the requests that are under them, and those that single workloads have for themselves.
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
    outcome: Outcome, names: Sequence[str], models: Mapping[str, ServedModel], *, warm_up_s: float
) -> Summary:
    """`names`: of the replicas; `models`: whose limits count, by name."""
    requests = outcome.requests
    end_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
    if end_s <= warm_up_s and outcome.is_served.any():
        end_s = float(np.nanmax(outcome.finish_s))
    counted = requests.arrival_s >= warm_up_s
    kinds = requests.kinds
    limits = [_limits_of(models.get(kind.model), kind.workload) for kind in kinds]
    part = _Part(outcome, counted, _within(outcome, limits), warm_up_s, end_s)
    of_model: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        of_model.setdefault(kind.model, []).append(index)
    return Summary(
        warm_up_s=warm_up_s,
        end_s=end_s,
        models=tuple(
            part.summary(name, None, members, _limits_of_model(models.get(name), members, kinds, limits))
            for name, members in of_model.items()
        ),
        workloads=tuple(
            part.summary(kind.model, kind.workload, [index], [(limit, [index], None) for limit in limits[index]])
            for index, kind in enumerate(kinds)
        ),
        replicas=tuple(_replica(outcome, index, name, counted, warm_up_s) for index, name in enumerate(names)),
    )


Asked = tuple[LatencyLimit, Sequence[int], str | None]
"""A limit, the kinds of requests that it is asked of, and the workload that has it for itself."""


def _limits_of(model: ServedModel | None, workload: str) -> tuple[LatencyLimit, ...]:
    found = next((one for one in model.workloads if one.name == workload), None) if model else None
    return model.limits_of(found) if model and found else ()


def _limits_of_model(
    model: ServedModel | None,
    members: Sequence[int],
    kinds: Sequence[RequestKind],
    limits: Sequence[Sequence[LatencyLimit]],
) -> list[Asked]:
    """The model's limits over all that are under them, then those of single workloads."""
    shared = model.slo if model else ()
    together: list[Asked] = [(limit, [kind for kind in members if limit in limits[kind]], None) for limit in shared]
    own: list[Asked] = [
        (limit, [kind], kinds[kind].workload) for kind in members for limit in limits[kind] if limit not in shared
    ]
    return [asked for asked in (*together, *own) if asked[1]]


def _within(outcome: Outcome, limits: Sequence[Sequence[LatencyLimit]]) -> BoolArray:
    """Whether each request was served within all limits of its kind [num_requests]."""
    seconds, served = _seconds(outcome), outcome.is_served
    within = served.copy()
    for kind, own in enumerate(limits):
        mine = outcome.requests.kind == kind
        for limit in own:
            within[mine] &= _holds(seconds[limit.metric][mine], served[mine], limit)
    return within


def _seconds(outcome: Outcome) -> dict[LatencyMetric, FloatArray]:
    return {"ttft": outcome.ttft_s, "tpot": outcome.tpot_s, "e2e": outcome.e2e_s}


@dataclass(frozen=True, slots=True)
class _Part:
    """`within` [num_requests]: all limits."""

    outcome: Outcome
    counted: BoolArray
    within: BoolArray
    warm_up_s: float
    end_s: float

    def summary(
        self, model: str, workload: str | None, kinds: Sequence[int], limits: Sequence[Asked]
    ) -> TrafficSummary:
        outcome, requests = self.outcome, self.outcome.requests
        chosen = np.isin(requests.kind, kinds)
        mine = chosen & self.counted
        seconds = max(self.end_s - self.warm_up_s, 1e-9)
        ends = chosen & (outcome.finish_s >= self.warm_up_s) & (outcome.finish_s <= self.end_s)
        values = _seconds(outcome)
        return TrafficSummary(
            model=model,
            workload=workload,
            requests=int(mine.sum()),
            unserved=int((~outcome.is_served[mine]).sum()),
            offered_rps=float(mine.sum()) / seconds,
            throughput_rps=float(ends.sum()) / seconds,
            input_tokens_per_s=float(requests.input_tokens[ends].sum()) / seconds,
            output_tokens_per_s=float(requests.output_tokens[ends].sum()) / seconds,
            goodput_rps=float((self.within & mine).sum()) / seconds,
            latencies={metric: _latency(values[metric][mine]) for metric in METRICS},
            limits=tuple(self._result(*asked) for asked in limits),
        )

    def _result(self, limit: LatencyLimit, kinds: Sequence[int], workload: str | None) -> LimitResult:
        mine = np.isin(self.outcome.requests.kind, kinds) & self.counted
        seconds = _seconds(self.outcome)[limit.metric][mine]
        return _result(seconds, self.outcome.is_served[mine], limit, workload)


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
    asked_of_group: Sequence[Sequence[tuple[LatencyLimit, Sequence[int]]]],
    *,
    warm_up_s: float,
) -> tuple[tuple[LimitResult, ...], ...]:
    """Returns by group of replicas how what it served did under each limit, over the kinds of requests given with it;
    a group without such requests meets all.

    A request is of the group that prefills it and of the one that decodes it.
    """
    counted = outcome.requests.arrival_s >= warm_up_s
    groups = np.append(np.asarray(group_of_replica, dtype=np.int64), -1)  # -1: of none
    prefill, decode = groups[outcome.replica], groups[outcome.decode]
    seconds, served = _seconds(outcome), outcome.is_served
    found = []
    for index, asked in enumerate(asked_of_group):
        of_group = counted & ((prefill == index) | (decode == index))
        results = []
        for limit, kinds in asked:
            mine = of_group & np.isin(outcome.requests.kind, kinds)
            results.append(_result(seconds[limit.metric][mine], served[mine], limit))
        found.append(tuple(results))
    return tuple(found)


def _result(seconds: FloatArray, served: BoolArray, limit: LatencyLimit, workload: str | None = None) -> LimitResult:
    holds = _holds(seconds, served, limit)
    within_fraction = float(holds.mean()) if len(holds) else 1.0
    return LimitResult(limit, within_fraction, _latency(seconds).at(limit.percentile), workload)


def _holds(seconds: FloatArray, served: BoolArray, limit: LatencyLimit) -> BoolArray:
    """A single token has no TPOT and misses none."""
    return np.asarray(served & ~(seconds > limit.seconds))
