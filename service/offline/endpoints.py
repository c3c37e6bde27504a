"""`/v1/offline-plans`: plan an offline application, adjust the plan while it runs, what became of it, lists."""

from typing import Annotated
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import Response

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.offline.examples import ENSEMBLE, ENSEMBLE_ON_THE_STORE, PROGRESS
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.repository import OFFLINE_PLANS
from sutler.service.offline.resources import OfflinePlanStatus, OfflinePlanSummary
from sutler.service.offline.service import OFFLINE_PLAN, ask_adjusted
from sutler.service.plans.plan_endpoints import Described, answers, made, router_of
from sutler.service.plans.plan_requests import asker_of, stored
from sutler.service.plans.plan_responses import page_of
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.links import TO_THE_OFFLINE_PLAN
from sutler.service.web.paging import Cursor, Limit, Page, before_of
from sutler.service.web.parameters import IdempotencyKey, Prefer
from sutler.service.web.problems import responses

DESCRIBED = Described(
    create="Plan an application of several models over a fixed pile of requests: which run together, on how many "
    "GPUs.\n\nOn the GPUs at hand, or on machines that are chosen from a market. Waits for the plan; with `Prefer:\n"
    "respond-async`, or `Prefer: wait=SECONDS`, follow `Location`. An `Idempotency-Key` makes it safe to send the\n"
    "request again.",
    get="A plan of an offline application, or what became of it so far.",
    cancel="Stop making a plan of an offline application that is queued or running.",
    get_asked="The application that a plan is for, as it was given.",
    links=TO_THE_OFFLINE_PLAN,
)
router = router_of(OFFLINE_PLAN, DESCRIBED, own_hardware=ENSEMBLE, market_of_the_store=ENSEMBLE_ON_THE_STORE)


@router.get("", responses=responses(401, 403, 422, 429, 503))
async def list_offline_plans(
    services: Service,
    _reader: Reader,
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Annotated[OfflinePlanStatus | None, Query(description="Only plans with this status.")] = None,
    name: Annotated[str | None, Query(max_length=200, description="Only plans of applications of this name.")] = None,
) -> Page[OfflinePlanSummary]:
    """All plans of offline applications, the newest first."""
    before = before_of(cursor)
    async with reading(services.engine) as connection:
        found = await OFFLINE_PLANS.page(connection, limit=limit + 1, before=before, status=status, name=name)
    return page_of(found, limit)


@router.post(
    "/{plan_id}/adjust",
    status_code=201,
    response_model=None,
    responses={
        **answers(OFFLINE_PLAN, DESCRIBED, "The plan of the rest, with the next revision."),
        **responses(401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503),
    },
    openapi_extra=body_docs(ProgressDocument, halfway=PROGRESS),
)
async def adjust_offline_plan(
    request: Request,
    services: Service,
    caller: Planner,
    plan_id: UUID,
    progress: Annotated[ProgressDocument, body_of(ProgressDocument)],
    _key: IdempotencyKey = None,
    _prefer: Prefer = None,
) -> Response:
    """Plan anew what is left of an application that runs faster or slower than planned.

    The body reports its progress. The plan stays as it is; the answer is a new one whose `adjustment` names it.
    `Prefer` and `Idempotency-Key` work as for a first plan.
    """
    asker = asker_of(request, caller)
    record, document = await ask_adjusted(services, plan_id, progress, asker)
    time_limit_s = document.search.time_limit_s
    return await made(request, services, OFFLINE_PLAN, record, time_limit_s=time_limit_s)


@router.get("/{plan_id}/revisions", responses=responses(401, 403, 404, 422, 429, 503))
async def list_offline_revisions(
    services: Service, _reader: Reader, plan_id: UUID, limit: Limit = 50, cursor: Cursor = None
) -> Page[OfflinePlanSummary]:
    """All plans of the application that this plan is of, the first and those that were adjusted, the newest first."""
    before = before_of(cursor)
    async with reading(services.engine) as connection:
        record = await stored(connection, OFFLINE_PLANS, plan_id)
        found = await OFFLINE_PLANS.page(connection, limit=limit + 1, before=before, first_id=record.first_id)
    return page_of(found, limit)
