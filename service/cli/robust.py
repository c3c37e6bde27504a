"""A sentence on what a plan is worth at the low end of every error band, and on what would be better there."""

from collections.abc import Iterator

from service.cli.wording import fleet, number, objective_unit, price
from service.plans.plan_schema import PlanDocument, RobustAlternativeDocument, RobustnessDocument


def robust_lines(plan: PlanDocument) -> Iterator[str]:
    """Nothing where nothing is known, or where every rate is taken as given."""
    found = plan.robustness
    if found is None or found.low_fraction == 1:
        return
    own = _worth(plan, found)
    other = found.reason if found.alternative is None else _other(plan, found.alternative, found.reason)
    yield f"at the low end of every band: {'; '.join(words for words in (own, other) if words)}"


def _worth(plan: PlanDocument, found: RobustnessDocument | RobustAlternativeDocument) -> str:
    """What matters there: the value, or under cost and power, which do not change, what is carried."""
    if found.load_multiple_at_low is not None:
        return f"{number(found.load_multiple_at_low)} × the load"
    return f"{number(found.value_at_low)} {objective_unit(plan.objective.kind)}"


def _other(plan: PlanDocument, other: RobustAlternativeDocument, reason: str | None) -> str:
    rents = "the same machines, laid out otherwise," if other.rentals == plan.rentals else fleet(other.rentals)
    cost = f"for {price(other.cost_usd_per_hour)} $/h"
    limit = "" if reason is None else f"; {reason}"
    return f"{_worth(plan, other)} with {rents} {cost} (robust alternative{limit})"
