"""Webhooks: registered here, told of events in the transaction of their cause, and delivered to by the workers.

Each event reaches each receiver at least once, or is given up after three days; nothing that was delivered is sent
again, unless somebody asks for that (`replays`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.auth import audit
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.projects import enter
from sutler.service.db.queue import Queue
from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem
from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.destinations import DestinationError, check_url
from sutler.service.web.caller import Caller, Principal
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.webhooks import repository
from sutler.service.webhooks.events import TEST_EVENT, body_of
from sutler.service.webhooks.repository import Outgoing
from sutler.service.webhooks.schemas import (
    DeliveryResource,
    DeliveryStatus,
    RotationDocument,
    WebhookDocument,
    WebhookResource,
)
from sutler.service.webhooks.sealing import SealedError, Sealer
from sutler.service.webhooks.sending import USUAL_SENDER, Attempt, Message
from sutler.service.webhooks.signatures import new_secret

logger = logging.getLogger("sutler.webhooks")
MOST_WEBHOOKS: Final = 100  # chosen: an event is a row and a job for each that wants it
MOST_FORMER: Final = 5  # chosen: each is one more signature in a header
SENT_AT_ONCE: Final = 8  # chosen: slow receivers, each for up to 15 s, leave room for others
RECEIVER: Final = Caller(Principal("receiver", "read"), None)
"""Who is said to have removed a webhook that wants no more events."""
_THREADS: Final = ThreadPoolExecutor(SENT_AT_ONCE, "delivery")  # receivers may be slow: not the threads of others
MINUTE_S: Final = 60.0
HOUR_S: Final = 3_600.0
# After each attempt but the last; three days in all.
WAITS_S: Final = (
    5.0,
    5 * MINUTE_S,
    30 * MINUTE_S,
    2 * HOUR_S,
    5 * HOUR_S,
    10 * HOUR_S,
    14 * HOUR_S,
    20 * HOUR_S,
    24 * HOUR_S,
)
MOST_ATTEMPTS: Final = len(WAITS_S) + 1
JITTER_FRACTION: Final = 0.1  # chosen: spreads receivers that failed together, and hardly delays
LONGEST_STATED_WAIT_S: Final = 24 * HOUR_S


class Send(Protocol):
    """Makes one attempt; blocks, and raises nothing."""

    def __call__(self, message: Message, *, allowed: tuple[Network, ...]) -> Attempt: ...


async def register(
    connection: AsyncConnection,
    document: WebhookDocument,
    caller: Caller,
    *,
    allowed: tuple[Network, ...],
    sealer: Sealer,
    now: datetime,
) -> tuple[WebhookResource, str]:
    """The new webhook and its secret, which nothing shows again. Raises DocumentError, ConflictError."""
    try:
        check_url(document.url, allowed=allowed)
    except DestinationError as error:
        raise DocumentError([FieldProblem("url", error.shown, error.remedy)]) from None
    secret = document.secret or new_secret()
    events = tuple(dict.fromkeys(document.events))
    webhook = WebhookResource(
        id=uuid4(),
        url=document.url,
        events=events,
        description=document.description or "",
        created_by=caller.principal.actor,
        created_at=now,
    )
    if not await repository.add(connection, webhook, secret=sealer.sealed(secret, webhook.id), most=MOST_WEBHOOKS):
        raise ConflictError(f"there are {MOST_WEBHOOKS} webhooks, the most there may be: delete one that is not used")
    await audit.note(connection, caller, "webhook.create", f"webhook/{webhook.id}", {"events": list(events)})
    return webhook, secret


async def get(connection: AsyncConnection, webhook_id: UUID) -> WebhookResource:
    """The webhook. Raises NotFoundError."""
    found = await repository.find(connection, webhook_id)
    if found is None:
        raise _not_found(webhook_id)
    return found


async def remove(connection: AsyncConnection, webhook_id: UUID, caller: Caller) -> None:
    """Removes it with all its deliveries, also those under way. Raises NotFoundError."""
    if not await repository.remove(connection, webhook_id):
        raise _not_found(webhook_id)
    await audit.note(connection, caller, "webhook.delete", f"webhook/{webhook_id}")


async def rotate_secret(
    connection: AsyncConnection, webhook_id: UUID, document: RotationDocument, caller: Caller, *, sealer: Sealer
) -> tuple[str, datetime | None]:
    """The new secret, which nothing shows again, and until when that of before signs as well.

    Who has asked before, and did not hear the answer, asks again: secrets of before that still sign go on to.
    Raises NotFoundError, ConflictError.
    """
    before = await repository.secrets(connection, webhook_id)
    if before is None:
        raise _not_found(webhook_id)
    secret = document.secret or new_secret()
    until = before.now + timedelta(seconds=document.overlap_s) if document.overlap_s else None
    former = () if until is None else (*before.lasting, (before.present, until))
    if len(former) > MOST_FORMER:
        first = min(end for _, end in former).astimezone(UTC)
        reason = (
            f"{MOST_FORMER} secrets of before still sign, the most there may be, one until {first:%Y-%m-%d %H:%M}"
        )
        raise ConflictError(f"{reason} UTC: wait until then, or end them all with an overlap_s of 0")
    await repository.keep_secrets(connection, webhook_id, sealer.sealed(secret, webhook_id), former)
    detail = {"overlap_s": document.overlap_s}
    await audit.note(connection, caller, "webhook.rotate_secret", f"webhook/{webhook_id}", detail)
    return secret, until


async def encrypt_all(connection: AsyncConnection, caller: Caller, *, sealer: Sealer) -> int:
    """Stores every secret as the first key has it, whatever had encrypted it; returns how many webhooks there are.
    Those of before that sign no longer are let go, with whatever key they had.

    Raises SealedError, with nothing changed, where one cannot be read.
    """
    found = await repository.all_secrets(connection)
    for webhook_id, stored in found.items():
        try:
            opened = [(sealer.opened(one, webhook_id), until) for one, until in stored.lasting]
            present = sealer.opened(stored.present, webhook_id)
        except SealedError as error:
            raise SealedError(f"webhook {webhook_id}: {error.reason}", error.remedy) from None
        former = [(sealer.sealed(one, webhook_id), until) for one, until in opened]
        await repository.keep_secrets(connection, webhook_id, sealer.sealed(present, webhook_id), former)
    await audit.note(connection, caller, "webhook.encrypt_secrets", f"key/{sealer.key_id}", {"webhooks": len(found)})
    return len(found)


async def test(connection: AsyncConnection, queue: Queue, webhook_id: UUID, caller: Caller) -> DeliveryResource:
    """Sends an event that means nothing, whatever events are wanted. Raises NotFoundError."""
    if not await repository.lock(connection, webhook_id):
        raise _not_found(webhook_id)
    data = {"webhook": {"id": str(webhook_id)}}
    (delivery_id,) = await _send_to([webhook_id], connection, queue, event=TEST_EVENT, data=data)
    await audit.note(connection, caller, "webhook.test", f"webhook/{webhook_id}")
    found = await repository.delivery(connection, delivery_id)
    assert found is not None
    return found


async def announce(connection: AsyncConnection, queue: Queue, *, event: str, data: Mapping[str, Any]) -> None:
    """Tells every webhook that wants the event, once this transaction is committed: of the transaction's project, or
    of all where it is across them."""
    await _send_to(await repository.wanting(connection, event), connection, queue, event=event, data=data)


async def deliver(
    engine: AsyncEngine,
    queue: Queue,
    delivery_id: UUID,
    *,
    allowed: tuple[Network, ...],
    sealer: Sealer,
    send: Send = USUAL_SENDER,
    chance: Callable[[], float] = random.random,
) -> Attempt | None:
    """Makes one attempt and what follows from it: the end, or a job for the next one.

    Returns None where there was nothing to send.

    Raises DatabaseError.
    """
    async with reading(engine) as connection:
        outgoing = await repository.outgoing(connection, delivery_id)
    if outgoing is None:
        return None
    try:
        work = partial(send, outgoing.message(sealer), allowed=allowed)
    except SealedError as error:
        attempt = Attempt(ok=False, status_code=None, error=str(error), seconds=0.0)
    else:
        attempt = await asyncio.get_running_loop().run_in_executor(_THREADS, work)
    async with begun(engine) as connection:
        await _conclude(connection, queue, outgoing, attempt, chance())
    return attempt


async def put_back_lost(connection: AsyncConnection, queue: Queue, *, before: datetime) -> Sequence[UUID]:
    """Gives jobs to deliveries from before then that lost theirs; returns which those were."""
    lost = await repository.without_job(connection, before=before)
    for delivery_id in lost:
        logger.warning("delivery %s has no job: it is put into the queue again", delivery_id)
        await queue.deliver(connection, delivery_id)
    return lost


async def _send_to(
    webhook_ids: Sequence[UUID], connection: AsyncConnection, queue: Queue, *, event: str, data: Mapping[str, Any]
) -> list[UUID]:
    if not webhook_ids:
        return []
    at: datetime = (await connection.execute(select(func.now()))).scalar_one()
    ids = [uuid4() for _ in webhook_ids]
    await repository.add_deliveries(connection, ids, webhook_ids, event=event, body=body_of(event, data, at=at))
    for delivery_id in ids:
        await queue.deliver(connection, delivery_id)
    return ids


async def _conclude(
    connection: AsyncConnection, queue: Queue, sent: Outgoing, attempt: Attempt, chance: float
) -> None:
    if attempt.is_unwanted:
        await enter(connection, sent.project)
        await _unsubscribe(connection, sent.webhook_id)
        return
    next_s = None if attempt.ok else wait_s(sent.attempts + 1, stated_s=attempt.wait_s, chance=chance)
    status: DeliveryStatus = "delivered" if attempt.ok else "failed" if next_s is None else "pending"
    _log(sent, attempt, status)
    is_ours = await repository.store(connection, sent, attempt, status)
    if is_ours and next_s is not None and not await repository.has_job(connection, sent.id):
        await queue.deliver(connection, sent.id, delay_s=next_s)


async def _unsubscribe(connection: AsyncConnection, webhook_id: UUID) -> None:
    if await repository.remove(connection, webhook_id):
        logger.warning("webhook %s is removed: its receiver answers 410 Gone", webhook_id)
        await audit.note(connection, RECEIVER, "webhook.delete", f"webhook/{webhook_id}", {"reason": "410 Gone"})


def _log(sent: Outgoing, attempt: Attempt, status: DeliveryStatus) -> None:
    said = "" if attempt.error is None else f": {attempt.error}"
    level = logging.INFO if attempt.ok else logging.WARNING
    logger.log(level, "delivery %s is %s after attempt %d%s", sent.id, status, sent.attempts + 1, said)


def _not_found(webhook_id: UUID) -> NotFoundError:
    return NotFoundError(f"there is no webhook {webhook_id}: see GET /v1/webhooks")


def wait_s(attempts: int, *, stated_s: float | None, chance: float) -> float | None:
    """Seconds until the next attempt after `attempts` have failed; None: there is none.

    `stated_s` is what the receiver asks for, which may lengthen the wait to a day. `chance` in [0, 1] spreads
    receivers that failed together.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    usual_s = WAITS_S[attempts - 1] * (1.0 + JITTER_FRACTION * chance)
    return max(usual_s, min(stated_s or 0.0, LONGEST_STATED_WAIT_S))
