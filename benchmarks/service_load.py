"""Asks one URL over and over, on a schedule or as fast as it goes: `python -m benchmarks.service_load`.

A process of its own: what to ask comes in as JSON on stdin; `begin` goes out on stdout when all connections are
there, and the result as JSON at the end.

On a schedule (open loop), request i is due at i / rate, whether or not those before it are answered. Its latency
counts from that moment: a service that stalls for a second is late for all that came due in that second. As fast as
it goes (closed loop), each connection asks again as soon as it is answered, and latency counts from the sending.
"""

import asyncio
import gc
import json
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

from benchmarks.service_connection import Answer, Broken, Connection, connect, get

BEGIN: Final = "begin"
GRACE_S: Final = 10.0


class Order(TypedDict):
    """What to ask, how, and what every answer must be. `rate_rps` is for the open loop; `key` may be None."""

    host: str
    port: int
    target: str
    key: str | None
    etag: str
    body_bytes: int
    loop: Literal["open", "closed"]
    connections: int
    rate_rps: float
    seconds: float


class Outcome(TypedDict):
    """`asked` = right answers (one latency each) + `errors` by kind. `seconds`: until the last answer.

    `late_s`: how long after its moment each request of the open loop was sent that found a free connection, which is
    the generator's own doing. `cpu_seconds` are the generator's.
    """

    asked: int
    latencies_s: list[float]
    errors: dict[str, int]
    seconds: float
    late_s: list[float]
    cpu_seconds: float


@dataclass
class Tally:
    """Every request that was asked ends in `latencies_s` or in `errors`."""

    etag: str
    body_bytes: int
    asked: int = 0
    latencies_s: list[float] = field(default_factory=list)
    errors: "Counter[str]" = field(default_factory=Counter)
    late_s: list[float] = field(default_factory=list)

    def count(self, answer: Answer | Broken, seconds: float) -> None:
        complaint = self._complaint(answer)
        if complaint is None:
            self.latencies_s.append(seconds)
        else:
            self.errors[complaint] += 1

    def count_lost(self) -> None:
        """What was asked and never answered."""
        lost = self.asked - len(self.latencies_s) - self.errors.total()
        if lost:
            self.errors["not answered"] += lost

    def _complaint(self, answer: Answer | Broken) -> str | None:
        if isinstance(answer, Broken):
            return answer.reason
        if answer.status != 200:
            return f"status {answer.status}"
        if answer.etag != self.etag:
            return "another ETag"
        return None if len(answer.body) == self.body_bytes else "another length"


class Loop(ABC):
    """Connections that are free, and what happens when one is."""

    def __init__(self, order: Order, tally: Tally, *, grace_s: float) -> None:
        self._order, self._tally, self._grace_s = order, tally, grace_s
        headers = {} if order["key"] is None else {"Authorization": f"Bearer {order['key']}"}
        self._request = get(order["host"], order["port"], order["target"], headers)
        self._connections: list[Connection] = []
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Raises OSError."""
        for _ in range(self._order["connections"]):
            self._connections.append(await connect(self._order["host"], self._order["port"]))

    @abstractmethod
    async def run(self) -> None:
        """Waits until all is answered, at most `grace_s` longer than ordered."""

    def close(self) -> None:
        for task in self._reconnecting:
            task.cancel()
        for connection in self._connections:
            connection.close()

    def _ask(self, connection: Connection, since_s: float, then: Callable[[Connection], None]) -> None:
        """`then` is called with a connection that is free: this one, or another in place of a broken one."""

        def done(answer: Answer | Broken) -> None:
            self._tally.count(answer, time.perf_counter() - since_s)
            if isinstance(answer, Broken):
                task = asyncio.ensure_future(self._replace(connection, then))
                self._reconnecting.add(task)
                task.add_done_callback(self._reconnecting.discard)
            else:
                then(connection)

        connection.send(self._request, done)

    async def _replace(self, broken: Connection, then: Callable[[Connection], None]) -> None:
        while True:
            try:
                connection = await connect(self._order["host"], self._order["port"])
            except OSError:
                await asyncio.sleep(0.05)
                continue
            self._connections[self._connections.index(broken)] = connection
            then(connection)
            return


class OpenLoop(Loop):
    """Sends on a schedule: what is due waits for the first connection that is free."""

    async def run(self) -> None:
        self._free = deque(self._connections)
        self._due: deque[float] = deque()
        self._idle = asyncio.Event()
        began_s = time.perf_counter()
        for moment_s in schedule(self._order["rate_rps"], self._order["seconds"]):
            wait_s = began_s + moment_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._tally.asked += 1
            self._come_due(began_s + moment_s)
        await self._drained()

    def _come_due(self, moment_s: float) -> None:
        if not self._free:
            self._due.append(moment_s)
            return
        self._tally.late_s.append(time.perf_counter() - moment_s)
        self._ask(self._free.popleft(), moment_s, self._freed)

    def _freed(self, connection: Connection) -> None:
        if self._due:
            self._ask(connection, self._due.popleft(), self._freed)
            return
        self._free.append(connection)
        if len(self._free) == len(self._connections):
            self._idle.set()

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(self._grace_s):
                while len(self._free) < len(self._connections):
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            self._tally.count_lost()


class ClosedLoop(Loop):
    """Sends as fast as it goes, one request at a time on each connection."""

    async def run(self) -> None:
        self._end_s = time.perf_counter() + self._order["seconds"]
        self._left = len(self._connections)
        self._all_done = asyncio.Event()
        for connection in list(self._connections):
            self._again(connection)
        try:
            async with asyncio.timeout(self._order["seconds"] + self._grace_s):
                await self._all_done.wait()
        except TimeoutError:
            self._tally.count_lost()

    def _again(self, connection: Connection) -> None:
        now_s = time.perf_counter()
        if now_s < self._end_s:
            self._tally.asked += 1
            self._ask(connection, now_s, self._again)
            return
        self._left -= 1
        if self._left == 0:
            self._all_done.set()


def schedule(rate_rps: float, seconds: float) -> Sequence[float]:
    """When each request is due, in seconds from the beginning: evenly, `rate_rps` of them a second."""
    return [number / rate_rps for number in range(round(rate_rps * seconds))]


async def carry_out(order: Order, *, ready: Callable[[], None], grace_s: float = GRACE_S) -> Outcome:
    """`ready` is called once all connections are there. Raises OSError where there is nobody to ask."""
    tally = Tally(order["etag"], order["body_bytes"])
    loop = {"open": OpenLoop, "closed": ClosedLoop}[order["loop"]](order, tally, grace_s=grace_s)
    try:
        await loop.open()
        ready()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await loop.run()
        seconds, cpu_seconds = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    finally:
        loop.close()
    return Outcome(
        asked=tally.asked,
        latencies_s=tally.latencies_s,
        errors=dict(tally.errors),
        seconds=seconds,
        late_s=tally.late_s,
        cpu_seconds=cpu_seconds,
    )


def main() -> None:
    """Read the order, carry it out, print the outcome."""
    order: Order = json.load(sys.stdin)
    gc.disable()  # a pause of the generator's own would look like one of the service's
    outcome = asyncio.run(carry_out(order, ready=lambda: print(BEGIN, flush=True)))
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
