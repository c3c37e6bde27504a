"""How far a plan is carried out. Pure: the plan, what was reported as rented, and the time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from sutler.service.deployments.holdings.comparison import compared
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.watch_schema import CarryOutResource
from sutler.service.documents.plan import PlanDocument


def carry_out(
    plan: PlanDocument,
    held: Sequence[HoldingDocument] | None,
    *,
    issued_at: datetime,
    patience_s: float,
    now: datetime,
) -> CarryOutResource:
    """How far the plan is carried out; after `patience_s` what is missing is overdue.

    `held` None: nobody has said what is rented."""
    difference = None if held is None else compared(held, plan)
    missing = None if difference is None else _machines(difference.missing)
    state: Literal["unreported", "met", "unmet", "overdue"] = "unreported" if missing is None else "met"
    if missing:
        state = "overdue" if now > issued_at + timedelta(seconds=patience_s) else "unmet"
    return CarryOutResource(
        revision=plan.revision,
        issued_at=issued_at,
        state=state,
        planned_machines=sum(rental.count for rental in plan.rentals),
        missing_machines=missing,
        held_machines_not_planned=None if difference is None else _machines(difference.unplanned),
    )


def _machines(holdings: Sequence[HoldingDocument]) -> int:
    return sum(holding.count for holding in holdings)
