"""Watched deployments, what was found about them, and what was decided, in the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from sqlalchemy import insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.db.queue import LOOK
from sutler.service.db.watch_tables import DecisionRow, WatchRow
from sutler.solver.problem import Contract
from sutler.solver.replanning import HoldingKey

MOST_DUE: Final = 500
LEAST_PAUSE: Final = timedelta(seconds=2)
CLOCK_SET_BACK: Final = timedelta(seconds=60)
DECISIONS_KEPT: Final = timedelta(days=90)

_DUE: Final = text(f"""
    SELECT w.deployment_id FROM watch w JOIN deployment d ON d.id = w.deployment_id
    WHERE d.plan_id IS NOT NULL
      AND (w.looked_at IS NULL OR w.looked_at < :paused OR w.looked_at > :ahead)
      AND (w.touches > w.looked OR w.look_at IS NULL OR w.look_at <= :now OR w.looked_at > :ahead
           OR (w.market_version IS DISTINCT FROM (SELECT coalesce(sum(changes), 0)::bigint FROM provider)
               AND (d.problem -> 'market' -> 'offers') IS NULL))
      AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j
                      WHERE j.task_name = '{LOOK}' AND j.args ->> 'deployment_id' = w.deployment_id::text
                      AND j.status IN ('todo', 'doing'))
      AND NOT EXISTS (SELECT 1 FROM plan p
                      WHERE p.deployment_id = w.deployment_id AND p.status IN ('queued', 'running'))
    ORDER BY w.looked_at NULLS FIRST LIMIT :most
""")
_MARKET_VERSION: Final = text("SELECT coalesce(sum(changes), 0)::bigint FROM provider")


@dataclass(frozen=True, slots=True)
class Watched:
    """A deployment and its current plan, as a look finds them; `touches` as counted when it began."""

    deployment_id: UUID
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

    def held_before_counts(self) -> dict[HoldingKey, int]:
        """Machines by (provider, offer_id, contract, GPUs)."""
        found: dict[HoldingKey, int] = {}
        for kind, count in self.held_before.items():
            provider, offer_id, contract, gpus = kind.split("\n")
            found[provider, offer_id, cast(Contract, contract), int(gpus)] = count
        return found


@dataclass(frozen=True, slots=True)
class NewDecision:
    """A row of the log of decisions."""

    id: UUID
    deployment_id: UUID
    at: datetime
    basis_revision: int | None
    revision: int | None
    chosen: str
    reason: str
    drifts: list[dict[str, Any]]
    options: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """What is told of a watched deployment."""

    state: dict[str, Any]
    looked_at: datetime | None
    look_at: datetime | None
    holdings_at: datetime | None


async def due(connection: AsyncConnection, now: datetime, *, most: int = MOST_DUE) -> list[UUID]:
    """Deployments to be looked at that are not in the queue; those looked at longest ago first.

    A clock that was set back makes nothing wait: a look that is dated ahead counts as long ago.
    """
    values = {"now": now, "paused": now - LEAST_PAUSE, "ahead": now + CLOCK_SET_BACK, "most": most}
    return list((await connection.scalars(_DUE, values)).all())


async def market_version(connection: AsyncConnection) -> int:
    """Counts the polls that changed any offer."""
    found: int = await connection.scalar(_MARKET_VERSION) or 0
    return found


async def watched(connection: AsyncConnection, deployment_id: UUID) -> Watched | None:
    """None without a deployment or a current plan."""
    wanted = (
        select(
            DeploymentRow.id,
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
        )
        .join(PlanRow, PlanRow.id == DeploymentRow.plan_id)
        .join(WatchRow, WatchRow.deployment_id == DeploymentRow.id)
        .where(DeploymentRow.id == deployment_id)
    )
    row: Any = (await connection.execute(wanted)).one_or_none()
    return None if row is None else Watched(*tuple(row))


async def looked(
    connection: AsyncConnection,
    deployment_id: UUID,
    *,
    at: datetime,
    touches: int | None,
    market_version: int | None,
    look_at: datetime,
    state: dict[str, Any],
    memory: dict[str, Any] | None,
) -> None:
    """What a look has found. `touches` None: everything that has happened is still to be looked at."""
    values: dict[str, Any] = {"looked_at": at, "look_at": look_at, "state": state}
    values |= {} if touches is None else {"looked": touches}
    values |= {} if market_version is None else {"market_version": market_version}
    values |= {} if memory is None else {"memory": memory}
    await connection.execute(update(WatchRow).where(WatchRow.deployment_id == deployment_id).values(**values))


async def record(connection: AsyncConnection, deployment_id: UUID) -> WatchRecord | None:
    columns = (WatchRow.state, WatchRow.looked_at, WatchRow.look_at, WatchRow.holdings_at)
    row: Any = (
        await connection.execute(select(*columns).where(WatchRow.deployment_id == deployment_id))
    ).one_or_none()
    return None if row is None else WatchRecord(*tuple(row))


async def add_decision(connection: AsyncConnection, decision: NewDecision) -> None:
    """Raises IntegrityError for a second one of a revision."""
    values = {name: getattr(decision, name) for name in NewDecision.__slots__}
    await connection.execute(insert(DecisionRow).values(**values))


async def decisions(
    connection: AsyncConnection, deployment_id: UUID, *, limit: int, before: tuple[datetime, UUID] | None = None
) -> Sequence[NewDecision]:
    """The newest first."""
    columns = tuple(getattr(DecisionRow, name) for name in NewDecision.__slots__)
    wanted = select(*columns).where(DecisionRow.deployment_id == deployment_id)
    if before is not None:
        at, last = before
        wanted = wanted.where((DecisionRow.at < at) | ((DecisionRow.at == at) & (DecisionRow.id < last)))
    rows = await connection.execute(wanted.order_by(DecisionRow.at.desc(), DecisionRow.id.desc()).limit(limit))
    return [NewDecision(*tuple(row)) for row in rows]


async def forget_old(connection: AsyncConnection, before: datetime) -> None:
    """Decisions that issued nothing; those of revisions stay with them."""
    gone = text("DELETE FROM decision WHERE at < :before AND revision IS NULL")
    await connection.execute(gone, {"before": before})
