"""Costs and traffic over time, put together from the store."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, fsum
from typing import Any, Final

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
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.deployments.traffic.season import QUARTER, quarter_of
from sutler.service.documents.problem_parts import ModelDocument
from sutler.service.documents.validation import validate

MOST_STEPS: Final = 200


async def costs(
    connection: AsyncConnection, *, since: datetime, until: datetime, points: int, name: str | None = None
) -> CostsResource:
    """Of all deployments, or of those that ever had this name."""
    plans = await repository.held_plans(connection, since=since, until=until, name=name)
    told = await repository.reports(connection, since=since, until=until, name=name)
    deleted = await repository.deletions(connection)
    planned = Sum(_planned(plans, deleted))
    held_spells = [spell for of, changes in told.items() for spell in _told(changes, deleted.get(of, ()))]
    held = Sum(held_spells)
    return CostsResource(
        deployment=name,
        since=since,
        until=until,
        planned_usd=planned.usd(since, until),
        held_usd=held.usd(since, until) if held_spells else None,
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
            if one.at >= since
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
    )


def _planned(plans: Sequence[HeldPlan], deleted: Mapping[str, Sequence[datetime]]) -> list[Spell]:
    """Plans hold until the next of their deployment, or until it is deleted."""
    of: dict[Any, list[HeldPlan]] = defaultdict(list)
    for plan in plans:
        end = _first_after(plan.at, deleted.get(plan.deployment, ())) if plan.deployment_id is None else None
        of[plan.deployment_id or (plan.deployment, end)].append(plan)
    return [
        spell
        for key, mine in of.items()
        for spell in spells([(one.at, one.usd_per_hour) for one in mine], key[1] if isinstance(key, tuple) else None)
    ]


def _told(changes: Sequence[tuple[datetime, float]], deleted: Sequence[datetime]) -> list[Spell]:
    """Reports hold until the next, or until their deployment is deleted."""
    found = []
    for spell in spells(changes):
        ends = [end for end in (spell.ended_at, _first_after(spell.began_at, deleted)) if end is not None]
        found.append(Spell(spell.began_at, min(ends, default=None), spell.usd_per_hour))
    return found


def _first_after(at: datetime, ends: Sequence[datetime]) -> datetime | None:
    return next((end for end in ends if end > at), None)


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
    asked = {"since": begin, "until": until}
    seen = await repository.seen_rps(connection, deployment.id, **asked, now=now)
    planned = _planned_rps(await repository.planned_models(connection, deployment.id, **asked))
    begins = [begin + step * i for i in range(ceil((until - begin) / step))]
    names = [model["name"] for model in deployment.problem["models"]]
    return TrafficHistoryResource(
        deployment=deployment.name,
        since=begin,
        step_s=step.total_seconds(),
        models=[
            ModelTrafficHistory(
                model=name,
                items=[
                    ModelTrafficPoint(
                        at=at, seen_rps=_mean(seen.get(name, {}), at, step), planned_rps=_held(planned, at, name)
                    )
                    for at in begins
                ],
            )
            for name in names
        ],
    )


def _mean(known: Mapping[datetime, float], at: datetime, step: timedelta) -> float | None:
    """Over the quarters that are known."""
    found = [known[at + QUARTER * i] for i in range(step // QUARTER) if at + QUARTER * i in known]
    return fsum(found) / len(found) if found else None


def _planned_rps(
    plans: Sequence[tuple[datetime, list[Mapping[str, Any]]]],
) -> list[tuple[datetime, dict[str, float]]]:
    return [
        (at, {model["name"]: stated_rps(validate(ModelDocument, model)) for model in models}) for at, models in plans
    ]


def _held(plans: Sequence[tuple[datetime, dict[str, float]]], at: datetime, model: str) -> float | None:
    """What the plan that held then was for."""
    held = [rates for began_at, rates in plans if began_at <= at]
    return held[-1].get(model) if held else None
