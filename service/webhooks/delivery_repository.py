"""Deliveries as people look at them, and what puts one into the queue again. SQL lives here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeliveryRow
from sutler.service.db.queue import DELIVER
from sutler.service.web.paging import Before

DeliveryStatus = Literal["pending", "delivered", "failed"]

_BEGIN_ANEW: Final[dict[str, Any]] = {"status": "pending", "attempts": 0, "finished_at": None}
_DROP_JOBS: Final = text(
    "DELETE FROM procrastinate_jobs WHERE task_name = :task AND status = 'todo' "
    "AND args ->> 'delivery_id' = ANY(CAST(:delivery_ids AS text[]))"
)
_TURN: Final = text(
    "SELECT status = 'doing' AS is_under_way, scheduled_at AS at FROM procrastinate_jobs WHERE task_name = :task "
    "AND status IN ('todo', 'doing') AND args ->> 'delivery_id' = :delivery_id "
    "ORDER BY is_under_way DESC, at NULLS FIRST LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one webhook, and how far it is."""

    id: UUID
    webhook_id: UUID
    event: str
    status: DeliveryStatus
    attempts: int
    last_status_code: int | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Turn:
    """When the queue tries a delivery next: now, at a time, or (neither) as soon as a worker is free."""

    is_under_way: bool
    at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedDeliveries:
    """Which failed deliveries of a webhook are meant: those announced since then, of these events (None: all)."""

    webhook_id: UUID
    since: datetime | None = None
    events: tuple[str, ...] | None = None


_DELIVERY: Final = tuple(getattr(DeliveryRow, name) for name in Delivery.__slots__)


async def page(
    connection: AsyncConnection,
    *,
    limit: int,
    webhook_id: UUID | None = None,
    status: DeliveryStatus | None = None,
    before: Before | None = None,
) -> list[Delivery]:
    """Deliveries, the newest first; of all webhooks, and whatever their status, where these are not given."""
    wanted = select(*_DELIVERY).order_by(DeliveryRow.created_at.desc(), DeliveryRow.id.desc()).limit(limit)
    if webhook_id is not None:
        wanted = wanted.where(DeliveryRow.webhook_id == webhook_id)
    if status is not None:
        wanted = wanted.where(DeliveryRow.status == status)
    if before is not None:
        wanted = wanted.where(tuple_(DeliveryRow.created_at, DeliveryRow.id) < tuple_(*before))
    return [Delivery(*row) for row in await connection.execute(wanted)]


async def find(connection: AsyncConnection, delivery_id: UUID) -> Delivery | None:
    row = (await connection.execute(select(*_DELIVERY).where(DeliveryRow.id == delivery_id))).one_or_none()
    return None if row is None else Delivery(*row)


async def body(connection: AsyncConnection, delivery_id: UUID) -> str | None:
    """What is signed and sent."""
    return await connection.scalar(select(DeliveryRow.body).where(DeliveryRow.id == delivery_id))


async def turn(connection: AsyncConnection, delivery_id: UUID) -> Turn | None:
    """When the queue tries it next; None: the queue knows nothing of it."""
    row = (await connection.execute(_TURN, {"task": DELIVER, "delivery_id": str(delivery_id)})).one_or_none()
    return None if row is None else Turn(row.is_under_way, row.at)


async def begin_anew(connection: AsyncConnection, delivery_id: UUID) -> bool:
    """Makes it pending, its attempts uncounted; False where it is pending already, or is not there.

    Of several that try at once one succeeds; until the end of its transaction nobody else writes the delivery.
    """
    done = update(DeliveryRow).where(DeliveryRow.id == delivery_id, DeliveryRow.status != "pending")
    row = await connection.execute(done.values(_BEGIN_ANEW).returning(DeliveryRow.id))
    return row.one_or_none() is not None


async def begin_failed_anew(connection: AsyncConnection, failed: FailedDeliveries, *, most: int) -> list[UUID]:
    """Does as `begin_anew`, the oldest first; those that somebody else is writing now are left to them."""
    chosen = select(DeliveryRow.id).where(*_are(failed)).order_by(DeliveryRow.created_at, DeliveryRow.id).limit(most)
    locked = chosen.with_for_update(skip_locked=True).cte()  # a subquery might be run, and limited, more than once
    done = update(DeliveryRow).where(DeliveryRow.id.in_(select(locked.c.id))).values(_BEGIN_ANEW)
    rows = await connection.execute(done.returning(DeliveryRow.id, DeliveryRow.created_at))
    return [row.id for row in sorted(rows, key=lambda row: (row.created_at, row.id))]


async def count_failed(connection: AsyncConnection, failed: FailedDeliveries) -> int:
    return await connection.scalar(select(func.count()).select_from(DeliveryRow).where(*_are(failed))) or 0


async def drop_jobs(connection: AsyncConnection, delivery_ids: Sequence[UUID]) -> None:
    """Attempts that wait in the queue; those under way go on."""
    ids = [str(delivery_id) for delivery_id in delivery_ids]
    await connection.execute(_DROP_JOBS, {"task": DELIVER, "delivery_ids": ids})


def _are(failed: FailedDeliveries) -> tuple[ColumnElement[bool], ...]:
    return (
        DeliveryRow.webhook_id == failed.webhook_id,
        DeliveryRow.status == "failed",
        *(() if failed.since is None else (DeliveryRow.created_at >= failed.since,)),
        *(() if failed.events is None else (DeliveryRow.event.in_(failed.events),)),
    )
