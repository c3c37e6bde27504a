"""What holds in every execution, whoever made the schedule: valid stages, nothing lost, never below the bound."""

from random import Random

import pytest

from sutler.solver.offline.application import Edge
from sutler.solver.offline.beam import Rule
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.execution import execute
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.planner import RULES
from sutler.solver.offline.search import by_rule, searched
from sutler.solver.offline.stages import ScheduleStage
from tests.solver.offline.builders import (
    a_node,
    a_stage,
    app_of,
    assert_lawful,
    assert_stages_valid,
    costs_of,
    hardware_of,
    random_costs,
    random_schedule,
)

PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))]


@pytest.mark.parametrize("part", PARTS)
def test_any_schedule_runs_in_valid_stages_and_no_sooner_than_the_bound(part: int) -> None:
    preempted = 0
    for seed in range(100 * part, 100 * part + 25):
        costs, draw = random_costs(seed), Random(seed)
        bound = lower_bound(costs)
        for _ in range(4):
            execution = execute(costs, random_schedule(draw, costs))
            assert_lawful(costs, execution)
            assert execution.makespan_s >= bound.seconds
            preempted += len(execution.stages) > len(costs.application.nodes)
    assert preempted


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_makes_valid_stages(rule: Rule) -> None:
    for seed in range(1000, 1020):
        costs = random_costs(seed)
        execution = by_rule(Forecaster(costs), rule)
        assert_lawful(costs, execution)
        assert execution.makespan_s >= lower_bound(costs).seconds


@pytest.mark.slow
def test_the_search_makes_valid_stages_and_is_never_slower_than_greedy() -> None:
    faster = 0
    for seed in range(2000, 2006):
        costs = random_costs(seed)
        found = searched(Forecaster(costs), deadline_s=1.0, clock=lambda: 0.0)
        assert not found.hit_time_limit
        assert_lawful(costs, found.execution)
        assert found.rivals_s["greedy"] == by_rule(Forecaster(costs), RULES["greedy"]).makespan_s
        assert lower_bound(costs).seconds <= found.execution.makespan_s <= found.rivals_s["greedy"]
        faster += found.execution.makespan_s < 0.99 * found.rivals_s["greedy"]
    assert faster


@pytest.mark.slow
def test_the_search_is_never_slower_than_what_it_begins_with() -> None:
    for seed in range(3000, 3002):
        costs = random_costs(seed)
        schedule = random_schedule(Random(seed), costs)
        found = searched(Forecaster(costs), deadline_s=1.0, clock=lambda: 0.0, begin_with=schedule)
        assert found.execution.makespan_s <= execute(costs, schedule).makespan_s


def test_the_search_stops_at_once_where_no_time_is_left() -> None:
    costs = random_costs(4)
    found = searched(Forecaster(costs), deadline_s=-1.0, clock=lambda: 0.0)
    assert found.hit_time_limit
    assert found.execution.makespan_s == found.rivals_s["greedy"]


# ---- the cases behind the rules


def test_models_without_their_inputs_leave_the_gpus_to_those_who_make_them() -> None:
    nodes = (a_node("a"), a_node("b", 0), a_node("c", 0))
    costs = costs_of(app_of(*nodes, edges=[Edge("a", "b"), Edge("a", "c")]), hardware_of(1))
    execution = execute(costs, (a_stage(n1=(1, 1), n2=(1, 1)),))
    assert [list(stage.plans) for stage in execution.schedule] == [[0], [1], [2]]


def test_a_model_gives_its_gpu_to_the_one_whose_outputs_it_reads() -> None:
    costs = costs_of(app_of(a_node("a"), a_node("b", 0), edges=[Edge("a", "b")]), hardware_of(1))
    execution = execute(costs, (a_stage(n1=(1, 1), n0=(1, 1)),))
    assert [list(stage.plans) for stage in execution.schedule] == [[0], [1]]
    forecast = Forecaster(costs).run((a_stage(n1=(1, 1), n0=(1, 1)),))
    assert [list(stage.plans) for stage in forecast.stages] == [[0], [1]]


def test_no_schedule_can_preempt_where_preemption_is_off() -> None:
    nodes = (a_node("a", 400, spec="llama-2-7b"), a_node("b", 40))
    asked = (ScheduleStage(a_stage(n0=(1, 1)).plans, 0, 0.3), a_stage(n1=(2, 1)), a_stage(n0=(2, 1)))
    plans = {}
    for preemption in (True, False):
        costs = costs_of(app_of(*nodes), hardware_of(2), preemption=preemption)
        execution = execute(costs, asked)
        assert_stages_valid(costs, execution)
        plans[preemption] = {stage.plans[0] for stage in execution.schedule if 0 in stage.plans}
    assert plans == {True: {asked[0].plans[0], asked[2].plans[0]}, False: {asked[0].plans[0]}}


def test_loading_that_outlasts_its_stage_counts_as_loading_in_the_next() -> None:
    # a is done soon after it serves at 2.6 s; b loads until 30 s on the other GPU.
    nodes = (a_node("a", 2, outputs=20), a_node("b", 20))
    hardware = hardware_of(2, table={("b", 1): 30.0})
    execution = execute(costs_of(app_of(*nodes), hardware), (a_stage(n0=(1, 1), n1=(1, 1)),))
    first, second = execution.stages
    assert first.loading_gpu_s == pytest.approx(first.replicas[0].ready_s + first.end_s)
    assert first.end_s + second.loading_gpu_s == pytest.approx(30.0)
