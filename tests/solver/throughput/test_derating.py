"""Configurations that are counted on for less than their rate."""

from dataclasses import replace

import pytest

from sutler.solver import solve
from sutler.solver.problem import Derating, MeasuredStage, Problem
from tests.builders import a_problem, an_offer, measured


def two_kinds() -> Problem:
    """One a of 4 rps and one b of 3 rps, 1 $/h each; the budget buys one of them."""
    return a_problem(
        offers=[an_offer("a"), an_offer("b")],
        rows=[measured("a", {"w1": 4.0}), measured("b", {"w1": 3.0})],
        budget_usd_per_hour=1.0,
    )


def derated(problem: Problem, gpu: str, fraction: float) -> Problem:
    one = Derating(problem.models[0].name, (MeasuredStage(gpu, 1),), fraction)
    return replace(problem, derated=(*problem.derated, one))


def test_a_derated_configuration_gives_way_to_the_better_one() -> None:
    assert solve(two_kinds()).throughput_rps == pytest.approx(4.0)
    plan = solve(derated(two_kinds(), "a", 0.5))
    assert plan.throughput_rps == pytest.approx(3.0)
    assert [rental.gpu for rental in plan.rentals] == ["b"]


def test_where_it_is_still_the_best_it_is_counted_on_for_its_share() -> None:
    plan = solve(derated(two_kinds(), "a", 0.8))
    assert plan.throughput_rps == pytest.approx(3.2)
    [evidence] = plan.evidence
    assert evidence.rps == pytest.approx(3.2)
    assert "counted on for 80%" in evidence.detail


def test_several_deratings_of_one_configuration_multiply() -> None:
    plan = solve(derated(derated(two_kinds(), "a", 0.9), "a", 0.9))
    assert plan.throughput_rps == pytest.approx(4.0 * 0.81)


def test_another_model_or_layout_is_not_concerned() -> None:
    other = Derating("other", (MeasuredStage("a", 1),), 0.1)
    wider = Derating(two_kinds().models[0].name, (MeasuredStage("a", 2),), 0.1)
    assert solve(replace(two_kinds(), derated=(other, wider))).throughput_rps == pytest.approx(4.0)
