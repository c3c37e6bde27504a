"""`/v1/plans`: plan once, now; what became of it; lists; how to run it."""

import asyncio
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sutler.service.auth.dependency import Planner, Reader
from sutler.service.db.asynchronous import reading
from sutler.service.documents.examples import CHAT, CHAT_ON_THE_STORE
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.export import Exported, ExportFormat, exported
from sutler.service.plans import plan_responses, repository
from sutler.service.plans import service as plans
from sutler.service.plans.plan_responses import before_of
from sutler.service.plans.repository import PlanRecord
from sutler.service.plans.resources import PlanJobResource, PlanStatus, PlanSummary
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.errors import ConflictError
from sutler.service.web.idempotency import ticket_of
from sutler.service.web.links import TO_THE_PLAN
from sutler.service.web.paging import Cursor, Limit, Page
from sutler.service.web.parameters import IdempotencyKey, IfNoneMatch, Prefer, WaitS
from sutler.service.web.preferences import preferences_of
from sutler.service.web.problems import responses
from sutler.service.web.request_id import request_id_of
from sutler.service.web.state import Service
from sutler.service.web.waiting import for_caller

router = APIRouter(prefix="/v1/plans", tags=["plans"])

PLAN_OR_JOB: Final = PlanDocument | PlanJobResource


@router.post(
    "",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": PlanDocument, "description": "The plan; `infeasible` is one too.", "links": TO_THE_PLAN},
        202: {"model": PlanJobResource, "description": "It is being made: follow `Location`.", "links": TO_THE_PLAN},
        **responses(401, 403, 408, 409, 413, 415, 422, 429, 500, 503),
    },
    openapi_extra=body_docs(ProblemDocument, own_market=CHAT, market_of_the_store=CHAT_ON_THE_STORE),
)
async def create_plan(
    request: Request,
    services: Service,
    principal: Planner,
    document: Annotated[ProblemDocument, body_of(ProblemDocument)],
    _key: IdempotencyKey = None,
    _prefer: Prefer = None,
) -> Response:
    """Plan once, now, and wait for it; with `Prefer: respond-async`, or `Prefer: wait=SECONDS`, follow `Location`.

    An `Idempotency-Key` makes it safe to send the request again.
    """
    wishes = preferences_of(request)
    record = await plans.ask(
        services,
        document,
        principal=principal,
        request_id=request_id_of(request),
        ticket=ticket_of(request, principal),
        is_async=wishes.respond_async,
    )
    if not wishes.respond_async:
        longest_s = plans.waits_s(document)
        wait_s = longest_s if wishes.wait_s is None else min(longest_s, wishes.wait_s)
        record = await for_caller(request, plans.finished(services, record.id, wait_s=wait_s))
    return plan_responses.made(record, request, job_of, headers=wishes.applied)


@router.get("", responses=responses(401, 403, 422, 429, 503))
async def list_plans(
    services: Service,
    _reader: Reader,
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Annotated[PlanStatus | None, Query(description="Only plans with this status.")] = None,
    deployment: Annotated[str | None, Query(max_length=63, description="Only plans of this deployment.")] = None,
) -> Page[PlanSummary]:
    """All plans, the newest first."""
    async with reading(services.engine) as connection:
        found = await repository.page(
            connection,
            limit=limit + 1,
            before=before_of(cursor),
            status=status,
            deployment_name=deployment,
        )
    return page_of(found, limit)


@router.get(
    "/{plan_id}",
    response_model=None,
    responses={
        200: {"model": PLAN_OR_JOB, "description": "It, or where it is."},
        **responses(401, 403, 404, 422, 429, 503),
    },
)
async def get_plan(
    request: Request,
    services: Service,
    _reader: Reader,
    plan_id: UUID,
    wait_s: WaitS = 0.0,
    _if_none_match: IfNoneMatch = None,
) -> Response:
    """A plan, or how far it is: the phase of the solve, the best plan so far, and the proven bound."""
    waits_s = min(wait_s, services.settings.longest_wait_s)
    record = await for_caller(request, plans.finished(services, plan_id, wait_s=waits_s))
    return plan_responses.shown_once(record, request, job_of)


@router.post(
    "/{plan_id}/cancel",
    response_model=PlanJobResource,
    responses=responses(401, 403, 404, 409, 422, 429, 503),
)
async def cancel_plan(request: Request, services: Service, principal: Planner, plan_id: UUID) -> PlanJobResource:
    """Stop making a plan that is queued or running."""
    return job_of(await plans.cancel(services, plan_id, principal=principal, request_id=request_id_of(request)))


@router.get(
    "/{plan_id}/problem",
    response_model=None,
    responses={200: {"model": ProblemDocument}, **responses(401, 403, 404, 422, 429, 503)},
)
async def get_problem(services: Service, _reader: Reader, plan_id: UUID) -> Response:
    """The problem that a plan answers, as it was given."""
    async with reading(services.engine) as connection:
        await plans.stored(connection, plan_id)
        problem = await repository.problem_of(connection, plan_id)
    return Response(problem, media_type="application/json")


@router.get(
    "/{plan_id}/export/{format}",
    response_model=None,
    responses={
        200: {
            "description": "A script, YAML or JSON.",
            "content": {media: {"schema": {"type": "string"}} for media in ("text/x-shellscript", "application/yaml")}
            | {"application/json": {"schema": {}}},
        },
        **responses(401, 403, 404, 409, 422, 429, 503),
    },
)
async def export_plan(services: Service, _reader: Reader, plan_id: UUID, format: ExportFormat) -> Response:
    """How to run a plan: vLLM command lines, a compose file, Kubernetes manifests, SkyPilot tasks, router weights."""
    async with reading(services.engine) as connection:
        record = await plans.stored(connection, plan_id)
    if record.document is None:
        raise ConflictError(f"plan {plan_id} is {record.status}: there is nothing to run yet")
    made = await asyncio.to_thread(_exported, record.document, format)
    disposition = {"Content-Disposition": f'attachment; filename="{made.filename}"'}
    return Response(made.content, media_type=made.media_type, headers=disposition)


def _exported(document: str, format: ExportFormat) -> Exported:
    return exported(PlanDocument.model_validate_json(document), format)


def shown(record: PlanRecord) -> Response:
    """The plan, or its job where there is none."""
    return plan_responses.shown(record, job_of)


def job_of(record: PlanRecord) -> PlanJobResource:
    """A plan that is not there."""
    return PlanJobResource.model_validate(
        {
            **{name: getattr(record, name) for name in ("id", "status", "attempt", "created_at", "started_at")},
            "finished_at": record.finished_at,
            "deployment": record.deployment_name,
            "progress": record.progress,
            "problem": record.failure,
            "url": record.url,
        }
    )


def page_of(found: list[PlanRecord], limit: int) -> Page[PlanSummary]:
    """One more record than wanted says that there is a next page."""
    return plan_responses.page_of(found, limit, summary_of)


def summary_of(record: PlanRecord) -> PlanSummary:
    """One line of a list."""
    names = [name for name in PlanSummary.model_fields if name not in {"deployment", "url"}]
    values = {name: getattr(record, name) for name in names}
    return PlanSummary(**values, deployment=record.deployment_name, url=record.url)
