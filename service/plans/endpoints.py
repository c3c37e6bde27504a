"""`/v1/plans`: plan once, now; what became of it; lists; how to run it."""

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import Query
from fastapi.responses import Response
from pydantic import Field

from sutler.service.auth.dependency import Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.documents.examples import CHAT, CHAT_ON_THE_STORE
from sutler.service.documents.plan import PlanDocument
from sutler.service.export import Exported, ExportFormat, exported
from sutler.service.plans import plan_responses
from sutler.service.plans.plan_endpoints import Described, router_of
from sutler.service.plans.plan_requests import stored
from sutler.service.plans.repository import PLANS
from sutler.service.plans.resources import PlanStatus, PlanSummary
from sutler.service.plans.service import PLAN
from sutler.service.web.errors import ConflictError
from sutler.service.web.links import TO_THE_PLAN
from sutler.service.web.paging import Cursor, Limit, Page, before_of
from sutler.service.web.problems import responses

router = router_of(
    PLAN,
    Described(
        create="Plan once, now, and wait for it; with `Prefer: respond-async`, or `Prefer: wait=SECONDS`, follow "
        "`Location`.\n\nAn `Idempotency-Key` makes it safe to send the request again.",
        get="A plan, or how far it is: the phase of the solve, the best plan so far, and the proven bound.",
        cancel="Stop making a plan that is queued or running.",
        get_asked="The problem that a plan answers, as it was given.",
        links=TO_THE_PLAN,
    ),
    own_market=CHAT,
    market_of_the_store=CHAT_ON_THE_STORE,
)


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
    before = before_of(cursor)
    async with reading(services.engine) as connection:
        found = await PLANS.page(
            connection, limit=limit + 1, before=before, status=status, deployment_name=deployment
        )
    return plan_responses.page_of(found, limit)


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
async def export_plan(
    services: Service,
    _reader: Reader,
    plan_id: UUID,
    format: ExportFormat,
    port: Annotated[int, Query(ge=1, le=65535, description="Of the first server on every machine.")] = 8000,
    argument: Annotated[
        list[Annotated[str, Field(max_length=1_000)]],
        Query(max_length=50, description="NAME=VALUE for all servers besides, by vLLM's names."),
    ] = [],  # noqa: B006
) -> Response:
    """How to run a plan: vLLM command lines, a compose file, Kubernetes manifests, SkyPilot tasks, router weights."""
    async with reading(services.engine) as connection:
        record = await stored(connection, PLANS, plan_id)
    if record.document is None:
        raise ConflictError(f"plan {plan_id} is {record.status}: there is nothing to run yet")
    made = await asyncio.to_thread(_exported, record.document, format, port, argument)
    disposition = {"Content-Disposition": f'attachment; filename="{made.filename}"'}
    return Response(made.content, media_type=made.media_type, headers=disposition)


def _exported(document: str, format: ExportFormat, port: int, arguments: list[str]) -> Exported:
    return exported(PlanDocument.model_validate_json(document), format, port=port, arguments=arguments)
