"""From an `Authorization` header to who that is, and how much more of it is taken now.

Checked keys are remembered for a few seconds, so that most requests need no database. A process hears at once of a
key that is revoked (`Notices`); while it might not hear, it remembers nothing.
Requests are counted in this process (limits.py), changes that are made in the database, for all processes.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.auth import repository
from sutler.service.auth.keys import NO_DIGEST, REMEDY, ShownKey, key_in
from sutler.service.auth.limits import Limits, change_limits, project_limits, read_limits
from sutler.service.auth.memory import ShortMemory
from sutler.service.auth.repository import USE_NOTED_EVERY, StoredKey
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.errors import DatabaseError
from sutler.service.db.notices import Notices, key_topic
from sutler.service.settings import ServiceSettings
from sutler.service.web.caller import LOCAL, Principal
from sutler.service.web.errors import NotAuthenticatedError, TooManyRequestsError

REMEMBERED_S: Final = 5.0  # chosen: a caller's requests in a row share one query; what is revoked is heard of
REFUSAL_REMEMBERED_S: Final = 2.0  # chosen: who tries a wrong key over and over costs one query in that time
MOST_REMEMBERED: Final = 10_000  # chosen: far more than keys in use, and a bound on what strangers' keys fill
LOOKUPS_AT_ONCE: Final = 8  # a flood of wrong keys leaves connections to those who have one
logger = logging.getLogger("sutler.auth")
_UNKNOWN: Final = "Authorization: there is no such key: check it, or make one with `sutler keys create`"


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal
    secret_sha256: bytes = field(repr=False)


class Authenticator:
    """One per process. `monotonic` is its clock in seconds, `same` compares digests in constant time."""

    def __init__(
        self,
        engine: AsyncEngine,
        notices: Notices,
        settings: ServiceSettings,
        *,
        needs_key: bool,
        monotonic: Callable[[], float] = time.monotonic,
        same: Callable[[bytes, bytes], bool] = hmac.compare_digest,
    ) -> None:
        self._engine, self._notices, self._settings = engine, notices, settings
        self._needs_key, self._monotonic, self._same = needs_key, monotonic, same
        self._known: ShortMemory[str, _Known] = ShortMemory(most=MOST_REMEMBERED)
        self._refused: ShortMemory[ShownKey, str] = ShortMemory(most=MOST_REMEMBERED)
        self._noted: ShortMemory[str, bool] = ShortMemory(most=MOST_REMEMBERED)
        self._reads = read_limits(settings.reads_per_second)
        self._changes = change_limits(settings.changes_per_minute)
        self._of_projects: dict[str, tuple[int, Limits]] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._heard = 0
        notices.listen(self._hear)

    async def principal(self, authorization: str | None) -> Principal:
        """Who shows this header; a key that is shown is checked also where none is needed.

        Raises NotAuthenticatedError, DatabaseError.
        """
        if authorization is None:
            if self._needs_key:
                raise NotAuthenticatedError(f"a key is needed: {REMEDY}")
            return LOCAL
        shown = key_in(authorization)
        return self._remembered(shown) or await self._checked(shown)

    def check(self, principal: Principal, *, reads: bool) -> None:
        """Counts one request in this process, whatever comes of it. Raises TooManyRequestsError, QuotaUsedUpError."""
        if principal != LOCAL:
            limits, now_s = self._reads if reads else self._changes, self._monotonic()
            limits.take(principal.actor, now_s=now_s)
            if principal.most_requests_per_minute is not None:
                self._limits_of(principal.project, principal.most_requests_per_minute).take("", now_s=now_s)

    def _limits_of(self, project: str, most: int) -> Limits:
        """As they were last set."""
        known, limits = self._of_projects.get(project, (0, self._reads))
        if known != most:
            _, limits = self._of_projects[project] = most, project_limits(project, most)
        return limits

    async def count_change(self, connection: AsyncConnection, principal: Principal) -> None:
        """Counts one change, in its transaction and for all processes: what is undone is not counted.

        Raises TooManyRequestsError.
        """
        if principal == LOCAL:
            return
        most = self._settings.changes_per_minute
        minute = await repository.count_change(connection, principal.actor)
        if minute.changes > most:
            raise TooManyRequestsError(
                f"this key may make {most} changes per minute: try again later, or raise SUTLER_CHANGES_PER_MINUTE",
                retry_after_s=minute.left_s,
            )

    def _hear(self, topic: str | None) -> None:
        """A lookup under way meanwhile may have read what no longer holds: it is not remembered."""
        if topic is None:
            self._known.clear()
        elif topic.startswith(key_topic("")):
            self._known.drop(topic.removeprefix(key_topic("")))
        else:
            return
        self._heard += 1

    def _remembered(self, shown: ShownKey) -> Principal | None:
        """Raises NotAuthenticatedError for a key that was refused a moment ago: no key becomes valid later."""
        now_s = self._monotonic()
        known = self._known.get(shown.id, now_s=now_s) if self._notices.connected else None
        if known is not None and self._same(known.secret_sha256, shown.secret_sha256):
            return known.principal
        refusal = self._refused.get(shown, now_s=now_s)
        if refusal is not None:
            raise NotAuthenticatedError(refusal)
        return None

    async def _checked(self, shown: ShownKey) -> Principal:
        async with self._lookups:
            heard, began_s = self._heard, self._monotonic()
            async with reading(self._engine) as connection:
                stored = await repository.find(connection, shown.id)
        refusal = self._refusal(stored, shown)
        if stored is None or refusal is not None:
            refusal = refusal or _UNKNOWN
            self._refused.keep(shown, refusal, until_s=self._monotonic() + REFUSAL_REMEMBERED_S)
            raise NotAuthenticatedError(refusal)
        principal = Principal(
            *(f"key/{shown.id}", stored.scope, stored.weight, stored.project), stored.most_requests_per_minute
        )
        if heard == self._heard:
            lives_s = REMEMBERED_S if stored.lives_s is None else min(REMEMBERED_S, stored.lives_s)
            self._known.keep(shown.id, _Known(principal, stored.secret_sha256), until_s=began_s + lives_s)
        await self._note_use(shown.id)
        return principal

    def _refusal(self, stored: StoredKey | None, shown: ShownKey) -> str | None:
        """Compares also where there is nothing to compare with; only who has the secret learns more than no."""
        digest = NO_DIGEST if stored is None else stored.secret_sha256
        if not self._same(digest, shown.secret_sha256) or stored is None:
            return _UNKNOWN
        if stored.is_revoked:
            return "this key was revoked: ask for a new one (`sutler keys create`)"
        if stored.lives_s is not None and stored.lives_s <= 0:
            return "this key has expired: ask for a new one (`sutler keys create`)"
        return None

    async def _note_use(self, key_id: str) -> None:
        """Notes the use at most once a minute; that it cannot be noted is no reason to refuse."""
        now_s = self._monotonic()
        if self._noted.get(key_id, now_s=now_s):
            return
        self._noted.keep(key_id, True, until_s=now_s + USE_NOTED_EVERY.total_seconds())
        try:
            async with begun(self._engine) as connection:
                await repository.note_use(connection, key_id)
        except DatabaseError as error:
            logger.warning("the use of key %s is not noted: %s", key_id, error)
