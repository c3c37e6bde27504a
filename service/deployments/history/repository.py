"""What deployments cost, and traffic by quarters of an hour, from the store."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.history.schemas import CostStepResource
from sutler.service.deployments.traffic.season import QUARTER
from sutler.service.plans.resources import SERVES

Levels = list[tuple[float, int]]
Changes = dict[int, tuple[float, int]]
_IN_TIME: Final = """
    began_at <= :until AND (ended_at > :since OR ended_at IS NULL)
    AND (CAST(:name AS text) IS NULL OR deployment_name = :name)
"""
_PAID: Final = text(f"""
    SELECT plan_id IS NOT NULL AS is_planned, sum(usd_per_hour * extract(epoch FROM
        least(ended_at, :until) - greatest(began_at, :since))::float8 / 3600) AS usd
    FROM cost WHERE {_IN_TIME} GROUP BY 1
""")
# Each begins with the first point at or after its begin, and ends in the same way.
_CHANGES: Final = text(f"""
    WITH known AS (SELECT * FROM cost WHERE {_IN_TIME})
    SELECT is_planned, ceil(after_s * (:points - 1) / extract(epoch FROM :until - :since))::int AS place,
           sum(usd_per_hour) AS usd_per_hour, sum(more)::int AS more
    FROM (
        SELECT plan_id IS NOT NULL AS is_planned, extract(epoch FROM greatest(began_at, :since) - :since) AS after_s,
               usd_per_hour, 1 AS more FROM known
        UNION ALL
        SELECT plan_id IS NOT NULL, extract(epoch FROM ended_at - :since), -usd_per_hour, -1 FROM known
        WHERE ended_at <= :until
    ) change
    GROUP BY 1, 2 ORDER BY 2
""")
_STEPS: Final = text("""
    SELECT c.began_at AS at, c.deployment_name AS deployment, p.revision, c.usd_per_hour, p.reason
    FROM cost c JOIN plan p ON p.id = c.plan_id
    WHERE c.began_at >= :since AND c.began_at <= :until AND (CAST(:name AS text) IS NULL OR c.deployment_name = :name)
    ORDER BY c.began_at DESC, c.id DESC LIMIT :most
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
class Asked:
    """A stretch of time, how many points of it, and the deployments' name; None: all deployments."""

    since: datetime
    until: datetime
    points: int
    name: str | None


async def paid_usd(connection: AsyncConnection, asked: Asked) -> tuple[float | None, float | None]:
    """USD over the whole time by the plans that held, and by the reports; None where there was none."""
    found = {row.is_planned: row.usd for row in await connection.execute(_PAID, asdict(asked))}
    return found.get(True), found.get(False)


async def levels(connection: AsyncConnection, asked: Asked) -> tuple[Levels, Levels]:
    """At each point USD per hour and of how many deployments: by the plans that hold, and by the reports."""
    changes: tuple[Changes, Changes] = {}, {}
    for row in await connection.execute(_CHANGES, asdict(asked)):
        changes[not row.is_planned][row.place] = row.usd_per_hour, row.more
    planned, held = (_added_up(each, asked.points) for each in changes)
    return planned, held


def _added_up(changes: Changes, points: int) -> Levels:
    usd, count, found = 0.0, 0, []
    for place in range(points):
        more_usd, more = changes.get(place, (0.0, 0))
        count += more
        usd = usd + more_usd if count else 0.0  # what rounding leaves of nothing is nothing
        found.append((usd, count))
    return found


async def steps(connection: AsyncConnection, asked: Asked, *, most: int) -> list[CostStepResource]:
    """Plans that came to hold meanwhile, the newest so many, by time."""
    rows = [*await connection.execute(_STEPS, {**asdict(asked), "most": most})]
    return [CostStepResource.model_validate(row, from_attributes=True) for row in reversed(rows)]


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
