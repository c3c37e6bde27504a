"""`/v1/deployments/{name}/plans/{revision}/diff`: what to do to have that plan where another was."""

import asyncio
import json
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth.dependency import Reader
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.parameters import Name, Revision
from sutler.service.deployments.repository import Deployment
from sutler.service.documents.fields import document_json
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import repository as plans
from sutler.service.plans.repository import PlanRecord
from sutler.service.plans.resources import SERVES
from sutler.service.web.errors import ConflictError
from sutler.service.web.problems import responses
from sutler.service.web.state import Service

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])

From = Annotated[
    int | None,
    Query(
        alias="from",
        ge=0,
        le=2**31 - 1,
        description="Revision to begin with; 0: with nothing; unset: the plan that held before this one.",
    ),
]


@router.get(
    "/{name}/plans/{revision}/diff",
    response_model=None,
    responses={200: {"model": DiffDocument}, **responses(401, 403, 404, 409, 422, 429, 503)},
)
async def get_plan_diff(
    services: Service, _reader: Reader, name: Name, revision: Revision, from_revision: From = None
) -> Response:
    """What to keep, start, re-route and stop to have this plan where another was, in which order, and why."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        after = await _serving(connection, deployment, revision)
        start = from_revision
        if start is None:
            start = await plans.serving_before(connection, deployment.id, revision) or 0
        before = await _serving(connection, deployment, start) if start else None
    body = _stored(after, start) or await asyncio.to_thread(_computed, before, after)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-cache"})


async def _serving(connection: AsyncConnection, deployment: Deployment, revision: int) -> PlanRecord:
    """A plan that serves.

    Raises NotFoundError; ConflictError for a plan that serves nothing, which would have everything stopped.
    """
    found = await deployments.plan_of(connection, deployment, revision)
    if found.status not in SERVES:
        reason = f"plan {revision} of {deployment.name} is {found.status} and runs nothing"
        remedy = f"name one that serves; `sutler deployments plan {deployment.name} --revision {revision}` says why"
        raise ConflictError(f"{reason}: {remedy}")
    return found


def _stored(after: PlanRecord, start: int) -> str | None:
    """The diff that was issued with the plan, which also knew what was held then; None: it is of another pair."""
    if after.diff is None or (json.loads(after.diff).get("from") or 0) != start:
        return None
    return after.diff


def _computed(before: PlanRecord | None, after: PlanRecord) -> str:
    old = None if before is None else PlanDocument.model_validate_json(before.document or "")
    new = PlanDocument.model_validate_json(after.document or "")
    planned = "the first plan" if before is None else f"revision {after.revision} instead of {before.revision}"
    return document_json(difference(old, new, reason=after.reason or planned))
