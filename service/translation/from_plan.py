"""From the solver's plan to the plan document that callers get: identity, time stamps and market added."""

from datetime import datetime
from uuid import UUID

from sutler.service.documents.plan import ConflictDocument, MarketUsed, ObjectiveResult, PlanDocument, RouteDocument
from sutler.service.translation.mapping import mapped
from sutler.service.translation.spares import rental_documents
from sutler.service.translation.to_plan import planned_gpus, planned_models
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import Plan, Route


def issue_plan(
    plan: Plan, translation: Translation, *, plan_id: UUID, created_at: datetime, revision: int = 1
) -> PlanDocument:
    """The document of a plan made from this translation."""
    return mapped(
        PlanDocument,
        plan,
        schema="sutler/plan/v1",
        id=plan_id,
        revision=revision,
        created_at=created_at,
        rentals=rental_documents(plan, translation),
        objective=objective_result(plan),
        routing=tuple(_route(route) for route in plan.routing),
        models=planned_models(translation.problem),
        gpus=planned_gpus(translation.problem, plan.replicas),
        market=market_used(translation, created_at),
        calibration=translation.calibration,
        notes=translation.notes,
    )


def market_used(translation: Translation, now: datetime) -> MarketUsed:
    """The market that a problem was translated with, as old as it is now."""
    market = translation.market
    return mapped(MarketUsed, market, age_s=market.age_s(now), offers=len(market.offers))


def objective_result(plan: Plan) -> ObjectiveResult:
    """How good a plan is and how good any could be."""
    return mapped(ObjectiveResult, plan, kind=plan.objective)


def conflicts_of(plan: Plan) -> tuple[ConflictDocument, ...]:
    """What has to give for there to be a plan."""
    return tuple(mapped(ConflictDocument, conflict) for conflict in plan.conflicts)


def _route(route: Route) -> RouteDocument:
    return mapped(RouteDocument, route, fractions={share.replica: share.fraction for share in route.shares})
