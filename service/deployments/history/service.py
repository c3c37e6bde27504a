"""Costs and traffic over time, put together from the store."""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, fsum
from typing import Final, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.history import repository
from sutler.service.deployments.history.costs import Spell, Sum, instants, spells
from sutler.service.deployments.history.repository import HeldPlan
from sutler.service.deployments.history.schemas import (
    CostResource,
    CostsResource,
    CostStepResource,
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
    """Of all deployments, or of those that ever had this name."""
    plans = await repository.held_plans(connection, since=since, until=until, name=name)
    reports = await repository.reports(connection, since=since, until=until, name=name)
    spells_planned = planned_spells(plans, await repository.deletions(connection, name))
    return await asyncio.to_thread(_costs, plans, spells_planned, reports, name, since, until, points)


def _costs(
    plans: Sequence[HeldPlan],
    spells_planned: Sequence[Spell],
    reports: Sequence[Spell],
    name: str | None,
    since: datetime,
    until: datetime,
    points: int,
) -> CostsResource:
    """Off the event loop, since plans and reports may be many."""
    planned, held = Sum(spells_planned), Sum(reports)
    return CostsResource(
        deployment=name,
        since=since,
        until=until,
        planned_usd=planned.usd(since, until),
        held_usd=held.usd(since, until) if reports else None,
        items=[_at(instant, planned, held) for instant in instants(since, until, points)],
        steps=[
            CostStepResource(
                at=one.at,
                deployment=one.deployment,
                revision=one.revision,
                usd_per_hour=one.usd_per_hour,
                reason=one.reason,
            )
            for one in plans
            if one.at >= since and one.usd_per_hour is not None
        ][-MOST_STEPS:],
    )


def _at(instant: datetime, planned: Sum, held: Sum) -> CostResource:
    usd, deployments = planned.at(instant)
    held_usd, reported = held.at(instant)
    return CostResource(
        at=instant,
        planned_usd_per_hour=usd,
        held_usd_per_hour=held_usd if reported else None,
        deployments=deployments,
        reported_deployments=reported,
    )


def planned_spells(plans: Sequence[HeldPlan], deleted: Mapping[str, Sequence[datetime]]) -> list[Spell]:
    """Plans hold until the next of their deployment, or until it is deleted; one that came too late never did.

    `deleted`: by name, when deployments of that name were."""
    of: dict[tuple[UUID | str, datetime | None], list[HeldPlan]] = defaultdict(list)
    for plan in plans:
        end = None if plan.deployment_id else _deleted_at(plan, deleted.get(plan.deployment, ()))
        of[plan.deployment_id or plan.deployment, end].append(plan)
    return [
        spell for (_, end), mine in of.items() for spell in spells([(one.at, one.usd_per_hour) for one in mine], end)
    ]


def _deleted_at(plan: HeldPlan, deleted: Sequence[datetime]) -> datetime:
    return next((at for at in deleted if at > plan.at), plan.at)


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
