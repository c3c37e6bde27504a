"""A sentence on what a plan is worth at the low end of every error band, and on what would be better there."""

from collections.abc import Iterator

from sutler.service.cli.views.wording import fleet, number, objective_unit, percent, price
from sutler.service.documents.plan import PlanDocument, RobustAlternativeDocument, RobustnessDocument


def robust_lines(plan: PlanDocument) -> Iterator[str]:
    """The sentences; none where nothing is known, or where every rate is taken as given."""
    found = plan.robustness
    if found is None or found.low_fraction == 1:
        return
    own = _worth(plan, found)
    other = found.reason if found.alternative is None else _other(plan, found.alternative, found.reason)
    yield f"at the low end of every band: {'; '.join(words for words in (own, other) if words)}"
    near, fraction = found.near_optimum, found.near_optimum_fraction
    if near is not None and fraction is not None:
        yield (
            f"for {_price(plan, near)}: {_worth(plan, near)} there, the most within {percent(fraction)} "
            f"(--give-up {fraction:g} takes it)"
        )


def _price(plan: PlanDocument, near: RobustAlternativeDocument) -> str:
    """`12.09 $/h (+0.4 %)`, `8.84 req/s (-0.5 %)`: what a fleet comes to, and what of the plan's own it gives up."""
    value = plan.objective.value
    given_up = "" if not value else f" ({'+' if near.value >= value else '-'}{percent(abs(near.value / value - 1))})"
    return f"{number(near.value)} {objective_unit(plan.objective.kind)}{given_up}"


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
