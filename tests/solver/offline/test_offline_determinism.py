"""The same application, hardware, options and seed make the same plan, in every process."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from sutler.solver.offline.application import Application
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import execute
from sutler.solver.offline.plan import STRATEGIES, OfflineOptions, Strategy
from sutler.solver.offline.planner import compare_strategies, plan_application, simulate_schedule
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import ScheduleStage
from tests.solver.offline.builders import random_costs, random_schedule

ROOT = Path(__file__).resolve().parents[3]


def fingerprint(seed: int) -> str:
    """Everything that planning says, but the time that it takes."""
    costs = random_costs(seed)
    plans = compare_strategies(costs.application, costs.hardware, costs.options, clock=lambda: 0.0)
    return repr(
        [
            (
                name,
                [
                    (executed.start_s, executed.end_s, sorted(executed.stage.plans.items()), executed.replicas)
                    for executed in plan.execution.stages
                ],
                plan.execution.finish_s.tolist(),
                plan.bound,
                dict(plan.rivals_s),
                plan.evaluated_schedules,
            )
            for name, plan in plans.items()
        ]
    )


@pytest.mark.slow
def test_two_processes_make_the_same_plans() -> None:
    program = "from tests.solver.offline.test_offline_determinism import fingerprint as f; print(f(6), f(7))"
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert "sutler" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_simulating_what_was_planned_takes_as_long_as_planned(strategy: Strategy) -> None:
    for seed in range(10, 16):
        costs = random_costs(seed)
        plan = plan_application(
            costs.application, costs.hardware, costs.options, strategy=strategy, clock=lambda: 0.0
        )
        again = simulate_schedule(costs.application, costs.hardware, plan.schedule, costs.options)
        assert again.makespan_s == pytest.approx(plan.execution.makespan_s), seed


def test_another_seed_makes_another_pile_for_the_same_application() -> None:
    costs = random_costs(6)
    one, other = (
        simulate_schedule(costs.application, costs.hardware, (), OfflineOptions(seed=seed)) for seed in (1, 2)
    )
    assert one.finish_s.tolist() != other.finish_s.tolist()


@pytest.mark.slow
def test_the_order_of_models_in_the_file_does_not_matter_to_a_schedule() -> None:
    for seed in range(40):
        costs = random_costs(seed)
        schedule = random_schedule(Random(seed), costs)
        backwards = Application("app", tuple(reversed(costs.application.nodes)), costs.application.edges)
        turned = Costs(backwards, costs.hardware, sample(backwards, seed=costs.options.seed), costs.options)
        last = len(costs.application.nodes) - 1
        turned_schedule = tuple(
            ScheduleStage(
                {last - node: plan for node, plan in stage.plans.items()},
                None if stage.until_node is None else last - stage.until_node,
                stage.until_fraction,
            )
            for stage in schedule
        )
        there, back = execute(costs, schedule), execute(turned, turned_schedule)
        assert back.makespan_s == pytest.approx(there.makespan_s, rel=1e-9), seed
        assert list(reversed(back.node_finish_s)) == pytest.approx(list(there.node_finish_s), rel=1e-9)
