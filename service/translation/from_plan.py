"""From the solver's plan to the plan document that callers get: identity, time stamps and market added."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from sutler.service.documents.fields import finite
from sutler.service.documents.plan import (
    AlternativeDocument,
    BindingDocument,
    ComboDocument,
    ConflictDocument,
    EvidenceDocument,
    KvTransferDocument,
    MarketUsed,
    ObjectiveResult,
    PhaseDocument,
    PlanDocument,
    PrecisionAlternativeDocument,
    ProviderUsed,
    RentalDocument,
    ReplicaDocument,
    RobustAlternativeDocument,
    RobustnessDocument,
    RouteDocument,
    SolverReport,
    StageDocument,
)
from sutler.service.translation.to_plan import planned_gpus, planned_models
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import (
    Alternative,
    Combo,
    Plan,
    PrecisionAlternative,
    Rental,
    Replica,
    RobustAlternative,
    Robustness,
    Route,
    SolveReport,
)


def issue_plan(
    plan: Plan, translation: Translation, *, plan_id: UUID, created_at: datetime, revision: int = 1
) -> PlanDocument:
    """The document of a plan made from this translation."""
    return PlanDocument(
        schema="sutler/plan/v1",
        id=plan_id,
        revision=revision,
        created_at=created_at,
        status=plan.status,
        objective=objective_result(plan),
        throughput_rps=finite(plan.throughput_rps),
        makespan_s=finite(plan.makespan_s),
        load_multiple=finite(plan.load_multiple),
        cost_usd_per_hour=finite(plan.cost_usd_per_hour),
        power_watts=finite(plan.power_watts),
        usd_per_million_tokens=finite(plan.usd_per_million_tokens),
        rentals=_rentals(plan.rentals),
        replicas=tuple(_replica(replica) for replica in plan.replicas),
        routing=tuple(_route(route) for route in plan.routing),
        kv_transfers=tuple(KvTransferDocument(**_fields(transfer)) for transfer in plan.kv_transfers),
        combos=tuple(_combo(combo) for combo in plan.combos),
        models=planned_models(translation.problem),
        gpus=planned_gpus(translation.problem, plan.replicas),
        binding=tuple(BindingDocument(**_fields(binding)) for binding in plan.binding),
        alternatives=tuple(_alternative(alternative) for alternative in plan.alternatives),
        robustness=None if plan.robustness is None else _robustness(plan.robustness),
        conflicts=conflicts_of(plan),
        market=market_used(translation, created_at),
        evidence=tuple(EvidenceDocument(**_fields(evidence)) for evidence in plan.evidence),
        solver=_report(plan.solver),
        calibration=translation.calibration,
        warnings=plan.warnings,
        notes=translation.notes,
        precision_alternative=_precision_alternative(plan.precision_alternative),
    )


def plan_json(plan: PlanDocument) -> str:
    """The document as indented JSON, ended by a line feed."""
    return plan.model_dump_json(by_alias=True, indent=2) + "\n"


def market_used(translation: Translation, now: datetime) -> MarketUsed:
    """The market that a problem was translated with, as old as it is now."""
    market = translation.market
    providers = tuple(ProviderUsed(**_fields(provider)) for provider in market.providers)
    return MarketUsed(
        taken_at=market.taken_at, age_s=market.age_s(now), offers=len(market.offers), providers=providers
    )


def objective_result(plan: Plan) -> ObjectiveResult:
    """How good a plan is and how good any could be."""
    return ObjectiveResult(
        kind=plan.objective,
        value=finite(plan.value),
        bound=finite(plan.bound),
        relative_gap=finite(plan.relative_gap),
        optimum_value=finite(plan.optimum_value),
    )


def conflicts_of(plan: Plan) -> tuple[ConflictDocument, ...]:
    """What has to give for there to be a plan."""
    return tuple(ConflictDocument(**_fields(conflict)) for conflict in plan.conflicts)


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a flat frozen dataclass with slots."""
    return {name: getattr(record, name) for name in record.__slots__}


def _rentals(rentals: Iterable[Rental]) -> tuple[RentalDocument, ...]:
    return tuple(RentalDocument(**_fields(rental)) for rental in rentals)


def _replica(replica: Replica) -> ReplicaDocument:
    return ReplicaDocument(
        id=replica.id,
        model=replica.model,
        role=replica.role,
        stages=tuple(StageDocument(**_fields(stage)) for stage in replica.stages),
        max_batch=replica.max_batch,
        utilisation_fraction=replica.utilisation_fraction,
        throughput_rps={rate.workload: rate.rps for rate in replica.throughput_rps},
        engine_args=dict(replica.engine_args),
        engine_env=dict(replica.engine_env),
        engine=replica.engine,
        max_load_fraction=finite(replica.max_load_fraction),
        data_parallel=replica.data_parallel,
        expert_parallel=replica.expert_parallel,
        precision=replica.precision,
        checkpoint=replica.checkpoint,
    )


def _route(route: Route) -> RouteDocument:
    fractions = {share.replica: share.fraction for share in route.shares}
    return RouteDocument(model=route.model, workload=route.workload, fractions=fractions)


def _combo(combo: Combo) -> ComboDocument:
    gpus = {name: dict(getattr(combo, name)) for name in ("prefill_gpus", "decode_gpus")}
    return ComboDocument(**{**_fields(combo), **gpus})


def _alternative(alternative: Alternative) -> AlternativeDocument:
    return AlternativeDocument(
        without=alternative.without,
        value=finite(alternative.value),
        cost_usd_per_hour=finite(alternative.cost_usd_per_hour),
        rentals=_rentals(alternative.rentals),
    )


def _robustness(found: Robustness) -> RobustnessDocument:
    fields = {**_fields(found), "bound_at_low": finite(found.bound_at_low)}
    fields["alternative"] = _robust_alternative(found.alternative)
    fields["near_optimum"] = _robust_alternative(found.near_optimum)
    return RobustnessDocument(**fields)


def _robust_alternative(alternative: RobustAlternative | None) -> RobustAlternativeDocument | None:
    if alternative is None:
        return None
    rentals = _rentals(alternative.rentals)
    return RobustAlternativeDocument(**{**_fields(alternative), "rentals": rentals})


def _precision_alternative(found: PrecisionAlternative | None) -> PrecisionAlternativeDocument | None:
    if found is None:
        return None
    return PrecisionAlternativeDocument(**{**_fields(found), "checkpoints": dict(found.checkpoints)})


def _report(report: SolveReport) -> SolverReport:
    phases = tuple(PhaseDocument(phase=phase.phase, seconds=phase.seconds) for phase in report.phases)
    return SolverReport(**{**_fields(report), "phases": phases})
