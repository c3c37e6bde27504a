"""Costs and traffic over time, put together from the store."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, fsum
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.history import repository
from sutler.service.deployments.history.repository import Asked
from sutler.service.deployments.history.schemas import (
    CostResource,
    CostsResource,
    ModelTrafficHistory,
    ModelTrafficPoint,
    TrafficHistoryResource,
)
from sutler.service.deployments.repository import Deployment
from sutler.service.deployments.traffic.season import QUARTER, quarter_of

T = TypeVar("T")
MOST_STEPS: Final = 200


async def costs(
    connection: AsyncConnection, *, since: datetime, until: datetime, points: int, name: str | None = None
) -> CostsResource:
    """Of all deployments, or of those that ever had this name; `points` are two at least."""
    asked = Asked(since, until, points, name)
    planned_usd, held_usd = await repository.paid_usd(connection, asked)
    planned, held = await repository.levels(connection, asked)
    return CostsResource(
        deployment=name,
        since=since,
        until=until,
        planned_usd=planned_usd or 0.0,
        held_usd=held_usd,
        items=[
            CostResource(
                at=since + (until - since) * i / (points - 1),
                planned_usd_per_hour=planned[i][0],
                held_usd_per_hour=held[i][0] if held[i][1] else None,
                deployments=planned[i][1],
                reported_deployments=held[i][1],
            )
            for i in range(points)
        ],
        steps=await repository.steps(connection, asked, most=MOST_STEPS),
    )


async def traffic_history(
    connection: AsyncConnection,
    deployment: Deployment,
    *,
    since: datetime,
    until: datetime,
    points: int,
    now: datetime,
) -> TrafficHistoryResource:
    """What was seen of each model, and what the plans were for that held."""
    begin = quarter_of(since.astimezone(UTC))
    quarters = max(1, ceil((until - begin) / QUARTER))
    step = QUARTER * ceil(quarters / points)
    begins = [begin + step * i for i in range(ceil((until - begin) / step))]
    names = [model["name"] for model in deployment.problem["models"]]
    asked = {"since": begin, "until": until}
    seen = await repository.seen_rps(connection, deployment.id, **asked, now=now)
    means = {name: means_by_step(known, begin, step) for name, known in seen.items()}
    planned = await repository.planned_rps(connection, deployment.id, **asked)
    latencies = await repository.latencies(connection, deployment.id, models=names, **asked, step=step)
    return TrafficHistoryResource(
        deployment=deployment.name,
        since=begin,
        step_s=step.total_seconds(),
        models=[
            ModelTrafficHistory(
                model=name,
                items=[
                    ModelTrafficPoint(
                        at=at,
                        seen_rps=means.get(name, {}).get(place),
                        planned_rps=rates_at(planned, at).get(name),
                        latencies=latencies.get((name, place), {}),
                    )
                    for place, at in enumerate(begins)
                ],
            )
            for name in names
        ],
    )


def means_by_step(known: Mapping[datetime, float], begin: datetime, step: timedelta) -> dict[int, float]:
    """By number of the step, the mean over its quarters that are known; steps without any are not there."""
    of: dict[int, list[float]] = defaultdict(list)
    for at, rps in known.items():
        of[(at - begin) // step].append(rps)
    return {place: fsum(rates) / len(rates) for place, rates in of.items()}


def rates_at(plans: Sequence[tuple[datetime, Mapping[str, T]]], at: datetime) -> Mapping[str, T]:
    """What the plan was for that held then, by model; nothing before the first."""
    place = bisect_right(plans, at, key=lambda plan: plan[0])
    return plans[place - 1][1] if place else {}
