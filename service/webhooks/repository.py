"""Webhooks in the store, and what attempts at deliveries read and write. SQL lives here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, delete, func, insert, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeliveryRow, WebhookRow
from sutler.service.db.queue import DELIVER
from sutler.service.web.paging import Before
from sutler.service.webhooks.delivery_repository import DeliveryStatus
from sutler.service.webhooks.sending import Attempt, Message

_COUNT_LOCK: Final = 0x7765_6268  # any number that no other advisory lock has
_HAS_JOB: Final = text(
    "SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE task_name = :task AND status = 'todo' "
    "AND args ->> 'delivery_id' = :delivery_id)"
)
_WITHOUT_JOB: Final = text(
    "SELECT id FROM delivery WHERE status = 'pending' AND created_at < :before AND NOT EXISTS ("
    "SELECT 1 FROM procrastinate_jobs j WHERE j.task_name = :task AND j.status IN ('todo', 'doing') "
    "AND j.args ->> 'delivery_id' = delivery.id::text) FOR UPDATE SKIP LOCKED"
)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where events are sent; the secret stays in its table."""

    id: UUID
    url: str
    events: tuple[str, ...]
    description: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A delivery to be attempted once more."""

    id: UUID
    webhook_id: UUID
    attempts: int
    message: Message


_WEBHOOK: Final = tuple(getattr(WebhookRow, name) for name in Webhook.__slots__)


async def add(connection: AsyncConnection, webhook: Webhook, *, secret: str, most: int) -> bool:
    """Whether there was room for one more: others that add one at the same time wait."""
    await connection.execute(select(func.pg_advisory_xact_lock(_COUNT_LOCK)))
    if (await connection.scalar(select(func.count()).select_from(WebhookRow)) or 0) >= most:
        return False
    values = {name: getattr(webhook, name) for name in Webhook.__slots__}
    await connection.execute(insert(WebhookRow).values({**values, "events": list(webhook.events), "secret": secret}))
    return True


async def find(connection: AsyncConnection, webhook_id: UUID) -> Webhook | None:
    row = (await connection.execute(select(*_WEBHOOK).where(WebhookRow.id == webhook_id))).one_or_none()
    return None if row is None else _webhook(row)


async def page(connection: AsyncConnection, *, limit: int, before: Before | None = None) -> list[Webhook]:
    """Webhooks, the newest first."""
    wanted = select(*_WEBHOOK).order_by(WebhookRow.created_at.desc(), WebhookRow.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(tuple_(WebhookRow.created_at, WebhookRow.id) < tuple_(*before))
    return [_webhook(row) for row in await connection.execute(wanted)]


async def remove(connection: AsyncConnection, webhook_id: UUID) -> bool:
    """Removes it with its deliveries; returns whether it was there."""
    gone = delete(WebhookRow).where(WebhookRow.id == webhook_id).returning(WebhookRow.id)
    return (await connection.execute(gone)).one_or_none() is not None


async def wanting(connection: AsyncConnection, event: str) -> Sequence[UUID]:
    """The webhooks that want an event; they cannot be removed before the end of the transaction."""
    wanted = select(WebhookRow.id).where(WebhookRow.events.contains([event])).order_by(WebhookRow.id)
    return (await connection.scalars(wanted.with_for_update(read=True, key_share=True))).all()


async def lock(connection: AsyncConnection, webhook_id: UUID) -> bool:
    """Whether it is there, and then until the end of the transaction."""
    wanted = select(WebhookRow.id).where(WebhookRow.id == webhook_id).with_for_update(read=True, key_share=True)
    return (await connection.execute(wanted)).one_or_none() is not None


async def add_deliveries(
    connection: AsyncConnection, ids: Sequence[UUID], webhook_ids: Sequence[UUID], *, event: str, body: str
) -> None:
    """The same event for each of the webhooks, in their order."""
    pairs = zip(ids, webhook_ids, strict=True)
    rows = [{"id": own, "webhook_id": webhook_id, "event": event, "body": body} for own, webhook_id in pairs]
    await connection.execute(insert(DeliveryRow), rows)


async def outgoing(connection: AsyncConnection, delivery_id: UUID) -> Outgoing | None:
    """What is to be sent; None where it was sent, was given up, or is gone with its webhook."""
    columns = (DeliveryRow.webhook_id, DeliveryRow.attempts, WebhookRow.url, WebhookRow.secret, DeliveryRow.body)
    wanted = select(*columns).join(WebhookRow, WebhookRow.id == DeliveryRow.webhook_id)
    wanted = wanted.where(DeliveryRow.id == delivery_id, DeliveryRow.status == "pending")
    row = (await connection.execute(wanted)).one_or_none()
    if row is None:
        return None
    message = Message(str(delivery_id), url=row.url, secret=row.secret, body=row.body)
    return Outgoing(delivery_id, row.webhook_id, row.attempts, message)


async def store(connection: AsyncConnection, sent: Outgoing, attempt: Attempt, status: DeliveryStatus) -> bool:
    """Keeps how an attempt went; False where another one has been faster, or the webhook is gone."""
    counted = () if attempt.ok else (DeliveryRow.attempts == sent.attempts,)  # a success always counts
    done = (
        update(DeliveryRow)
        .where(DeliveryRow.id == sent.id, DeliveryRow.status == "pending", *counted)
        .values(
            status=status,
            attempts=DeliveryRow.attempts + 1,
            last_status_code=attempt.status_code,
            last_error=attempt.error,
            finished_at=None if status == "pending" else func.now(),
        )
        .returning(DeliveryRow.id)
    )
    return (await connection.execute(done)).one_or_none() is not None


async def has_job(connection: AsyncConnection, delivery_id: UUID) -> bool:
    """Whether the queue holds another attempt already."""
    found: bool = await connection.scalar(_HAS_JOB, {"task": DELIVER, "delivery_id": str(delivery_id)})
    return found


async def without_job(connection: AsyncConnection, *, before: datetime) -> Sequence[UUID]:
    """Deliveries from before then that are pending, and that no job of the queue will attempt."""
    return (await connection.scalars(_WITHOUT_JOB, {"task": DELIVER, "before": before})).all()


async def forget_old(connection: AsyncConnection, before: datetime) -> int:
    """Removes deliveries that ended before then, not those that are pending, again or still; returns how many."""
    return (await connection.execute(delete(DeliveryRow).where(DeliveryRow.finished_at < before))).rowcount


def _webhook(row: Row[Any]) -> Webhook:
    values = row._mapping
    return Webhook(**{**values, "events": tuple(values["events"])})
