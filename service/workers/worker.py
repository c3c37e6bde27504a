"""The worker: takes solves and deliveries from the queue until it is stopped, and takes up what dead workers left.

A lost database ends nothing: the worker begins anew until it is there again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from procrastinate import JobContext
from procrastinate.exceptions import ConnectorException
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.asynchronous import begun
from sutler.service.db.errors import DatabaseError
from sutler.service.db.projects import across
from sutler.service.db.queue import (
    DELIVER,
    DELIVERIES,
    LOOK,
    LOOKS,
    PLAN_OFFLINE,
    QUICK_SOLVES,
    SOLVE,
    SOLVES,
    STUDY,
    URGENT_LOOKS,
    Queue,
)
from sutler.service.deployments import service as deployments
from sutler.service.deployments.replanning.shared_market import SharedMarket
from sutler.service.deployments.sharing.repository import Tenants
from sutler.service.deployments.traffic.reader import FeedReader
from sutler.service.fork_server import ForkServer
from sutler.service.logs import bound
from sutler.service.market import silence
from sutler.service.market.service import MarketService
from sutler.service.outgoing.destinations import networks
from sutler.service.plans import claims
from sutler.service.plans.claims import MADE_BY
from sutler.service.settings import ServiceSettings
from sutler.service.translation.market_source import STORE_MAX_AGE_S
from sutler.service.webhooks.sealing import Sealer
from sutler.service.webhooks.service import deliver, put_back_lost
from sutler.service.workers import housekeeping, retention
from sutler.service.workers.clearing_job import Clearer
from sutler.service.workers.offline_job import OfflineMaker
from sutler.service.workers.plan_job import Maker
from sutler.service.workers.replan_job import Looker
from sutler.service.workers.solver_process import SolverProcess
from sutler.service.workers.store_queue import store_app
from sutler.service.workers.study_job import StudyMaker

logger = logging.getLogger("sutler.worker")

DELIVERIES_AT_ONCE: Final = 8  # chosen: as many as there are threads to send (webhooks/service.py)
QUICK_SOLVERS: Final = 1  # chosen: beside the others, which may be at work for minutes; it starts when it is needed
URGENT_LOOKERS: Final = 1  # chosen: a loss waits for no search that others have asked for
LOOKERS_PER_SOLVER: Final = 2  # solves take half of the machine by default; all are looked at after every poll
BEGIN_AGAIN_S: Final = 1.0  # chosen: a database that is away is not asked in a tight loop
WATCH_S: Final = 1.0  # chosen: a look begins at most so much late; each asks the database once
SILENCE_S: Final = 10.0  # chosen: well below the interval of polls, of which some have to be missed
POLLS_MISSED: Final = 3  # chosen: one or two may fail by chance
LOOK_FOR_JOBS_S: Final = 2.0  # chosen: deliveries that are sent again are at most so much late; others are heard of
HEARTBEATS: Final = 4  # in the time after which silence means death
FORGOTTEN_S: Final = 86_400.0  # after a shorter silence a worker is still known when it is heard of again


class Worker:
    """One process's share of the work."""

    def __init__(
        self,
        engine: AsyncEngine,
        queue: Queue,
        market: MarketService,
        settings: ServiceSettings,
        fork_server: ForkServer,
        *,
        now: Callable[[], datetime],
    ) -> None:
        everywhere = across(engine)
        self._settings, self._engine, self._queue = settings, everywhere, queue

        def solvers_of(processes: int) -> list[SolverProcess]:
            most_bytes = settings.most_solve_bytes
            return [SolverProcess(fork_server, most_bytes=most_bytes) for _ in range(processes)]

        self._solvers = solvers_of(QUICK_SOLVERS + settings.solves_at_once)
        # a look waits for no long solve
        self._lookers = solvers_of(URGENT_LOOKERS + LOOKERS_PER_SOLVER * settings.solves_at_once)
        self._now, self._market, self._began_at = now, market, now()
        stopping, self._tenants = asyncio.Event(), Tenants()
        self._looker = Looker(engine, queue, SharedMarket(market), self._tenants, _free(self._lookers), now, stopping)
        self._clearer = Clearer(self._looker)
        self._feeds = FeedReader(everywhere, networks(settings.outgoing_networks), now)
        solvers = _free(self._solvers)
        self._maker = Maker(engine, queue, market, solvers, stopping, now, self._looker)
        self._offline_maker = OfflineMaker(engine, queue, market, solvers, stopping, now)
        self._study_maker = StudyMaker(engine, queue, market, solvers, stopping, now)
        self._watch = housekeeping.Watch(settings.worker_silent_s)
        self._app = store_app(everywhere)
        sealer = Sealer(settings.secrets_keys)
        send = partial(deliver, everywhere, queue, allowed=networks(settings.outgoing_networks), sealer=sealer)
        self._add_task(SOLVE, SOLVES, self._maker.make)
        self._add_task(PLAN_OFFLINE, SOLVES, self._offline_maker.make)
        self._add_task(STUDY, SOLVES, self._study_maker.make)
        self._add_task(DELIVER, DELIVERIES, send)
        self._add_task(LOOK, LOOKS, self._looker.look)

    def _add_task(self, name: str, queue: str, work: Callable[[UUID], Awaitable[object]]) -> None:
        """Has jobs of this name done by `work`, which gets the only argument of the job, an id."""

        @self._app.task(name=name, queue=queue, pass_context=True)
        async def run(context: JobContext, /, **of_what: str) -> None:
            [key] = of_what.values()
            with bound(job_id=context.job.id, **of_what):
                await work(UUID(key))

    async def run(self) -> None:
        """Works until cancelled: solves under way are then left to other workers."""
        await asyncio.gather(*(solver.start() for solver in self._solvers[QUICK_SOLVERS:]))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work())
                group.create_task(every(self._engine, self._settings.worker_silent_s / HEARTBEATS, self._adopt))
                group.create_task(every(self._engine, housekeeping.EVERY_S, self._tidy))
                group.create_task(every(self._engine, WATCH_S, self._looker.ask_for_looks))
                group.create_task(every(self._engine, WATCH_S, self._clearer.clear))
                group.create_task(every(self._engine, SILENCE_S, self._look_for_silence))
                group.create_task(steadily(WATCH_S, "feeds are not read", self._feeds.run))
                group.create_task(steadily(housekeeping.EVERY_S, "what is old is not deleted", self._delete_old))
        finally:
            await asyncio.gather(*(solver.stop() for solver in [*self._solvers, *self._lookers]))

    async def _work(self) -> None:
        while True:
            try:
                await self._take_jobs()
            except (ConnectorException, DatabaseError) as error:
                logger.warning("the queue cannot be reached: %s: beginning again", error)
            await asyncio.sleep(BEGIN_AGAIN_S)

    async def _take_jobs(self) -> None:
        """Works until the connection is lost, or this is cancelled; jobs under way are then waited for."""
        taking = {
            asyncio.ensure_future(self._take(QUICK_SOLVES, QUICK_SOLVERS)),
            asyncio.ensure_future(self._take(SOLVES, self._settings.solves_at_once, QUICK_SOLVES)),
            asyncio.ensure_future(self._take(DELIVERIES, DELIVERIES_AT_ONCE)),
            asyncio.ensure_future(self._take(URGENT_LOOKS, URGENT_LOOKERS)),
            asyncio.ensure_future(self._take(LOOKS, len(self._lookers) - URGENT_LOOKERS, URGENT_LOOKS)),
        }
        try:
            done, _ = await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            self._maker.stopping.set()
            raise
        finally:
            for task in taking:
                task.cancel()
            await asyncio.wait(taking)

    async def _take(self, queue: str, concurrency: int, *others: str) -> None:
        """Does the jobs of a queue, and of others by their priority."""
        silent_s = self._settings.worker_silent_s
        await self._app.run_worker_async(
            queues=[queue, *others],
            name=queue,
            concurrency=concurrency,
            install_signal_handlers=False,
            fetch_job_polling_interval=LOOK_FOR_JOBS_S,
            update_heartbeat_interval=silent_s / HEARTBEATS,
            stalled_worker_timeout=FORGOTTEN_S,
            delete_jobs="successful",
        )

    async def _tidy(self, connection: AsyncConnection) -> None:
        await housekeeping.tidy(connection, self._now())

    async def _delete_old(self) -> None:
        await retention.delete_old(self._engine, self._now())

    async def _look_for_silence(self, connection: AsyncConnection) -> None:
        """Tells of clouds that have stopped answering."""
        now, market = self._now(), self._market
        slowest_s = max((market.poller.interval_s(provider) for provider in market.providers()), default=0.0)
        await silence.look(
            connection,
            self._queue,
            now=now,
            stale_after_s=max(STORE_MAX_AGE_S, POLLS_MISSED * slowest_s),
            providers=market.settings.providers,
            awake_since=self._began_at,
        )

    async def _adopt(self, connection: AsyncConnection) -> None:
        """Puts what silent workers left back into the queue, and what no job would make or deliver."""
        if self._watch.look():
            await housekeeping.give_back(connection, silent_s=self._settings.worker_silent_s)
        before = self._now() - timedelta(seconds=self._settings.worker_silent_s)
        for task, table in MADE_BY.items():
            for plan_id, project in await claims.without_job(connection, task, before=before):
                logger.warning("plan %s has no job: it is put into the queue again", plan_id)
                await claims.count_death(connection, table, plan_id)
                await self._queue.make_plan(connection, task, plan_id, project=project)
        await put_back_lost(connection, self._queue, before=before)
        await deployments.try_again(connection, self._queue, now=self._now())


async def every(engine: AsyncEngine, wait_s: float, work: Callable[[AsyncConnection], Awaitable[None]]) -> None:
    """Does this again and again, each time in a transaction of its own; no error ends it, nor what else is done."""

    async def in_a_transaction() -> None:
        async with begun(engine) as connection:
            await work(connection)

    await steadily(wait_s, work.__name__.strip("_"), in_a_transaction)


async def steadily(wait_s: float, otherwise: str, work: Callable[[], Awaitable[object]]) -> None:
    """Does this again and again; no error ends it, nor what else is done. `otherwise`: what the log says of one."""
    while True:
        await asyncio.sleep(wait_s)
        try:
            await work()
        except (ConnectorException, DatabaseError) as error:
            logger.warning("%s: %s", otherwise, error)
        except Exception:
            logger.exception("%s: a defect of sutler", otherwise)


def _free(solvers: list[SolverProcess]) -> "asyncio.Queue[SolverProcess]":
    """The processes that nobody uses, to be taken and put back; the one that was used last is taken first."""
    free: asyncio.Queue[SolverProcess] = asyncio.LifoQueue()
    for solver in solvers:
        free.put_nowait(solver)
    return free
