"""Holds many long polls at once: `python -m benchmarks.service_polls`, a process of its own.

What to hold comes in as a line of JSON on stdin; `held` goes out on stdout when all have asked. Each asks for the
plan after the last that it has, and asks again whenever it is answered. On the next line of stdin it ends, and says
as JSON what each was told, and when.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypedDict

from benchmarks.service_connection import Answer, Broken, Connection, connect, get

HELD: Final = "held"
REVISION: Final = re.compile(rb'"revision"\s*:\s*(\d+)')


class Wish(TypedDict):
    """`clients` polls of the deployment's plan after `revision`, of `wait_s` each."""

    host: str
    port: int
    target: str
    clients: int
    revision: int
    wait_s: float


class News(TypedDict):
    """A client was told a revision, at this time (seconds since 1970)."""

    client: int
    revision: int
    at_s: float


class Told(TypedDict):
    """`in_vain`: polls that ended without news, as they must when there is none. `errors` by kind."""

    news: list[News]
    in_vain: int
    errors: dict[str, int]


class Client:
    """One long poll after another, on one connection."""

    def __init__(self, number: int, wish: Wish, told: Told) -> None:
        self._number, self._wish, self._told = number, wish, told
        self._revision = wish["revision"]
        self._connection: Connection | None = None

    async def begin(self) -> None:
        """Raises OSError."""
        self._connection = await connect(self._wish["host"], self._wish["port"])
        self._ask(self._connection)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _ask(self, connection: Connection) -> None:
        target = f"{self._wish['target']}?after={self._revision}&wait_s={self._wish['wait_s']:g}"
        request = get(self._wish["host"], self._wish["port"], target, {})
        connection.send(request, lambda answer: self._answered(connection, answer))

    def _answered(self, connection: Connection, answer: Answer | Broken) -> None:
        at_s = time.time()
        if isinstance(answer, Broken):
            self._count(answer.reason)
            return
        if answer.status == 304:
            self._told["in_vain"] += 1
        elif answer.status == 200:
            self._revision = revision_of(answer.body)
            self._told["news"].append(News(client=self._number, revision=self._revision, at_s=at_s))
        else:
            self._count(f"status {answer.status}")
            return
        self._ask(connection)

    def _count(self, error: str) -> None:
        self._told["errors"][error] = self._told["errors"].get(error, 0) + 1


async def hold(wish: Wish, *, held: Callable[[], None], until: Callable[[], Awaitable[object]]) -> Told:
    """Polls until `until` returns; `held` is called once all have asked. Raises OSError."""
    told = Told(news=[], in_vain=0, errors={})
    clients = [Client(number, wish, told) for number in range(wish["clients"])]
    try:
        for client in clients:
            await client.begin()
        held()
        await until()
    finally:
        for client in clients:
            client.end()
    return told


def revision_of(plan: bytes) -> int:
    """The first in the document is the plan's; to read it all 200 times over would delay who is told next."""
    found = REVISION.search(plan)
    if found is None:
        raise ValueError("a plan without a revision")
    return int(found[1])


def doubled(told: Told) -> int:
    """How often a client was told what it had been told before."""
    times = Counter((news["client"], news["revision"]) for news in told["news"])
    return sum(count - 1 for count in times.values())


def main() -> None:
    """Read the wish, hold until the next line, print what was told."""
    wish: Wish = json.loads(sys.stdin.readline())
    json.dump(asyncio.run(hold(wish, held=lambda: print(HELD, flush=True), until=_next_line)), sys.stdout)


async def _next_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    main()
