"""Lists in pages: `{items, next}`, where `next` is an opaque cursor for the following page."""

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Any, Generic, Protocol, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import Select, tuple_

from sutler.service.errors import FieldProblem
from sutler.service.web.errors import BadParameterError

T = TypeVar("T")
MOST_ITEMS = 200  # chosen: a page of summaries stays below 100 kB or so
Before = tuple[datetime, UUID]
"""Where a page of a list begins that has the newest first: below this time and id."""


class _Dated(Protocol):
    """What such a list holds."""

    @property
    def id(self) -> UUID: ...

    @property
    def created_at(self) -> datetime: ...


D = TypeVar("D", bound=_Dated)

Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="Items of a page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before; unset: the first page.")]


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    """What there is, in order."""
    next: str | None
    """`cursor` of the next page; null at the end."""


def encode_cursor(*parts: str | int) -> str:
    """Returns where the next page begins, as callers see it."""
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(text: str, *, parts: int) -> list[str]:
    """The parts of a cursor, as text. Raises BadParameterError for anything that `encode_cursor` did not make."""
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != parts or not all(isinstance(part, str | int) for part in found):
        raise bad_cursor()
    return [str(part) for part in found]


def bad_cursor() -> BadParameterError:
    remedy = "give `next` of the page before, unchanged, or leave it out for the first page"
    return BadParameterError(f"cursor: {remedy}", fields=(FieldProblem("cursor", None, remedy),))


def before_of(cursor: str | None) -> Before | None:
    """Where a page begins that has the newest first; None: at the newest. Raises BadParameterError."""
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


def newest_first(wanted: Select[Any], at: Any, last_id: Any, *, limit: int, before: Before | None) -> Select[Any]:
    """The query for one page of a list that has the newest first, by these two columns."""
    ordered = wanted.order_by(at.desc(), last_id.desc()).limit(limit)
    return ordered if before is None else ordered.where(tuple_(at, last_id) < tuple_(*before))


def page_of(found: list[D], limit: int) -> "Page[D]":
    """A page of a list that has the newest first; one item more than wanted says that there is a next page."""
    items = found[:limit]
    next_page = None
    if len(found) > limit:
        next_page = encode_cursor(items[-1].created_at.isoformat(), str(items[-1].id))
    return Page(items=items, next=next_page)
