"""The proof of a plan that stays near what runs: the bound of the problem's own solution."""

from dataclasses import replace

import pytest

from sutler.solver.plan import Alternative, Binding, Plan, SolveReport
from sutler.solver.problem import Method, ObjectiveKind, Problem, SolveOptions
from sutler.solver.replanning import proven_by
from tests.builders import a_problem, an_offer, measured
from tests.solver.replanning.builders import a_plan

BINDING = Binding("budget", 0.5, "rps/($/h)")
ALTERNATIVE = Alternative("a", 12.0, 12.0, ())


def asking(method: Method = "exact") -> Problem:
    options = SolveOptions(method=method, relative_gap=0.01, tolerance_fraction=0.05)
    return a_problem(offers=[an_offer("a")], rows=[measured("a", {"w1": 1.0})], options=options)


def near(value: float | None, *, objective: ObjectiveKind = "min_cost") -> Plan:
    """A plan that stays near what runs; what its own search can say of its bound is weak."""
    return a_plan(
        value=value, bound=0.0, relative_gap=1.0, objective=objective, solver=SolveReport("exact", 2.0, 5, (), "1")
    )


def an_optimum(bound: float | None, *, objective: ObjectiveKind = "min_cost") -> Plan:
    return a_plan(
        value=bound,
        bound=bound,
        objective=objective,
        binding=(BINDING,),
        alternatives=(ALTERNATIVE,),
        solver=SolveReport("exact", 3.0, 700, (), "1"),
    )


@pytest.mark.parametrize(
    ("objective", "value", "bound", "stated", "gap", "status"),
    [
        ("min_cost", 10.0, 9.0, 9.0, 0.1, "feasible"),
        ("min_cost", 10.0, 9.9, 9.9, 0.01, "optimal"),
        ("min_cost", 10.0, 10.5, 10.0, 0.0, "optimal"),
        ("min_power", 500.0, 400.0, 400.0, 0.2, "feasible"),
        ("min_makespan", 20.0, 25.0, 20.0, 0.0, "optimal"),
        ("max_throughput", 8.0, 10.0, 10.0, 0.25, "feasible"),
        ("max_throughput", 8.0, 8.08, 8.08, 0.01, "optimal"),
        ("max_throughput", 8.0, 7.5, 8.0, 0.0, "optimal"),
    ],
)
def test_the_gap_is_to_the_bound_of_the_problems_own_solution(
    objective: ObjectiveKind, value: float, bound: float, stated: float, gap: float, status: str
) -> None:
    proven = proven_by(near(value, objective=objective), an_optimum(bound, objective=objective), asking())
    assert proven.bound == stated
    assert proven.relative_gap == pytest.approx(gap)
    assert proven.status == status


def test_shadow_prices_and_alternatives_are_those_of_the_problems_own_solution() -> None:
    proven = proven_by(near(10.0), an_optimum(9.0), asking())
    assert (proven.binding, proven.alternatives) == ((BINDING,), (ALTERNATIVE,))


def test_the_seconds_of_both_searches_are_counted() -> None:
    proven = proven_by(near(10.0), an_optimum(9.0), asking())
    assert proven.solver.seconds == 5.0
    assert proven.solver.candidates == 700


def test_the_plan_itself_stays_what_it_is() -> None:
    plan = near(10.0)
    proven = proven_by(plan, an_optimum(9.0), asking())
    same = {"bound": 0, "relative_gap": 0, "status": "feasible", "binding": (), "alternatives": ()}
    assert replace(proven, **same, solver=plan.solver) == replace(plan, **same)  # type: ignore[arg-type]


def test_a_binary_search_promises_its_tolerance() -> None:
    """4 % is beyond the gap that is asked of an exact solution, and within the tolerance of a binary search."""
    assert proven_by(near(10.0), an_optimum(9.6), asking()).status == "feasible"
    assert proven_by(near(10.0), an_optimum(9.6), asking("binary_search")).status == "optimal"


@pytest.mark.parametrize(("value", "bound"), [(None, 9.0), (10.0, None)])
def test_without_a_value_or_a_bound_there_is_nothing_to_prove(value: float | None, bound: float | None) -> None:
    plan = near(value)
    assert proven_by(plan, an_optimum(bound), asking()) is plan


def test_a_plan_that_is_worth_nothing_has_no_gap() -> None:
    proven = proven_by(near(0.0), an_optimum(0.0), asking())
    assert (proven.relative_gap, proven.status) == (0.0, "optimal")
