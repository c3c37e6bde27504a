"""Making and revoking keys, with what is written about it; the caller has begun the transaction."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit, repository
from sutler.service.auth.keys import MadeKey, make_key
from sutler.service.auth.repository import KeyRecord
from sutler.service.db.notices import key_topic, notify
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE
from sutler.service.web.caller import Caller, Scope

LONGEST_NAME: Final = 100
LONGEST_LIFETIME: Final = timedelta(days=36_500)
_LENGTH: Final = re.compile(r"([0-9]{1,9})\s*([smhdw])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PRINTABLE: Final = re.compile(PRINTABLE)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made, with the only copy of it."""

    made: MadeKey
    record: KeyRecord


async def create_key(
    connection: AsyncConnection,
    *,
    name: str,
    scope: Scope,
    lifetime: timedelta | None,
    caller: Caller,
    weight: int = 1,
) -> NewKey:
    """A new key; without a `lifetime` it never expires. `weight`: how many of its plans are made for each one of
    another's, while both wait. Raises DocumentError for a name that cannot be shown."""
    if not 1 <= len(name) <= LONGEST_NAME or not _PRINTABLE.fullmatch(name):
        raise DocumentError.of("NAME", f"must be 1 to {LONGEST_NAME} printable characters", value=name)
    made = make_key()
    record = await repository.add(connection, made, name=name, scope=scope, weight=weight, lifetime=lifetime)
    expires_at = None if record.expires_at is None else record.expires_at.isoformat()
    detail = {"name": name, "scope": scope, "weight": weight, "expires_at": expires_at}
    await audit.note(connection, caller, "key.create", f"key/{made.id}", detail)
    return NewKey(made, record)


async def revoke_key(
    connection: AsyncConnection, key_id: str, *, caller: Caller
) -> Literal["revoked", "was_revoked", "unknown"]:
    """Revokes a key: from the commit on, every API process refuses it."""
    if not await repository.revoke(connection, key_id):
        return "unknown" if await repository.find(connection, key_id) is None else "was_revoked"
    await notify(connection, key_topic(key_id))
    await audit.note(connection, caller, "key.revoke", f"key/{key_id}")
    return "revoked"


def lifetime_of(text: str, *, field: str) -> timedelta:
    """12h, 90d, 52w: how long a key is valid. Raises DocumentError."""
    found = _LENGTH.fullmatch(text.strip())
    if found is not None:
        seconds = int(found[1]) * _SECONDS[found[2]]
        if 0 < seconds <= LONGEST_LIFETIME.total_seconds():
            return timedelta(seconds=seconds)
    raise DocumentError.of(field, "must be a length of time up to 100 years, such as 12h, 90d or 52w", value=text)
