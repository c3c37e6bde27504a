"""Makes one plan: take it up, read the market, solve, store. To make it twice stores it once.

Nothing holds a connection while it solves. A plan that somebody cancels meanwhile, or that another worker has taken
up, is dropped.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import isinf
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.asynchronous import begun
from service.db.errors import DatabaseError, DatabaseUnreachableError
from service.db.notices import notify, plan_topic
from service.deployments import issuing
from service.errors import TIMED_OUT, Problem, problem_of
from service.market.service import MarketService
from service.plans import repository
from service.plans.issue import issue_plan
from service.plans.problem_schema import ProblemDocument
from service.plans.repository import Claim
from service.plans.translate import Translation, to_problem
from service.plans.validation import validate
from service.queue import Queue
from service.solving.errors import SolverLostError
from service.solving.solver_process import SolverProcess
from solver.plan import Plan
from solver.progress import Progress

logger = logging.getLogger("sutler.solving")

MOST_DEATHS: Final = 1  # a plan whose worker died is taken up once more
LOOK_S: Final = 0.5
STORE_PATIENCE_S: Final = 120.0
STORE_RETRY_S: Final = 1.0
SLACK_S: Final = 30.0  # beyond a solve's own limit, for what it does not count


class DroppedError(Exception):
    """The plan is no longer this worker's to make."""


class StoppingError(Exception):
    """The worker is told to end: others are to make the plan."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What a worker makes plans with; `solvers` are the processes that are free, `stopping` ends it all."""

    engine: AsyncEngine
    queue: Queue
    market: MarketService
    solvers: "asyncio.Queue[SolverProcess]"
    stopping: asyncio.Event
    now: Callable[[], datetime]

    async def make(self, plan_id: UUID) -> None:
        """Raises DatabaseError where the store is away for long; the job is then taken up again."""
        async with begun(self.engine) as connection:
            claimed = await repository.claim(connection, plan_id, self.now())
            if claimed is not None:
                await notify(connection, plan_topic(plan_id))
        if claimed is None:
            logger.info("plan %s is finished or cancelled: nothing to do", plan_id)
            return
        try:
            await self._make(claimed)
        except DroppedError:
            logger.info("plan %s is no longer wanted of attempt %d", plan_id, claimed.attempt)
        except StoppingError:
            await self._give_back(claimed)
        except DatabaseError:
            raise
        except Exception as error:
            await self._store_failure(claimed, error)

    async def _make(self, claimed: Claim) -> None:
        if claimed.deaths > MOST_DEATHS:
            raise SolverLostError(f"its worker died {claimed.deaths} times while making it")
        document = validate(ProblemDocument, claimed.problem)
        read_at = self.now()
        translation = await asyncio.to_thread(to_problem, document, folder=None, now=read_at, store=self.market)
        plan = await self._solved(claimed, translation, limit_s=1.2 * document.solver.time_limit_s + SLACK_S)
        await self._persist(lambda connection: self._finish(connection, claimed, plan, translation, read_at))
        logger.info("plan %s: %s in %.2f s", claimed.id, plan.status, plan.solver.seconds)

    async def _solved(self, claimed: Claim, translation: Translation, *, limit_s: float) -> Plan:
        seen = Seen()
        solver = await self.solvers.get()
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            async with self._watched(claimed, seen) as cancelled:
                solving = asyncio.ensure_future(solver.solve(translation.problem, seen.add, limit_s=limit_s))
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
    async def _watched(self, claimed: Claim, seen: "Seen") -> "AsyncIterator[asyncio.Future[None]]":
        """A future that is done when the plan is no longer ours; meanwhile progress is stored."""
        watching = asyncio.ensure_future(self._watch(claimed, seen))
        try:
            yield watching
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self, claimed: Claim, seen: "Seen") -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            progress = seen.news()
            try:
                async with begun(self.engine) as connection:
                    is_ours = await repository.put_progress(connection, claimed, progress)
                    if is_ours and progress is not None:
                        await notify(connection, f"progress/{claimed.id}")
            except DatabaseError as error:
                logger.warning("plan %s: its progress is not stored: %s", claimed.id, error)
                continue
            if not is_ours:
                return

    async def _finish(
        self, connection: AsyncConnection, claimed: Claim, plan: Plan, translation: Translation, read_at: datetime
    ) -> None:
        now = self.now()
        deployment = await issuing.locked(connection, claimed.deployment_id)
        revision = None if deployment is None else deployment.revision + 1
        issued = issue_plan(plan, translation, plan_id=claimed.id, created_at=now, revision=revision or 1)
        content = issued.model_dump_json(by_alias=True)
        is_ours = await repository.finish(
            connection, claimed, issued, content=content, now=now, market_read_at=read_at, revision=revision
        )
        if not is_ours:
            raise DroppedError
        if deployment is not None:
            await issuing.issue(connection, self.queue, deployment, issued, now=now)
        await notify(connection, plan_topic(claimed.id))

    async def _give_back(self, claimed: Claim) -> None:
        """Into the queue again, as if it had never been taken out."""
        async with begun(self.engine) as connection:
            if await repository.release(connection, claimed):
                await self.queue.solve(connection, claimed.id)
                await notify(connection, plan_topic(claimed.id))
        logger.info("plan %s goes back into the queue: this worker is ending", claimed.id)

    async def _store_failure(self, claimed: Claim, error: Exception) -> None:
        is_lost = isinstance(error, SolverLostError)
        problem = Problem(TIMED_OUT, str(error)) if is_lost else problem_of(error)
        if problem.kind.status == 500:
            logger.error("plan %s: %s", claimed.id, error, exc_info=error)
        else:
            logger.warning("plan %s: %s", claimed.id, problem.detail)

        async def store(connection: AsyncConnection) -> None:
            deployment = await issuing.locked(connection, claimed.deployment_id)
            if not await repository.fail(connection, claimed, problem.document(), self.now()):
                return
            if deployment is not None:
                await issuing.failed(connection, self.queue, deployment, claimed.id, problem.document())
            await notify(connection, plan_topic(claimed.id))

        await self._persist(store)

    async def _persist(self, store: Callable[[AsyncConnection], Any]) -> None:
        """A transaction, tried again while the database is away: the work is done, only the storing is not."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + STORE_PATIENCE_S
        while True:
            try:
                async with begun(self.engine) as connection:
                    await store(connection)
                return
            except DatabaseUnreachableError as error:
                if loop.time() > give_up_at or self.stopping.is_set():
                    raise
                logger.warning("a plan is made but not stored yet: %s", error)
                await asyncio.sleep(STORE_RETRY_S)


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
        """As JSON, which has no infinity; None where nothing was reported since the last time."""
        is_news, self._is_news = self._is_news, False
        if self._latest is None or not is_news:
            return None
        return {key: None if isinstance(v, float) and isinf(v) else v for key, v in asdict(self._latest).items()}
