"""The API's and the workers' way to the store: an asynchronous engine on the same server as `open_engine`'s."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Dialect, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from sutler.service.db import embedded
from sutler.service.db.engine import CONNECT_TIMEOUT_S, prepare, translated

POOL_SIZE = 10
MOST_CONNECTIONS = 30
PATIENCE_S = 10.0


def open_async_engine(engine: Engine, *, private_in: Path | None = None) -> AsyncEngine:
    """On the server of an opened engine, whose tables are up to date.

    `private_in`: the data folder of a private server, which is started again where it was killed.
    """
    made = create_async_engine(
        engine.url,
        pool_pre_ping=True,
        pool_size=POOL_SIZE,
        max_overflow=MOST_CONNECTIONS - POOL_SIZE,
        pool_timeout=PATIENCE_S,
        hide_parameters=True,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "sutler"},
    )
    event.listen(made.sync_engine, "connect", prepare)
    if private_in is not None:
        event.listen(made.sync_engine, "do_connect", _reviving(private_in))
    return made


def _reviving(data_dir: Path) -> Any:
    def connect(dialect: Dialect, _: object, args: list[Any], options: dict[str, Any]) -> DBAPIConnection:
        try:
            return dialect.connect(*args, **options)
        except psycopg.OperationalError:
            await_only(asyncio.to_thread(embedded.start, data_dir))  # it blocks, and the loop must not
            return dialect.connect(*args, **options)

    return connect


def conninfo(engine: Engine | AsyncEngine) -> str:
    """For psycopg itself. It may hold a password: never shown."""
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection for reading. Raises DatabaseError."""
    with translated():
        async with engine.connect() as connection:
            yield connection


@asynccontextmanager
async def begun(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction: all of it, or, on any error, nothing. Raises DatabaseError."""
    with translated():
        async with engine.begin() as connection:
            yield connection
