"""Watched deployments, what was found about them, and what was decided, in the store."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import case, cast, insert, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.db.queue import LOOK, NOTICE, URGENT, URGENT_LOOKS, channel_of
from sutler.service.db.watch_tables import DecisionRow, WatchRow
from sutler.service.deployments.repository import RETAINED
from sutler.service.deployments.watch_schema import DecisionResource
from sutler.service.web.paging import Before, newest_first

MOST_DUE: Final = 500  # chosen: in the queue, which stays short, so that what is urgent finds few before it
LEAST_DUE: Final = 20  # chosen: that many urgent ones are put into a queue that is full all the same
LEAST_PAUSE: Final = timedelta(seconds=2)  # chosen: reports that come one by one bring one look, and none waits long
CLOCK_SET_BACK: Final = timedelta(seconds=60)  # chosen: clocks that are in step differ by less
DECISIONS_KEPT: Final = timedelta(days=90)  # chosen: a quarter can be looked back over; rows are small

# Counts the polls that changed any offer.
_MARKET_VERSION: Final = "(SELECT coalesce(sum(changes), 0)::bigint FROM provider)"
# Machines were reported, which may be fewer, or more is asked for than the fleet carries.
_IS_URGENT: Final = "(w.urgent > w.looked OR (w.touches > w.looked AND coalesce(w.state ->> 'status', '') = 'short'))"
_DUE: Final = text(f"""
    SELECT w.deployment_id, {_IS_URGENT} FROM watch w JOIN deployment d ON d.id = w.deployment_id
    WHERE d.plan_id IS NOT NULL
      AND (w.looked_at IS NULL OR w.looked_at < :paused OR w.looked_at > :ahead)
      AND (w.touches > w.looked OR w.look_at IS NULL OR w.look_at <= :now OR w.looked_at > :ahead
           OR (w.market_version IS DISTINCT FROM {_MARKET_VERSION}
               AND (d.problem -> 'market' -> 'offers') IS NULL))
      AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j
                      WHERE j.task_name = '{LOOK}' AND j.args ->> 'deployment_id' = w.deployment_id::text
                      AND j.status IN ('todo', 'doing'))
      AND NOT EXISTS (SELECT 1 FROM plan p
                      WHERE p.deployment_id = w.deployment_id AND p.status IN ('queued', 'running'))
    ORDER BY {_IS_URGENT} DESC, w.looked_at NULLS FIRST
    LIMIT greatest(:least, :most - (SELECT count(*) FROM procrastinate_jobs
                                    WHERE task_name = '{LOOK}' AND status = 'todo'))
""")
_OVERTAKING: Final = text(f"""
    UPDATE procrastinate_jobs j SET queue_name = '{URGENT_LOOKS}', priority = {URGENT}
    FROM watch w
    WHERE j.task_name = '{LOOK}' AND j.status = 'todo' AND j.priority < {URGENT}
      AND j.args ->> 'deployment_id' = w.deployment_id::text AND {_IS_URGENT}
    RETURNING pg_notify('{channel_of(URGENT_LOOKS)}', '{NOTICE}')
""")


@dataclass(frozen=True, slots=True)
class WatchedDeployment:
    """A deployment, its current plan, its holdings and the market's version, as a look finds them.

    `touches` is as counted when the look began, `looked` at the look before.
    """

    deployment_id: UUID
    project: str
    name: str
    version: int
    problem: dict[str, Any]
    policy: dict[str, Any]
    plan_id: UUID
    revision: int
    status: str
    document: str
    planned: dict[str, Any]
    issued_at: datetime
    touches: int
    memory: dict[str, Any]
    held_before: dict[str, int]
    newest_revision: int
    market_version: int
    holdings: list[Any] | None
    holdings_at: datetime | None
    woken: dict[str, str]
    learnt: dict[str, Any]
    looked: int

    @property
    def is_touched(self) -> bool:
        """Whether something has happened to it since the last look."""
        return self.touches > self.looked


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """What is told of a watched deployment."""

    state: dict[str, Any]
    looked_at: datetime | None
    look_at: datetime | None
    holdings_at: datetime | None


async def due(connection: AsyncConnection, now: datetime, *, most: int = MOST_DUE) -> list[tuple[UUID, bool]]:
    """Deployments to be looked at that are not in the queue, and whether that is urgent: these first, then those
    looked at longest ago.

    A clock that was set back makes nothing wait: a look that is dated ahead counts as long ago.
    """
    values = {"now": now, "paused": now - LEAST_PAUSE, "ahead": now + CLOCK_SET_BACK}
    rows = await connection.execute(_DUE, {**values, "most": most, "least": LEAST_DUE})
    return [(row[0], row[1]) for row in rows]


async def overtake(connection: AsyncConnection) -> None:
    """Puts looks that have become urgent in the queue before the others."""
    await connection.execute(_OVERTAKING)


async def watched(connection: AsyncConnection, deployment_id: UUID) -> WatchedDeployment | None:
    """What a look needs of the deployment; None without a deployment or a current plan."""
    wanted = (
        select(
            DeploymentRow.id,
            DeploymentRow.project,
            DeploymentRow.name,
            DeploymentRow.version,
            DeploymentRow.problem,
            DeploymentRow.policy,
            PlanRow.id,
            PlanRow.revision,
            PlanRow.status,
            PlanRow.document,
            PlanRow.problem,
            PlanRow.finished_at,
            WatchRow.touches,
            WatchRow.memory,
            WatchRow.held_before,
            DeploymentRow.revision,
            literal_column(_MARKET_VERSION),
            WatchRow.holdings,
            WatchRow.holdings_at,
            WatchRow.woken,
            WatchRow.learnt,
            WatchRow.looked,
        )
        .join(PlanRow, PlanRow.id == DeploymentRow.plan_id)
        .join(WatchRow, WatchRow.deployment_id == DeploymentRow.id)
        .where(DeploymentRow.id == deployment_id)
    )
    row: Any = (await connection.execute(wanted)).one_or_none()
    return None if row is None else WatchedDeployment(*tuple(row))


async def looked(
    connection: AsyncConnection,
    watched: WatchedDeployment,
    *,
    at: datetime,
    look_at: datetime,
    state: dict[str, Any],
    learnt: dict[str, Any] | None = None,
    **others: Any,
) -> None:
    """Stores what a look has found; `others` are further columns. What was `learnt` is kept unless somebody has had
    it forgotten meanwhile."""
    values = {"looked_at": at, "look_at": look_at, "state": state, "looked": watched.touches, **others}
    if learnt is not None:
        is_same = WatchRow.learnt == cast(watched.learnt, JSONB)
        values["learnt"] = case((is_same, cast(learnt, JSONB)), else_=WatchRow.learnt)
    await connection.execute(update(WatchRow).where(WatchRow.deployment_id == watched.deployment_id).values(**values))


async def record(connection: AsyncConnection, deployment_id: UUID) -> WatchRecord | None:
    columns = (WatchRow.state, WatchRow.looked_at, WatchRow.look_at, WatchRow.holdings_at)
    row: Any = (
        await connection.execute(select(*columns).where(WatchRow.deployment_id == deployment_id))
    ).one_or_none()
    return None if row is None else WatchRecord(*tuple(row))


async def add_decision(connection: AsyncConnection, deployment_id: UUID, decision: DecisionResource) -> None:
    """Adds a row to the log of decisions. Raises IntegrityError for a second one of a revision."""
    await connection.execute(insert(DecisionRow).values(deployment_id=deployment_id, **decision.model_dump()))


async def decisions(
    connection: AsyncConnection, deployment_id: UUID, *, limit: int, before: Before | None = None
) -> list[DecisionResource]:
    """A deployment's decisions, the newest first."""
    columns = tuple(getattr(DecisionRow, name) for name in DecisionResource.model_fields)
    wanted = select(*columns).where(DecisionRow.deployment_id == deployment_id)
    rows = await connection.execute(newest_first(wanted, DecisionRow.at, DecisionRow.id, limit=limit, before=before))
    return [DecisionResource(**row._mapping) for row in rows]


async def forget_old(connection: AsyncConnection, before: datetime) -> None:
    """Removes decisions that issued nothing; those of revisions stay with them.

    Those of projects whose operator said how long they are kept are left to that (workers/retention.py).
    """
    gone = "DELETE FROM decision WHERE at < :before AND revision IS NULL AND deployment_id NOT IN ({})"
    await connection.execute(text(gone.format(RETAINED)), {"before": before, "kind": "decisions"})
