"""The rules beside what they say: Algorithm 1 of SamuLLM told again, all GPUs to one model, GPUs divided evenly."""

from collections.abc import Iterator
from random import Random

import pytest

from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.greedy import greedy
from sutler.solver.offline.heuristics import max_heuristic, min_heuristic
from sutler.solver.offline.placement import can_place
from sutler.solver.offline.search import by_rule
from sutler.solver.offline.stages import ExecutionPlan, RunState, ScheduleStage
from tests.solver.offline.builders import a_node, app_of, costs_of, hardware_of, random_costs, random_schedule

Group = dict[int, ExecutionPlan]


def standings(seeds: range, **options: bool) -> Iterator[tuple[Forecaster, RunState]]:
    """The beginning of random applications, and where random schedules bring them."""
    for seed in seeds:
        costs, draw = random_costs(seed, **options), Random(seed)
        forecaster = Forecaster(costs)
        yield forecaster, forecaster.beginning()
        for now in forecaster.run(random_schedule(draw, costs)).standings:
            if not now.all_done:
                yield forecaster, now


def throughput(forecaster: Forecaster, now: RunState, group: Group) -> float:
    if not group:
        return 0.0
    after = forecaster.stage(now, ScheduleStage(group))
    computed = sum(
        forecaster.costs.flops[node] * (after.progress[node] - now.progress[node])
        for node in range(len(now.progress))
    )
    return float(computed / (after.at_s - now.at_s))


def gpus(group: Group) -> int:
    return sum(plan.gpus for plan in group.values())


def fits(forecaster: Forecaster, group: Group) -> bool:
    return can_place(
        forecaster.costs.hardware,
        [plan.tensor_parallel for plan in group.values() for _ in range(plan.data_parallel)],
    )


def algorithm_1(forecaster: Forecaster, now: RunState, fixed: Group) -> Group:
    """Lines 3 to 23 of SamuLLM's Algorithm 1, line by line."""
    costs, best = forecaster.costs, dict(fixed)
    while True:
        ready = [
            node
            for node in costs.order
            if not now.is_done(node)
            and node not in fixed
            and all(now.is_done(source) or source in best for source in costs.sources[node])
        ]
        candidates = []
        for node in ready:
            for plan in costs.plans[node]:
                group = {**best, node: plan}
                if gpus(best) < gpus(group) <= costs.hardware.gpus and fits(forecaster, group):
                    candidates.append(group)
        more_gpus = [gpus(group) - gpus(best) for group in candidates]
        before = throughput(forecaster, now, best)
        more = [throughput(forecaster, now, group) - before for group in candidates]
        if not candidates or max(more) < 0:
            return best
        rates = [gain / added for gain, added in zip(more, more_gpus, strict=True)]
        best = candidates[rates.index(max(rates))]


@pytest.mark.slow
def test_greedy_follows_algorithm_1() -> None:
    seen = 0
    for forecaster, now in standings(range(60), preemption=True):
        assert greedy(forecaster, now) == ScheduleStage(algorithm_1(forecaster, now, {}))
        seen += now.at_s > 0
    assert seen > 60


@pytest.mark.slow
def test_greedy_without_preemption_adds_to_what_runs() -> None:
    running = 0
    for forecaster, now in standings(range(100, 140), preemption=False):
        chosen = greedy(forecaster, now)
        assert chosen == ScheduleStage(algorithm_1(forecaster, now, dict(now.running)))
        assert now.running.items() <= chosen.plans.items()
        running += bool(now.running)
    assert running > 10


@pytest.mark.slow
def test_the_max_heuristic_gives_all_gpus_to_one_model_in_its_fastest_way() -> None:
    for forecaster, now in standings(range(50), preemption=True):
        ((node, plan),) = max_heuristic(forecaster, now).plans.items()
        assert all(now.is_done(source) for source in forecaster.costs.sources[node])
        plans = forecaster.costs.plans[node]
        assert plan.gpus == max(other.gpus for other in plans)
        for other in plans:
            if other.gpus == plan.gpus:
                assert (
                    forecaster.stage(now, ScheduleStage({node: other})).at_s
                    >= forecaster.stage(now, ScheduleStage({node: plan})).at_s
                )


def test_the_max_heuristic_runs_one_model_after_the_other() -> None:
    costs = costs_of(app_of(*(a_node(f"m{number}") for number in range(3))), hardware_of(4))
    execution = by_rule(Forecaster(costs), max_heuristic)
    assert [list(stage.plans) for stage in execution.schedule] == [[0], [1], [2]]
    assert {stage.gpus for stage in execution.schedule} == {4}


@pytest.mark.parametrize("models", [1, 2, 3, 4, 5, 7])
def test_the_min_heuristic_divides_the_gpus_evenly_among_as_many_models_as_fit(models: int) -> None:
    costs = costs_of(app_of(*(a_node(f"m{n}", 20 + n) for n in range(models))), hardware_of(4))
    forecaster = Forecaster(costs)
    plans = min_heuristic(forecaster, forecaster.beginning()).plans
    assert len(plans) == min(models, 4)
    shares = [plan.gpus for plan in plans.values()]
    assert sum(shares) == 4
    assert max(shares) - min(shares) <= 1


@pytest.mark.slow
def test_the_min_heuristic_leaves_no_ready_model_out_that_fits() -> None:
    for forecaster, now in standings(range(50), preemption=True):
        plans = dict(min_heuristic(forecaster, now).plans)
        assert fits(forecaster, plans)
        for node in forecaster.costs.order:
            if node not in plans and not now.is_done(node) and forecaster.is_ready(now, node, plans):
                assert len(plans) > 0
                least = {n: forecaster.costs.plans[n][0] for n in (*plans, node)}
                assert not fits(forecaster, least)


@pytest.mark.slow
def test_rules_without_preemption_leave_what_runs_as_it_is() -> None:
    for forecaster, now in standings(range(200, 240), preemption=False):
        for rule in (greedy, max_heuristic, min_heuristic):
            assert now.running.items() <= rule(forecaster, now).plans.items()
