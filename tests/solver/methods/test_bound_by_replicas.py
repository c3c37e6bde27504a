"""What whole replicas on parts of machines cost is no more than what they cost on whole ones, and no less than what
parts of replicas do."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.methods import fleets_by_tree, with_routing
from sutler.solver.methods.search import Search
from sutler.solver.polytope.linear import MilpSolution, solve_milp
from sutler.solver.polytope.milp import Milp, build_milp
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.relaxation import most_lam, solve_relaxation
from sutler.solver.problem import Problem
from tests.looped import for_each
from tests.solver.methods.test_many_models import of_eight_models

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


@pytest.mark.parametrize("in_time", [True, False])
@for_each("seed", range(4))
def test_plans_and_bounds_are_the_same(seed: int, in_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether that is known in time or not."""
    problem, asked = of_few_models(seed), list[float]()
    bound_of = with_routing._prove_by_replicas

    def noted(search: Search, milp: Milp) -> None:
        before = search.bound
        bound_of(search, milp)
        asked.append(search.bound - before)

    with monkeypatch.context() as patched:
        patched.setattr(fleets_by_tree, "is_possible", lambda polytope: False)
        patched.setattr(with_routing, "_ROUTED_GAP", -1.0)
        patched.setattr(with_routing, "_prove_by_replicas", noted)
        patched.setattr(with_routing, "_REPLICAS_TIME_SHARE", 1.0 if in_time else 0.0)
        some = solve(problem)
    every = solve(problem)
    assert asked
    assert some.status == every.status == "optimal"
    assert some.value == pytest.approx(every.value, rel=3 * GAP)
    assert some.bound == pytest.approx(every.bound, rel=3 * GAP)
