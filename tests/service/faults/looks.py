"""Looks that a test makes itself, with a clock of its own: the service's parts on a scene's store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.asynchronous import begun, conninfo, open_async_engine
from sutler.service.db.queue import Queue
from sutler.service.db.store import open_store
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.shared_market import SharedMarket
from sutler.service.deployments.sharing.repository import Tenants
from sutler.service.fork_server import ForkServer
from sutler.service.market.polling import Poller
from sutler.service.market.service import MarketService
from sutler.service.settings import market_settings, store_settings
from sutler.service.workers.replan_job import Looker
from sutler.service.workers.solver_process import SolverProcess
from tests.service.faults.scenes import Scene

MOST_BYTES = 2_000_000_000


@dataclass
class Clock:
    """As far ahead of the true time as it is set."""

    ahead: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass(frozen=True)
class Looking:
    """A looker, and the clock that it goes by."""

    looker: Looker
    clock: Clock
    engine: AsyncEngine
    queue: Queue

    async def looks(self, deployment_id: UUID, *, times: int = 1) -> None:
        """All at the same time."""
        await asyncio.gather(*(self.looker.look(deployment_id) for _ in range(times)))

    async def is_due(self, deployment_id: UUID) -> bool:
        async with begun(self.engine) as connection:
            return any(deployment_id == one for one, _ in await repository.due(connection, self.clock.now()))

    async def queued(self, deployment_id: UUID) -> bool:
        """Whether a look that is asked for now was not in the queue already."""
        async with begun(self.engine) as connection:
            return await self.queue.look(connection, deployment_id)


@asynccontextmanager
async def looking(scene: Scene, *, solvers: int = 1) -> AsyncIterator[Looking]:
    """On the store of a scene, whose tables are there."""
    settings, clock = market_settings(scene.environment), Clock()
    engine = open_store(store_settings(scene.environment))
    asynchronous = open_async_engine(engine)
    fork_server = ForkServer()
    processes = [SolverProcess(fork_server, most_bytes=MOST_BYTES) for _ in range(solvers)]
    free: asyncio.Queue[SolverProcess] = asyncio.Queue()
    for process in processes:
        free.put_nowait(process)
    try:
        queue = Queue(conninfo(asynchronous))
        market = MarketService(engine, settings, Poller(engine, settings.configs), clock.now)
        looker = Looker(asynchronous, queue, SharedMarket(market), Tenants(), free, clock.now)
        yield Looking(looker, clock, asynchronous, queue)
    finally:
        await asyncio.gather(*(process.stop() for process in processes))
        await fork_server.stop()
        await asynchronous.dispose()
        engine.dispose()
