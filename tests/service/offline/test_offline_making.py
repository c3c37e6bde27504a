"""How a worker makes offline plans: what its solver process is asked, what is stored, and what it drops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, select

from sutler.service.db.api_tables import OfflinePlanRow
from sutler.service.db.asynchronous import begun, conninfo, open_async_engine
from sutler.service.db.queue import Queue
from sutler.service.documents.errors import DocumentError
from sutler.service.fork_server import ForkServer
from sutler.service.market.polling import Poller
from sutler.service.market.service import MarketService
from sutler.service.offline.questions import AdjustQuestion, OfflineAnswer, OfflineQuestion, PlanQuestion
from sutler.service.offline.repository import OFFLINE_PLANS, OfflineOrder
from sutler.service.settings import market_settings
from sutler.service.workers.offline_job import OfflineMaker
from sutler.service.workers.solver_process import SolverProcess
from tests.service.builders import a_snapshot, an_offer
from tests.service.offline.builders import an_application, an_asker

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
REPORT = {"at_s": 30.0, "models": [{"model": "one", "finished_requests": 4}]}


class StandIn(SolverProcess):
    """Answers at once, or never, or refuses; remembers what it was asked."""

    def __init__(self, answer: OfflineAnswer | Exception | None) -> None:
        super().__init__(ForkServer(), most_bytes=10**9)
        self._answer_with = answer
        self.asked: list[OfflineQuestion] = []
        self.is_asked = asyncio.Event()

    async def plan_offline(self, question: OfflineQuestion, *, limit_s: float) -> OfflineAnswer:
        assert limit_s > 0
        self.asked.append(question)
        self.is_asked.set()
        if self._answer_with is None:
            await asyncio.Event().wait()
        if isinstance(self._answer_with, Exception):
            raise self._answer_with
        assert self._answer_with is not None
        return self._answer_with


@dataclass(frozen=True)
class Bench:
    maker: OfflineMaker
    solver: StandIn
    orders: list[OfflineOrder] = field(default_factory=list)

    async def ordered(self, **others: Any) -> UUID:
        """A plan that is in the queue."""
        order = an_order(**others)
        async with begun(self.maker.engine) as connection:
            await OFFLINE_PLANS.add(connection, order, NOW)
        return order.id

    async def row(self, plan_id: UUID) -> Any:
        async with begun(self.maker.engine) as connection:
            return (await connection.execute(select(OfflinePlanRow).where(OfflinePlanRow.id == plan_id))).one()


def an_order(**others: Any) -> OfflineOrder:
    plan_id = uuid4()
    usual: dict[str, Any] = {
        "id": plan_id,
        "first_id": plan_id,
        "parent_id": None,
        "revision": 1,
        "name": "ensemble",
        "application": an_application(models=[an_asker()], edges=[]),
        "report": None,
        "objective": "min_time",
        "created_by": "someone",
        "request_id": None,
    }
    return OfflineOrder(**{**usual, **others})


def an_answer(document: str = '{"schema": "sutler/offline-plan/v1"}') -> OfflineAnswer:
    return OfflineAnswer(document, "feasible", 87.0, None, 0.5, 2.0)


@asynccontextmanager
async def a_bench(engine: Engine, answer: OfflineAnswer | Exception | None) -> AsyncIterator[Bench]:
    asynchronous, settings, solver = open_async_engine(engine), market_settings({}), StandIn(answer)
    free: asyncio.Queue[SolverProcess] = asyncio.Queue()
    free.put_nowait(solver)
    market = MarketService(engine, settings, Poller(engine, settings.configs), lambda: NOW)
    queue = Queue(conninfo(asynchronous))
    try:
        yield Bench(OfflineMaker(asynchronous, queue, market, free, asyncio.Event(), lambda: NOW), solver)
    finally:
        await asynchronous.dispose()


def test_a_plan_is_stored_as_the_solver_wrote_it(engine: Engine) -> None:
    async def make() -> Any:
        async with a_bench(engine, an_answer()) as bench:
            plan_id = await bench.ordered()
            await bench.maker.make(plan_id)
            (question,) = bench.solver.asked
            assert isinstance(question, PlanQuestion)
            assert (question.plan_id, question.market) == (plan_id, None)
            return await bench.row(plan_id)

    row = asyncio.run(make())
    assert (row.status, row.document, row.makespan_s) == ("feasible", an_answer().document, 87.0)
    assert (row.relative_gap, row.solve_seconds, row.attempt) == (0.5, 2.0, 1)
    assert (row.finished_at, row.market_read_at) == (NOW, None)


def test_the_solver_gets_the_offers_of_the_market_and_when_it_was_read_is_stored(engine: Engine) -> None:
    application = an_application(models=[an_asker()], edges=[])
    del application["hardware"]
    application["market"] = {"offers": a_snapshot(an_offer(offer_id="here"))}

    async def make() -> Any:
        async with a_bench(engine, an_answer()) as bench:
            plan_id = await bench.ordered(application=application)
            await bench.maker.make(plan_id)
            (question,) = bench.solver.asked
            assert isinstance(question, PlanQuestion)
            assert question.market is not None
            assert [offer.offer_id for offer in question.market.offers] == ["here"]
            return await bench.row(plan_id)

    assert asyncio.run(make()).market_read_at == NOW


def test_an_adjusted_plan_is_made_of_the_one_before_and_the_report(engine: Engine) -> None:
    async def make() -> Any:
        async with a_bench(engine, an_answer('{"revision": 1}')) as bench:
            first = await bench.ordered()
            await bench.maker.make(first)
            second = await bench.ordered(first_id=first, parent_id=first, revision=2, report=REPORT)
            await bench.maker.make(second)
            question = bench.solver.asked[1]
            assert isinstance(question, AdjustQuestion)
            assert (question.before, question.plan_id) == ('{"revision": 1}', second)
            assert question.progress.models[0].finished_requests == 4
            return await bench.row(second)

    row = asyncio.run(make())
    assert (row.status, row.revision) == ("feasible", 2)


@pytest.mark.parametrize(
    ("error", "status"),
    [(DocumentError.of("models[0].model", "is no model of this plan", value="x"), 422), (ValueError("secret"), 500)],
)
def test_why_there_is_no_plan_is_stored_without_what_a_defect_says(
    engine: Engine, error: Exception, status: int
) -> None:
    async def make() -> Any:
        async with a_bench(engine, error) as bench:
            plan_id = await bench.ordered()
            await bench.maker.make(plan_id)
            return await bench.row(plan_id)

    row = asyncio.run(make())
    assert (row.status, row.failure["status"], row.document) == ("failed", status, None)
    assert "secret" not in str(row.failure)


def test_a_plan_that_is_cancelled_while_it_is_made_stays_cancelled(engine: Engine) -> None:
    async def make() -> Any:
        async with a_bench(engine, None) as bench:
            plan_id = await bench.ordered()
            making = asyncio.ensure_future(bench.maker.make(plan_id))
            await bench.solver.is_asked.wait()
            async with begun(bench.maker.engine) as connection:
                assert await OFFLINE_PLANS.cancel(connection, plan_id, NOW, failure={"status": 409})
                assert not await OFFLINE_PLANS.cancel(connection, plan_id, NOW, failure={"status": 409})
            await asyncio.wait_for(making, 20)
            await bench.maker.make(plan_id)
            assert len(bench.solver.asked) == 1
            return await bench.row(plan_id)

    assert asyncio.run(make()).status == "cancelled"
