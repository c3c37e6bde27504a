"""`Idempotency-Key`: a request that is sent twice is carried out once. Keys are kept for 24 hours.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from fastapi import Request
from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import IdempotencyRow
from sutler.service.errors import FieldProblem
from sutler.service.web.caller import Caller
from sutler.service.web.errors import BadParameterError, KeyReusedError

KEPT: Final = timedelta(hours=24)
HEADER: Final = "Idempotency-Key"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that its sender has named. `operation` is method and path; None as key: it was not named."""

    actor: str
    key: str | None
    operation: str
    body_sha256: bytes


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the same request came to before: a plan that was asked for, or a whole answer."""

    plan_id: UUID | None = None
    is_async: bool = False
    status_code: int | None = None
    location: str | None = None
    body: str | None = None


def ticket_of(request: Request, caller: Caller) -> Ticket:
    """Names the request, whose body was read before. Raises BadParameterError for a key that is no plain text."""
    given = request.headers.getlist(HEADER)
    if len(given) > 1 or (given and not _KEY.fullmatch(given[0])):
        remedy = "give one key of 1 to 255 printable ASCII characters without spaces, such as a UUID"
        raise BadParameterError(f"{HEADER}: {remedy}", fields=(FieldProblem(HEADER, None, remedy),))
    operation = f"{request.method} {request.url.path}"
    return Ticket(caller.principal.actor, given[0] if given else None, operation[:500], request.state.body_sha256)


async def taken(connection: AsyncConnection, ticket: Ticket, now: datetime) -> Earlier | None:
    """What came of this request before; None: it is new, and from now on this transaction's.

    A second request with the key waits for the first one's transaction. Raises KeyReusedError.
    """
    if ticket.key is None:
        return None
    mine = insert(IdempotencyRow).values(
        actor=ticket.actor, key=ticket.key, operation=ticket.operation, body_sha256=ticket.body_sha256, created_at=now
    )
    added = await connection.execute(mine.on_conflict_do_nothing().returning(IdempotencyRow.key))
    if added.first() is not None:
        return None
    row = (await connection.execute(select(IdempotencyRow).where(*_of(ticket)).with_for_update())).one_or_none()
    if row is None or row.created_at < now - KEPT:
        await forget(connection, ticket)
        return await taken(connection, ticket, now)
    if (row.operation, bytes(row.body_sha256)) != (ticket.operation, ticket.body_sha256):
        remedy = "use a new key for a new request"
        raise KeyReusedError(
            f"{HEADER}: it was used with another request in the last 24 hours: {remedy}",
            fields=(FieldProblem(HEADER, None, remedy),),
        )
    return Earlier(row.plan_id, row.is_async, row.status_code, row.location, row.body)


async def remember(connection: AsyncConnection, ticket: Ticket, answer: Earlier) -> None:
    """Keeps the answer, in the transaction of what it answers."""
    if ticket.key is not None:
        values: dict[str, Any] = {name: getattr(answer, name) for name in Earlier.__slots__}
        await connection.execute(update(IdempotencyRow).where(*_of(ticket)).values(values))


async def forget(connection: AsyncConnection, ticket: Ticket) -> None:
    """The next request with the key is carried out again."""
    await connection.execute(delete(IdempotencyRow).where(*_of(ticket)))


async def forget_old(connection: AsyncConnection, now: datetime) -> None:
    await connection.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at < now - KEPT))


def _of(ticket: Ticket) -> tuple[Any, ...]:
    return (IdempotencyRow.actor == ticket.actor, IdempotencyRow.key == ticket.key)
