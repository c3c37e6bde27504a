"""Making, renewing and revoking keys, with what is written about it; the caller has begun the transaction.

Whose keys: those of the transaction's project. Callers of the API make and renew none that reaches further than their
own: not in scope, not in weight, not in time.
"""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit, repository
from sutler.service.auth.keys import MadeKey, is_key_id, make_key
from sutler.service.auth.repository import KeyRecord, StoredKey
from sutler.service.db.notices import key_topic, notify
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE
from sutler.service.errors import FieldProblem
from sutler.service.web.caller import LOCAL, Caller, Scope
from sutler.service.web.errors import ConflictError, NotAllowedError, NotFoundError

LONGEST_NAME: Final = 100
LONGEST_LIFETIME: Final = timedelta(days=36_500)
_LENGTH: Final = re.compile(r"([0-9]{1,9})\s*([smhdwy])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
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


async def create_within(
    connection: AsyncConnection, *, name: str, scope: Scope, lifetime: timedelta | None, weight: int, caller: Caller
) -> NewKey:
    """A new key within its maker's; without a `lifetime` it expires with that one.

    Raises NotAllowedError where it would reach further, DocumentError as `create_key` does.
    """
    own = await _own(connection, caller)
    if own is not None:
        lifetime = lifetime or own.lifetime
        _check_within(caller, own, scope=scope, weight=weight, lifetime=lifetime)
    return await create_key(connection, name=name, scope=scope, lifetime=lifetime, weight=weight, caller=caller)


async def rotate_key(connection: AsyncConnection, key_id: str, *, caller: Caller) -> NewKey:
    """The same key with another secret: from the commit on, every API process refuses the one before.

    Raises NotFoundError, ConflictError for a key that is not good, NotAllowedError for one that reaches further than
    the caller's own.
    """
    found = await repository.find(connection, key_id)
    if found is None:
        raise no_key(key_id)
    own = await _own(connection, caller)
    if own is not None:
        _check_within(caller, own, scope=found.scope, weight=found.weight, lifetime=found.lifetime)
    made = make_key(key_id)
    record = await repository.renew(connection, made, key_id)
    if record is None:
        raise ConflictError(f"the key {key_id} was revoked or has expired: make a new one (POST /v1/keys)")
    await notify(connection, key_topic(key_id))
    await audit.note(connection, caller, "key.rotate", f"key/{key_id}")
    return NewKey(made, record)


def no_key(key_id: str) -> NotFoundError:
    """What to say of an id that no key of the project has; anything else is not repeated: it may be a whole key."""
    told = f"no key {key_id}" if is_key_id(key_id) else "no such key"
    return NotFoundError(f"there is {told}: GET /v1/keys lists all")


async def _own(connection: AsyncConnection, caller: Caller) -> StoredKey | None:
    """The key that the caller shows; None: who needs none has no limits."""
    if caller.principal == LOCAL:
        return None
    return await repository.find(connection, caller.principal.actor.removeprefix("key/"))


def _check_within(caller: Caller, own: StoredKey, *, scope: Scope, weight: int, lifetime: timedelta | None) -> None:
    further: FieldProblem | None = None
    if not caller.principal.may(scope):
        further = FieldProblem("scope", scope, f"this key has scope {own.scope}")
    elif weight > own.weight:
        further = FieldProblem("weight", str(weight), f"this key weighs {own.weight}")
    elif own.lifetime is not None and (lifetime is None or lifetime > own.lifetime):
        told = "never" if lifetime is None else f"in {lifetime / timedelta(seconds=1):.0f} s"
        further = FieldProblem("expires_in", told, f"this key expires in {own.lives_s:.0f} s")
    if further is not None:
        remedy = f"{further.remedy}, and nobody makes a key that reaches further than their own: use another"
        problem = replace(further, remedy=remedy)
        raise NotAllowedError(str(problem), fields=(problem,))


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
    """12h, 90d, 2y: how long a key is valid, or something is kept. Raises DocumentError."""
    found = _LENGTH.fullmatch(text.strip())
    if found is not None:
        seconds = int(found[1]) * _SECONDS[found[2]]
        if 0 < seconds <= LONGEST_LIFETIME.total_seconds():
            return timedelta(seconds=seconds)
    raise DocumentError.of(field, "must be a length of time up to 100 years, such as 12h, 90d or 2y", value=text)


def in_words(length_s: int) -> str:
    """A length of time as `lifetime_of` reads it, in the largest unit that tells it exactly."""
    unit = max((name for name, seconds in _SECONDS.items() if length_s % seconds == 0), key=_SECONDS.__getitem__)
    return f"{length_s // _SECONDS[unit]}{unit}"
