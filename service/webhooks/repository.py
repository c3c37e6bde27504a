"""Webhooks and deliveries in the store, for people who look and workers who attempt. SQL lives here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeliveryRow, WebhookRow
from sutler.service.db.queue import DELIVER
from sutler.service.web.paging import Before, newest_first
from sutler.service.webhooks.schemas import DeliveryResource, DeliveryStatus, WebhookResource
from sutler.service.webhooks.sealing import SEALED, Sealer
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
_SECRETS: Final = (WebhookRow.secret, WebhookRow.former_secrets, func.now().label("now"))
_KEYS_IN_USE: Final = text("""
    SELECT DISTINCT split_part(stored, ':', 2) FROM (
        SELECT secret AS stored FROM webhook UNION ALL
        SELECT f ->> 'secret' FROM webhook, jsonb_array_elements(former_secrets) f
        WHERE CAST(f ->> 'until' AS timestamptz) > now()) found
    WHERE split_part(stored, ':', 1) = :sealed ORDER BY 1
""")
_WEBHOOK: Final = tuple(getattr(WebhookRow, name) for name in WebhookResource.model_fields)
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
_DELIVERY: Final = tuple(getattr(DeliveryRow, name) for name in DeliveryResource.model_fields)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A delivery to be attempted once more."""

    id: UUID
    webhook_id: UUID
    project: str
    attempts: int
    url: str
    body: str
    secrets: "StoredSecrets"

    def message(self, sealer: Sealer) -> Message:
        """What is sent. Raises SealedError."""
        found = tuple(sealer.opened(stored, self.webhook_id) for stored in self.secrets.signing)
        return Message(str(self.id), url=self.url, secrets=found, body=self.body)


@dataclass(frozen=True, slots=True)
class StoredSecrets:
    """A webhook's, as they are stored: the one that signs, and those of before that sign beside it until then.

    `now`: when they were looked at, by the database's clock.
    """

    present: str
    former: tuple[tuple[str, datetime], ...]
    now: datetime

    @property
    def signing(self) -> tuple[str, ...]:
        return (self.present, *(stored for stored, _ in self.lasting))

    @property
    def lasting(self) -> tuple[tuple[str, datetime], ...]:
        """Those of before that still sign."""
        return tuple((stored, until) for stored, until in self.former if until > self.now)


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


async def add(connection: AsyncConnection, webhook: WebhookResource, *, secret: str, most: int) -> bool:
    """Whether there was room for one more: others that add one at the same time wait."""
    await connection.execute(select(func.pg_advisory_xact_lock(_COUNT_LOCK)))
    if (await connection.scalar(select(func.count()).select_from(WebhookRow)) or 0) >= most:
        return False
    values = {**webhook.model_dump(), "events": list(webhook.events), "secret": secret}
    await connection.execute(insert(WebhookRow).values(values))
    return True


async def find(connection: AsyncConnection, webhook_id: UUID) -> WebhookResource | None:
    row = (await connection.execute(select(*_WEBHOOK).where(WebhookRow.id == webhook_id))).one_or_none()
    return None if row is None else WebhookResource(**row._mapping)


async def page(connection: AsyncConnection, *, limit: int, before: Before | None = None) -> list[WebhookResource]:
    """Webhooks, the newest first."""
    wanted = newest_first(select(*_WEBHOOK), WebhookRow.created_at, WebhookRow.id, limit=limit, before=before)
    return [WebhookResource(**row._mapping) for row in await connection.execute(wanted)]


async def remove(connection: AsyncConnection, webhook_id: UUID) -> bool:
    """Removes it with its deliveries; returns whether it was there."""
    gone = delete(WebhookRow).where(WebhookRow.id == webhook_id).returning(WebhookRow.id)
    return (await connection.execute(gone)).one_or_none() is not None


async def secrets(connection: AsyncConnection, webhook_id: UUID) -> StoredSecrets | None:
    """A webhook's, which nobody else changes before the end of the transaction."""
    wanted = select(*_SECRETS).where(WebhookRow.id == webhook_id).with_for_update()
    row = (await connection.execute(wanted)).one_or_none()
    return None if row is None else _secrets_of(row)


async def all_secrets(connection: AsyncConnection) -> dict[UUID, StoredSecrets]:
    """Of all webhooks, which nobody else changes before the end of the transaction."""
    wanted = select(WebhookRow.id, *_SECRETS).order_by(WebhookRow.id).with_for_update()
    return {row.id: _secrets_of(row) for row in await connection.execute(wanted)}


async def keep_secrets(
    connection: AsyncConnection, webhook_id: UUID, present: str, former: Sequence[tuple[str, datetime]]
) -> None:
    kept = [{"secret": stored, "until": until.isoformat()} for stored, until in former]
    changed = update(WebhookRow).where(WebhookRow.id == webhook_id).values(secret=present, former_secrets=kept)
    await connection.execute(changed)


async def keys_in_use(connection: AsyncConnection) -> Sequence[str]:
    """The ids of the keys with which secrets are encrypted that sign."""
    return (await connection.scalars(_KEYS_IN_USE, {"sealed": SEALED})).all()


def _secrets_of(row: Any) -> StoredSecrets:
    former = tuple((one["secret"], datetime.fromisoformat(one["until"])) for one in row.former_secrets)
    return StoredSecrets(row.secret, former, row.now)


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
    of_webhook = (WebhookRow.project, WebhookRow.url, *_SECRETS)
    columns = (DeliveryRow.webhook_id, DeliveryRow.attempts, DeliveryRow.body, *of_webhook)
    wanted = select(*columns).join(WebhookRow, WebhookRow.id == DeliveryRow.webhook_id)
    wanted = wanted.where(DeliveryRow.id == delivery_id, DeliveryRow.status == "pending")
    row = (await connection.execute(wanted)).one_or_none()
    if row is None:
        return None
    return Outgoing(
        delivery_id, row.webhook_id, row.project, row.attempts, url=row.url, body=row.body, secrets=_secrets_of(row)
    )


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


async def deliveries(
    connection: AsyncConnection,
    *,
    limit: int,
    webhook_id: UUID | None = None,
    status: DeliveryStatus | None = None,
    before: Before | None = None,
) -> list[DeliveryResource]:
    """Deliveries, the newest first; of all webhooks, and whatever their status, where these are not given."""
    wanted = newest_first(select(*_DELIVERY), DeliveryRow.created_at, DeliveryRow.id, limit=limit, before=before)
    if webhook_id is not None:
        wanted = wanted.where(DeliveryRow.webhook_id == webhook_id)
    if status is not None:
        wanted = wanted.where(DeliveryRow.status == status)
    return [DeliveryResource(**row._mapping) for row in await connection.execute(wanted)]


async def delivery(connection: AsyncConnection, delivery_id: UUID) -> DeliveryResource | None:
    row = (await connection.execute(select(*_DELIVERY).where(DeliveryRow.id == delivery_id))).one_or_none()
    return None if row is None else DeliveryResource(**row._mapping)


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
