"""Pages of webhooks and of deliveries: the newest first, by time and id."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sutler.service.web.paging import bad_cursor, decode_cursor, encode_cursor
from sutler.service.webhooks.delivery_repository import Before


class Item(Protocol):
    """What a list holds."""

    @property
    def id(self) -> UUID: ...

    @property
    def created_at(self) -> datetime: ...


def before(cursor: str | None) -> Before | None:
    """Where the page begins; None: at the newest. Raises BadParameterError."""
    if cursor is None:
        return None
    at, last_id = decode_cursor(cursor, parts=2)
    try:
        found = datetime.fromisoformat(at), UUID(last_id)
    except ValueError:
        raise bad_cursor() from None
    if found[0].tzinfo is None:
        raise bad_cursor()
    return found


def following(found: Sequence[Item], limit: int) -> str | None:
    """The next page's cursor: one more than wanted says that there is one."""
    if len(found) <= limit:
        return None
    last = found[limit - 1]
    return encode_cursor(last.created_at.isoformat(), str(last.id))
