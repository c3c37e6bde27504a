"""`/v1/offline-plans`: plan an offline application, adjust the plan while it runs, what became of it, lists."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sutler.service.auth.dependency import Planner, Reader
from sutler.service.db.asynchronous import reading
from sutler.service.offline import repository
from sutler.service.offline import service as offline
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.examples import ENSEMBLE, ENSEMBLE_ON_THE_STORE, PROGRESS
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.repository import OfflinePlanRecord
from sutler.service.offline.resources import OfflinePlanJobResource, OfflinePlanStatus, OfflinePlanSummary
from sutler.service.plans import plan_responses
from sutler.service.plans.plan_responses import before_of
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.idempotency import ticket_of
from sutler.service.web.links import TO_THE_OFFLINE_PLAN
from sutler.service.web.paging import Cursor, Limit, Page
from sutler.service.web.parameters import IdempotencyKey, IfNoneMatch, Prefer, WaitS
from sutler.service.web.preferences import preferences_of
from sutler.service.web.problems import responses
from sutler.service.web.request_id import request_id_of
from sutler.service.web.state import Service, Services
from sutler.service.web.waiting import for_caller

router = APIRouter(prefix="/v1/offline-plans", tags=["offline plans"])

PLAN_OR_JOB: Final = OfflinePlanDocument | OfflinePlanJobResource
_PLACE: Final = {
    "model": OfflinePlanJobResource,
    "description": "It is being made: follow `Location`.",
    "links": TO_THE_OFFLINE_PLAN,
}


@router.post(
    "",
    status_code=201,
    response_model=None,
    responses={
        201: {
            "model": OfflinePlanDocument,
            "description": "The plan; `infeasible` is one too.",
            "links": TO_THE_OFFLINE_PLAN,
        },
        202: _PLACE,
        **responses(401, 403, 408, 409, 413, 415, 422, 429, 500, 503),
    },
    openapi_extra=body_docs(ApplicationDocument, own_hardware=ENSEMBLE, market_of_the_store=ENSEMBLE_ON_THE_STORE),
)
async def create_offline_plan(
    request: Request,
    services: Service,
    principal: Planner,
    document: Annotated[ApplicationDocument, body_of(ApplicationDocument)],
    _key: IdempotencyKey = None,
    _prefer: Prefer = None,
) -> Response:
    """Plan an application of several models over a fixed pile of requests: which run together, on how many GPUs.

    On the GPUs at hand, or on machines that are chosen from a market. Waits for the plan; with `Prefer:
    respond-async`, or `Prefer: wait=SECONDS`, follow `Location`. An `Idempotency-Key` makes it safe to send the
    request again.
    """
    record = await offline.ask(
        services,
        document,
        principal=principal,
        request_id=request_id_of(request),
        ticket=ticket_of(request, principal),
        is_async=preferences_of(request).respond_async,
    )
    return await _made(request, services, record, longest_s=offline.waits_s(document))


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
    async with reading(services.engine) as connection:
        found = await repository.page(connection, limit=limit + 1, before=before_of(cursor), status=status, name=name)
    return plan_responses.page_of(found, limit, summary_of)


@router.get(
    "/{plan_id}",
    response_model=None,
    responses={
        200: {"model": PLAN_OR_JOB, "description": "It, or where it is."},
        **responses(401, 403, 404, 422, 429, 503),
    },
)
async def get_offline_plan(
    request: Request,
    services: Service,
    _reader: Reader,
    plan_id: UUID,
    wait_s: WaitS = 0.0,
    _if_none_match: IfNoneMatch = None,
) -> Response:
    """A plan of an offline application, or what became of it so far."""
    waits_s = min(wait_s, services.settings.longest_wait_s)
    record = await for_caller(request, offline.finished(services, plan_id, wait_s=waits_s))
    return plan_responses.shown_once(record, request, job_of)


@router.post(
    "/{plan_id}/adjust",
    status_code=201,
    response_model=None,
    responses={
        201: {
            "model": OfflinePlanDocument,
            "description": "The plan of the rest, with the next revision.",
            "links": TO_THE_OFFLINE_PLAN,
        },
        202: _PLACE,
        **responses(401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503),
    },
    openapi_extra=body_docs(ProgressDocument, halfway=PROGRESS),
)
async def adjust_offline_plan(
    request: Request,
    services: Service,
    principal: Planner,
    plan_id: UUID,
    progress: Annotated[ProgressDocument, body_of(ProgressDocument)],
    _key: IdempotencyKey = None,
    _prefer: Prefer = None,
) -> Response:
    """Plan anew what is left of an application that runs faster or slower than planned.

    The body reports its progress. The plan stays as it is; the answer is a new one whose `adjustment` names it.
    `Prefer` and `Idempotency-Key` work as for a first plan.
    """
    record, document = await offline.ask_adjusted(
        services,
        plan_id,
        progress,
        principal=principal,
        request_id=request_id_of(request),
        ticket=ticket_of(request, principal),
        is_async=preferences_of(request).respond_async,
    )
    return await _made(request, services, record, longest_s=offline.waits_s(document))


@router.post(
    "/{plan_id}/cancel",
    response_model=OfflinePlanJobResource,
    responses=responses(401, 403, 404, 409, 422, 429, 503),
)
async def cancel_offline_plan(
    request: Request, services: Service, principal: Planner, plan_id: UUID
) -> OfflinePlanJobResource:
    """Stop making a plan of an offline application that is queued or running."""
    request_id = request_id_of(request)
    return job_of(await offline.cancel(services, plan_id, principal=principal, request_id=request_id))


@router.get(
    "/{plan_id}/application",
    response_model=None,
    responses={200: {"model": ApplicationDocument}, **responses(401, 403, 404, 422, 429, 503)},
)
async def get_application(services: Service, _reader: Reader, plan_id: UUID) -> Response:
    """The application that a plan is for, as it was given."""
    async with reading(services.engine) as connection:
        await offline.stored(connection, plan_id)
        application = await repository.application_of(connection, plan_id)
    return Response(application, media_type="application/json")


@router.get("/{plan_id}/revisions", responses=responses(401, 403, 404, 422, 429, 503))
async def list_offline_revisions(
    services: Service, _reader: Reader, plan_id: UUID, limit: Limit = 50, cursor: Cursor = None
) -> Page[OfflinePlanSummary]:
    """All plans of the application that this plan is of, the first and those that were adjusted, the newest first."""
    before = before_of(cursor)
    async with reading(services.engine) as connection:
        record = await offline.stored(connection, plan_id)
        found = await repository.page(connection, limit=limit + 1, before=before, first_id=record.first_id)
    return plan_responses.page_of(found, limit, summary_of)


async def _made(request: Request, services: Services, record: OfflinePlanRecord, *, longest_s: float) -> Response:
    wishes = preferences_of(request)
    if not wishes.respond_async:
        wait_s = longest_s if wishes.wait_s is None else min(longest_s, wishes.wait_s)
        record = await for_caller(request, offline.finished(services, record.id, wait_s=wait_s))
    return plan_responses.made(record, request, job_of, headers=wishes.applied)


def job_of(record: OfflinePlanRecord) -> OfflinePlanJobResource:
    """A plan that is not there."""
    same = set(OfflinePlanJobResource.model_fields) - {"schema_", "problem"}
    values = {name: getattr(record, name) for name in same}
    return OfflinePlanJobResource.model_validate({**values, "problem": record.failure})


def summary_of(record: OfflinePlanRecord) -> OfflinePlanSummary:
    """One line of a list."""
    return OfflinePlanSummary(**{name: getattr(record, name) for name in OfflinePlanSummary.model_fields})
