"""Keys, what they used, and the audit log in the store. Times are the database's, so that all processes agree."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import RowMapping, delete, exists, func, insert, literal, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth.keys import MadeKey
from sutler.service.db.api_tables import ApiKeyRow, AuditRow, KeyUseRow, ProjectRow, WebSessionRow
from sutler.service.web.caller import Scope

USE_NOTED_EVERY: Final = timedelta(minutes=1)
LONGEST_SESSION: Final = timedelta(hours=12)  # chosen: a day's work
LONGEST_IDLE: Final = timedelta(hours=2)  # chosen: a page that is open renews itself; one that was closed does not


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as lists show it."""

    id: str
    name: str
    scope: Scope
    project: str
    weight: int
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What a shown key is checked against. `lives_s`: seconds until it expires; None: it never does."""

    scope: Scope
    weight: int
    project: str
    secret_sha256: bytes = field(repr=False)
    is_revoked: bool
    lives_s: float | None
    most_requests_per_minute: int | None

    @property
    def lifetime(self) -> timedelta | None:
        return None if self.lives_s is None else timedelta(seconds=self.lives_s)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """Whose session it is. `lives_s`: seconds until it ends, unless it is used, or its key expires."""

    key_id: str
    scope: Scope
    weight: int
    project: str
    most_requests_per_minute: int | None
    lives_s: float


@dataclass(frozen=True, slots=True)
class MinuteOfChanges:
    """How many changes were counted in this minute, and how many seconds of it are left."""

    changes: int
    left_s: float


_LISTED: Final = tuple(getattr(ApiKeyRow, name) for name in KeyRecord.__slots__)
_IS_LIVE: Final = ApiKeyRow.revoked_at.is_(None) & or_(
    ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > func.now()
)


async def add(
    connection: AsyncConnection, made: MadeKey, *, name: str, scope: Scope, weight: int, lifetime: timedelta | None
) -> KeyRecord:
    """Stores a key without its secret; without a `lifetime` it never expires."""
    values: dict[str, Any] = {"id": made.id, "name": name, "scope": scope, "weight": weight}
    values["secret_sha256"] = made.secret_sha256
    if lifetime is not None:
        values["expires_at"] = func.now() + literal(lifetime)
    row = (await connection.execute(insert(ApiKeyRow).values(values).returning(*_LISTED))).one()
    return KeyRecord(*row)


async def find(connection: AsyncConnection, key_id: str) -> StoredKey | None:
    until_then = func.extract("epoch", ApiKeyRow.expires_at - func.now())
    columns = (ApiKeyRow.scope, ApiKeyRow.weight, ApiKeyRow.project, ApiKeyRow.secret_sha256, ApiKeyRow.revoked_at)
    wanted = select(*columns, until_then, ProjectRow.most_requests_per_minute).join(ProjectRow)
    row = (await connection.execute(wanted.where(ApiKeyRow.id == key_id))).one_or_none()
    if row is None:
        return None
    scope, weight, project, digest, revoked_at, left, most = row
    lives_s = None if left is None else float(left)
    return StoredKey(cast(Scope, scope), weight, project, bytes(digest), revoked_at is not None, lives_s, most)


async def all_keys(
    connection: AsyncConnection, *, limit: int | None = None, after: tuple[datetime, str] | None = None
) -> list[KeyRecord]:
    """The oldest first, also what is revoked or expired; `after`: those that follow this one."""
    wanted = select(*_LISTED).order_by(ApiKeyRow.created_at, ApiKeyRow.id).limit(limit)
    if after is not None:
        wanted = wanted.where(tuple_(ApiKeyRow.created_at, ApiKeyRow.id) > tuple_(*after))
    return [KeyRecord(*row) for row in await connection.execute(wanted)]


async def any_key(connection: AsyncConnection) -> bool:
    """Whether anybody could show a key that is accepted."""
    return bool(await connection.scalar(select(exists().where(_IS_LIVE))))


async def revoke(connection: AsyncConnection, key_id: str) -> bool:
    """False where there is no such key, or it was revoked before."""
    wanted = update(ApiKeyRow).where(ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None))
    done = await connection.execute(wanted.values(revoked_at=func.now()).returning(ApiKeyRow.id))
    return done.one_or_none() is not None


async def renew(connection: AsyncConnection, made: MadeKey, key_id: str) -> KeyRecord | None:
    """Gives a key that is good another secret, and ends what was begun with the one before; None where it is not."""
    await connection.execute(delete(WebSessionRow).where(WebSessionRow.key_id == key_id))
    changed = update(ApiKeyRow).where(ApiKeyRow.id == key_id, _IS_LIVE).values(secret_sha256=made.secret_sha256)
    row = (await connection.execute(changed.returning(*_LISTED))).one_or_none()
    return None if row is None else KeyRecord(*row)


async def note_use(connection: AsyncConnection, key_id: str) -> None:
    """Sets `last_used_at`, once a minute; waits for nobody who changes the key now."""
    is_due = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < func.now() - literal(USE_NOTED_EVERY))
    free = select(ApiKeyRow.id).where(ApiKeyRow.id == key_id, is_due).with_for_update(skip_locked=True)
    await connection.execute(
        update(ApiKeyRow).where(ApiKeyRow.id.in_(free.scalar_subquery())).values(last_used_at=func.now())
    )


async def add_session(connection: AsyncConnection, key_id: str, token_sha256: bytes, *, most: int) -> None:
    """Begins a session of the key, which has `most` at a time: the oldest end."""
    mine = select(WebSessionRow.token_sha256).where(WebSessionRow.key_id == key_id)
    old = mine.order_by(WebSessionRow.created_at.desc()).offset(most - 1)
    await connection.execute(delete(WebSessionRow).where(WebSessionRow.token_sha256.in_(old)))
    ends_at = func.now() + literal(LONGEST_SESSION)
    values = {"token_sha256": token_sha256, "key_id": key_id, "ends_at": ends_at}
    await connection.execute(insert(WebSessionRow).values(values))


async def find_session(connection: AsyncConnection, token_sha256: bytes) -> StoredSession | None:
    """A session that lasts, of a key that is good; None where there is none."""
    ends_at = func.least(
        WebSessionRow.ends_at, WebSessionRow.used_at + literal(LONGEST_IDLE), ApiKeyRow.expires_at
    )  # null, where a key never expires, does not count
    lives_s = func.extract("epoch", ends_at - func.now())
    wanted = (
        select(
            *(ApiKeyRow.id, ApiKeyRow.scope, ApiKeyRow.weight, ApiKeyRow.project),
            *(ProjectRow.most_requests_per_minute, lives_s),
        )
        .join(ProjectRow)
        .join(WebSessionRow, WebSessionRow.key_id == ApiKeyRow.id)
        .where(WebSessionRow.token_sha256 == token_sha256, _IS_LIVE, lives_s > 0)
    )
    row = (await connection.execute(wanted)).one_or_none()
    return None if row is None else StoredSession(row[0], cast(Scope, row[1]), *row[2:5], float(row[5]))


async def note_session_use(connection: AsyncConnection, token_sha256: bytes) -> None:
    """Has it last longer, where it was not used for a while."""
    is_due = WebSessionRow.used_at < func.now() - literal(USE_NOTED_EVERY)
    used = update(WebSessionRow).where(WebSessionRow.token_sha256 == token_sha256, is_due)
    await connection.execute(used.values(used_at=func.now()))


async def end_session(connection: AsyncConnection, token_sha256: bytes) -> None:
    await connection.execute(delete(WebSessionRow).where(WebSessionRow.token_sha256 == token_sha256))


async def forget_old_sessions(connection: AsyncConnection) -> None:
    """Deletes those that have ended."""
    is_idle = WebSessionRow.used_at < func.now() - literal(LONGEST_IDLE)
    await connection.execute(delete(WebSessionRow).where(or_(WebSessionRow.ends_at < func.now(), is_idle)))


async def count_change(connection: AsyncConnection, actor: str) -> MinuteOfChanges:
    """One more change in this minute; holds the actor's row until the transaction ends."""
    mine = upsert(KeyUseRow).values(actor=actor, minute=func.date_trunc("minute", func.now()), changes=1)
    counted = mine.on_conflict_do_update(
        index_elements=[KeyUseRow.actor, KeyUseRow.minute], set_={"changes": KeyUseRow.changes + 1}
    )
    left_s = 60 - func.extract("second", func.now())
    changes, left = (await connection.execute(counted.returning(KeyUseRow.changes, left_s))).one()
    return MinuteOfChanges(changes, float(left))


async def forget_old_use(connection: AsyncConnection, before: datetime) -> None:
    """Deletes the counts of minutes that began before."""
    await connection.execute(delete(KeyUseRow).where(KeyUseRow.minute < before))


async def audit_page(
    connection: AsyncConnection,
    *,
    limit: int,
    before: int | None = None,
    actor: str | None = None,
    action: str | None = None,
    target: str | None = None,
) -> list[RowMapping]:
    """The newest first; `before` is the last id of the page before."""
    given = {AuditRow.actor: actor, AuditRow.action: action, AuditRow.target: target}
    wanted = select(AuditRow).where(*(column == value for column, value in given.items() if value is not None))
    if before is not None:
        wanted = wanted.where(AuditRow.id < before)
    found = await connection.execute(wanted.order_by(AuditRow.id.desc()).limit(limit))
    return list(found.mappings())
