"""Plans of a problem as one kind of plans: what is admitted, and what is stored of it."""

import asyncio
from typing import Any, Final
from uuid import uuid4

from sutler.service.db.asynchronous import reading
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.plans.admission import admit
from sutler.service.plans.kind import PlanKind
from sutler.service.plans.repository import PLANS, Order
from sutler.service.profiles.references import with_calibration
from sutler.service.web.caller import Caller
from sutler.service.web.state import Services


def order_of(document: ProblemDocument, caller: Caller) -> Order:
    """A plan for this problem; what the caller left out stays left out."""
    problem: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Order(uuid4(), problem, document.objective.kind, caller.principal.actor, caller.request_id)


async def check(services: Services, document: ProblemDocument) -> None:
    """Checks a problem and its calibration. Raises DocumentError, UnknownNameError, NoMarketDataError."""
    async with reading(services.engine) as connection:
        known = await with_calibration(connection, document)
    await asyncio.to_thread(admit, known, services.settings, now=services.now())


PLAN: Final = PlanKind(
    table=PLANS,
    question=ProblemDocument,
    asked="problem",
    plan=PlanDocument,
    check=check,
    order=order_of,
    time_limit_s=lambda document: document.solver.time_limit_s,
)
