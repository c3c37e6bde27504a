"""From the solver's plan to the plan document that callers get: identity, time stamps and market added."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import (
    ConflictDocument,
    FitRule,
    LossDocument,
    MarketUsed,
    ObjectiveResult,
    PlanDocument,
    RouteDocument,
    UnfitOffer,
)
from sutler.service.documents.problem_parts import ResilienceDocument
from sutler.service.translation.fitness import RuleOutcome
from sutler.service.translation.mapping import mapped
from sutler.service.translation.spares import rental_documents
from sutler.service.translation.to_plan import planned_gpus, planned_models
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import Plan, Rental, Route


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
        resilience=mapped(ResilienceDocument, asked) if (asked := translation.problem.resilience).survive else None,
        losses=tuple(
            mapped(LossDocument, loss, routing=tuple(_route(route) for route in loss.routing)) for loss in plan.losses
        ),
        models=planned_models(translation.problem),
        sleeping=translation.sleeping,
        gpus=planned_gpus(translation.problem, plan.replicas),
        market=market_used(translation, created_at, plan.rentals),
        calibration=translation.calibration,
        notes=(*translation.notes, *(_unfit_note(translation) if plan.status == "infeasible" else ())),
    )


def _unfit_note(translation: Translation) -> Iterable[str]:
    """Says that there were more offers, where none of those that are left is enough."""
    left_out = {rule.rule: len(rule.left_out) for rule in translation.market.rules if rule.left_out}
    if left_out:
        counts = ", ".join(f"{rule} {count}" for rule, count in left_out.items())
        off = ", ".join(f"{rule}: off" for rule in left_out)
        yield (
            f"{sum(left_out.values())} offers were left out as unfit ({counts}); to see whether there is a plan with "
            f"them, set market.filter.fit: {{{off}}}."
        )


def market_used(translation: Translation, now: datetime, rentals: Sequence[Rental] = ()) -> MarketUsed:
    """The market that a problem was translated with, as old as it is now, and what was left out of it as unfit."""
    market = translation.market
    fit = tuple(_fit_rule(outcome, rentals) for outcome in market.rules)
    return mapped(MarketUsed, market, age_s=market.age_s(now), offers=len(market.offers), fit=fit)


def _fit_rule(outcome: RuleOutcome, rentals: Sequence[Rental]) -> FitRule:
    savings = [(offer, _would_save(offer, rentals)) for offer in outcome.left_out]
    cheapest, saving = min(
        savings,
        key=lambda found: (-(found[1] or 0.0), found[0].price_usd_per_hour / found[0].gpus, found[0].key),
        default=(None, None),
    )
    offer = None if cheapest is None else mapped(UnfitOffer, cheapest)
    return mapped(FitRule, outcome, left_out=len(outcome.left_out), cheapest=offer, would_save_usd_per_hour=saving)


def _would_save(offer: OfferDocument, rentals: Sequence[Rental]) -> float | None:
    """USD per hour, storage aside, in place of the dearest machine alike; None where none is rented."""
    alike = [
        rental.price_usd_per_hour - rental.storage_usd_per_hour
        for rental in rentals
        if (rental.gpu, rental.gpus, rental.held) == (offer.gpu, offer.gpus, False)
    ]
    return max(0.0, max(alike) - offer.price_usd_per_hour) if alike else None


def objective_result(plan: Plan) -> ObjectiveResult:
    """How good a plan is and how good any could be."""
    return mapped(ObjectiveResult, plan, kind=plan.objective)


def conflicts_of(plan: Plan) -> tuple[ConflictDocument, ...]:
    """What has to give for there to be a plan."""
    return tuple(mapped(ConflictDocument, conflict) for conflict in plan.conflicts)


def _route(route: Route) -> RouteDocument:
    return mapped(RouteDocument, route, fractions={share.replica: share.fraction for share in route.shares})
