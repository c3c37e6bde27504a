"""`/v1/deployments/{name}/decisions`: what was decided about a deployment's plan, and why."""

from fastapi import APIRouter

from sutler.service.auth.dependency import Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.repository import WatchRecord
from sutler.service.deployments.watch_schema import DecisionResource, WatchResource
from sutler.service.web.paging import Cursor, Limit, Page, before_of, encode_cursor
from sutler.service.web.problems import responses

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])


@router.get("/{name}/decisions", responses=responses(401, 403, 404, 422, 429, 503))
async def list_decisions(
    services: Service, _reader: Reader, name: Name, limit: Limit = 50, cursor: Cursor = None
) -> Page[DecisionResource]:
    """What was decided about its plan, the newest first: revisions with their reasons, and changes not worth it."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        rows = await repository.decisions(connection, deployment.id, limit=limit + 1, before=before_of(cursor))
    following = None if len(rows) <= limit else encode_cursor(rows[limit - 1].at.isoformat(), str(rows[limit - 1].id))
    return Page(items=rows[:limit], next=following)


def watch_resource(record: WatchRecord | None) -> WatchResource | None:
    """What callers see of a watched deployment; None before the first look."""
    if record is None or not record.state:
        return None
    told = {
        "feed": "none",
        "load_multiple": None,
        "drifts": (),
        **record.state,
        "holdings": "never" if record.holdings_at is None else "reported",  # the look may be older than the report
        "looked_at": record.looked_at,
        "next_look_at": record.look_at,
        "holdings_reported_at": record.holdings_at,
    }
    return WatchResource.model_validate(told)
