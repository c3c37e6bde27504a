"""`/v1/deployments`: standing problems, their current plans and their history, also as Terraform state."""

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.db.asynchronous import begun, reading
from sutler.service.deployments import repository
from sutler.service.deployments import service as deployments
from sutler.service.deployments.current import CurrentPlans
from sutler.service.deployments.parameters import Name, Revision
from sutler.service.deployments.repository import CurrentRow
from sutler.service.deployments.schemas import (
    DeploymentDocument,
    DeploymentResource,
    DeploymentSummary,
    NewDeploymentDocument,
    WakeDocument,
    WokenResource,
)
from sutler.service.deployments.showing import resource, summary, url_of
from sutler.service.deployments.terraform import state_document
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.examples import CHAT
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import service as plans
from sutler.service.plans.plan_responses import job_of, page_of, shown
from sutler.service.plans.repository import PLANS
from sutler.service.plans.resources import PlanJobResource, PlanSummary
from sutler.service.web import idempotency
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.errors import ChangedMeanwhileError, NotYetError
from sutler.service.web.idempotency import Earlier, ticket_of
from sutler.service.web.links import TO_THE_DEPLOYMENT, TO_THE_PLAN
from sutler.service.web.paging import Cursor, Limit, Page, before_of, decode_cursor, encode_cursor
from sutler.service.web.parameters import MOST_WAIT_S, IdempotencyKey, IfMatch, IfNoneMatch, tags_of
from sutler.service.web.problems import responses
from sutler.service.web.waiting import for_caller

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])

After = Annotated[
    int | None, Query(ge=0, le=2**31 - 1, description="Only a plan of a higher revision; 304 while there is none.")
]
WaitS = Annotated[float, Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait for such a plan.")]
TERRAFORM_WAIT_S: Final = 25.0  # Terraform's own client gives up on what says 503 three times

UNCHANGED: Final[dict[int | str, dict[str, Any]]] = {304: {"description": "There is no newer plan."}}


@router.post(
    "",
    status_code=201,
    responses={
        201: {"model": DeploymentResource, "links": TO_THE_DEPLOYMENT},
        **responses(401, 403, 408, 409, 413, 415, 422, 429, 503),
    },
    response_model=None,
    openapi_extra=body_docs(NewDeploymentDocument, chat={"name": "chat", "problem": CHAT}),
)
async def create_deployment(
    request: Request,
    services: Service,
    caller: Planner,
    document: Annotated[NewDeploymentDocument, body_of(NewDeploymentDocument)],
    _key: IdempotencyKey = None,
) -> Response:
    """Make a standing problem; its first plan is begun at once and found at `/v1/deployments/{name}/plan`."""
    await plans.check(services, document.problem)
    name, rest = document.name, DeploymentDocument(problem=document.problem, policy=document.policy)
    ticket = ticket_of(request, caller)
    async with begun(services.changes) as connection:
        earlier = await idempotency.taken(connection, ticket, services.now())
        if earlier is not None and earlier.body is not None:
            return _answer(earlier.body, 201, location=earlier.location)
        await services.count_change(connection, caller.principal)
        await deployments.create(services, connection, name, rest, caller)
        deployment = await deployments.found(connection, name)
        body, location = (await resource(connection, deployment, services.now())).model_dump_json(), url_of(name)
        await idempotency.remember(connection, ticket, Earlier(status_code=201, location=location, body=body))
    return _answer(body, 201, location=location, etag=deployments.version_etag(deployment))


@router.get("", responses=responses(401, 403, 422, 429, 503))
async def list_deployments(
    services: Service, _reader: Reader, limit: Limit = 50, cursor: Cursor = None
) -> Page[DeploymentSummary]:
    """All deployments, by name."""
    after = None if cursor is None else decode_cursor(cursor, parts=1)[0]
    async with reading(services.engine) as connection:
        found = await repository.page(connection, limit=limit + 1, after=after)
    following = encode_cursor(found[limit - 1].deployment.name) if len(found) > limit else None
    return Page(items=[summary(listed, services.now()) for listed in found[:limit]], next=following)


@router.get(
    "/{name}",
    responses={200: {"model": DeploymentResource}, **responses(401, 403, 404, 422, 429, 503)},
    response_model=None,
)
async def get_deployment(services: Service, _reader: Reader, name: Name) -> Response:
    """A deployment with its current plan, the one that is being made, and why the last attempt failed, if it did."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        body = (await resource(connection, deployment, services.now())).model_dump_json()
    return _answer(body, 200, etag=deployments.version_etag(deployment))


@router.put(
    "/{name}",
    responses={
        200: {"model": DeploymentResource, "description": "Changed, or as it was."},
        201: {"model": DeploymentResource, "description": "Made.", "links": TO_THE_DEPLOYMENT},
        **responses(401, 403, 408, 409, 412, 413, 415, 422, 429, 503),
    },
    response_model=None,
    openapi_extra=body_docs(DeploymentDocument, chat={"problem": CHAT}),
)
async def put_deployment(
    request: Request,
    services: Service,
    caller: Planner,
    name: Name,
    document: Annotated[DeploymentDocument, body_of(DeploymentDocument)],
    if_match: IfMatch = None,
) -> Response:
    """Make a deployment or change it. A changed problem calls for a new plan; the same again does nothing."""
    if document.name not in (None, name):
        raise DocumentError.of("name", f"must be {name}, as in the path, or left out", value=document.name)
    await plans.check(services, document.problem)
    async with services.changing(caller) as connection:
        deployment = await repository.find(connection, name, lock=True)
        if deployment is None:
            if if_match is not None:
                raise ChangedMeanwhileError(f"there is no deployment {name!r}: without If-Match, PUT makes one")
            await deployments.create(services, connection, name, document, caller)
        else:
            deployments.check_unchanged(deployment, if_match)
            if "*" in tags_of(request):
                raise ChangedMeanwhileError(
                    f"there is a deployment {name!r} already: without If-None-Match, PUT changes it"
                )
            await deployments.change(services, connection, deployment, document, caller)
        stored = await deployments.found(connection, name)
        body = (await resource(connection, stored, services.now())).model_dump_json()
    status, etag = (201 if deployment is None else 200), deployments.version_etag(stored)
    return _answer(body, status, location=url_of(name), etag=etag)


@router.delete("/{name}", status_code=204, responses=responses(401, 403, 404, 412, 422, 429, 503))
async def delete_deployment(services: Service, caller: Planner, name: Name, if_match: IfMatch = None) -> None:
    """Delete a deployment; its plans stay in `/v1/plans`."""
    await deployments.delete(services, name, caller, if_match=if_match)


@router.post(
    "/{name}/replan",
    status_code=202,
    responses={202: {"model": PlanJobResource, "links": TO_THE_PLAN}, **responses(401, 403, 404, 422, 429, 503)},
    response_model=None,
)
async def replan(services: Service, caller: Planner, name: Name) -> Response:
    """Plan anew, now. While a plan is being made, that one is the answer."""
    record = await deployments.replan(services, name, caller)
    return _answer(job_of(record).model_dump_json(), 202, location=record.url)


@router.post(
    "/{name}/wake",
    status_code=202,
    responses=responses(401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(WakeDocument, all={}, one={"models": ["chat"]}),
)
async def wake(
    services: Service, caller: Planner, name: Name, document: Annotated[WakeDocument, body_of(WakeDocument)]
) -> WokenResource:
    """Serve models that sleep: their plan is made at once, as for a request."""
    return await deployments.wake(services, name, document.models, caller)


@router.get(
    "/{name}/plan",
    response_model=None,
    responses={200: {"model": PlanDocument}, **UNCHANGED, **responses(401, 403, 404, 422, 429, 503)},
)
async def get_current_plan(
    request: Request,
    services: Service,
    _reader: Reader,
    name: Name,
    after: After = None,
    wait_s: WaitS = 0.0,
    _if_none_match: IfNoneMatch = None,
) -> Response:
    """The plan that holds now. `?after=REVISION&wait_s=30` waits for the next one; so does `If-None-Match`."""
    unlike, waits_s = tags_of(request), min(wait_s, services.settings.longest_wait_s)
    asked = deployments.current_plan(services, name, after=after, unlike=unlike, wait_s=waits_s)
    with services.metrics.long_poll(wait_s):
        current = await (for_caller(request, asked) if wait_s else asked)
    if current is None:
        known = await services.part(CurrentPlans).get(name, services.project)
        headers = {} if known is None else {"ETag": deployments.etag_of(known)}
        return Response(status_code=304, headers=headers)
    return _answer(current.document, 200, etag=deployments.etag_of(current))


@router.get("/{name}/plans", responses=responses(401, 403, 404, 422, 429, 503))
async def list_deployment_plans(
    services: Service, _reader: Reader, name: Name, limit: Limit = 50, cursor: Cursor = None
) -> Page[PlanSummary]:
    """The deployment's plans, the newest first, with those that are being made or failed."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        before = before_of(cursor)
        found = await PLANS.page(connection, limit=limit + 1, before=before, deployment_id=deployment.id)
    return page_of(found, limit)


@router.get(
    "/{name}/plans/{revision}",
    response_model=None,
    responses={200: {"model": PlanDocument}, **responses(401, 403, 404, 422, 429, 503)},
)
async def get_deployment_plan(services: Service, _reader: Reader, name: Name, revision: Revision) -> Response:
    """One plan of the deployment."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return shown(await deployments.plan_of(connection, deployment, revision))


@router.get(
    "/{name}/terraform/state",
    response_model=None,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "State, version 4."},
        **responses(401, 403, 404, 409, 422, 429, 503),
    },
)
async def get_terraform_state(services: Service, _reader: Reader, name: Name) -> Response:
    """The current plan as a Terraform state document, for `data "terraform_remote_state"` with backend `http`."""
    waits_s = min(TERRAFORM_WAIT_S, services.settings.longest_wait_s)
    current = await deployments.current_plan(services, name, wait_s=waits_s)
    if current is None:
        raise NotYetError(f"{name} has no plan yet: ask again")
    return _answer(await asyncio.to_thread(_state, name, current), 200, etag=deployments.etag_of(current))


def _state(name: str, current: CurrentRow) -> str:
    plan = PlanDocument.model_validate_json(current.document)
    return state_document(plan, deployment=name, lineage=current.deployment_id)


def _answer(body: str, status: int, *, location: str | None = None, etag: str | None = None) -> Response:
    given = {"Location": location, "ETag": etag, "Cache-Control": "no-cache"}
    headers = {name: value for name, value in given.items() if value is not None}
    return Response(body, status, media_type="application/json", headers=headers)
