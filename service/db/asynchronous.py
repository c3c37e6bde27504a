"""The API's and the workers' way to the store: an asynchronous engine on the same server as `open_engine`'s."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from sutler.service.db import embedded, projects
from sutler.service.db.engine import UNHURRIED, Patience, options, prepared, revive, translated

POOL_SIZE = 10  # kept open: each costs the server memory, each that is missing a connect
MOST_CONNECTIONS = 30  # chosen: more at once, and fewer processes fit into the server's max_connections


def open_async_engine(
    engine: Engine, patience: Patience = UNHURRIED, *, part: float = 1.0, private_in: Path | None = None
) -> AsyncEngine:
    """Opens an engine on the server of another, whose tables are up to date.

    `part`: of the connections that a process may have. `private_in`: the data folder of a private server, which is
    started again where it was killed.
    """
    kept, most = round(part * POOL_SIZE), round(part * MOST_CONNECTIONS)
    made = create_async_engine(engine.url, pool_size=kept, max_overflow=most - kept, **options(patience))
    event.listen(made.sync_engine, "connect", prepared(patience))
    event.listen(made.sync_engine, "begin", projects.begin)
    if private_in is not None:  # to start it blocks, and the loop must not
        revive(made.sync_engine, lambda: await_only(asyncio.to_thread(embedded.start, private_in)))
    return made


def conninfo(engine: Engine | AsyncEngine) -> str:
    """Returns the address for psycopg itself. It may hold a password: never shown."""
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lends a connection for reading. Raises DatabaseError."""
    with translated():
        async with engine.connect() as connection:
            yield connection


@asynccontextmanager
async def begun(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Runs one transaction: all of it, or, on any error, nothing. Raises DatabaseError."""
    with translated():
        async with engine.begin() as connection:
            yield connection
