"""Solves have so much memory: what needs more is sought in a smaller search, which proves nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest

from benchmarks.instances import wide_site
from sutler.service.fork_server import ForkServer
from sutler.service.workers.errors import SolverLostError
from sutler.service.workers.solver_process import SolverProcess
from sutler.solver.planner import solve
from sutler.solver.problem import Offer, Problem
from sutler.solver.replanning import consider
from sutler.solver.smaller import MOST_OFFERS, smaller
from sutler.solver.verify import verify
from tests.service.running import ROOT
from tests.solver.replanning.builders import FREE, consideration
from tests.solver.verify.test_verify import apart_and_capped

NOT_ENOUGH: Final = 60_000_000  # for some 33,000 layouts; their own arrays take more
FAR_TOO_LITTLE: Final = 15_000_000


@pytest.fixture(autouse=True)
def solvers_load_this_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def many_layouts() -> Problem:
    wide = wide_site(gpu_types=8, stages=4, budget_usd_per_hour=60.0)
    options = replace(wide.options, time_limit_s=10.0, alternatives=False)
    return replace(wide, gpus=dict(wide.gpus), options=options)


def asked(most_bytes: int, ask: Callable[[SolverProcess], Awaitable[None]]) -> None:
    async def once() -> None:
        server = ForkServer()
        solver = SolverProcess(server, most_bytes=most_bytes)
        try:
            await ask(solver)
        finally:
            await solver.stop()
            await server.stop()

    asyncio.run(once())


@pytest.mark.slow
def test_what_ran_out_of_memory_is_planned_in_a_smaller_search_and_never_optimal() -> None:
    problem = many_layouts()
    best_of_smaller = solve(smaller(problem))
    assert best_of_smaller.status == "optimal"

    async def ask(solver: SolverProcess) -> None:
        plan = await solver.solve(problem, lambda _: None, limit_s=120)
        assert (plan.status, plan.bound, plan.relative_gap) == ("feasible", None, None)
        assert plan.value == pytest.approx(best_of_smaller.value)
        assert plan.warnings[-1].startswith("the solve ran out of its 0.06 GB of memory: a smaller search")
        proven = replace(plan, bound=plan.value, relative_gap=0.0, status="optimal")
        assert verify(problem, proven) == ()  # it is a plan of the whole problem
        again = await solver.solve(smaller(problem), lambda _: None, limit_s=120)
        assert again.status == "optimal"  # the process that ran out is gone, another one answers

    asked(NOT_ENOUGH, ask)


@pytest.mark.slow
def test_a_fleet_that_runs_is_considered_in_a_smaller_search() -> None:
    problem = many_layouts()
    runs = solve(smaller(problem))
    question = replace(consideration(problem, runs, None, None, FREE), is_issued_anyway=True)

    async def ask(solver: SolverProcess) -> None:
        considered = await solver.consider(question, lambda _: None, limit_s=120)
        assert considered.keep.carries
        assert (considered.most_net_usd, considered.searched) == (float("inf"), True)
        plans = [option.plan for option in considered.options if option.plan is not None]
        assert plans
        assert all(plan.status == "feasible" and plan.bound is None for plan in plans)

    asked(NOT_ENOUGH, ask)


@pytest.mark.slow
def test_what_runs_stays_within_the_smaller_search() -> None:
    """Else it would look as if it could not go on."""
    apart = apart_and_capped()
    runs = solve(apart)
    assert {replica.role for replica in runs.replicas} == {"prefill", "decode"}
    either = replace(apart, search=replace(apart.search, disaggregation="auto"))
    asks = consideration(either, runs, None, None, FREE)
    assert not consider(replace(asks, problem=smaller(asks.problem))).keep.is_valid
    assert consider(replace(asks, problem=smaller(asks.problem, runs.replicas))).keep.is_valid


def test_without_memory_for_any_search_it_is_said_how_much_there_was() -> None:
    async def ask(solver: SolverProcess) -> None:
        with pytest.raises(SolverLostError, match=r"ran out of its 0\.015 GB of memory"):
            await solver.solve(many_layouts(), lambda _: None, limit_s=120)

    asked(FAR_TOO_LITTLE, ask)


def test_a_smaller_search_keeps_the_cheapest_of_each_kind_and_all_that_is_held() -> None:
    def offer(number: int, *, gpu: str = "a", held: bool = False) -> Offer:
        return Offer("cloud", f"{gpu}-{number}", gpu, 1, 1, 1.0 + number, held=held)

    offers = (*(offer(n) for n in range(3 * MOST_OFFERS)), offer(0, gpu="b"), offer(9_999, held=True))
    kept = {one.offer_id for one in smaller(replace(many_layouts(), offers=offers)).offers}
    assert {"a-0", "b-0", "a-9999"} <= kept
    assert len(kept) == MOST_OFFERS // 3 + 2
