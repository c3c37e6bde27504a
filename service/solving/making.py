"""Makes one plan: take it up, read the market, solve, store. To make it twice stores it once.

Nothing holds a connection while it solves. A plan that somebody cancels meanwhile, or that another worker has taken
up, is dropped.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import isinf
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.asynchronous import begun
from service.db.errors import DatabaseError, DatabaseUnreachableError
from service.db.notices import notify, plan_topic
from service.deployments import issuing
from service.deployments.diff import difference
from service.deployments.repository import Deployment
from service.errors import TIMED_OUT, Problem, problem_of
from service.market.service import MarketService
from service.plans import repository
from service.plans.issue import issue_plan
from service.plans.plan_schema import PlanDocument
from service.plans.problem_schema import ProblemDocument
from service.plans.repository import Claim
from service.plans.translate import Translation, to_problem
from service.plans.validation import validate
from service.profiles.references import with_calibration
from service.queue import Queue
from service.replanning.concluding import Verdict, instead, issuable
from service.replanning.looking import Looker, Replan
from service.solving.errors import SolverLostError, StoppingError
from service.solving.solver_process import SolverProcess
from solver.plan import Plan
from solver.problem import Problem as SolverProblem
from solver.progress import Progress
from solver.replanning import proven_by

T = TypeVar("T")

logger = logging.getLogger("sutler.solving")

MOST_DEATHS: Final = 1  # a plan whose worker died is taken up once more
LOOK_S: Final = 0.5
PATIENCE_S: Final = 120.0
RETRY_S: Final = 1.0
SLACK_S: Final = 30.0  # beyond a solve's own limit, for what it does not count


class DroppedError(Exception):
    """The plan is no longer this worker's to make."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What a worker makes plans with; `solvers` are the processes that are free, `stopping` ends it all."""

    engine: AsyncEngine
    queue: Queue
    market: MarketService
    solvers: "asyncio.Queue[SolverProcess]"
    stopping: asyncio.Event
    now: Callable[[], datetime]
    looker: Looker

    async def make(self, plan_id: UUID) -> None:
        """Raises DatabaseError where the store is away for long; the job is then taken up again."""
        claimed = await self._persist(lambda connection: self._claim(connection, plan_id))
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

    async def _claim(self, connection: AsyncConnection, plan_id: UUID) -> Claim | None:
        claimed = await repository.claim(connection, plan_id, self.now())
        if claimed is not None:
            await notify(connection, plan_topic(plan_id))
        return claimed

    async def _make(self, claimed: Claim) -> None:
        if claimed.deaths > MOST_DEATHS:
            raise SolverLostError(f"its worker died {claimed.deaths} times while making it")
        replan = await self._patiently(lambda: self._replan(claimed))
        made = await (self._made_anew(claimed) if replan is None else self._made_of(claimed, replan))
        await self._persist(lambda connection: self._finish(connection, claimed, made))
        logger.info("plan %s: %s in %.2f s", claimed.id, made.plan.status, made.plan.solver.seconds)

    async def _replan(self, claimed: Claim) -> Replan | None:
        """Where a fleet runs already, the plan starts from it; None where none does, or of no deployment."""
        if claimed.deployment_id is None:
            return None
        return await self.looker.asked(claimed.deployment_id)

    async def _made_anew(self, claimed: Claim) -> "Made":
        document = validate(ProblemDocument, claimed.problem)
        known = await self._persist(lambda connection: with_calibration(connection, document))
        read_at, translation = await self._patiently(lambda: self._translated(known))
        plan = await self._solved(claimed, translation.problem, limit_s=_limit_s(document))
        return Made(plan, translation, read_at)

    async def _made_of(self, claimed: Claim, replan: Replan) -> "Made":
        """The best change of the running fleet, and the proof of how good any fleet could be."""
        optimum = await self._solved(claimed, replan.problem, limit_s=_limit_s(replan.prepared.problem))
        verdict = await self.looker.concluded(replan)
        best = issuable(optimum, replan.prepared)
        if verdict.plan is not None:
            plan = proven_by(verdict.plan, best, replan.problem)
        else:
            plan, verdict = best, instead(verdict, best)
        return Made(plan, verdict.translation, replan.facts.now, replan, verdict)

    async def _translated(self, document: ProblemDocument) -> tuple[datetime, Translation]:
        """With the market as it was at that time."""
        now = self.now()
        return now, await asyncio.to_thread(to_problem, document, folder=None, now=now, store=self.market)

    async def _solved(self, claimed: Claim, problem: SolverProblem, *, limit_s: float) -> Plan:
        seen = Seen()
        solver = await self.solvers.get()
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            async with self._watched(claimed, seen) as cancelled:
                solving = asyncio.ensure_future(solver.solve(problem, seen.add, limit_s=limit_s))
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

    async def _finish(self, connection: AsyncConnection, claimed: Claim, made: "Made") -> None:
        now = self.now()
        deployment = await issuing.locked(connection, claimed.deployment_id)
        revision = None if deployment is None else deployment.revision + 1
        issued = issue_plan(made.plan, made.translation, plan_id=claimed.id, created_at=now, revision=revision or 1)
        content = issued.model_dump_json(by_alias=True)
        is_ours = await repository.finish(
            connection, claimed, issued, content=content, now=now, market_read_at=made.read_at, revision=revision
        )
        if not is_ours:
            raise DroppedError
        if deployment is not None:
            await self._issue(connection, deployment, claimed, made, issued)
        await notify(connection, plan_topic(claimed.id))

    async def _issue(
        self, connection: AsyncConnection, deployment: Deployment, claimed: Claim, made: "Made", issued: PlanDocument
    ) -> None:
        """With what it changes about the plan that held before, which is what it was made from."""
        before = None if made.replan is None else made.replan.facts.plan
        holdings = None if made.replan is None else made.replan.facts.holdings
        diff = (
            difference(before, issued, reason=made.reason, held=holdings, of_running=made.is_of_running)
            if issued.status in issuing.SERVES
            else None
        )
        problem = claimed.problem if made.replan is None else made.replan.problem_json()
        content = None if diff is None else diff.model_dump_json(by_alias=True)
        await repository.explain(connection, claimed.id, problem=problem, reason=made.reason, diff=content)
        await issuing.issue(connection, self.queue, deployment, issued, reason=made.reason, diff=diff)
        if made.replan is not None and made.verdict is not None:
            await self.looker.note_asked(connection, made.replan, made.verdict, issued.revision)

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

    async def _persist(self, store: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """One transaction."""

        async def once() -> T:
            async with begun(self.engine) as connection:
                return await store(connection)

        return await self._patiently(once)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
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


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, what it was made from, and when; `replan` and `verdict` where a fleet ran already."""

    plan: Plan
    translation: Translation
    read_at: datetime
    replan: Replan | None = None
    verdict: Verdict | None = None

    @property
    def is_of_running(self) -> bool:
        """Whether the plan says what of it is held."""
        return self.replan is not None

    @property
    def reason(self) -> str:
        if self.verdict is None or self.verdict.decision is None:
            return "the first plan"
        return f"asked for: {self.verdict.decision.reason}"


def _limit_s(document: ProblemDocument) -> float:
    return 1.2 * document.solver.time_limit_s + SLACK_S


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
