"""How a worker makes anything from the queue: take it up, make it, store it, or say why not, or give it back.

Nothing holds a connection while a solver process works. What somebody cancels meanwhile, or another worker has taken
up, is dropped. plan_job.py makes plans so, service/workers/offline_job.py offline plans.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import isinf
from typing import Any, ClassVar, Final, Generic, TypeVar, cast
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.asynchronous import begun
from sutler.service.db.errors import DatabaseError, DatabaseUnreachableError
from sutler.service.db.notices import notify, plan_topic
from sutler.service.db.projects import across, of_project
from sutler.service.db.queue import Queue
from sutler.service.market.service import MarketService
from sutler.service.plans import claims
from sutler.service.plans.claims import Claimed
from sutler.service.plans.plan_table import PlanTable
from sutler.service.web.problem import TIMED_OUT, ProblemDetail, problem_of
from sutler.service.workers.errors import SolverLostError, StoppingError
from sutler.service.workers.solver_process import SolverProcess
from sutler.solver.progress import Progress

C = TypeVar("C", bound=Claimed)
T = TypeVar("T")

logger = logging.getLogger("sutler.solving")

MOST_DEATHS: Final = 1  # a plan whose worker died is taken up once more
LOOK_S: Final = 0.5  # chosen: a cancelled solve ends and progress shows so soon, for two updates a second
PATIENCE_S: Final = 120.0  # chosen: a database restarts within; after that the job is taken up again anyway
RETRY_S: Final = 1.0  # chosen: soon enough to lose no time, too seldom to burden a database that is starting
SLACK_S: Final = 30.0  # beyond a solve's own limit, for what it does not count


class DroppedError(Exception):
    """The plan is no longer this worker's to make."""


@dataclass(frozen=True, slots=True)
class Attempts(ABC, Generic[C]):
    """What a worker makes plans with; `solvers` are the processes that are free, `stopping` ends it all."""

    engine: AsyncEngine
    queue: Queue
    market: MarketService
    solvers: "asyncio.Queue[SolverProcess]"
    stopping: asyncio.Event
    now: Callable[[], datetime]

    plans: ClassVar[PlanTable[Any]]
    claim: ClassVar[type[Claimed]]

    @abstractmethod
    async def make_and_store(self, claimed: C) -> None:
        """Raises what is to be told to the caller, DroppedError, StoppingError, DatabaseError."""

    async def finish(self, connection: AsyncConnection, claimed: C, *, now: datetime, **values: Any) -> None:
        """Stores the plan, of which these are the columns. Raises DroppedError."""
        if not await claims.end(connection, self.plans.row, claimed, finished_at=now, **values):
            raise DroppedError
        await notify(connection, plan_topic(claimed.id))

    async def fail(self, connection: AsyncConnection, claimed: C, failure: dict[str, Any]) -> None:
        """Stores why there is no plan, unless it is no longer this worker's to make."""
        if await claims.fail(connection, self.plans.row, claimed, failure, self.now()):
            await notify(connection, plan_topic(claimed.id))

    async def make(self, plan_id: UUID) -> None:
        """Raises DatabaseError where the store is away for long; the job is then taken up again."""
        claimed = await self.persist(None, lambda connection: self._claim(connection, plan_id))
        if claimed is None:
            logger.info("plan %s is finished or cancelled: nothing to do", plan_id)
            return
        try:
            if claimed.deaths > MOST_DEATHS:
                raise SolverLostError(f"its worker died {claimed.deaths} times while making it")
            await self.make_and_store(claimed)
        except DroppedError:
            logger.info("plan %s is no longer wanted of attempt %d", plan_id, claimed.attempt)
        except StoppingError:
            await self._give_back(claimed)
        except DatabaseError:
            raise
        except Exception as error:
            await self._store_failure(claimed, error)

    async def _claim(self, connection: AsyncConnection, plan_id: UUID) -> C | None:
        claimed = await claims.take(connection, self.plans.row, self.claim, plan_id, self.now())
        if claimed is not None:
            await notify(connection, plan_topic(plan_id))
        return cast(C | None, claimed)

    async def solved(self, claimed: C, ask: "Callable[[SolverProcess, Seen], Awaitable[T]]") -> T:
        """What a free solver process answers. Raises DroppedError, StoppingError, and what `ask` raises."""
        seen = Seen()
        solver = await self.solvers.get()
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            async with self._watched(claimed, seen) as cancelled:
                solving = asyncio.ensure_future(ask(solver, seen))
                events: set[asyncio.Future[Any]] = {solving, cancelled, stopping}
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
                if not solving.done():
                    solving.cancel()
                    await asyncio.wait({solving})
                    raise StoppingError if self.stopping.is_set() else DroppedError
                return solving.result()
        finally:
            stopping.cancel()
            self.solvers.put_nowait(solver)

    @asynccontextmanager
    async def _watched(self, claimed: C, seen: "Seen") -> "AsyncIterator[asyncio.Future[None]]":
        """A future that is done when the plan is no longer ours; meanwhile progress is stored."""
        watching = asyncio.ensure_future(self._watch(claimed, seen))
        try:
            yield watching
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self, claimed: C, seen: "Seen") -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            progress = seen.news()
            try:
                async with begun(of_project(self.engine, claimed.project)) as connection:
                    is_ours = await claims.put_progress(connection, self.plans.row, claimed, progress)
                    if is_ours and progress is not None:
                        await notify(connection, f"progress/{claimed.id}")
            except DatabaseError as error:
                logger.warning("plan %s: its progress is not stored: %s", claimed.id, error)
                continue
            if not is_ours:
                return

    async def _give_back(self, claimed: C) -> None:
        """Into the queue again, as if it had never been taken out."""
        async with begun(of_project(self.engine, claimed.project)) as connection:
            if await claims.release(connection, self.plans.row, claimed):
                await self.queue.make_plan(connection, self.plans.task, claimed.id, project=claimed.project)
                await notify(connection, plan_topic(claimed.id))
        logger.info("plan %s goes back into the queue: this worker is ending", claimed.id)

    async def _store_failure(self, claimed: C, error: Exception) -> None:
        is_lost = isinstance(error, SolverLostError)
        problem = ProblemDetail(TIMED_OUT, str(error)) if is_lost else problem_of(error)
        if problem.kind.status == 500:
            logger.error("plan %s: %s", claimed.id, error, exc_info=error)
        else:
            logger.warning("plan %s: %s", claimed.id, problem.detail)
        await self.persist(claimed, lambda connection: self.fail(connection, claimed, problem.document()))

    async def persist(self, claimed: Claimed | None, store: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """One transaction, of the project of what is made; None: that is not known yet."""
        engine = across(self.engine) if claimed is None else of_project(self.engine, claimed.project)

        async def once() -> T:
            async with begun(engine) as connection:
                return await store(connection)

        return await self.patiently(once)

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Again and again while the database is away, unless this worker is ending."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        while True:
            try:
                return await work()
            except DatabaseUnreachableError as error:
                if loop.time() > give_up_at or self.stopping.is_set():
                    raise
                logger.warning("the plan has to wait: %s", error)
                await asyncio.sleep(RETRY_S)


class Seen:
    """How far a solve is: the newest report, with the best value and bound of all."""

    def __init__(self) -> None:
        self._latest: Progress | None = None
        self._is_news = False

    def add(self, progress: Progress) -> None:
        known = self._latest
        if known is not None and progress.bound is None:
            progress = replace(progress, value=known.value, bound=known.bound, relative_gap=known.relative_gap)
        self._latest, self._is_news = progress, True

    def news(self) -> dict[str, Any] | None:
        """Returns the news as JSON, which has no infinity; None where nothing was reported since the last time."""
        is_news, self._is_news = self._is_news, False
        if self._latest is None or not is_news:
            return None
        return {key: None if isinstance(v, float) and isinf(v) else v for key, v in asdict(self._latest).items()}


def limit_s(time_limit_s: float) -> float:
    """After which a solver process is stopped that should have ended by itself."""
    return 1.2 * time_limit_s + SLACK_S
