"""The reader of feeds at work on a real store, beside a test that moves its clock and its engines."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import reading
from sutler.service.deployments.traffic import feed_repository
from sutler.service.deployments.traffic.feed_repository import FeedSource, StoredSource
from sutler.service.deployments.traffic.fetching import USUAL_FETCHER
from sutler.service.deployments.traffic.reader import FeedReader
from sutler.service.deployments.traffic.reading import Get
from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.calling import CallLimits
from tests.adapters.server import Raw, ScriptedServer, Wire
from tests.service.deployments.traffic.builders import NOW
from tests.service.deployments.traffic.feeds.engines import Engine
from tests.service.deployments.traffic.site import Deployed
from tests.service.webhooks.builders import LOOPBACK
from tests.service.webhooks.office import Office

PATIENT: Final[Get] = replace(USUAL_FETCHER, limits=CallLimits(60.0, 60.0)).get
PATIENCE_S: Final = 30.0
EVERY_S: Final = 15.0


def a_source(url: str, **others: Any) -> FeedSource:
    usual: dict[str, Any] = {"model": "chat", "kind": "vllm", "number": 0, "every_s": EVERY_S, "selector": {}}
    return FeedSource(**{**usual, "url": f"{url}/metrics", **others})


def feeds(deployed: Deployed) -> list[StoredSource]:
    """As they are stored."""
    id_ = deployed.id
    return deployed.api.office.read(lambda connection: feed_repository.of_deployment(connection, id_))


def fed(deployed: Deployed, *sources: FeedSource) -> UUID:
    """Gives it these feeds; its id."""
    id_ = deployed.id

    async def put(connection: AsyncConnection) -> None:
        await feed_repository.replace(connection, id_, sources)

    deployed.api.office.changed(put)
    return id_


async def until(is_so: Callable[[], Any]) -> None:
    """Waits until it is; fails where it never is."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def asked(engine: Engine, times: int) -> None:
    """Waits until it was asked so often, and no oftener."""
    await until(lambda: len(engine.asked) >= times)
    assert len(engine.asked) == times


@dataclass
class Reading:
    """A reader whose clock stands still until a test moves it."""

    office: Office
    get: Get = PATIENT
    at: datetime = NOW
    reader: FeedReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = FeedReader(self.office.engine, LOOPBACK, lambda: self.at, get=self._got, look_every_s=0.02)

    def _got(self, url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes:
        return self.get(url, accept=accept, allowed=allowed)

    def passes(self, seconds: float = EVERY_S) -> None:
        self.at += timedelta(seconds=seconds)

    async def stored(self, deployment_id: UUID, is_so: Callable[[StoredSource], bool]) -> None:
        """Waits until it is so of the deployment's only feed."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with reading(self.office.engine) as connection:
                    [feed] = await feed_repository.of_deployment(connection, deployment_id)
                if is_so(feed):
                    return
                await asyncio.sleep(0.01)

    async def failed(self, deployment_id: UUID, times: int) -> None:
        """Waits until its only feed has failed so often in a row."""
        await self.stored(deployment_id, lambda feed: feed.failures == times)

    async def read(self, deployment_id: UUID) -> None:
        """Waits until its only feed was read at this moment of the clock."""
        await self.stored(deployment_id, lambda feed: feed.read_at == self.at)

    def while_it_runs(self, work: Callable[[], Awaitable[None]]) -> None:
        """The work of a test, on the same event loop; the reader is stopped at its end."""

        async def both() -> None:
            running = asyncio.create_task(self.reader.run())
            try:
                await work()
            finally:
                running.cancel()
                await asyncio.wait({running})
            assert running.cancelled()

        self.office.run(both())


@contextmanager
def hanging() -> Iterator[tuple[ScriptedServer, threading.Event]]:
    """A server that takes requests and says nothing until it is let go."""
    let_go = threading.Event()

    def say_nothing(_: Wire) -> None:
        let_go.wait(PATIENCE_S)

    with ScriptedServer([Raw(say_nothing)]) as server:
        try:
            yield server, let_go
        finally:
            let_go.set()
