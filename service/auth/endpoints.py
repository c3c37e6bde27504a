"""`/v1/audit`: who changed what."""

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from sutler.service.auth import repository
from sutler.service.auth.dependency import Admin, Service
from sutler.service.db.asynchronous import reading
from sutler.service.documents.fields import PRINTABLE
from sutler.service.web.paging import Cursor, Limit, Page, bad_cursor, decode_cursor, encode_cursor
from sutler.service.web.problems import responses
from sutler.service.web.resource import Resource

router = APIRouter(prefix="/v1/audit", tags=["audit"])

MOST_ID: Final = 2**63 - 1


def _only(what: str) -> Any:
    return Query(min_length=1, max_length=200, pattern=PRINTABLE, description=f"Only changes {what}.")


class AuditEntry(Resource):
    """One change."""

    id: int
    """Later changes have higher ids."""
    at: datetime
    """When it was made."""
    actor: str
    """`key/ID`, `local` for a caller who needed no key, `cli` for the command line."""
    action: str
    """What was done, such as `plan.create` or `key.revoke`."""
    target: str
    """To what, such as `deployment/chat`."""
    request_id: str | None
    """Names the request in the logs; null for the command line."""
    detail: dict[str, Any]
    """More about it, never a secret."""


@router.get("", responses=responses(401, 403, 422, 429, 503))
async def list_audit(
    services: Service,
    _admin: Admin,
    actor: Annotated[str | None, _only("by this actor")] = None,
    action: Annotated[str | None, _only("of this kind")] = None,
    target: Annotated[str | None, _only("of this")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[AuditEntry]:
    """Every change that was made with a key, on loopback without one, or on the command line; the newest first."""
    before = None if cursor is None else _id_in(cursor)
    async with reading(services.engine) as connection:
        found = await repository.audit_page(
            connection, limit=limit + 1, before=before, actor=actor, action=action, target=target
        )
    following = encode_cursor(found[limit - 1]["id"]) if len(found) > limit else None
    return Page(items=[AuditEntry(**row) for row in found[:limit]], next=following)


def _id_in(cursor: str) -> int:
    """Raises BadParameterError."""
    (text,) = decode_cursor(cursor, parts=1)
    if not text.isdecimal() or not 0 < int(text) <= MOST_ID:
        raise bad_cursor()
    return int(text)
