"""Plan documents for tests: a fleet is said in a few words, the rest is plausible."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sutler.service.documents.plan import (
    ConflictDocument,
    MarketUsed,
    ObjectiveResult,
    PlanDocument,
    RentalDocument,
    ReplicaDocument,
    RouteDocument,
    SolverReport,
    StageDocument,
)
from sutler.solver.answer.engine_args import role_args
from sutler.solver.problem import Role

LINEAGE = UUID("0b8f6a52-6d0a-4a3e-9f7b-1c2d3e4f5a6b")
AT = datetime(2026, 11, 20, 12, 0, 20, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class On:
    """Where a stage runs: `gpus` of one of a rental's machines, from `first` on."""

    rental: int = 0
    machine: int = 0
    gpus: int = 4
    first: int = 0


def a_machine(offer_id: str = "123", **others: Any) -> RentalDocument:
    given: dict[str, Any] = {
        "offer_id": offer_id,
        "provider": "vastai",
        "site": None,
        "gpu": "h100-sxm",
        "gpus": 4,
        "count": 1,
        "price_usd_per_hour": 9.05,
        "contract": "on_demand",
        "storage_gb": 0.0,
        "storage_usd_per_hour": 0.0,
    }
    return RentalDocument(**{**given, **others})


def a_replica(name: str, *places: On, model: str = "chat", gpu: str = "h100-sxm", **others: Any) -> ReplicaDocument:
    """One stage at each place; without one, on the whole first machine."""
    stages = tuple(_stage(number, place, gpu) for number, place in enumerate(places or (On(),)))
    engine_args = {
        "model": "meta-llama/Meta-Llama-3-70B",
        "tensor_parallel_size": stages[0].tensor_parallel,
        "pipeline_parallel_size": len(stages),
        "max_num_seqs": 200,
    }
    given: dict[str, Any] = {
        "role": "aggregated",
        "max_batch": 200,
        "utilisation_fraction": 0.98,
        "throughput_rps": {"long-short": 4.1},
        "sustained_rps": {"long-short": 4.2},
        "engine_args": engine_args,
        "engine_env": {},
    }
    return ReplicaDocument(id=name, model=model, stages=stages, **{**given, **others})


def _stage(number: int, place: On, gpu: str) -> StageDocument:
    return StageDocument(
        gpu=gpu,
        tensor_parallel=place.gpus,
        layers=80,
        rental=place.rental,
        machine=place.machine,
        gpu_indices=tuple(range(place.first, place.first + place.gpus)),
        piece=number,
    )


def a_route(fractions: Mapping[str, float], *, model: str = "chat", workload: str = "long-short") -> RouteDocument:
    """Fractions are by replica id."""
    return RouteDocument(model=model, workload=workload, fractions=dict(fractions))


def a_fleet(
    *rentals: RentalDocument,
    replicas: tuple[ReplicaDocument, ...] | None = None,
    routing: tuple[RouteDocument, ...] | None = None,
    **others: Any,
) -> PlanDocument:
    """A plan that rents this and runs that, requests split evenly unless said otherwise."""
    rented = rentals or (a_machine(),)
    running = (a_replica("chat-0"),) if replicas is None else replicas
    given: dict[str, Any] = {
        "id": uuid4(),
        "revision": 1,
        "created_at": AT,
        "status": "optimal",
        "objective": ObjectiveResult(kind="max_throughput", value=4.1, bound=4.1002, relative_gap=0.00005),
        "throughput_rps": 4.1,
        "makespan_s": None,
        "load_multiple": None,
        "cost_usd_per_hour": sum(rental.count * rental.price_usd_per_hour for rental in rented),
        "power_watts": 2800.0,
        "usd_per_million_tokens": 0.31,
        "binding": (),
        "alternatives": (),
        "conflicts": (),
        "market": MarketUsed(taken_at=AT, age_s=20.0, offers=412),
        "evidence": (),
        "solver": SolverReport(method="exact", seconds=0.4, candidates=9, version="0.1.0", phases=(), limit=None),
        "warnings": (),
        "notes": (),
    }
    routes = _even(running) if routing is None else routing
    return PlanDocument(
        schema="sutler/plan/v1", rentals=rented, replicas=running, routing=routes, **{**given, **others}
    )


def _even(replicas: tuple[ReplicaDocument, ...]) -> tuple[RouteDocument, ...]:
    by_model: dict[str, list[str]] = {}
    for replica in replicas:
        by_model.setdefault(replica.model, []).append(replica.id)
    return tuple(
        RouteDocument(model=model, workload="long-short", fractions=dict.fromkeys(ids, 1 / len(ids)))
        for model, ids in by_model.items()
    )


def one_replica_each(machines: int, **others: Any) -> PlanDocument:
    """So many equal machines of one offer with a replica each."""
    replicas = tuple(a_replica(f"chat-{number}", On(machine=number)) for number in range(machines))
    return a_fleet(a_machine(count=machines), replicas=replicas, **others)


def an_infeasible_fleet() -> PlanDocument:
    """No plan at all, with the reason."""
    conflict = ConflictDocument(
        constraint="budget",
        needed=9.05,
        available=2.0,
        unit="usd_per_hour",
        remedy="raise budget_usd_per_hour to at least 9.05",
    )
    nothing = ObjectiveResult(kind="max_throughput", value=None, bound=None, relative_gap=None)
    plan = a_fleet(replicas=(), status="infeasible", objective=nothing, conflicts=(conflict,))
    return plan.model_copy(update={"rentals": (), "cost_usd_per_hour": None, "throughput_rps": None})


def on_four(roles: str, *, bend: bool = True, decoding: int = 200, revision: int = 1) -> PlanDocument:
    """A machine of 4 GPUs for each letter: p prefills, d decodes; started for either or for the one phase."""
    replicas = []
    for number, letter in enumerate(roles):
        role: Role = "prefill" if letter == "p" else "decode"
        replica = a_replica(f"chat-{number}", On(0, number), role=role)
        counted_on = 4 if role == "prefill" else decoding
        args = {
            **replica.engine_args,
            "max_num_seqs": 256 if bend else counted_on,
            **dict(role_args(role, bends=bend)),
        }
        changes = {"engine_args": args, "max_batch": counted_on, "sustained_rps": {"long-short": 1.0}}
        replicas.append(replica.model_copy(update=changes))
    prefill = [one.id for one in replicas if one.role == "prefill"]
    return a_fleet(
        a_machine("1", count=len(roles)),
        replicas=tuple(replicas),
        routing=(a_route({name: 1 / len(prefill) for name in prefill}),),
        revision=revision,
    )
