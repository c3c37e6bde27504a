"""Sessions of people who look at pages: begun with a key, which is not kept, and shown by a cookie of their browser.

Any process finds a session in the database, remembers it for a few seconds, and forgets it when its key is told of:
at a sign-out, and where the key is revoked. A session ends 12 hours after it began, 2 hours after it was used last,
and with its key. Where no key is needed there is nobody to sign in; a cookie then only ties forms to a browser.
"""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.auth import audit, repository
from sutler.service.auth.authenticator import (
    LOOKUPS_AT_ONCE,
    MOST_REMEMBERED,
    REFUSAL_REMEMBERED_S,
    REMEMBERED_S,
    Authenticator,
)
from sutler.service.auth.limits import Limits
from sutler.service.auth.memory import ShortMemory
from sutler.service.auth.repository import USE_NOTED_EVERY
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.errors import DatabaseError
from sutler.service.db.notices import Notices, key_topic, notify
from sutler.service.db.projects import of_project
from sutler.service.web.caller import LOCAL, Caller, Principal
from sutler.service.web.errors import NotAuthenticatedError

FAILURES_PER_MINUTE: Final = 10  # chosen: of one address; who has a good key is let in whatever others have tried
TOKEN_BYTES: Final = 32
MOST_SESSIONS: Final = 100  # chosen: of a key; the oldest ends where another begins
ENDED: Final = "the session has ended: sign in again"
logger = logging.getLogger("sutler.auth")


@dataclass(frozen=True, slots=True)
class Session:
    """Who looks at pages, and the secret that their browser shows for it."""

    principal: Principal
    token: str = field(repr=False)

    @property
    def form_token(self) -> str:
        """What forms of this session carry: pages of other sites cannot know it."""
        return hmac.new(self.token.encode(), b"forms", "sha256").hexdigest()

    def is_of_form(self, form_token: str) -> bool:
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


class Sessions:
    """One per process. `changes` is the engine for what writes, `monotonic` its clock in seconds."""

    def __init__(
        self,
        engine: AsyncEngine,
        changes: AsyncEngine,
        notices: Notices,
        authenticator: Authenticator,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._changes, self._notices = engine, changes, notices
        self._authenticator, self._monotonic = authenticator, monotonic
        self._known: ShortMemory[bytes, Principal] = ShortMemory(most=MOST_REMEMBERED)
        self._noted: ShortMemory[bytes, bool] = ShortMemory(most=MOST_REMEMBERED)
        self._refused: ShortMemory[bytes, bool] = ShortMemory(most=MOST_REMEMBERED)
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        told = f"more than {FAILURES_PER_MINUTE} wrong keys came from this address within a minute: wait a little"
        self._failures = Limits(FAILURES_PER_MINUTE / 60, most=FAILURES_PER_MINUTE, told=told)
        self._heard = 0
        notices.listen(self._hear)

    async def begin(self, key: str, *, address: str, request_id: str | None) -> Session:
        """Signs in with a key; `address` is where from.

        Raises NotAuthenticatedError for a key that is not good, TooManyRequestsError after many of them, and where
        this key has changed too much of late.
        """
        try:
            principal = await self._authenticator.principal(f"Bearer {key.strip()}")
        except NotAuthenticatedError as error:
            logger.warning("a sign-in from %s was refused", address)
            self._failures.take(address, now_s=self._monotonic())
            raise NotAuthenticatedError(error.detail.removeprefix("Authorization: ")) from None
        self._authenticator.check(principal, reads=False)
        session = Session(principal, secrets.token_urlsafe(TOKEN_BYTES))
        caller = Caller(principal, request_id)
        async with begun(of_project(self._changes, principal.project)) as connection:
            await self._authenticator.count_change(connection, principal)
            await repository.add_session(connection, _key_id(principal), _digest(session.token), most=MOST_SESSIONS)
            await audit.note(connection, caller, "session.begin", principal.actor)
        return session

    async def found(self, token: str) -> Session:
        """The session of a browser that shows this. Raises NotAuthenticatedError, DatabaseError."""
        digest, now_s = _digest(token), self._monotonic()
        if self._refused.get(digest, now_s=now_s):
            raise NotAuthenticatedError(ENDED)
        principal = self._known.get(digest, now_s=now_s) if self._notices.connected else None
        if principal is None:
            principal = await self._looked_up(digest, now_s)
        await self._note_use(digest, now_s)
        return Session(principal, token)

    async def end(self, session: Session, *, request_id: str | None) -> None:
        """Signs out, in every process."""
        if session.principal == LOCAL:
            return
        caller = Caller(session.principal, request_id)
        async with begun(of_project(self._changes, session.principal.project)) as connection:
            await repository.end_session(connection, _digest(session.token))
            await notify(connection, key_topic(_key_id(session.principal)))
            await audit.note(connection, caller, "session.end", session.principal.actor)
        self._known.clear()

    async def _looked_up(self, digest: bytes, now_s: float) -> Principal:
        async with self._lookups:
            heard = self._heard
            async with reading(self._engine) as connection:
                stored = await repository.find_session(connection, digest)
        if stored is None:
            self._refused.keep(digest, True, until_s=self._monotonic() + REFUSAL_REMEMBERED_S)
            raise NotAuthenticatedError(ENDED)
        principal = Principal(
            *(f"key/{stored.key_id}", stored.scope, stored.weight, stored.project), stored.most_requests_per_minute
        )
        if heard == self._heard:
            self._known.keep(digest, principal, until_s=now_s + min(REMEMBERED_S, stored.lives_s))
        return principal

    async def _note_use(self, digest: bytes, now_s: float) -> None:
        """At most once a minute; that it cannot be noted is no reason to refuse."""
        if self._noted.get(digest, now_s=now_s):
            return
        self._noted.keep(digest, True, until_s=now_s + USE_NOTED_EVERY.total_seconds())
        try:
            async with begun(self._changes) as connection:
                await repository.note_session_use(connection, digest)
        except DatabaseError as error:
            logger.warning("the use of a session is not noted: %s", error)

    def _hear(self, topic: str | None) -> None:
        """A key that was revoked, or one of whose sessions ended: there are few, so all are looked up again."""
        if topic is None or topic.startswith(key_topic("")):
            self._known.clear()
            self._heard += 1


def visiting(token: str | None) -> Session:
    """Where no key is needed: all who look at pages are the local user."""
    return Session(LOCAL, token or secrets.token_urlsafe(TOKEN_BYTES))


def _key_id(principal: Principal) -> str:
    return principal.actor.removeprefix("key/")


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
