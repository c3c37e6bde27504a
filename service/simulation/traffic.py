"""The requests that a plan is tried on: a recorded trace, or arrivals at random at the plan's own rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.traces import RequestTrace
from sutler.solver.simulation.requests import RequestKind, Requests, joined, poisson, requests_of, sampled

DEFAULT_DURATION_S: Final = 600.0  # chosen: ten minutes show what the queues of usual rates grow to
MOST_REQUESTS: Final = 5_000_000  # chosen: each is held with all its times, so this bounds memory


@dataclass(frozen=True, slots=True)
class TraceTraffic:
    """Recorded requests by model, as they came; `at_rated_load`: faster or slower, at the plan's own mean rate."""

    traces: Mapping[str, RequestTrace]
    at_rated_load: bool = False
    load_multiple: float = 1.0


@dataclass(frozen=True, slots=True)
class PoissonTraffic:
    """Poisson arrivals at the plan's rates; `lengths`: by model, recorded requests to draw lengths from."""

    duration_s: float = DEFAULT_DURATION_S
    load_multiple: float = 1.0
    seed: int = 0
    lengths: Mapping[str, RequestTrace] | None = None


def traffic_of(models: Sequence[str], traces: Mapping[str, RequestTrace]) -> TraceTraffic | PoissonTraffic:
    """What to try a plan on: what was recorded, at the plan's rate, where all models have it; else random arrivals,
    with recorded lengths where there are any."""
    if traces and all(model in traces for model in models):
        return TraceTraffic(traces, at_rated_load=True)
    return PoissonTraffic(lengths=traces)


def kinds_of(plan: PlanDocument) -> tuple[RequestKind, ...]:
    """The plan's workloads, at the rates that it routes; what decodes gets no requests but others' own."""
    routed: dict[tuple[str, str], float] = {}
    for replica in (one for one in plan.replicas if one.role != "decode"):
        for workload, rps in replica.throughput_rps.items():
            routed[replica.model, workload] = routed.get((replica.model, workload), 0.0) + rps
    return tuple(
        RequestKind(
            model.name,
            w.name,
            w.input_tokens,
            w.output_tokens,
            routed.get((model.name, w.name), 0.0),
            model.prefix_cache_hit_fraction if w.prefix_cache_hit_fraction is None else w.prefix_cache_hit_fraction,
        )
        for model in plan.models
        for w in model.workloads
    )


def requests_for(plan: PlanDocument, traffic: TraceTraffic | PoissonTraffic) -> Requests:
    """The requests in order of arrival. Raises DocumentError where the traffic does not go with the plan."""
    kinds = kinds_of(plan)
    requests = _replayed(kinds, traffic) if isinstance(traffic, TraceTraffic) else _arriving(kinds, traffic)
    if not len(requests):
        raise DocumentError.of("duration_s", "no request falls into it: simulate for longer", value=0)
    return requests


def _replayed(kinds: Sequence[RequestKind], traffic: TraceTraffic) -> Requests:
    _check_models(kinds, traffic.traces, "trace")
    parts = []
    for model, trace in traffic.traces.items():
        faster = traffic.load_multiple
        if traffic.at_rated_load:
            faster *= _rate_rps(kinds, model) * max(trace.duration_s, 1e-9) / len(trace.arrival_s)
        parts.append(requests_of(kinds, model, trace.arrival_s / faster, trace.input_tokens, trace.output_tokens))
    return joined(parts)


def _arriving(kinds: Sequence[RequestKind], traffic: PoissonTraffic) -> Requests:
    expected = sum(kind.rate_rps for kind in kinds) * traffic.load_multiple * traffic.duration_s
    if expected > MOST_REQUESTS:
        remedy = f"would be {expected:.3g} requests: simulate at most {MOST_REQUESTS:,}"
        raise DocumentError.of("duration_s", remedy, value=traffic.duration_s)
    lengths = traffic.lengths or {}
    _check_models(kinds, lengths, "lengths")
    of_workloads = [kind if kind.model not in lengths else replace(kind, rate_rps=0.0) for kind in kinds]
    duration_s, seed, multiple = traffic.duration_s, traffic.seed, traffic.load_multiple
    parts = [poisson(of_workloads, duration_s=duration_s, seed=seed, load_multiple=multiple)]
    for own_seed, (model, recorded) in enumerate(lengths.items(), start=seed + 1):
        rate_rps = _rate_rps(kinds, model) * multiple
        tokens = (recorded.input_tokens, recorded.output_tokens)
        parts.append(sampled(kinds, model, *tokens, rate_rps=rate_rps, duration_s=duration_s, seed=own_seed))
    return replace(joined(parts), kinds=tuple(kinds))


def _rate_rps(kinds: Sequence[RequestKind], model: str) -> float:
    return sum(kind.rate_rps for kind in kinds if kind.model == model)


def _check_models(kinds: Sequence[RequestKind], given: Mapping[str, object], field: str) -> None:
    known = list(dict.fromkeys(kind.model for kind in kinds))
    for model in given:
        if model not in known:
            raise DocumentError.of(field, f"the plan serves {', '.join(known)}: name one of them", value=model)
