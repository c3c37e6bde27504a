"""Sweeps: which budgets or loads, what changes in the problem, which points nothing beats."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.comparing.sweeping import Range, Sweep, frontier_of, problem_at, sweep_of
from sutler.service.documents.errors import DocumentError
from sutler.solver.problem import Objective, Problem
from sutler.solver.strategies.comparing import Ran
from tests.service.builders import a_plan
from tests.service.comparing.builders import a_strategy, a_translation, not_applicable, ran, sutler

PROBLEM = a_translation().problem  # 20 $/h, 2.2 req/s
CHEAPEST = replace(PROBLEM, objective=Objective("min_cost"))


def test_budgets_go_from_half_of_the_problems_own_to_the_double() -> None:
    found = sweep_of(PROBLEM, None, Range(points=4))
    assert found == Sweep("budget_usd_per_hour", (10.0, 20.0, 30.0, 40.0))


def test_without_a_budget_they_go_up_to_what_sutler_spends() -> None:
    found = sweep_of(replace(PROBLEM, budget_usd_per_hour=None), a_plan(cost_usd_per_hour=8.0), Range(points=4))
    assert found == Sweep("budget_usd_per_hour", (2.0, 4.0, 6.0, 8.0))


def test_where_the_load_is_given_loads_are_swept() -> None:
    assert sweep_of(CHEAPEST, None, Range(points=2)) == Sweep("rate_rps", (1.1, 4.4))


def test_the_callers_range_wins() -> None:
    found = sweep_of(PROBLEM, None, Range(points=3, first=5.0, last=7.0))
    assert found == Sweep("budget_usd_per_hour", (5.0, 6.0, 7.0))


def test_there_is_no_sweep_without_anything_to_go_by() -> None:
    assert sweep_of(replace(PROBLEM, budget_usd_per_hour=None), None, Range()) is None


@given(points=st.integers(2, 50), first=st.floats(0.01, 1e4), factor=st.floats(1.01, 1e3))
def test_a_sweep_has_as_many_values_as_asked_for_in_ascending_order(points: int, first: float, factor: float) -> None:
    found = sweep_of(PROBLEM, None, Range(points, first, first * factor))
    assert found is not None
    assert len(found.values) == points
    assert list(found.values) == sorted(found.values)
    assert (found.values[0], found.values[-1]) == pytest.approx((first, first * factor), rel=1e-5)


@pytest.mark.parametrize("points", [-1, 0, 1, 51])
def test_so_few_or_so_many_points_are_no_sweep(points: int) -> None:
    with pytest.raises(DocumentError, match=f"--points: {points}: a sweep has 2 to 50 points"):
        Range(points)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -3.0, 1e-300, 1e300])
def test_ends_of_a_range_are_numbers_that_a_problem_could_have(value: float) -> None:
    with pytest.raises(DocumentError, match="--from"):
        Range(first=value)
    with pytest.raises(DocumentError, match="--to"):
        Range(last=value)


def test_a_range_ascends() -> None:
    with pytest.raises(DocumentError, match="ascending"):
        Range(first=3.0, last=3.0)
    with pytest.raises(DocumentError, match="ascending"):
        sweep_of(PROBLEM, None, Range(first=100.0))


def test_another_load_keeps_the_mix_and_all_else() -> None:
    chat = CHEAPEST.models[0]
    mixed = replace(
        CHEAPEST, models=(replace(chat, workloads=(chat.workloads[0], replace(chat.workloads[0], demand=6.6))),)
    )
    found = problem_at(mixed, "rate_rps", 17.6)
    assert [workload.demand for workload in found.models[0].workloads] == pytest.approx([4.4, 13.2])
    assert replace(found, models=mixed.models) == mixed
    assert found.total_demand == pytest.approx(17.6)


def test_another_budget_changes_nothing_else() -> None:
    assert problem_at(PROBLEM, "budget_usd_per_hour", 7.0) == replace(PROBLEM, budget_usd_per_hour=7.0)


def test_every_strategy_has_a_point_for_each_value_it_is_applicable_at() -> None:
    def run(problem: Problem) -> Sequence[Ran]:
        budget = problem.budget_usd_per_hour or 0.0
        late = ran(a_strategy("late"), budget, cost_usd_per_hour=budget)
        return (
            ran(sutler(), 1.5 * budget, cost_usd_per_hour=budget),
            late if budget > 1 else not_applicable(a_strategy("late")),
            not_applicable(a_strategy("never")),
            ran(a_strategy("rich", own_market=True), 9.0 * budget, cost_usd_per_hour=budget),
        )

    found = frontier_of(PROBLEM, Sweep("budget_usd_per_hour", (1.0, 2.0)), run)
    by_name = {curve.name: curve for curve in found.curves}
    assert {name: [point.at for point in curve.points] for name, curve in by_name.items()} == {
        "sutler": [1.0, 2.0],
        "late": [2.0],
        "rich": [1.0, 2.0],
    }
    assert all(point.on_frontier for point in by_name["sutler"].points)
    assert not any(point.on_frontier for name in ("late", "rich") for point in by_name[name].points)


def test_a_point_is_beaten_by_as_much_for_less() -> None:
    results = {
        "dear": ran(a_strategy("dear"), 4.0, cost_usd_per_hour=10.0),
        "cheap": ran(a_strategy("cheap"), 4.0, cost_usd_per_hour=9.0),
        "small": ran(a_strategy("small"), 1.0, cost_usd_per_hour=2.0),
        "nothing": ran(a_strategy("nothing"), None),
    }
    found = frontier_of(PROBLEM, Sweep("budget_usd_per_hour", (1.0,)), lambda problem: tuple(results.values()))
    assert {curve.name: curve.points[0].on_frontier for curve in found.curves} == {
        "dear": False,
        "cheap": True,
        "small": True,
        "nothing": False,
    }


def test_differences_within_the_gap_beat_nobody() -> None:
    close = (
        ran(a_strategy("one"), 4.0, cost_usd_per_hour=9.0),
        ran(a_strategy("two"), 4.001, cost_usd_per_hour=9.0),
        ran(a_strategy("three"), 4.0, cost_usd_per_hour=8.999),
    )
    found = frontier_of(PROBLEM, Sweep("budget_usd_per_hour", (9.0,)), lambda problem: close)
    assert all(curve.points[0].on_frontier for curve in found.curves)


def test_where_power_is_saved_watts_are_what_throughput_is_bought_with() -> None:
    least = replace(PROBLEM, objective=Objective("min_power"))
    results = (
        ran(a_strategy("frugal"), 4.0, cost_usd_per_hour=9.0, power_watts=100.0),
        ran(a_strategy("cheap"), 4.0, cost_usd_per_hour=1.0, power_watts=200.0),
    )
    found = frontier_of(least, Sweep("rate_rps", (4.0,)), lambda problem: results)
    assert [curve.points[0].on_frontier for curve in found.curves] == [True, False]


def test_a_plan_that_failed_verification_has_no_value() -> None:
    broken = replace(ran(a_strategy("broken"), 9.0), violations=("supply",))
    point = frontier_of(PROBLEM, Sweep("budget_usd_per_hour", (1.0,)), lambda problem: (broken,)).curves[0].points[0]
    assert (point.status, point.value, point.throughput_rps) == ("rejected", None, None)
