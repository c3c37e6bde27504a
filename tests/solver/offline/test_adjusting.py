"""The rest of an application, planned anew from what its models have done."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.adjusting import Adjusted, ReportedProgress, adjust, start_at, with_slowdowns
from sutler.solver.offline.application import Application
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import execute
from sutler.solver.offline.hardware import Loading, one_node
from sutler.solver.offline.plan import OfflinePlan
from sutler.solver.offline.planner import plan_application
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import Execution, GpuNumber, RunningReplica, Schedule
from tests.solver.offline.renting_builders import GPUS, QUICK, two_models, writer_and_reader

pytestmark = pytest.mark.slow

TWO_GPUS = one_node(GPUS["l40s"], 2)
POLL_S = 2.0
APPLICATIONS = {"two": two_models(800), "pair": writer_and_reader(800)}


def a_replica(node: int, number: int, *gpus: GpuNumber) -> RunningReplica:
    return RunningReplica(node, number, gpus, 0.0, is_loaded=False)


@cache
def planned(name: str) -> OfflinePlan:
    return plan_application(APPLICATIONS[name], TWO_GPUS, QUICK, clock=lambda: 0.0)


def executed(application: Application, schedule: Schedule) -> Execution:
    return execute(costs_of(application), schedule)


def costs_of(application: Application) -> Costs:
    return Costs(application, TWO_GPUS, sample(application, seed=QUICK.seed), QUICK)


def seen(application: Application, execution: Execution, at_s: float) -> ReportedProgress:
    """What a controller would report of this run."""
    pile = sample(application, seed=QUICK.seed)
    done = {
        node: int((execution.finish_s[pile.of_node(node)] <= at_s).sum()) for node in range(len(application.nodes))
    }
    return ReportedProgress(at_s, done)


def adjusted(name: str, reported: ReportedProgress) -> Adjusted:
    return adjust(APPLICATIONS[name], TWO_GPUS, planned(name).schedule, reported, QUICK, clock=lambda: 0.0)


def slow_run(name: str, slowdowns: Mapping[int, float]) -> tuple[Application, Execution]:
    """What really happens with the plan."""
    truth = with_slowdowns(APPLICATIONS[name], slowdowns)
    return truth, executed(truth, planned(name).schedule)


def first_and_last_ready(name: str) -> tuple[float, float]:
    execution = planned(name).execution
    return execution.stages[0].replicas[0].ready_s, execution.makespan_s


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize("share", [pytest.param(0.3), 0.8])
def test_a_report_as_planned_changes_nothing(name: str, share: float) -> None:
    execution = planned(name).execution
    ready_s, end_s = first_and_last_ready(name)
    at_s = round(ready_s + share * (end_s - ready_s))
    found = adjusted(name, seen(APPLICATIONS[name], execution, at_s))
    assert found.slowdowns
    for slowdown in found.slowdowns.values():
        assert slowdown == pytest.approx(1.0, abs=0.02)
    assert found.plan.execution.makespan_s <= end_s + POLL_S
    assert found.plan.execution.stages[0].start_s == at_s
    assert found.plan.bound.seconds <= found.plan.execution.makespan_s


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize("slowdowns", [*(pytest.param(one) for one in ({1: 1.3}, {0: 0.7})), {0: 1.2, 1: 0.8}])
def test_adjusting_is_never_later_than_going_on(name: str, slowdowns: dict[int, float]) -> None:
    truth, run = slow_run(name, slowdowns)
    found = adjusted(name, seen(truth, run, round(0.5 * run.makespan_s)))
    assert found.plan.execution.makespan_s <= found.unadjusted_s + 1e-9


def test_going_on_is_forecast_at_the_speeds_that_were_seen() -> None:
    truth, run = slow_run("two", {1: 1.3})
    found = adjusted("two", seen(truth, run, round(0.6 * run.makespan_s)))
    assert found.unadjusted_s == pytest.approx(run.makespan_s, rel=0.03)
    assert found.unadjusted_s > planned("two").execution.makespan_s + POLL_S


def test_the_speed_that_is_seen_is_near_the_truth() -> None:
    for name, node in (("two", 0), ("pair", 0)):
        truth, run = slow_run(name, {node: 1.3})
        replica = run.stages[0].replicas[0]
        assert replica.node == node
        at_s = round(replica.ready_s + 0.6 * (run.node_finish_s[node] - replica.ready_s))
        assert adjusted(name, seen(truth, run, at_s)).slowdowns[node] == pytest.approx(1.3, rel=0.05)


def test_who_reads_a_slow_model_is_not_taken_for_slow() -> None:
    truth, run = slow_run("pair", {0: 1.5})
    pile = sample(truth, seed=QUICK.seed)
    read = np.sort(run.finish_s[pile.of_node(1)])
    found = adjusted("pair", seen(truth, run, round(float(read[len(read) // 2]))))
    assert found.slowdowns.get(1, 1.0) == pytest.approx(1.0, abs=0.05)


def test_what_runs_is_kept_where_its_plan_is() -> None:
    execution = planned("two").execution
    first = execution.stages[0]
    at_s = round((max(replica.ready_s for replica in first.replicas) + first.end_s) / 2)
    found = adjusted("two", seen(APPLICATIONS["two"], execution, at_s))
    begun = found.plan.execution.stages[0]
    assert begun.stage.plans == first.stage.plans
    places = {(replica.node, replica.number): replica.gpus for replica in first.replicas}
    for replica in begun.replicas:
        assert not replica.is_loaded
        assert replica.gpus == places[replica.node, replica.number]
    assert begun.loading_gpu_s == 0.0


def test_a_model_that_finished_early_gives_its_gpus_away() -> None:
    execution = planned("two").execution
    pile = planned("two").pile
    first = execution.stages[0].replicas[0].node
    at_s = round(execution.stages[0].end_s / 2)
    found = adjusted("two", ReportedProgress(at_s, {first: len(pile.of_node(first))}))
    assert all(first not in stage.stage.plans for stage in found.plan.execution.stages)
    assert found.plan.execution.makespan_s < 1.005 * execution.makespan_s  # the other one has little to gain
    assert found.plan.execution.stages[-1].finished_requests[first] == len(pile.of_node(first))


def test_a_model_that_is_left_out_is_as_far_as_planned() -> None:
    execution = planned("two").execution
    at_s = round(0.6 * execution.makespan_s)
    whole = seen(APPLICATIONS["two"], execution, at_s)
    node = execution.stages[0].replicas[0].node
    part = adjusted("two", replace(whole, finished_requests={node: whole.finished_requests[node]}))
    assert set(part.slowdowns) <= {node}
    assert part.plan.execution.makespan_s == pytest.approx(execution.makespan_s, rel=0.02)


def test_every_request_is_finished_once_and_none_again() -> None:
    truth, run = slow_run("pair", {0: 1.3})
    reported = seen(truth, run, round(0.5 * run.makespan_s))
    found = adjusted("pair", reported)
    rest = found.plan.execution
    assert not np.isnan(rest.finish_s).any()
    assert (rest.finish_s >= reported.at_s).all()
    assert [int((rest.finish_s[found.plan.pile.of_node(n)] == reported.at_s).sum()) for n in (0, 1)] == [
        reported.finished_requests[0],
        reported.finished_requests[1],
    ]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_state_of_a_run_goes_on_to_the_same_end(name: str) -> None:
    execution = planned(name).execution
    costs = costs_of(APPLICATIONS[name])
    for share in (0.3, 0.6, 0.9):
        at_s = round(share * execution.makespan_s)
        start = start_at(costs, execution, at_s)
        rest = tuple(stage.stage for stage in execution.stages if stage.end_s > at_s)
        again = execute(costs, rest, start=start)
        assert again.makespan_s == pytest.approx(execution.makespan_s, abs=POLL_S, rel=0.01)
        assert lower_bound(costs, start).seconds <= again.makespan_s


def test_more_than_there_is_cannot_be_finished() -> None:
    with pytest.raises(InvalidProblemError, match=r"models\[0\]\.finished_requests.*one has 800 requests"):
        adjusted("two", ReportedProgress(50.0, {0: 801}))
    with pytest.raises(InvalidProblemError, match=r"models\[1\]\.finished_requests"):
        adjusted("two", ReportedProgress(50.0, {1: -1}))


def test_where_everything_is_done_nothing_is_planned() -> None:
    with pytest.raises(InvalidProblemError, match="nothing left to be planned"):
        adjusted("two", ReportedProgress(50.0, {0: 800, 1: 400}))
    with pytest.raises(InvalidProblemError, match="nothing left to be planned"):
        adjusted("two", ReportedProgress(planned("two").execution.makespan_s + 1, {}))


def test_the_same_report_gives_the_same_plan() -> None:
    truth, run = slow_run("two", {0: 1.3})
    reported = seen(truth, run, round(0.5 * run.makespan_s))
    first, second = adjusted("two", reported), adjusted("two", reported)
    assert first.slowdowns == second.slowdowns
    assert first.plan.schedule == second.plan.schedule
    assert first.plan.execution.stages == second.plan.execution.stages


@pytest.mark.parametrize(
    ("replicas", "complaint"),
    [
        ((a_replica(0, 0, (0, 0), (0, 1), (0, 2)),), r"replicas\[0\]\.gpus: 3: one runs on 1 or 2 GPUs"),
        ((a_replica(0, 0, (0, 0)), a_replica(0, 0, (0, 1))), r"replicas\[1\]\.number: 0"),
        ((a_replica(0, 0, (0, 0)), a_replica(0, 1, (0, 1), (0, 2))), r"replicas\[1\]\.gpus: 2: another replica"),
    ],
)
def test_replicas_that_cannot_run_like_this_are_refused(replicas: tuple[RunningReplica, ...], complaint: str) -> None:
    with pytest.raises(InvalidProblemError, match=complaint):
        adjusted("two", ReportedProgress(50.0, {}, replicas))


def test_replicas_that_are_reported_are_taken_as_they_are() -> None:
    execution = planned("two").execution
    at_s = round(execution.stages[0].end_s / 2)
    reported = seen(APPLICATIONS["two"], execution, at_s)
    kept = adjusted("two", reported)
    none = adjusted("two", replace(reported, replicas=()))
    assert none.start.replicas == ()
    assert all(replica.is_loaded for replica in none.plan.execution.stages[0].replicas)
    assert none.plan.execution.makespan_s > kept.plan.execution.makespan_s


def adjusted_again(first: Adjusted, reported: ReportedProgress) -> Adjusted:
    return adjust(
        with_slowdowns(APPLICATIONS["two"], first.slowdowns),
        TWO_GPUS,
        first.plan.schedule,
        reported,
        QUICK,
        start=first.start,
        clock=lambda: 0.0,
    )


def test_an_adjusted_plan_is_adjusted_again_from_where_it_starts() -> None:
    truth, run = slow_run("two", {0: 1.3})
    first = adjusted("two", seen(truth, run, round(0.4 * run.makespan_s)))
    then = execute(costs_of(truth), first.plan.schedule, start=first.start)
    at_s = round(0.7 * then.makespan_s)
    second = adjusted_again(first, seen(truth, then, at_s))
    assert second.start.at_s == at_s
    assert second.start.finished > first.start.finished
    for slowdown in second.slowdowns.values():
        assert slowdown == pytest.approx(1.0, abs=0.05)
    assert second.plan.execution.makespan_s <= second.unadjusted_s + 1e-9
    assert second.plan.execution.makespan_s == pytest.approx(then.makespan_s, rel=0.03)


def test_what_was_written_before_is_counted_on() -> None:
    first = adjusted("two", seen(APPLICATIONS["two"], planned("two").execution, 40))
    costs = costs_of(APPLICATIONS["two"])
    assert first.start.written
    soon = start_at(costs, first.plan.execution, 40.5, start=first.start)
    for request, tokens in first.start.written.items():
        assert request in soon.finished or soon.written[request] >= tokens


def test_what_was_done_before_stays_done() -> None:
    first = adjusted("two", seen(APPLICATIONS["two"], planned("two").execution, 40))
    with pytest.raises(InvalidProblemError, match=r"models\[0\]\.finished_requests: 1: one had finished \d+"):
        adjusted_again(first, ReportedProgress(50.0, {0: 1}))
    with pytest.raises(InvalidProblemError, match=r"at_s: 40\b.*begins at 40"):
        adjusted_again(first, ReportedProgress(40, {}))


def test_what_was_used_has_been_downloaded_and_what_was_not_comes_when_it_would_have() -> None:
    application, far = two_models(800), one_node(GPUS["l40s"], 1, loading=Loading(download_gb_per_s=0.2))
    plan = plan_application(application, far, QUICK, clock=lambda: 0.0)
    first, second = (stage.replicas[0] for stage in plan.execution.stages)
    for at_s in (round(first.ready_s + 2), round(plan.execution.stages[0].end_s + 1)):
        reported = seen(application, plan.execution, at_s)
        found = adjust(application, far, plan.schedule, reported, QUICK, clock=lambda: 0.0)
        rest = found.plan.execution
        assert rest.makespan_s == pytest.approx(plan.execution.makespan_s, abs=POLL_S, rel=0.01)
        (again,) = rest.stages[-1].replicas
        assert again.node == second.node
        assert again.ready_s == pytest.approx(second.ready_s, abs=POLL_S)
        assert found.plan.bound.seconds <= rest.makespan_s
