"""The same question gets the same answer: in every process, in any order of offers, however fast the clock runs."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sutler.solver import Plan, Problem, Progress, solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.verify import verify
from tests.builders import (
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    random_estimated_problem,
    random_problem,
)

ROOT = Path(__file__).resolve().parents[2]

# Prints the plans of some problems, times aside, from a fresh interpreter.
SCRIPT = """
from tests.solver.test_determinism import PROBLEMS, without_times
from sutler.solver import solve
for make in PROBLEMS:
    print(without_times(solve(make())))
"""


def hundreds_of_offers() -> Problem:
    """Whole machines, single GPUs and slices of machines at prices of their own, for two models."""
    draw = Random(7)
    price = {"rtx-4090": 0.35, "l40s": 0.8, "a100-sxm4-80gb": 1.2, "h100-sxm": 2.4}
    offers = []
    for number in range(80):
        gpu, gpus = draw.choice(sorted(price)), draw.choice([1, 2, 4, 8])
        whole = an_offer(
            gpu,
            gpus,
            price=round(price[gpu] * gpus * draw.uniform(0.8, 1.4), 3),
            offer_id=f"o{number}",
            machine_id=f"m{number}",
            gpu_ids=tuple(range(gpus)),
        )
        offers.append(whole)
        if gpus > 1:
            halves = [tuple(range(gpus // 2)), tuple(range(gpus // 2, gpus))]
            offers += [
                replace(
                    whole,
                    offer_id=f"o{number}-{cards}",
                    gpus=gpus // 2,
                    gpu_ids=cards,
                    price_usd_per_hour=round(0.55 * whole.price_usd_per_hour, 3),
                )
                for cards in halves
            ]
    models = [
        a_model(a_workload("w1", demand=3.0), a_workload("w2", demand=1.0, output_tokens=600.0), name=name, spec=spec)
        for name, spec in load_models().items()
        if name in ("llama-3.1-8b", "llama-3-70b")
    ]
    known = load_gpus()
    return a_problem(
        offers=offers,
        models=models,
        gpus=[known[slug] for slug in price],
        budget_usd_per_hour=20.0,
        measured_only=False,
    )


PROBLEMS: tuple[Callable[[], Problem], ...] = (
    appendix_c,
    lambda: appendix_c("binary_search"),
    lambda: random_problem(3, "min_cost", most_gpus=16),
    lambda: random_problem(7, "min_power", most_gpus=16),
    lambda: random_problem(27, "max_throughput", most_gpus=16),
    lambda: random_estimated_problem(8),
    lambda: random_estimated_problem(11, "min_cost"),
    hundreds_of_offers,
)


def without_times(plan: Plan) -> str:
    return repr(replace(plan, solver=replace(plan.solver, seconds=0.0, phases=())))


def in_a_fresh_process(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return finished.stdout


@pytest.mark.slow
def test_two_fresh_processes_give_the_same_plans() -> None:
    """Hashes of names differ between the two, as they do between any two runs of Python."""
    first, second = in_a_fresh_process(1), in_a_fresh_process(2)
    assert first.count("status='optimal'") == len(PROBLEMS)
    assert first == second


@pytest.mark.slow
def test_earlier_solves_leave_no_trace() -> None:
    alone = without_times(solve(appendix_c()))
    solve(random_problem(7))
    solve(random_estimated_problem(8))
    assert without_times(solve(appendix_c())) == alone


def shuffled(problem: Problem, seed: int) -> Problem:
    return replace(problem, offers=tuple(Random(seed).sample(problem.offers, len(problem.offers))))


@pytest.mark.parametrize(
    "make", [*PROBLEMS[:4], *(pytest.param(make, marks=pytest.mark.slow) for make in PROBLEMS[4:])]
)
def test_the_order_of_offers_does_not_change_the_value(make: Callable[[], Problem]) -> None:
    """Within the gap: the true optimum lies between value and bound of both."""
    problem = make()
    plan = solve(problem)
    assert plan.value is not None
    other_problem = shuffled(problem, seed=0)
    other = solve(other_problem)
    assert verify(other_problem, other) == ()
    assert other.status == plan.status
    allowed = problem.options.relative_gap + (
        problem.options.tolerance_fraction if problem.options.method == "binary_search" else 0.0
    )
    assert other.value == pytest.approx(plan.value, rel=allowed)


@pytest.mark.parametrize("make", PROBLEMS[:4])
def test_a_slow_clock_changes_nothing_but_the_times(make: Callable[[], Problem]) -> None:
    """A clock that ticks 10 ms at every reading, whatever really passes."""
    ticks = iter(range(10**6))
    slow = solve(make(), clock=lambda: next(ticks) / 100)
    assert without_times(slow) == without_times(solve(make()))
    assert slow.solver.seconds > 0
    assert slow.solver.seconds == pytest.approx(round(slow.solver.seconds, 2))


@pytest.mark.slow
def test_being_watched_changes_nothing() -> None:
    seen: list[Progress] = []
    watched = solve(random_estimated_problem(8), on_progress=seen.append)
    assert without_times(watched) == without_times(solve(random_estimated_problem(8)))
    assert [report.seconds for report in seen] == sorted(report.seconds for report in seen)
    assert {"candidates", "solve", "verify"} <= {report.phase for report in seen}


def test_a_solve_without_any_time_says_that_it_does_not_know() -> None:
    """No fleet was looked for, so the problem is not called infeasible."""
    problem = hundreds_of_offers()
    ticks = iter(range(10**9))
    hurried = replace(problem, options=replace(problem.options, time_limit_s=0.5))
    plan = solve(hurried, clock=lambda: next(ticks) * 10.0)
    assert plan.status in ("feasible", "unknown")
    assert plan.solver.limit is not None
    assert plan.conflicts == ()
