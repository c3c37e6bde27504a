"""What one process tells the others through the database: which plan, deployment or key has changed.

A notice is sent in the transaction of the change and arrives when it is committed. It carries a topic, never data.
While the connection that listens is lost, notices are lost too: who keeps copies is told, and must do without.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.listening import listened

CHANNEL: Final = "sutler"
_told: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
RECONNECT_S: Final = 1.0  # chosen: copies are out of date for no longer, and a database that is away is not flooded

logger = logging.getLogger("sutler.notices")


def plan_topic(plan_id: object) -> str:
    return f"plan/{plan_id}"


def deployment_topic(name: str) -> str:
    return f"deployment/{name}"


def key_topic(key_id: str) -> str:
    return f"key/{key_id}"


async def notify(connection: AsyncConnection, topic: str) -> None:
    """Tells all processes, at the commit of this transaction."""
    await connection.execute(text("SELECT pg_notify(:channel, :topic)"), {"channel": CHANNEL, "topic": topic})
    _told.setdefault(connection.sync_connection, set()).add(topic)


def told(connection: AsyncConnection) -> set[str]:
    """The topics that were told of on this connection, since it was lent."""
    return _told.get(connection.sync_connection, set())


class Notices:
    """Listens on one connection and wakes who waits for a topic; `connected` says whether nothing can be missed."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listeners: list[Callable[[str | None], None]] = []
        self.connected = False
        self.is_closing = False

    def listen(self, listener: Callable[[str | None], None]) -> None:
        """Calls `listener` with every topic, and with None when notices may have been lost."""
        self._listeners.append(listener)

    @contextmanager
    def waiting(self, topic: str) -> Iterator[asyncio.Event]:
        """Lends an event that is set by notices of this topic from now on: look first, then wait, then look again."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        try:
            yield event
        finally:
            self._waiting[topic].discard(event)
            if not self._waiting[topic]:
                del self._waiting[topic]

    def close(self) -> None:
        """Wakes everybody who waits: this process is ending."""
        self.is_closing = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def run(self) -> None:
        """Listens until cancelled; a lost connection is made again."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                logger.warning("notices: %s: listening again in %g s", type(error).__name__, RECONNECT_S)
            finally:
                self._lost()
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        async with aclosing(listened(self._conninfo, CHANNEL, called="sutler notices")) as notices:
            async for notice in notices:
                if notice is None:
                    self._lost()  # what was sent before this moment
                    self.connected = True
                else:
                    self.arrived(notice.payload)

    def arrived(self, topic: str) -> None:
        """Tells who waits here; a process that has changed something itself need not wait for the notice of it."""
        for listener in self._listeners:
            listener(topic)
        for event in self._waiting.get(topic, ()):
            event.set()

    def _lost(self) -> None:
        self.connected = False
        for listener in self._listeners:
            listener(None)
        for events in self._waiting.values():
            for event in events:
                event.set()
