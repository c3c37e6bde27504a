"""The requests that a plan is tried on: a recorded trace, or arrivals at random at the plan's own rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.traces import RequestTrace
from sutler.solver.simulation import Kind, Requests, joined, poisson, requests_of, sampled

DEFAULT_DURATION_S: Final = 600.0
MOST_REQUESTS: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """Recorded requests by model, as they came; `at_rated_load`: faster or slower, at the plan's own mean rate."""

    traces: Mapping[str, RequestTrace]
    at_rated_load: bool = False
    load_multiple: float = 1.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Poisson arrivals at the plan's rates; `lengths`: by model, recorded requests to draw lengths from."""

    duration_s: float = DEFAULT_DURATION_S
    load_multiple: float = 1.0
    seed: int = 0
    lengths: Mapping[str, RequestTrace] | None = None


def traffic_of(models: Sequence[str], traces: Mapping[str, RequestTrace]) -> Replayed | Drawn:
    """What to try a plan on: what was recorded, at the plan's rate, where all models have it; else random arrivals,
    with recorded lengths where there are any."""
    if traces and all(model in traces for model in models):
        return Replayed(traces, at_rated_load=True)
    return Drawn(lengths=traces)


def kinds_of(plan: PlanDocument) -> tuple[Kind, ...]:
    """The plan's workloads, at the rates that it routes; what decodes gets no requests but others' own."""
    routed: dict[tuple[str, str], float] = {}
    for replica in (one for one in plan.replicas if one.role != "decode"):
        for workload, rps in replica.throughput_rps.items():
            routed[replica.model, workload] = routed.get((replica.model, workload), 0.0) + rps
    return tuple(
        Kind(model.name, w.name, w.input_tokens, w.output_tokens, routed.get((model.name, w.name), 0.0))
        for model in plan.models
        for w in model.workloads
    )


def requests_for(plan: PlanDocument, traffic: Replayed | Drawn) -> Requests:
    """In order of arrival. Raises DocumentError where the traffic does not go with the plan."""
    kinds = kinds_of(plan)
    requests = _replayed(kinds, traffic) if isinstance(traffic, Replayed) else _drawn(kinds, traffic)
    if not len(requests):
        raise DocumentError.of("duration_s", "no request falls into it: simulate for longer", value=0)
    return requests


def _replayed(kinds: Sequence[Kind], traffic: Replayed) -> Requests:
    _check_models(kinds, traffic.traces, "trace")
    parts = []
    for model, trace in traffic.traces.items():
        faster = traffic.load_multiple
        if traffic.at_rated_load:
            rated_rps = sum(kind.rate_rps for kind in kinds if kind.model == model)
            faster *= rated_rps * max(trace.duration_s, 1e-9) / len(trace.arrival_s)
        parts.append(requests_of(kinds, model, trace.arrival_s / faster, trace.input_tokens, trace.output_tokens))
    return joined(parts)


def _drawn(kinds: Sequence[Kind], traffic: Drawn) -> Requests:
    expected = sum(kind.rate_rps for kind in kinds) * traffic.load_multiple * traffic.duration_s
    if expected > MOST_REQUESTS:
        remedy = f"would be {expected:.3g} requests: simulate at most {MOST_REQUESTS:,}"
        raise DocumentError.of("duration_s", remedy, value=traffic.duration_s)
    lengths = traffic.lengths or {}
    _check_models(kinds, lengths, "lengths")
    of_workloads = [kind if kind.model not in lengths else replace(kind, rate_rps=0.0) for kind in kinds]
    parts = [
        poisson(of_workloads, duration_s=traffic.duration_s, seed=traffic.seed, load_multiple=traffic.load_multiple)
    ]
    for number, (model, recorded) in enumerate(lengths.items(), start=1):
        rate_rps = sum(kind.rate_rps for kind in kinds if kind.model == model) * traffic.load_multiple
        parts.append(
            sampled(
                kinds,
                model,
                recorded.input_tokens,
                recorded.output_tokens,
                rate_rps=rate_rps,
                duration_s=traffic.duration_s,
                seed=traffic.seed + number,
            )
        )
    return replace(joined(parts), kinds=tuple(kinds))


def _check_models(kinds: Sequence[Kind], given: Mapping[str, object], field: str) -> None:
    known = list(dict.fromkeys(kind.model for kind in kinds))
    for model in given:
        if model not in known:
            raise DocumentError.of(field, f"the plan serves {', '.join(known)}: name one of them", value=model)
