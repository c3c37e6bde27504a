"""A plan document through the simulator, and its result as a document."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from typing import Any, Final

import numpy as np

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import finite
from sutler.service.documents.plan import PlanDocument, ReplicaDocument
from sutler.service.simulation.losing import Losing, Lost, lost
from sutler.service.simulation.schemas import (
    LatencyResource,
    LimitResource,
    SimulatedLossResource,
    SimulatedReplicaResource,
    SimulationResource,
    TrafficResource,
)
from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic, requests_for
from sutler.service.translation.to_plan import gpus_of, roofline_of, served_models, solver_plan
from sutler.solver.answer.engine_args import bends
from sutler.solver.arrays import FloatArray
from sutler.solver.catalog.entries import Precision
from sutler.solver.plan import Evidence
from sutler.solver.problem import Derating, MeasuredStage, Role, ServedModel
from sutler.solver.simulation.bending import RolePolicy
from sutler.solver.simulation.engine import Scheduling
from sutler.solver.simulation.fleet import KvRoute, Rerouting, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.replicas import lengths_of, simulated_replicas
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.routing import RoutingPolicy
from sutler.solver.simulation.step_times import Lengths
from sutler.solver.simulation.summary import (
    PERCENTILES,
    Latency,
    LimitResult,
    ReplicaSummary,
    Summary,
    TrafficSummary,
    summarise,
)

# Chosen: a replica that starts empty is full after some requests; what is left out of a long trace is bounded.
WARM_UP_FRACTION: Final = 0.1
MOST_WARM_UP_S: Final = 300.0

Configuration = tuple[str, Role, tuple[tuple[str, int], ...], int, Precision | None]
"""(model, role, stages as (GPU, tensor-parallel degree), data_parallel, precision)."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a plan is replayed. `warm_up_s` None: a tenth of the time, at most five minutes."""

    routing: RoutingPolicy = "round_robin"
    scheduling: Scheduling = "chunked"
    max_batched_tokens: int = 2048
    seed: int = 0
    warm_up_s: float | None = None
    losing: Losing | None = None
    roles: RolePolicy = "fixed"


@dataclass(frozen=True, slots=True)
class Simulated:
    """The document, and what it was made of, for figures."""

    resource: SimulationResource
    outcome: Outcome
    summary: Summary


def simulated(
    plan: PlanDocument,
    traffic: TraceTraffic | PoissonTraffic,
    choices: Choices,
    *,
    share: float = 1.0,
    derated: Sequence[Derating] | None = None,
) -> Simulated:
    """Replays a plan on its traffic, or on a `share` of the requests, taken at random.

    `derated`: what the plan's rates were derated by, where its `validation` does not say it yet.

    Raises DocumentError and InvalidProblemError where the plan cannot be simulated or has nothing to run.
    """
    started = time.monotonic()
    if not plan.replicas:
        raise DocumentError.of("replicas", f"{plan.in_words} runs nothing to simulate", value=())
    models, requests = served_models(plan), requests_for(plan, traffic)
    if share < 1:
        requests = requests.thinned(share, seed=choices.seed)
    described = solver_plan(plan)
    either_phase = {r.id for r in plan.replicas if bends(r.role, r.engine, r.engine_args)}
    if choices.roles != "fixed" and not either_phase:
        remedy = "needs prefill and decode replicas on vLLM, started as the plan says: this plan has none"
        raise DocumentError.of("roles", remedy, value=choices.roles)
    loss = None if choices.losing is None else lost(plan, choices.losing)
    replicas = simulated_replicas(
        described.replicas,
        models=models,
        gpus=gpus_of(plan),
        evidence=_evidence(plan, derated),
        lengths={name: _lengths(requests, name, models) for name in models},
        scheduling=choices.scheduling,
        max_batched_tokens=choices.max_batched_tokens,
        roofline=roofline_of(plan),
        either_phase=either_phase,
    )
    outcome = simulate(
        replicas,
        fractions_of(plan, requests),
        requests,
        kv_routes=kv_routes_of(plan, requests),
        routing=choices.routing,
        roles=choices.roles,
        seed=choices.seed,
        reroutings=() if loss is None else (_after(plan, loss, requests),),
        ends_s={} if loss is None else _ends_s(plan, loss),
    )
    end_s = float(requests.arrival_s[-1])
    warm_up_s = min(WARM_UP_FRACTION * end_s, MOST_WARM_UP_S) if choices.warm_up_s is None else choices.warm_up_s
    if warm_up_s >= end_s > 0:
        raise DocumentError.of("warm_up_s", f"the last request arrives at {end_s:.4g} s: use less", value=warm_up_s)
    summary = summarise(outcome, [replica.name for replica in replicas], models, warm_up_s=warm_up_s)
    roles = [replica.role for replica in plan.replicas]
    resource = SimulationResource(
        schema="sutler/simulation/v1",
        plan_id=plan.id,
        traffic=in_words(traffic),
        requests=len(requests),
        end_s=summary.end_s,
        seconds=time.monotonic() - started,
        meets_all_limits=summary.meets_all_limits,
        models=tuple(map(_traffic, summary.models)),
        workloads=tuple(map(_traffic, summary.workloads)),
        replicas=tuple(map(_replica, summary.replicas, roles)),
        loss=None if loss is None else _loss(loss, outcome),
        whole_requests=_whole_requests(outcome, roles),
        **{name: getattr(choices, name) for name in ("routing", "scheduling", "max_batched_tokens", "seed", "roles")},
        warm_up_s=summary.warm_up_s,
    )
    return Simulated(resource, outcome, summary)


def _whole_requests(outcome: Outcome, roles: Sequence[Role]) -> int:
    of_phase = np.array([role != "aggregated" for role in roles])[outcome.replica] & (outcome.replica >= 0)
    return int((of_phase & (outcome.decode < 0) & (outcome.requests.output_tokens > 1)).sum())


def _after(plan: PlanDocument, loss: Lost, requests: Requests) -> Rerouting:
    after = plan.model_copy(update={"routing": loss.loss.routing, "kv_transfers": loss.loss.kv_transfers})
    return Rerouting(loss.detected_s, fractions_of(after, requests), kv_routes_of(after, requests))


def _ends_s(plan: PlanDocument, loss: Lost) -> dict[int, float]:
    position = {replica.id: index for index, replica in enumerate(plan.replicas)}
    return {position[name]: loss.at_s for name in loss.loss.replicas}


def _loss(loss: Lost, outcome: Outcome) -> SimulatedLossResource:
    """What was served of what arrived before the loss, until it was detected, and from then on."""
    arrival_s, end_s = outcome.requests.arrival_s, float(outcome.requests.arrival_s[-1])
    served = outcome.is_served
    spans = ((0.0, loss.at_s), (loss.at_s, loss.detected_s), (loss.detected_s, np.inf))
    in_span = [(arrival_s >= start) & (arrival_s < end) for start, end in spans]
    parts = [finite(float(served[mine].mean())) if mine.any() else None for mine in in_span]
    ends = int(((outcome.finish_s >= loss.detected_s) & (outcome.finish_s <= end_s)).sum())
    arrived = int(in_span[2].sum())
    return SimulatedLossResource(
        kind=loss.loss.kind,
        name=loss.loss.name,
        at_s=loss.at_s,
        detected_s=loss.detected_s,
        replicas=loss.loss.replicas,
        served_before_fraction=parts[0],
        served_meanwhile_fraction=parts[1],
        served_after_fraction=parts[2],
        unserved=int((~served).sum()),
        carried_after_fraction=min(1.0, ends / arrived) if arrived else None,
    )


def fractions_of(plan: PlanDocument, requests: Requests) -> FloatArray:
    """[num_kinds, num_replicas] the plan's routing. Raises DocumentError where prompts go to a decode replica."""
    decodes = {replica.id for replica in plan.replicas if replica.role == "decode"}
    for number, route in enumerate(plan.routing):
        if wrong := sorted(decodes & route.fractions.keys()):
            remedy = "is a decode replica: prompts go to others, and kv_transfers say what goes on to it"
            raise DocumentError.of(f"routing[{number}].fractions", remedy, value=wrong[0])
    routes = {(route.model, route.workload): route.fractions for route in plan.routing}
    return np.array(
        [
            [routes.get((kind.model, kind.workload), {}).get(replica.id, 0.0) for replica in plan.replicas]
            for kind in requests.kinds
        ]
    )


def kv_routes_of(plan: PlanDocument, requests: Requests) -> tuple[KvRoute, ...]:
    """The plan's hand-overs; a transfer of unknown length takes no time.

    Raises DocumentError where one names what the plan does not have.
    """
    kinds = {(kind.model, kind.workload): index for index, kind in enumerate(requests.kinds)}
    position = {replica.id: index for index, replica in enumerate(plan.replicas)}
    roles = {replica.id: replica.role for replica in plan.replicas}
    for number, one in enumerate(plan.kv_transfers):
        is_known = (one.model, one.workload) in kinds
        if not is_known or (roles.get(one.prefill), roles.get(one.decode)) != ("prefill", "decode"):
            remedy = "must name a workload, a prefill and a decode replica of the plan"
            raise DocumentError.of(f"kv_transfers[{number}]", remedy, value=(one.workload, one.prefill, one.decode))
    return tuple(
        KvRoute(
            kind=kinds[one.model, one.workload],
            prefill=position[one.prefill],
            decode=position[one.decode],
            fraction=one.fraction,
            exposed_s=one.exposed_s or 0.0,
        )
        for one in plan.kv_transfers
    )


def known_deratings(plan: PlanDocument) -> tuple[Derating, ...]:
    """What the validation of a plan has found, for plans that follow it."""
    found = () if plan.validation is None else plan.validation.derated
    return tuple(
        Derating(**{**dict(one), "stages": tuple(MeasuredStage(**dict(stage)) for stage in one.stages)})
        for one in found
    )


def _evidence(plan: PlanDocument, derated: Sequence[Derating] | None) -> list[Evidence]:
    """The plan's, with full rates: that a configuration is counted on for less makes no engine slower."""
    if derated is None:
        derated = known_deratings(plan)
    configurations = {replica.id: configuration_of(replica) for replica in plan.replicas}
    return [
        replace(found, rps=found.rps / counted_fraction(derated, configurations[found.replica], found.workload))
        for found in (Evidence(**evidence.model_dump()) for evidence in plan.evidence)
    ]


def counted_fraction(derated: Sequence[Derating], configuration: Configuration, workload: str) -> float:
    """What a configuration is counted on for, of its rate of a workload."""
    return prod(one.fraction for one in derated if _is_of(one, configuration) and one.workload in (None, workload))


def configuration_of(replica: ReplicaDocument) -> Configuration:
    """What replicas are derated by."""
    stages = tuple((stage.gpu, stage.tensor_parallel) for stage in replica.stages)
    return (replica.model, replica.role, stages, replica.data_parallel, replica.precision)


def _is_of(one: Derating, configuration: Configuration) -> bool:
    """Whether a replica is derated by it; by one that names no precision, at any."""
    stages = tuple((stage.gpu, stage.tensor_parallel) for stage in one.stages)
    known = (one.model, one.role, stages, one.data_parallel)
    return known == configuration[:-1] and one.precision in (None, configuration[-1])


def _lengths(requests: Requests, name: str, models: Mapping[str, ServedModel]) -> Lengths:
    of_model = np.array([kind.model == name for kind in requests.kinds])[requests.kind]
    return lengths_of(models[name], requests.input_tokens[of_model], requests.output_tokens[of_model])


def in_words(traffic: TraceTraffic | PoissonTraffic) -> str:
    """Says what is replayed, as `the recorded requests, 1.2 times as many requests/s`."""
    multiple = "" if traffic.load_multiple == 1 else f", {traffic.load_multiple:g} times as many requests/s"
    if isinstance(traffic, TraceTraffic):
        return f"the recorded requests{' at the rate of the plan' if traffic.at_rated_load else ''}{multiple}"
    lengths = "recorded lengths" if traffic.lengths else "the mean lengths of the plan's workloads"
    return f"Poisson arrivals at the plan's rates for {traffic.duration_s:g} s, with {lengths}{multiple}"


def _traffic(traffic: TrafficSummary) -> TrafficResource:
    figures: dict[str, Any] = {field.name: getattr(traffic, field.name) for field in fields(traffic)}
    latencies = {metric: _latency(latency) for metric, latency in figures.pop("latencies").items()}
    return TrafficResource(**{**figures, **latencies, "limits": tuple(map(_limit, traffic.limits))})


def _latency(latency: Latency) -> LatencyResource:
    named = zip(PERCENTILES, latency.percentiles, strict=True)
    return LatencyResource(
        mean_s=finite(latency.mean_s), percentiles_s={f"p{at}": finite(value) for at, value in named}
    )


def _limit(result: LimitResult) -> LimitResource:
    return LimitResource(
        **asdict(result.limit),
        within_fraction=result.within_fraction,
        at_percentile_s=finite(result.at_percentile_s),
        met=result.is_met,
        workload=result.workload,
    )


def _replica(replica: ReplicaSummary, role: Role) -> SimulatedReplicaResource:
    figures = asdict(replica)
    return SimulatedReplicaResource(replica=figures.pop("name"), role=role, **figures)
