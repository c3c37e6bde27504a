"""`/v1/costs`, `/v1/deployments/{name}/costs`, `/v1/deployments/{name}/traffic/history`: what was, over time."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query

from sutler.service.auth.dependency import Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.history import service as history
from sutler.service.deployments.history.schemas import CostsResource, TrafficHistoryResource
from sutler.service.deployments.parameters import Name
from sutler.service.documents.errors import DocumentError
from sutler.service.market.selection import instant
from sutler.service.web.problems import responses
from sutler.service.web.state import Services

router = APIRouter(prefix="/v1", tags=["deployments"])
MOST_POINTS: Final = 1_000  # chosen: more than a plot shows
Since = Annotated[str, Query(max_length=40, description="A time in RFC 3339, or how long ago: 90s, 30m, 2h, 3d.")]
Until = Annotated[str | None, Query(max_length=40, description="The same; unset: now.")]
Points = Annotated[int, Query(ge=2, le=MOST_POINTS)]


@router.get("/costs", responses=responses(401, 403, 422, 429, 503))
async def get_costs(
    services: Service, _reader: Reader, since: Since = "7d", until: Until = None, points: Points = 60
) -> CostsResource:
    """What all deployments cost over time: by their plans, and by what was reported as rented."""
    begin, end = stretch(services, since, until)
    async with reading(services.engine) as connection:
        return await history.costs(connection, since=begin, until=end, points=points)


@router.get("/deployments/{name}/costs", responses=responses(401, 403, 404, 422, 429, 503))
async def get_deployment_costs(
    services: Service, _reader: Reader, name: Name, since: Since = "7d", until: Until = None, points: Points = 60
) -> CostsResource:
    """What a deployment costs over time, and the plans that changed it."""
    begin, end = stretch(services, since, until)
    async with reading(services.engine) as connection:
        await deployments.found(connection, name)
        return await history.costs(connection, since=begin, until=end, points=points, name=name)


@router.get("/deployments/{name}/traffic/history", responses=responses(401, 403, 404, 422, 429, 503))
async def get_traffic_history(
    services: Service, _reader: Reader, name: Name, since: Since = "1d", until: Until = None, points: Points = 96
) -> TrafficHistoryResource:
    """What a deployment's models were asked over time, by quarters of an hour, beside what was planned for."""
    begin, end = stretch(services, since, until)
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return await history.traffic_history(
            connection, deployment, since=begin, until=end, points=points, now=services.now()
        )


def stretch(services: Services, since: str, until: str | None) -> tuple[datetime, datetime]:
    """From when to when. Raises DocumentError."""
    now = services.now()
    begin = instant(since, field="since", now=now)
    end = now if until is None else instant(until, field="until", now=now)
    if end <= begin:
        raise DocumentError.of("until", f"must be after since, {begin:%Y-%m-%dT%H:%M:%SZ}", value=f"{end:%FT%TZ}")
    return begin, end
