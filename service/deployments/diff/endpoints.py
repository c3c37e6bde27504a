"""`/v1/deployments/{name}/plans/{revision}/diff`: what to do to have that plan where another was."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from sutler.service.auth.dependency import Reader, Service
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.diff.service import diff_of
from sutler.service.deployments.parameters import Name, Revision
from sutler.service.web.problems import responses

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
    body = await diff_of(services, name, revision, from_revision)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-cache"})
