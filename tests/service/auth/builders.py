"""API processes on one database, as far as keys go, and what callers send them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.auth import service
from sutler.service.auth.authenticator import Authenticator
from sutler.service.auth.dependency import Admin, Planner, Reader
from sutler.service.auth.endpoints import router as audit
from sutler.service.auth.service import NewKey
from sutler.service.db.asynchronous import begun, conninfo, open_async_engine
from sutler.service.db.notices import Notices
from sutler.service.db.projects import of_project
from sutler.service.settings import ServiceSettings
from sutler.service.web import problems
from sutler.service.web.caller import CLI, Principal, Scope
from sutler.service.web.errors import RequestError

T = TypeVar("T")
PATIENCE_S: Final = 60.0
SETTINGS: Final = ServiceSettings()
UNKNOWN_KEY: Final = "sutler_abcdefghijkl_" + 43 * "x"


@dataclass
class Clock:
    """A monotonic clock that stands still until it is moved."""

    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class Process:
    """What an API process has of this: its connections, its ears and its authenticator."""

    engine: AsyncEngine
    notices: Notices
    authenticator: Authenticator
    clock: Clock = field(default_factory=Clock)

    async def principal(self, key: str) -> Principal:
        return await self.authenticator.principal(bearer(key))

    async def refusal(self, authorization: str | None) -> RequestError:
        """The error that this header gets; there must be one."""
        try:
            found = await self.authenticator.principal(authorization)
        except RequestError as error:
            return error
        raise AssertionError(f"{found} was let in")

    async def refusal_soon(self, key: str) -> RequestError:
        """The refusal, once a notice has arrived; the clock of what is remembered stands still meanwhile."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.principal(key)
                except RequestError as error:
                    return error
                await asyncio.sleep(0.005)

    async def a_key(
        self, *, scope: Scope = "plan", lifetime: timedelta | None = None, name: str = "for a test"
    ) -> NewKey:
        async with begun(self.engine) as connection:
            return await service.create_key(connection, name=name, scope=scope, lifetime=lifetime, caller=CLI)

    async def revoke(self, key_id: str) -> str:
        async with begun(self.engine) as connection:
            return await service.revoke_key(connection, key_id, caller=CLI)

    async def run(self, statement: str, **values: object) -> Any:
        """One statement in a transaction of its own; its rows, if it has any."""
        async with begun(self.engine) as connection:
            result = await connection.execute(text(statement), values)
            return result.all() if result.returns_rows else None

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """What this process asks the database meanwhile."""
        found: list[str] = []

        def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
            found.append(statement)

        event.listen(self.engine.sync_engine, "before_cursor_execute", note)
        try:
            yield found
        finally:
            event.remove(self.engine.sync_engine, "before_cursor_execute", note)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@asynccontextmanager
async def a_process(
    engine: Engine,
    *,
    settings: ServiceSettings = SETTINGS,
    needs_key: bool = True,
    is_listening: bool = True,
    **options: Any,
) -> AsyncIterator[Process]:
    """On the server of `engine`; `is_listening` False: it has not yet heard, or no longer hears, any notice."""
    opened = open_async_engine(engine)
    notices, clock = Notices(conninfo(engine)), Clock()
    authenticator = Authenticator(opened, notices, settings, needs_key=needs_key, monotonic=clock, **options)
    listening = asyncio.ensure_future(notices.run() if is_listening else asyncio.sleep(0))
    try:
        while is_listening and not notices.connected:
            await asyncio.sleep(0.01)
        yield Process(opened, notices, authenticator, clock)
    finally:
        listening.cancel()
        await asyncio.wait({listening})
        await opened.dispose()


@dataclass(frozen=True)
class Parts:
    """Of the services, those that keys need."""

    engine: AsyncEngine
    authenticator: Authenticator

    def of(self, project: str) -> "Parts":
        return Parts(of_project(self.engine, project), self.authenticator)

    def part(self, kind: type[Authenticator]) -> Authenticator:
        assert kind is Authenticator
        return self.authenticator


@asynccontextmanager
async def a_client(process: Process) -> AsyncIterator[AsyncClient]:
    """Of an application with a page for every scope, and the audit log."""
    app = FastAPI()
    app.state.services = Parts(process.engine, process.authenticator)
    app.include_router(audit)
    problems.install(app)

    @app.get("/read")
    async def read(caller: Reader) -> str:
        return caller.principal.actor

    @app.post("/read")
    async def ask(caller: Reader) -> str:
        return caller.principal.actor

    @app.get("/plan")
    async def plan(caller: Planner) -> str:
        return caller.principal.actor

    @app.get("/admin")
    async def admin(caller: Admin) -> str:
        return caller.principal.actor

    async with AsyncClient(transport=ASGITransport(app), base_url="http://sutler") as client:
        yield client


def bearer(key: str) -> str:
    return f"Bearer {key}"


def basic(pair: str | bytes) -> str:
    """`user:password`, as RFC 7617 sends it."""
    content = pair if isinstance(pair, bytes) else pair.encode()
    return f"Basic {base64.b64encode(content).decode()}"


def with_key(key: str) -> dict[str, str]:
    return {"Authorization": bearer(key)}


def secret_of(key: str) -> str:
    return key.rpartition("_")[2]
