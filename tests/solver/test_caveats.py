"""Warnings that a plan carries beside its numbers."""

from dataclasses import replace

from solver import solve
from solver.problem import SolveOptions
from tests.builders import a_problem, an_offer, appendix_c, measured


def test_a_plain_problem_has_no_warnings() -> None:
    assert solve(appendix_c()).warnings == ()


def test_machines_of_three_gpus_are_said_not_to_be_fully_searched() -> None:
    problem = a_problem(offers=[an_offer("a", 3, price=3.0)], rows=[measured("a", {"w1": 1.0})])
    (warning,) = solve(problem).warnings
    assert "offers of 3 GPUs" in warning
    assert "proof" in warning


def test_a_measured_replica_of_three_gpus_is_said_to_take_up_four() -> None:
    """Eight divisible GPUs at 1 $/h each: one replica of three stages is charged for four."""
    problem = a_problem(
        offers=[an_offer("a", 8, price=8.0, divisible=True)],
        rows=[measured(["a", "a", "a"], {"w1": 1.0})],
        budget_usd_per_hour=4.0,
        options=SolveOptions(alternatives=False),
    )
    plan = solve(problem)
    assert plan.cost_usd_per_hour == 4.0
    assert any("takes up 4" in warning for warning in plan.warnings)


def test_mixed_stages_are_said_to_need_an_engine_that_places_them() -> None:
    offers = [replace(an_offer(gpu), site="s", inter_machine_gb_per_s=12.5) for gpu in ("a", "b")]
    plan = solve(a_problem(offers=offers, rows=[measured(["a", "b"], {"w1": 1.0})]))
    assert any(warning.startswith("chat-0: stages differ") for warning in plan.warnings)
