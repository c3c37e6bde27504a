"""Sends again what was given up, or what a receiver has lost: the same `webhook-id` and body, attempts begin anew.

A delivery is made pending under the lock of its row, and its waiting jobs are replaced by one in that transaction, so
however many ask at once, there is one more job at most.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.queue import Queue
from sutler.service.web.caller import Caller
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.webhooks import repository
from sutler.service.webhooks.repository import FailedDeliveries, Turn
from sutler.service.webhooks.schemas import DeliveryResource, ReplayedResource, SentResource

MOST_REPLAYED: Final = 500  # chosen: one transaction stays short, which locks each of them


async def get(connection: AsyncConnection, delivery_id: UUID) -> DeliveryResource:
    """The delivery. Raises NotFoundError."""
    found = await repository.delivery(connection, delivery_id)
    if found is None:
        raise NotFoundError(f"there is no delivery {delivery_id}: see GET /v1/deliveries")
    return found


async def shown(connection: AsyncConnection, delivery_id: UUID) -> SentResource:
    """Returns a delivery with its body, and when it is tried next. Raises NotFoundError."""
    delivery = await get(connection, delivery_id)
    body = await repository.body(connection, delivery_id)
    turn = await repository.turn(connection, delivery_id) if delivery.status == "pending" else None
    next_attempt_at = None if turn is None else turn.at
    return SentResource(**delivery.model_dump(), body=body or "", next_attempt_at=next_attempt_at)


async def replay(connection: AsyncConnection, queue: Queue, delivery_id: UUID, *, caller: Caller) -> DeliveryResource:
    """Sends one delivery again, failed or delivered. Raises NotFoundError; ConflictError where it is pending."""
    if not await repository.begin_anew(connection, delivery_id):
        await get(connection, delivery_id)
        turn = await repository.turn(connection, delivery_id)
        raise ConflictError(f"the delivery {delivery_id} is pending{_said(turn)}: only what has ended is replayed")
    await _queue(connection, queue, [delivery_id])
    await audit.note(connection, caller, "delivery.replay", f"delivery/{delivery_id}")
    return await get(connection, delivery_id)


async def replay_failed(
    connection: AsyncConnection, queue: Queue, failed: FailedDeliveries, *, caller: Caller
) -> ReplayedResource:
    """Sends a webhook's failed deliveries again, the oldest first, `MOST_REPLAYED` at most. Raises NotFoundError."""
    if not await repository.lock(connection, failed.webhook_id):
        raise NotFoundError(f"there is no webhook {failed.webhook_id}: see GET /v1/webhooks")
    ids = await repository.begin_failed_anew(connection, failed, most=MOST_REPLAYED)
    await _queue(connection, queue, ids)
    remaining = await repository.count_failed(connection, failed)
    await audit.note(connection, caller, "webhook.replay", f"webhook/{failed.webhook_id}", _detail(failed, len(ids)))
    return ReplayedResource(replayed=len(ids), remaining=remaining)


async def _queue(connection: AsyncConnection, queue: Queue, delivery_ids: Sequence[UUID]) -> None:
    """Gives each one job, due at once: a waiting one of a former attempt may be due only in a day."""
    await repository.drop_jobs(connection, delivery_ids)
    for delivery_id in delivery_ids:
        await queue.deliver(connection, delivery_id)


def _said(turn: Turn | None) -> str:
    if turn is None:
        return ""
    if turn.is_under_way:
        return " and is being tried now"
    if turn.at is None:
        return " and is tried as soon as a worker is free"
    return f" and is tried next at {turn.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _detail(failed: FailedDeliveries, replayed: int) -> Mapping[str, object]:
    return {
        "replayed": replayed,
        **({} if failed.since is None else {"since": failed.since.isoformat()}),
        **({} if failed.events is None else {"events": list(failed.events)}),
    }
