"""From what strategies did with a problem to the comparison document, and who of them is the best rival."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sutler.service.documents.comparison import (
    ComparedStatus,
    ComparedStrategy,
    ComparisonDocument,
    FrontierDocument,
    ObjectiveUnit,
)
from sutler.service.documents.fields import finite
from sutler.service.translation.from_plan import conflicts_of, market_used, objective_result
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import Plan
from sutler.solver.problem import Disaggregation, ObjectiveKind
from sutler.solver.strategies.comparing import Ran
from sutler.solver.version import VERSION

UNITS: Final[dict[ObjectiveKind, ObjectiveUnit]] = {
    "max_throughput": "rps",
    "min_makespan": "seconds",
    "min_cost": "usd_per_hour",
    "min_power": "watts",
}


FIGURES: Final = (
    "throughput_rps",
    "makespan_s",
    "load_multiple",
    "cost_usd_per_hour",
    "power_watts",
    "usd_per_million_tokens",
)


def comparison_of(
    ran: Sequence[Ran], translation: Translation, *, created_at: datetime, frontier: FrontierDocument | None = None
) -> ComparisonDocument:
    """The document; `ran[0]` is sutler's."""
    objective = translation.problem.objective.kind
    strategies = tuple(compared(one) for one in ran)
    twins = _twins(strategies, translation.problem.search.disaggregation)
    best = best_rival([one for one in strategies if one.name not in twins], objective)
    return ComparisonDocument(
        schema="sutler/comparison/v1",
        created_at=created_at,
        objective=objective,
        unit=UNITS[objective],
        budget_usd_per_hour=translation.problem.budget_usd_per_hour,
        strategies=strategies,
        best_rival=None if best is None else best.name,
        market=market_used(translation, created_at),
        frontier=frontier,
        version=VERSION,
        notes=(*translation.notes, *twins.values(), *_freer(strategies)),
    )


def best_rival(strategies: Iterable[ComparedStrategy], objective: ObjectiveKind) -> ComparedStrategy | None:
    """The best plan on the market as it is that is not sutler's; the first one where several are as good."""
    rivals = [
        (value, one)
        for one in strategies
        if one.family != "sutler" and not one.own_market and (value := value_of(one)) is not None
    ]
    choose = max if objective == "max_throughput" else min
    return choose(rivals, key=lambda rival: rival[0])[1] if rivals else None


def value_of(one: ComparedStrategy) -> float | None:
    """What a strategy achieves, in the objective's unit; None without a plan that stands."""
    return None if one.status == "rejected" or one.objective is None else one.objective.value


def compared(ran: Ran) -> ComparedStrategy:
    """The entry of one strategy."""
    plan, strategy = plan_made(ran), ran.strategy
    return ComparedStrategy(
        name=strategy.name,
        title=strategy.title,
        family=strategy.family,
        source=strategy.source,
        own_market=strategy.own_market,
        allowed_beyond=ran.beyond,
        status=status_of(ran),
        reason=_reason(ran),
        objective=None if plan is None else objective_result(plan),
        ratio_to_sutler=finite(ran.ratio),
        **figures_of(plan, FIGURES),
        gpus={} if plan is None else _gpus(plan),
        replicas=0 if plan is None else len(plan.replicas),
        seconds=ran.seconds,
        conflicts=() if plan is None else conflicts_of(plan),
        violations=ran.violations,
    )


def figures_of(plan: Plan | None, names: Iterable[str]) -> dict[str, Any]:
    """These figures of a plan, by name; null where there is no plan, or where they say nothing."""
    return {name: None if plan is None else finite(getattr(plan, name)) for name in names}


def plan_made(ran: Ran) -> Plan | None:
    """The plan of a strategy; None where it is not applicable."""
    return None if ran.planned is None else ran.planned.plan


def status_of(ran: Ran) -> ComparedStatus:
    """The status of a strategy's plan, unless there is none or it does not stand."""
    plan = plan_made(ran)
    if ran.violations:
        return "rejected"
    return "not_applicable" if plan is None else plan.status


def _twins(strategies: Iterable[ComparedStrategy], disaggregation: Disaggregation) -> dict[str, str]:
    """Strategies that may do just what sutler may with this problem, so that they rival nobody: why, by name."""
    twins = {"off": "aggregated-only", "only": "disaggregated-only"}
    return {
        one.name: f"{one.name} plans as sutler does, since search.disaggregation is {disaggregation}."
        for one in strategies
        if one.name == twins.get(disaggregation) and one.status != "not_applicable"
    }


def _freer(strategies: Iterable[ComparedStrategy]) -> Iterator[str]:
    """One sentence for all that plan with what takes the same settings to allow sutler."""
    names: dict[tuple[str, ...], list[str]] = {}
    for one in strategies:
        if one.allowed_beyond:
            names.setdefault(one.allowed_beyond, []).append(one.name)
    for settings, named in names.items():
        yield f"{', '.join(named)}: may do what sutler may not here without {' and '.join(settings)}."


def _reason(ran: Ran) -> str | None:
    plan = plan_made(ran)
    if ran.violations:
        return f"its plan does not stand, which is a defect of sutler: {ran.violations[0]}"
    if plan is None or ran.reason:
        return ran.reason or "it has nothing to say to such a problem"
    if plan.status == "infeasible":
        constraints = ", ".join(conflict.constraint for conflict in plan.conflicts)
        return f"no such plan meets every limit ({constraints})" if constraints else "no such plan meets every limit"
    return "no plan within the time limit" if plan.status == "unknown" else None


def _gpus(plan: Plan) -> dict[str, int]:
    """How many GPUs by slug, in the order of the rentals."""
    counts: dict[str, int] = {}
    for rental in plan.rentals:
        counts[rental.gpu] = counts.get(rental.gpu, 0) + rental.gpus * rental.count
    return counts
