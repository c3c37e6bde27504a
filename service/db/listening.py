"""PostgreSQL's notifications, on a connection of one's own that is known to live."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from psycopg import AsyncConnection, Notify
from psycopg.sql import SQL, Identifier

from sutler.service.db.engine import CONNECT_TIMEOUT_S

PROBE_S: Final = 2.0  # a server that is cut off says nothing, and is believed to have nothing to say


async def listened(conninfo: str, *channels: str, called: str) -> AsyncGenerator[Notify | None]:
    """Yields None once nothing is missed any more, then what arrives, until the connection is lost.

    Raises psycopg.Error, OSError, and TimeoutError where there is no answer to a probe.
    """
    connection = await AsyncConnection.connect(
        conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, application_name=called
    )
    try:
        for channel in channels:
            await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
        yield None
        while True:
            async for notice in connection.notifies(timeout=PROBE_S):
                yield notice
            async with asyncio.timeout(PROBE_S):
                await connection.execute("SELECT 1")
    finally:
        await connection.close()
