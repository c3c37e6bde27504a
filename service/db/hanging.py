"""A server that hangs: stopped, or starved of what it needs, it takes connections and says nothing on them.

Where one is dead, every question fails at once; where one hangs, none ever does, and what the client may do about it
asks the server. So a connection of its own asks it all the time, and while that has no answer the others are cut: who
waits on them gets an error, and can ask again. Nothing is stored by halves: a transaction that is cut is undone.
"""

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection
from sqlalchemy import Dialect, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from sutler.service.db.engine import CALLERS

EVERY_S: Final = 0.5
HANGS_AFTER_S: Final = 3.0  # chosen: a busy server answers sooner, and people wait longer
LATE_S: Final = 0.5  # chosen: of this process, which then cannot tell who was late

logger = logging.getLogger("sutler.database")


class HangGuard:
    """Of the connections of these engines, from now on."""

    def __init__(self, conninfo: str, *engines: Engine) -> None:
        self._conninfo = conninfo
        self._connections: WeakSet[Any] = WeakSet()
        self._hangs = False
        for engine in engines:
            event.listen(engine, "connect", self._note)
            event.listen(engine, "do_connect", self._refuse, insert=True)
            engine.dispose()  # what it has opened before is not known here

    def _note(self, connection: DBAPIConnection, _: object) -> None:
        self._connections.add(getattr(connection, "driver_connection", connection))

    def _refuse(self, _dialect: Dialect, _record: object, _args: list[Any], _options: dict[str, Any]) -> None:
        if self._hangs:
            raise psycopg.OperationalError("the server takes connections, but does not answer")

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            try:
                await self._watch()
            except (psycopg.Error, OSError):
                self._hangs = False  # it is away, which every question learns by itself
            await asyncio.sleep(EVERY_S)

    async def _watch(self) -> None:
        connection = await self._connected()
        try:
            while connection is not None and await self._answers(connection):
                self._told(hangs=False)
                await asyncio.sleep(EVERY_S)
        finally:
            if connection is not None:
                await connection.close()

    async def _connected(self) -> AsyncConnection[Any] | None:
        limit_s = CALLERS.connect_s
        try:
            return await AsyncConnection.connect(
                self._conninfo, autocommit=True, connect_timeout=limit_s, application_name="sutler guard"
            )
        except psycopg.errors.ConnectionTimeout:
            self._told(hangs=True)
            return None

    async def _answers(self, connection: AsyncConnection[Any]) -> bool:
        """Whether it does in time. A question that is cancelled would wait for the server, so it is cut instead."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + HANGS_AFTER_S
        asking = asyncio.ensure_future(connection.execute("SELECT 1"))
        try:
            await asyncio.wait({asking}, timeout=HANGS_AFTER_S)
            if asking.done():
                asking.result()
                return True
            if loop.time() - due_s < LATE_S:
                self._told(hangs=True)
            return False
        finally:
            if not asking.done():
                _cut(connection)
                await asyncio.wait({asking})
                asking.exception()

    def _told(self, *, hangs: bool) -> None:
        if hangs:
            for connection in list(self._connections):
                _cut(connection)
        if hangs != self._hangs:
            self._hangs = hangs
            logger.log(logging.ERROR if hangs else logging.INFO, "the database %s", "hangs" if hangs else "answers")


def _cut(connection: "psycopg.Connection[Any] | AsyncConnection[Any]") -> None:
    """Ends what waits on it; the connection itself is closed by its owner."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)
