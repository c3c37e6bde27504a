"""Plans that held, reports of what is rented, and traffic by quarters of an hour, from the store."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.traffic.season import QUARTER
from sutler.service.plans.resources import SERVES

# Of each deployment: the plan that held when the time begins, and those that came to hold in it.
_HELD: Final = text("""
    SELECT deployment_id, deployment_name, revision, finished_at, cost_usd_per_hour, reason FROM (
        SELECT p.*, lead(finished_at) OVER (PARTITION BY coalesce(deployment_id::text, deployment_name)
                                            ORDER BY finished_at, revision) AS next_at
        FROM plan p
        WHERE deployment_name IS NOT NULL AND revision IS NOT NULL AND status = ANY(CAST(:serves AS text[]))
          AND finished_at < :until AND (CAST(:name AS text) IS NULL OR deployment_name = :name)
    ) held
    WHERE next_at IS NULL OR next_at > :since ORDER BY finished_at, revision
""")
_REPORTS: Final = text("""
    SELECT at, target, (detail ->> 'usd_per_hour')::float AS usd_per_hour FROM (
        SELECT a.*, lead(at) OVER (PARTITION BY target ORDER BY at, id) AS next_at FROM audit a
        WHERE action IN ('deployment.holdings', 'deployment.ack', 'deployment.delete') AND at < :until
          AND (CAST(:target AS text) IS NULL OR target = :target)
    ) told
    WHERE action <> 'deployment.delete' AND (next_at IS NULL OR next_at > :since) ORDER BY at, id
""")
_DELETIONS: Final = text("SELECT at, target FROM audit WHERE action = 'deployment.delete' ORDER BY at")
_SEEN: Final = text("""
    SELECT model, began_at,
           sum(requests / greatest(told_s, least(:quarter_s, extract(epoch FROM :now - began_at)), 1)) AS rps
    FROM traffic_quarter WHERE deployment_id = :deployment_id AND began_at >= :since AND began_at < :until
    GROUP BY model, began_at
""")
_PLANNED: Final = text("""
    SELECT finished_at, problem -> 'models' AS models FROM plan
    WHERE deployment_id = :deployment_id AND revision IS NOT NULL AND status = ANY(CAST(:serves AS text[]))
      AND finished_at < :until
      AND finished_at >= coalesce((SELECT max(finished_at) FROM plan WHERE deployment_id = :deployment_id
                                   AND revision IS NOT NULL AND status = ANY(CAST(:serves AS text[]))
                                   AND finished_at <= :since), '-infinity')
    ORDER BY finished_at, revision
""")


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """A plan that held from `at` on; `deployment_id` None: its deployment was deleted."""

    deployment_id: UUID | None
    deployment: str
    revision: int
    at: datetime
    usd_per_hour: float
    reason: str | None


async def held_plans(
    connection: AsyncConnection, *, since: datetime, until: datetime, name: str | None
) -> list[HeldPlan]:
    """By time; of all deployments, or of those that ever had this name."""
    rows = await connection.execute(_HELD, {"since": since, "until": until, "name": name, "serves": sorted(SERVES)})
    return [
        HeldPlan(
            row.deployment_id,
            row.deployment_name,
            row.revision,
            row.finished_at,
            row.cost_usd_per_hour or 0.0,
            row.reason,
        )
        for row in rows
    ]


async def reports(
    connection: AsyncConnection, *, since: datetime, until: datetime, name: str | None
) -> dict[str, list[tuple[datetime, float]]]:
    """By deployment: when it was said what is rented, and what that costs, USD per hour."""
    target = None if name is None else f"deployment/{name}"
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for row in await connection.execute(_REPORTS, {"since": since, "until": until, "target": target}):
        found[row.target.removeprefix("deployment/")].append((row.at, row.usd_per_hour or 0.0))
    return found


async def deletions(connection: AsyncConnection) -> dict[str, list[datetime]]:
    """By name: when a deployment of that name was deleted."""
    found: dict[str, list[datetime]] = defaultdict(list)
    for row in await connection.execute(_DELETIONS):
        found[row.target.removeprefix("deployment/")].append(row.at)
    return found


async def seen_rps(
    connection: AsyncConnection, deployment_id: UUID, *, since: datetime, until: datetime, now: datetime
) -> dict[str, dict[datetime, float]]:
    """Requests/s of all sources, by model and quarter of an hour, of those that somebody told of."""
    asked = {"deployment_id": deployment_id, "since": since, "until": until, "now": now}
    found: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in await connection.execute(_SEEN, {**asked, "quarter_s": QUARTER.total_seconds()}):
        found[row.model][row.began_at] = float(row.rps)
    return found


async def planned_models(
    connection: AsyncConnection, deployment_id: UUID, *, since: datetime, until: datetime
) -> Sequence[tuple[datetime, list[Mapping[str, Any]]]]:
    """When plans came to hold, and the models that each was made for, by time."""
    asked = {"deployment_id": deployment_id, "since": since, "until": until, "serves": sorted(SERVES)}
    return [(row.finished_at, row.models) for row in await connection.execute(_PLANNED, asked)]
