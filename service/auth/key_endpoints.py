"""`/v1/keys`: the keys of the caller's project, made, listed, renewed and revoked by its admins."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Response
from pydantic import Field

from sutler.service.auth import repository
from sutler.service.auth import service as keys
from sutler.service.auth.dependency import Admin, Service
from sutler.service.auth.service import LONGEST_NAME, NewKey, lifetime_of
from sutler.service.db.asynchronous import reading
from sutler.service.documents.fields import PRINTABLE, Document
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.caller import Scope
from sutler.service.web.paging import Cursor, Limit, Page, bad_cursor, decode_cursor, encode_cursor
from sutler.service.web.problems import responses
from sutler.service.web.resource import Resource

router = APIRouter(prefix="/v1/keys", tags=["keys"])

KeyId = Annotated[str, Path(max_length=200, description="The public part of a key: 12 letters and digits.")]
OF_A_BUILD: Final = {"name": "ci", "scope": "plan", "expires_in": "90d"}


class NewKeyDocument(Document):
    """A key to be made, in the project of the one that makes it."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=PRINTABLE)]
    """What it is for."""
    scope: Scope
    """How far it reaches: read, plan or admin, and no further than the key that makes it."""
    expires_in: str | None = None
    """How long it is valid, such as 12h, 90d, 52w; unset: as long as the key that makes it."""
    weight: Annotated[int, Field(ge=1, le=100)] = 1
    """Plans of it that are made for each one of another key, while both wait; at most its maker's."""


class KeyResource(Resource):
    """A key without its secret, which nothing shows again."""

    id: str
    """Its public part, by which logs and the audit log name it."""
    name: str
    """What it is for."""
    scope: Scope
    """How far it reaches."""
    project: str
    """All that it reaches."""
    weight: int
    """Plans of it that are made for each one of another key, while both wait."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """Until when it is valid; null: until it is revoked."""
    last_used_at: datetime | None
    """When it was used last, to the minute; null: it never was."""
    revoked_at: datetime | None
    """Since when it is refused; null: it is not."""


class NewKeyResource(KeyResource):
    """A key as its maker sees it, once."""

    key: str
    """The key itself: it is not shown again."""


@router.post(
    "",
    status_code=201,
    responses=responses(401, 403, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(NewKeyDocument, of_a_build=OF_A_BUILD),
)
async def create_key(
    response: Response,
    services: Service,
    caller: Admin,
    document: Annotated[NewKeyDocument, body_of(NewKeyDocument)],
) -> NewKeyResource:
    """Make a key, which this answer shows once. It reaches no further than the one that makes it."""
    given = document.expires_in
    lifetime = None if given is None else lifetime_of(given, field="expires_in")
    async with services.changing(caller) as connection:
        new = await keys.create_within(
            connection,
            name=document.name,
            scope=document.scope,
            lifetime=lifetime,
            weight=document.weight,
            caller=caller,
        )
    return _shown(response, new)


@router.get("", responses=responses(401, 403, 422, 429, 503))
async def list_keys(services: Service, _admin: Admin, limit: Limit = 50, cursor: Cursor = None) -> Page[KeyResource]:
    """The keys of the project, the oldest first, with those that are revoked or expired."""
    after = None if cursor is None else _after(cursor)
    async with reading(services.engine) as connection:
        found = await repository.all_keys(connection, limit=limit + 1, after=after)
    items = [KeyResource(**asdict(record)) for record in found[:limit]]
    following = encode_cursor(items[-1].created_at.isoformat(), items[-1].id) if len(found) > limit else None
    return Page(items=items, next=following)


@router.post("/{key_id}/rotate", responses=responses(401, 403, 404, 409, 422, 429, 503))
async def rotate_key(response: Response, services: Service, caller: Admin, key_id: KeyId) -> NewKeyResource:
    """Give a key another secret, which this answer shows once; the one before is refused from now on."""
    async with services.changing(caller) as connection:
        new = await keys.rotate_key(connection, key_id, caller=caller)
    return _shown(response, new)


@router.delete("/{key_id}", status_code=204, responses=responses(401, 403, 404, 422, 429, 503))
async def revoke_key(services: Service, caller: Admin, key_id: KeyId) -> None:
    """Refuse a key from now on; one that was revoked before stays so."""
    async with services.changing(caller) as connection:
        if await keys.revoke_key(connection, key_id, caller=caller) == "unknown":
            raise keys.no_key(key_id)


def _shown(response: Response, new: NewKey) -> NewKeyResource:
    response.headers["Cache-Control"] = "no-store"
    return NewKeyResource(**asdict(new.record), key=new.made.text)


def _after(cursor: str) -> tuple[datetime, str]:
    """Raises BadParameterError."""
    at, key_id = decode_cursor(cursor, parts=2)
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        raise bad_cursor() from None
    if found.tzinfo is None or "\x00" in key_id:
        raise bad_cursor()
    return found, key_id
