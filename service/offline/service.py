"""Offline plans as one kind of plans: what is admitted, what is stored of it, and what adjusting a plan asks for.

Applications are to be within the service's limits, without files, and their names known. All of it is said before a
plan is queued, so that a caller who does not wait hears it too.
"""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError

from sutler.service.db.asynchronous import reading
from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.offline.adjusting import check_progress
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.repository import OFFLINE_PLANS, OfflineOrder, OfflinePlanRecord
from sutler.service.offline.translate import translate
from sutler.service.plans.plan_requests import Asker, PlanKind, placed, stored
from sutler.service.plans.service import over_limit
from sutler.service.settings import ServiceSettings
from sutler.service.translation.market_source import path_refused
from sutler.service.web.caller import Caller
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.web.state import Services
from sutler.solver.catalog import load_gpus


def admit(document: ApplicationDocument, settings: ServiceSettings, *, now: datetime) -> None:
    """Checks an application.

    Raises DocumentError, InvalidProblemError, UnknownNameError, and NoMarketDataError for an empty market of its own.
    """
    time_limit_s = document.search.time_limit_s
    problems = [
        *over_limit("models", len(document.models), settings.most_models, "SUTLER_MOST_MODELS"),
        *over_limit("search.time_limit_s", time_limit_s, settings.longest_solve_s, "SUTLER_LONGEST_SOLVE_S"),
        *_unknown_gpus(document),
    ]
    if problems:
        raise DocumentError(problems)
    if document.market is not None and isinstance(document.market.offers, str):
        raise path_refused("market.offers", document.market.offers)
    translate(document, folder=None)
    if document.market is not None and document.market.offers is not None:
        market_of(document, folder=None, now=now)


def _unknown_gpus(document: ApplicationDocument) -> Iterator[FieldProblem]:
    known = {*load_gpus(document.catalog), *document.gpus}
    wanted = () if document.market is None else document.market.filter.gpus
    for i, slug in enumerate(wanted):
        if slug not in known:
            remedy = "is no GPU of the catalogue (`sutler catalog gpus` lists all): describe it under `gpus`"
            yield FieldProblem(f"market.filter.gpus[{i}]", short_repr(slug), remedy)


async def check(services: Services, document: ApplicationDocument) -> None:
    """Checks an application. Raises what `admit` raises."""
    await asyncio.to_thread(admit, document, services.settings, now=services.now())


def order_of(document: ApplicationDocument, caller: Caller) -> OfflineOrder:
    """The first plan of this application; what the caller left out stays left out."""
    plan_id = uuid4()
    return OfflineOrder(
        plan_id,
        first_id=plan_id,
        parent_id=None,
        revision=1,
        name=document.name,
        application=document.model_dump(mode="json", by_alias=True, exclude_unset=True),
        report=None,
        objective=document.objective.kind,
        created_by=caller.principal.actor,
        request_id=caller.request_id,
    )


OFFLINE_PLAN: Final = PlanKind(
    table=OFFLINE_PLANS,
    question=ApplicationDocument,
    asked="application",
    plan=OfflinePlanDocument,
    check=check,
    order=order_of,
    time_limit_s=lambda document: document.search.time_limit_s,
)


async def ask_adjusted(
    services: Services, plan_id: UUID, progress: ProgressDocument, asker: Asker
) -> tuple[OfflinePlanRecord, ApplicationDocument]:
    """The plan of what is left of this one, new or asked for before, and the application that both are of.

    Raises NotFoundError, ConflictError for a plan that runs nothing, DocumentError for a report that does not fit it,
    and what `placed` raises.
    """
    async with reading(services.engine) as connection:
        parent = await stored(connection, OFFLINE_PLANS, plan_id)
        application = await OFFLINE_PLANS.asked(connection, plan_id, OFFLINE_PLAN.asked)
    if parent.document is None or application is None or parent.status == "infeasible":
        raise ConflictError(f"plan {plan_id} is {parent.status}: only a plan that runs something can be adjusted")
    plan = await asyncio.to_thread(OfflinePlanDocument.model_validate_json, parent.document)
    check_progress(plan, progress)
    order = OfflineOrder(
        uuid4(),
        first_id=parent.first_id,
        parent_id=parent.id,
        revision=parent.revision + 1,
        name=parent.name,
        application=json.loads(application),
        report=progress.model_dump(mode="json", by_alias=True, exclude_unset=True),
        objective=parent.objective,
        created_by=asker.caller.principal.actor,
        request_id=asker.caller.request_id,
    )
    try:
        return await placed(services, OFFLINE_PLAN, order, asker, action="adjust"), plan.application
    except IntegrityError:
        raise NotFoundError(f"plan {plan_id} was deleted meanwhile: adjust another revision of it") from None
