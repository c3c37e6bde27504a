"""What once went wrong, or nearly: waiting plans, plans that cannot run, downloads, pauses, models without work."""

import pytest

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.adjusting import ReportedProgress, adjust, start_at
from sutler.solver.offline.application import Edge
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.execution import execute
from sutler.solver.offline.plan import STRATEGIES, OfflineOptions
from sutler.solver.offline.planner import plan_application
from sutler.solver.offline.stages import ExecutionPlan, ScheduleStage
from tests.solver.offline.builders import a_node, app_of, assert_lawful, costs_of, hardware_of

ONE, TWO, THREE = (ExecutionPlan(count, 1) for count in (1, 2, 3))
QUICKLY = OfflineOptions(time_limit_s=5.0)


def test_a_model_whose_next_plan_waits_for_gpus_gets_it_when_they_are_free() -> None:
    costs = costs_of(app_of(a_node("a", 2000), a_node("b", 6000), a_node("c", 100)), hardware_of(4))
    execution = execute(costs, (ScheduleStage({0: TWO, 1: ONE, 2: ONE}), ScheduleStage({1: THREE})))
    assert_lawful(costs, execution)
    assert [dict(stage.stage.plans) for stage in execution.stages][-1] == {1: THREE}


def test_a_plan_that_the_hardware_cannot_run_is_named() -> None:
    costs = costs_of(app_of(a_node("one")), hardware_of(2))
    with pytest.raises(
        InvalidProblemError, match=r"schedule\[0\]: '4 x TP1': one cannot run so on 2 x a100"
    ) as error:
        execute(costs, (ScheduleStage({0: ExecutionPlan(4, 1)}),))
    assert "1 x TP1" in error.value.remedy


def test_a_reader_that_is_up_without_its_source_does_not_stop_an_adjustment() -> None:
    application = app_of(a_node("a", 300), a_node("b", 0), edges=(Edge("a", "b"),))
    hardware = hardware_of(1)
    plan = plan_application(application, hardware, QUICKLY, strategy="greedy")
    last = plan.execution.stages[-1].replicas[0]
    reported = ReportedProgress(plan.execution.stages[0].end_s / 2, {0: 50, 1: 0}, (last,))
    adjusted = adjust(application, hardware, plan.schedule, reported, QUICKLY)
    assert adjusted.plan.execution.makespan_s < 10 * plan.execution.makespan_s


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_with_downloads_takes_as_long_as_its_schedule_does(strategy: str) -> None:
    application = app_of(*(a_node(name, 60, spec="llama-2-7b") for name in ("a", "b", "c", "d")))
    hardware = hardware_of(2, download_gb_per_s=0.5)
    plan = plan_application(application, hardware, QUICKLY, strategy=strategy)  # type: ignore[arg-type]
    again = execute(costs_of(application, hardware), plan.schedule)
    assert again.makespan_s == pytest.approx(plan.execution.makespan_s, abs=1.5)
    assert plan.bound.seconds <= plan.execution.makespan_s


def test_the_bound_of_what_is_left_counts_no_download_that_has_run_meanwhile() -> None:
    application = app_of(a_node("a", 400, spec="llama-2-7b"), a_node("b", 60, spec="llama-2-7b"))
    costs = costs_of(application, hardware_of(1, download_gb_per_s=0.5))
    execution = execute(costs, (ScheduleStage({0: ONE}), ScheduleStage({1: ONE})))
    start = start_at(costs, execution, 0.9 * execution.stages[0].end_s)
    rest = execute(costs, (ScheduleStage({0: ONE}), ScheduleStage({1: ONE})), start=start)
    assert lower_bound(costs, start).seconds <= rest.makespan_s


def test_a_model_that_pauses_as_planned_is_as_fast_as_planned() -> None:
    application = app_of(a_node("a", 600), a_node("b", 600))
    hardware = hardware_of(1)
    schedule = (ScheduleStage({0: ONE}, 0, 0.5), ScheduleStage({1: ONE}), ScheduleStage({0: ONE}))
    costs = costs_of(application, hardware)
    execution = execute(costs, schedule)
    at_s = (execution.stages[1].start_s + execution.stages[1].end_s) / 2
    counts = {node: int((execution.finish_s[costs.pile.of_node(node)] <= at_s).sum()) for node in (0, 1)}
    assert 0 < counts[0] < 600
    slowdowns = adjust(application, hardware, schedule, ReportedProgress(at_s, counts), QUICKLY).slowdowns
    assert slowdowns[0] == pytest.approx(1.0, abs=0.05)


def test_a_model_that_comes_after_a_slow_one_does_not_answer_for_it() -> None:
    application = app_of(a_node("a", 600), a_node("b", 900))
    hardware = hardware_of(1)
    schedule = (ScheduleStage({0: ONE}), ScheduleStage({1: ONE}))
    truth = app_of(a_node("a", 600, slowdown=1.5), a_node("b", 900))
    costs = costs_of(truth, hardware)
    execution = execute(costs, schedule)
    at_s = execution.stages[1].start_s + 0.6 * (execution.makespan_s - execution.stages[1].start_s)
    counts = {node: int((execution.finish_s[costs.pile.of_node(node)] <= at_s).sum()) for node in (0, 1)}
    up = start_at(costs, execution, at_s).replicas
    slowdowns = adjust(application, hardware, schedule, ReportedProgress(at_s, counts, up), QUICKLY).slowdowns
    assert slowdowns[1] == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_a_source_without_requests_stops_nobody() -> None:
    application = app_of(
        a_node("x", 20), a_node("a", 0), a_node("b", 20), a_node("c", 0),
        edges=(Edge("x", "a", share_fraction=1e-9), Edge("a", "c"), Edge("b", "c")),
    )  # fmt: skip
    plan = plan_application(application, hardware_of(2), QUICKLY)
    assert (plan.pile.node == 1).sum() == 0
    assert_lawful(costs_of(application, hardware_of(2)), plan.execution)
