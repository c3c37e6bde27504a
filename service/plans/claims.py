"""Whose turn it is to make a plan, in any table of plans that workers make.

A plan is finished once: by the worker that took it up last, while nobody has cancelled it. Used by plan_table.py and
service/workers/attempts.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, TextClause, func, select, text, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import OfflinePlanRow, PlanRow, StudyRow
from sutler.service.db.projects import EVERYWHERE
from sutler.service.db.queue import PLAN_OFFLINE, SOLVE, STUDY
from sutler.service.plans.resources import PENDING

Table = type[PlanRow] | type[OfflinePlanRow] | type[StudyRow]
C = TypeVar("C", bound="Claimed")
MADE_BY: Final[Mapping[str, Table]] = {SOLVE: PlanRow, PLAN_OFFLINE: OfflinePlanRow, STUDY: StudyRow}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A plan that a worker has taken up; `attempt` is its right to finish it, `deaths` how many died of it before,
    `project` whose rows it is made from.

    Each kind of plan adds the columns that it is made from.
    """

    id: UUID
    attempt: int
    deaths: int
    project: str


def is_pending(table: Table) -> ColumnElement[bool]:
    """Whether a plan is waited for."""
    return table.status.in_(PENDING)


async def count_waiting(connection: AsyncConnection, actor: str) -> tuple[int, int]:
    """Returns how many plans of any kind and project no worker has taken up yet, and for how many `actor` waits."""
    counted = [
        select(func.count().filter(table.status == "queued"), func.count().filter(table.created_by == actor)).where(
            is_pending(table)
        )
        for table in MADE_BY.values()
    ]
    rows = (await connection.execute(union_all(*counted), execution_options=EVERYWHERE)).all()
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


async def cancel(
    connection: AsyncConnection,
    table: Table,
    which: ColumnElement[bool],
    now: datetime,
    *,
    failure: dict[str, Any],
) -> list[UUID]:
    """Cancels what is waited for; returns which those were."""
    done = update(table).where(which, is_pending(table)).values(status="cancelled", finished_at=now, failure=failure)
    return list((await connection.scalars(done.returning(table.id))).all())


async def take(connection: AsyncConnection, table: Table, claim: type[C], plan_id: UUID, now: datetime) -> C | None:
    """Takes a plan up; the claim on it, or None where it is finished or cancelled."""
    taken = (
        update(table)
        .where(table.id == plan_id, is_pending(table))
        .values(status="running", attempt=table.attempt + 1, started_at=now, progress=None)
        .returning(*(getattr(table, field.name) for field in fields(claim)))
    )
    row = (await connection.execute(taken)).one_or_none()
    return None if row is None else claim(*row)


async def put_progress(
    connection: AsyncConnection, table: Table, claimed: Claimed, progress: dict[str, Any] | None
) -> bool:
    """Whether the plan is still this worker's to make."""
    done = update(table).where(*_mine(table, claimed))
    done = done.values(progress=progress) if progress is not None else done.values(attempt=table.attempt)
    return (await connection.execute(done.returning(table.id))).one_or_none() is not None


async def end(connection: AsyncConnection, table: Table, claimed: Claimed, **values: Any) -> bool:
    """Stores what became of the plan; False where it is no longer this worker's to make."""
    done = update(table).where(*_mine(table, claimed)).values(progress=None, **values).returning(table.id)
    return (await connection.execute(done)).one_or_none() is not None


async def fail(
    connection: AsyncConnection, table: Table, claimed: Claimed, failure: dict[str, Any], now: datetime
) -> bool:
    """Stores why there is no plan; False where it is no longer this worker's to make."""
    return await end(connection, table, claimed, status="failed", failure=failure, finished_at=now)


async def release(connection: AsyncConnection, table: Table, claimed: Claimed) -> bool:
    """Leaves the plan to others; False where it is theirs already."""
    done = update(table).where(*_mine(table, claimed)).values(status="queued", progress=None, started_at=None)
    return (await connection.execute(done.returning(table.id))).one_or_none() is not None


async def count_death(connection: AsyncConnection, table: Table, plan_id: UUID) -> None:
    """Counts that a worker has died while it made this plan."""
    died = update(table).where(table.id == plan_id, table.status == "running")
    await connection.execute(died.values(deaths=table.deaths + 1))


async def without_job(connection: AsyncConnection, task: str, *, before: datetime) -> list[tuple[UUID, str]]:
    """Plans that are waited for since long, but that no job of the queue with their task will make, by project."""
    rows = await connection.execute(_WITHOUT_JOB[task], {"task": task, "before": before})
    return [(row.id, row.project) for row in rows]


def _without_job(table: str) -> TextClause:
    return text(f"""
        SELECT id, project FROM {table}
        WHERE status IN ('queued', 'running') AND created_at < :before AND NOT EXISTS (
            SELECT 1 FROM procrastinate_jobs j
            WHERE j.task_name = :task AND j.args ->> 'plan_id' = {table}.id::text AND j.status IN ('todo', 'doing'))
        FOR UPDATE SKIP LOCKED
    """)


_WITHOUT_JOB: Final = {task: _without_job(table.__tablename__) for task, table in MADE_BY.items()}


def _mine(table: Table, claimed: Claimed) -> tuple[ColumnElement[bool], ...]:
    return (table.id == claimed.id, table.attempt == claimed.attempt, table.status == "running")
