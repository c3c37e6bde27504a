"""The endpoints that every kind of plan has: ask for one, see it, cancel it, delete it, see what it is for.

Flow: PlanKind (plan_requests.py) -> router_of (here) -> endpoints.py and service/offline/endpoints.py, which add
their own.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.plans import plan_requests, plan_responses
from sutler.service.plans.plan_requests import PlanKind, asker_of
from sutler.service.plans.plan_table import StoredPlan
from sutler.service.web.bodies import body_docs, read_body
from sutler.service.web.parameters import IdempotencyKey, IfNoneMatch, Prefer, WaitS, preferences_of
from sutler.service.web.problems import responses
from sutler.service.web.state import Services
from sutler.service.web.waiting import for_caller

Kind = PlanKind[Any, Any]


@dataclass(frozen=True, slots=True)
class Described:
    """What the OpenAPI document says of the operations on one kind of plan, and which calls can follow."""

    create: str
    get: str
    cancel: str
    get_asked: str
    links: dict[str, Any]
    get_asked_operation: str | None = None
    """The operation's name; None: `get_` and what is asked."""
    names_others: bool = False
    """Whether a question may name what is not there."""


def router_of(kind: Kind, described: Described, **examples: Any) -> APIRouter:
    """The common endpoints of a kind of plan; `examples` are whole questions by name."""
    path, name, job = kind.table.record.path, kind.operation, kind.table.record.job
    router = APIRouter(prefix=path, tags=[f"{kind.noun}s"])
    router.add_api_route(
        "",
        partial(_create, kind),
        methods=["POST"],
        name=f"create_{name}",
        description=described.create,
        status_code=201,
        response_model=None,
        responses={
            **answers(kind, described, "The plan; `infeasible` is one too."),
            **responses(*(404,) * described.names_others, 401, 403, 408, 409, 413, 415, 422, 429, 500, 503),
        },
        openapi_extra=body_docs(kind.question, **examples),
    )
    router.add_api_route(
        "/{plan_id}",
        partial(_get, kind),
        methods=["GET"],
        name=f"get_{name}",
        description=described.get,
        response_model=None,
        responses={
            200: {"model": kind.plan | job, "description": "It, or where it is."},
            **responses(401, 403, 404, 422, 429, 503),
        },
    )
    router.add_api_route(
        "/{plan_id}/cancel",
        partial(_cancel, kind),
        methods=["POST"],
        name=f"cancel_{name}",
        description=described.cancel,
        response_model=job,
        responses=responses(401, 403, 404, 409, 422, 429, 503),
    )
    router.add_api_route(
        "/{plan_id}",
        partial(_delete, kind),
        methods=["DELETE"],
        name=f"delete_{name}",
        description=f"Delete a {kind.noun} that is not being made and that nothing refers to which is kept.",
        status_code=204,
        response_model=None,
        responses=responses(401, 403, 404, 409, 422, 429, 503),
    )
    router.add_api_route(
        f"/{{plan_id}}/{kind.asked}",
        partial(_get_asked, kind),
        methods=["GET"],
        name=described.get_asked_operation or f"get_{kind.asked}",
        description=described.get_asked,
        response_model=None,
        responses={200: {"model": kind.question}, **responses(401, 403, 404, 422, 429, 503)},
    )
    return router


def answers(kind: Kind, described: Described, plan: str) -> dict[int | str, dict[str, Any]]:
    """Describes, for the OpenAPI document, an endpoint that answers with a plan, described so, or with its place."""
    links = described.links
    return {
        201: {"model": kind.plan, "description": plan, "links": links},
        202: {
            "model": kind.table.record.job,
            "description": "It is being made: follow `Location`.",
            "links": links,
        },
    }


async def _create(
    kind: Kind,
    request: Request,
    services: Service,
    caller: Planner,
    _key: IdempotencyKey = None,
    _prefer: Prefer = None,
) -> Response:
    question = await read_body(kind.question, request)
    record = await plan_requests.ask(services, kind, question, asker_of(request, caller))
    return await made(request, services, kind, record, time_limit_s=kind.time_limit_s(question))


async def made(
    request: Request, services: Services, kind: Kind, record: StoredPlan, *, time_limit_s: float
) -> Response:
    """What comes of asking for a plan, waited for as long as the caller would like, and not much beyond its limit."""
    wishes = preferences_of(request)
    if not wishes.respond_async:
        longest_s = time_limit_s + plan_requests.QUEUE_PATIENCE_S
        wait_s = longest_s if wishes.wait_s is None else min(longest_s, wishes.wait_s)
        waiting = plan_requests.finished(services, kind.table, record.id, wait_s=wait_s)
        record = await for_caller(request, waiting)
    return plan_responses.made(record, request, headers=wishes.applied)


async def _get(
    kind: Kind,
    request: Request,
    services: Service,
    _reader: Reader,
    plan_id: UUID,
    wait_s: WaitS = 0.0,
    _if_none_match: IfNoneMatch = None,
) -> Response:
    waits_s = min(wait_s, services.settings.longest_wait_s)
    waiting = plan_requests.finished(services, kind.table, plan_id, wait_s=waits_s)
    return plan_responses.shown_once(await for_caller(request, waiting), request)


async def _cancel(kind: Kind, services: Service, caller: Planner, plan_id: UUID) -> BaseModel:
    return plan_responses.job_of(await plan_requests.cancel(services, kind, plan_id, caller=caller))


async def _delete(kind: Kind, services: Service, caller: Planner, plan_id: UUID) -> None:
    await plan_requests.delete(services, kind, plan_id, caller=caller)


async def _get_asked(kind: Kind, services: Service, _reader: Reader, plan_id: UUID) -> Response:
    async with reading(services.engine) as connection:
        await plan_requests.stored(connection, kind.table, plan_id)
        asked = await kind.table.asked(connection, plan_id, kind.asked)
    return Response(asked, media_type="application/json")
