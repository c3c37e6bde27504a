"""`/v1/deployments/{name}/decisions`: what was decided about a deployment's plan, and why."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter

from sutler.service.auth.dependency import Reader
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.repository import NewDecision, WatchRecord
from sutler.service.deployments.watch_schema import DecisionResource, DriftResource, OptionResource, WatchResource
from sutler.service.plans.plan_responses import before_of
from sutler.service.web.paging import Cursor, Limit, Page, encode_cursor
from sutler.service.web.problems import responses
from sutler.service.web.state import Service

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])


@router.get("/{name}/decisions", responses=responses(401, 403, 404, 422, 429, 503))
async def list_decisions(
    services: Service, _reader: Reader, name: Name, limit: Limit = 50, cursor: Cursor = None
) -> Page[DecisionResource]:
    """What was decided about its plan, the newest first: revisions with their reasons, and changes not worth it."""
    before: tuple[datetime, UUID] | None = before_of(cursor)
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        rows = await repository.decisions(connection, deployment.id, limit=limit + 1, before=before)
    following = None if len(rows) <= limit else encode_cursor(rows[limit - 1].at.isoformat(), str(rows[limit - 1].id))
    return Page(items=[_shown(row) for row in rows[:limit]], next=following)


def _shown(decision: NewDecision) -> DecisionResource:
    return DecisionResource(
        id=decision.id,
        at=decision.at,
        basis_revision=decision.basis_revision,
        revision=decision.revision,
        chosen=decision.chosen,  # type: ignore[arg-type]
        reason=decision.reason,
        drifts=[DriftResource(**drift) for drift in decision.drifts],
        options=[OptionResource(**option) for option in decision.options],
    )


def watch_resource(record: WatchRecord | None) -> WatchResource | None:
    """None before the first look."""
    if record is None or not record.state:
        return None
    state = record.state
    return WatchResource(
        status=state["status"],
        detail=state["detail"],
        feed=state.get("feed", "none"),
        holdings="never" if record.holdings_at is None else "reported",  # the look may be older than the report
        load_multiple=state.get("load_multiple"),
        drifts=[DriftResource(**drift) for drift in state.get("drifts", ())],
        looked_at=record.looked_at,
        next_look_at=record.look_at,
        holdings_reported_at=record.holdings_at,
    )
