"""MILPs with routing: searches near a plan lose nothing, and whole replicas on parts of machines bound it."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.arrays import IntArray
from sutler.solver.methods import exact, fleets_by_tree, with_routing
from sutler.solver.methods.search import Search
from sutler.solver.polytope.linear import MilpSolution, solve_milp
from sutler.solver.polytope.milp import Milp, build_milp
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.relaxation import most_lam, solve_relaxation
from sutler.solver.problem import Problem
from tests.looped import for_each
from tests.solver.methods.test_many_models import of_eight_models, searched
from tests.solver.polytope.test_by_need import limited

GAP = 1e-6


def of_few_models(seed: int) -> Problem:
    """On machines that are larger than what runs on them, so that parts of them matter."""
    problem = of_eight_models(seed)
    kept = {model.name for model in problem.models[:3]}
    return replace(
        problem,
        models=problem.models[:3],
        measured=tuple(row for row in problem.measured if row.model in kept),
        offers=tuple(offer for offer in problem.offers if offer.gpus == 2),
        options=replace(problem.options, relative_gap=GAP),
    )


def solved(milp: Milp) -> MilpSolution:
    return solve_milp(milp.program, relative_gap=GAP, time_limit_s=600.0)


@for_each("seed", [0, 1, 2, 4, 6, 7])  # on whole machines the others cost the same
def test_whole_replicas_are_between_the_relaxation_and_whole_machines(seed: int) -> None:
    polytope = scaled_to_one(prepare(of_few_models(seed)))
    assert polytope is not None
    goal = first_goal(polytope)
    relaxation = solve_relaxation(polytope, goal)
    milp = build_milp(polytope, goal, np.arange(len(polytope.candidates)), most_lam=most_lam(goal, relaxation))
    whole, replicas = solved(milp), solved(milp.with_machines_in_parts())
    slack = 1e-5 * abs(whole.objective)
    assert relaxation.bound + 1e-3 * abs(whole.objective) < replicas.bound < whole.objective + slack
    assert replicas.objective < whole.objective - slack


@for_each("seed", [0, 1, 2, 4, 6, 7])
def test_what_is_not_proven_in_time_is_bounded_by_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    search = searched(of_few_models(seed))
    assert search.is_open()
    every = build_milp(search.polytope, search.goal, np.arange(len(search.polytope.candidates)))
    optimum = solved(every).objective
    with monkeypatch.context() as patched:
        nothing = MilpSolution("unknown", None, np.inf, -np.inf)
        patched.setattr(with_routing, "_CLASSES_NEARBY", 0)
        patched.setattr(with_routing, "_solve", lambda *given: nothing)  # no time for whole machines
        with_routing.prove(search, None)
    slack = 1e-5 * abs(optimum)
    assert search.relaxation.bound + slack < search.bound <= optimum + slack
    assert search.outcome().bound == min(search.bound, search.value)


def test_who_has_no_plan_yet_looks_for_one_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is open then: nothing is known to be far from anything."""
    search, given = searched(of_few_models(0)), list[float]()

    def noted(search: Search, milp: Milp, node_limit: int | None, time_share: float) -> MilpSolution:
        given.append(time_share)
        return MilpSolution("unknown", None, np.inf, -np.inf)

    monkeypatch.setattr(with_routing, "_CLASSES_NEARBY", 0)
    monkeypatch.setattr(with_routing, "_solve", noted)
    with_routing.prove(search, None)
    search.incumbent, search.value = None, np.inf
    with_routing.prove(search, None)
    with_a_plan, without = given
    assert with_a_plan < without == 1.0


@for_each("seed", [6, 8, 10, 13, 29, 39])  # which need a search with routing
def test_plans_are_the_same_however_few_machines_are_near(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, wider = limited(seed), list[int]()
    every, serve_most = solve(problem), with_routing._that_serve_most

    def noted(search: Search, kinds: IntArray) -> IntArray:
        wider.append(len(kinds))
        return serve_most(search, kinds)

    with monkeypatch.context() as patched:
        patched.setattr(fleets_by_tree, "is_possible", lambda polytope: False)
        patched.setattr(exact, "_ONE_MILP", 0)
        patched.setattr(with_routing, "_CLASSES_NEARBY", 2)
        patched.setattr(with_routing, "_that_serve_most", noted)
        some = solve(problem)
    assert wider
    assert some.status == every.status == "optimal"
    assert some.value == pytest.approx(every.value, rel=2 * problem.options.relative_gap)
