"""Plans that held, reports of what is rented, and traffic by quarters of an hour, from the store."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.history.costs import Spell
from sutler.service.deployments.traffic.season import QUARTER
from sutler.service.plans.resources import SERVES

TARGET: Final = "deployment/"  # what the audit log calls deployments begins so
# Of each deployment: the plan that held when the time begins, and those that came to hold in it.
_HELD: Final = text("""
    SELECT deployment_id, deployment_name, revision, finished_at,
           CASE WHEN status = ANY(CAST(:serves AS text[])) THEN coalesce(cost_usd_per_hour, 0) END, reason FROM (
        SELECT p.*, lead(finished_at) OVER (PARTITION BY coalesce(deployment_id::text, deployment_name)
                                            ORDER BY finished_at, revision) AS next_at
        FROM plan p
        WHERE deployment_name IS NOT NULL AND revision IS NOT NULL
          AND (status = ANY(CAST(:serves AS text[])) OR id IN (SELECT plan_id FROM deployment))
          AND finished_at < :until AND (CAST(:name AS text) IS NULL OR deployment_name = :name)
    ) held
    WHERE next_at IS NULL OR next_at > :since ORDER BY finished_at, revision
""")
# Of what is said of one deployment, ids tell the order: times are those at which transactions began.
_REPORTS: Final = text("""
    SELECT at, next_at, coalesce((detail ->> 'usd_per_hour')::float8, 0) FROM (
        SELECT a.*, lead(at) OVER (PARTITION BY target ORDER BY id) AS next_at FROM audit a
        WHERE action IN ('deployment.holdings', 'deployment.ack', 'deployment.delete') AND at < :until
          AND (CAST(:target AS text) IS NULL OR target = :target)
    ) told
    WHERE action <> 'deployment.delete' AND (next_at IS NULL OR next_at > greatest(at, :since))
""")
_DELETIONS: Final = text("""
    SELECT at, target FROM audit
    WHERE action = 'deployment.delete' AND (CAST(:target AS text) IS NULL OR target = :target) ORDER BY at
""")
# A source that tells of more than there was, as sliding windows do, counts in part. Sources that tell of less than a
# quarter may have told of the same time or one after the other: this is never more than there was.
_SEEN: Final = text("""
    SELECT model, began_at, sum(requests * least(1, whole_s / greatest(told_s, 1)))
                            / greatest(1, least(whole_s, sum(told_s))) AS rps
    FROM (SELECT *, least(:quarter_s, extract(epoch FROM :now - began_at)::float8) AS whole_s FROM traffic_quarter
          WHERE deployment_id = :deployment_id AND began_at >= :since AND began_at < least(:until, :now)) quarter
    GROUP BY model, began_at, whole_s
""")
# Of what several engines counted, quantiles cannot be told, but that of all is at most the largest.
_LATENCIES: Final = text("""
    SELECT model, ceil(extract(epoch FROM ended_at - :since) / :step_s)::int - 1 AS place, told.key AS name,
           CASE WHEN told.key LIKE '%\\_kept\\_fraction' THEN sum(requests * told.value::float8) / sum(requests)
                ELSE max(told.value::float8) END AS value
    FROM observation CROSS JOIN LATERAL jsonb_each_text(latencies) AS told
    WHERE deployment_id = :deployment_id AND model = ANY(CAST(:models AS text[])) AND requests > 0
      AND ended_at > :since AND ended_at <= :until
    GROUP BY 1, 2, 3
""")
_PLANNED: Final = text("""
    SELECT finished_at, model ->> 'name' AS model,
           (SELECT sum((workload ->> 'rate_rps')::float8) FROM json_array_elements(
                CASE json_typeof(model -> 'workloads') WHEN 'array' THEN model -> 'workloads' END) workload) AS rps
    FROM plan CROSS JOIN LATERAL json_array_elements(problem -> 'models') model
    WHERE deployment_id = :deployment_id AND revision IS NOT NULL AND status = ANY(CAST(:serves AS text[]))
      AND finished_at < :until
      AND finished_at >= coalesce((SELECT max(finished_at) FROM plan WHERE deployment_id = :deployment_id
                                   AND revision IS NOT NULL AND status = ANY(CAST(:serves AS text[]))
                                   AND finished_at <= :since), '-infinity')
    ORDER BY finished_at, revision
""")


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """A plan that held from `at` on; `deployment_id` None: its deployment was deleted.

    `usd_per_hour` None: it serves nothing, and holds all the same, since machines were given up. That is known of
    what holds now; where another has come since, what held before counts until then.
    """

    deployment_id: UUID | None
    deployment: str
    revision: int
    at: datetime
    usd_per_hour: float | None
    reason: str | None


async def held_plans(
    connection: AsyncConnection, *, since: datetime, until: datetime, name: str | None
) -> list[HeldPlan]:
    """By time; of all deployments, or of those that ever had this name."""
    rows = await connection.execute(_HELD, {"since": since, "until": until, "name": name, "serves": sorted(SERVES)})
    return [HeldPlan(*row) for row in rows]


async def reports(connection: AsyncConnection, *, since: datetime, until: datetime, name: str | None) -> list[Spell]:
    """What was said to be rented, of one deployment or of all: until the next report, or until it was deleted."""
    rows = await connection.execute(_REPORTS, {"since": since, "until": until, "target": _target(name)})
    return [Spell(*row) for row in rows]


async def deletions(connection: AsyncConnection, name: str | None) -> dict[str, list[datetime]]:
    """By name: when a deployment of that name was deleted."""
    found: dict[str, list[datetime]] = defaultdict(list)
    for row in await connection.execute(_DELETIONS, {"target": _target(name)}):
        found[row.target.removeprefix(TARGET)].append(row.at)
    return found


def _target(name: str | None) -> str | None:
    return None if name is None else f"{TARGET}{name}"


async def seen_rps(
    connection: AsyncConnection, deployment_id: UUID, *, since: datetime, until: datetime, now: datetime
) -> dict[str, dict[datetime, float]]:
    """Requests/s of all sources, by model and quarter of an hour, over the parts that somebody told of."""
    asked = {"deployment_id": deployment_id, "since": since, "until": until, "now": now}
    found: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in await connection.execute(_SEEN, {**asked, "quarter_s": QUARTER.total_seconds()}):
        found[row.model][row.began_at] = row.rps
    return found


async def latencies(
    connection: AsyncConnection,
    deployment_id: UUID,
    *,
    models: Sequence[str],
    since: datetime,
    until: datetime,
    step: timedelta,
) -> dict[tuple[str, int], dict[str, float]]:
    """What engines told of latencies, by model and number of the step."""
    asked = {"deployment_id": deployment_id, "models": list(models), "since": since, "until": until}
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in await connection.execute(_LATENCIES, {**asked, "step_s": step.total_seconds()}):
        found[row.model, row.place][row.name] = row.value
    return found


async def planned_rps(
    connection: AsyncConnection, deployment_id: UUID, *, since: datetime, until: datetime
) -> list[tuple[datetime, dict[str, float | None]]]:
    """When plans came to hold, by time, and the requests/s by model that each was for; None: no rate was stated."""
    asked = {"deployment_id": deployment_id, "since": since, "until": until, "serves": sorted(SERVES)}
    found: dict[datetime, dict[str, float | None]] = defaultdict(dict)
    for row in await connection.execute(_PLANNED, asked):
        found[row.finished_at][row.model] = row.rps
    return list(found.items())
