"""From a problem to the polytope that a method works on: supply, candidates, dominance, rows, scale."""

import numpy as np

from solver.allocation import Polytope, build_polytope
from solver.candidates import enumerate_candidates
from solver.dominance import prune_dominated
from solver.objectives import maximises_rate, total_demand
from solver.problem import Problem
from solver.relaxation import solve_relaxation
from solver.supply import build_supply


def prepare(problem: Problem) -> Polytope:
    """All rows over the candidates of which market and budget allow at least one replica; lam in requests/s."""
    supply = build_supply(problem)
    polytope = build_polytope(problem, supply, prune_dominated(enumerate_candidates(problem, supply)))
    possible = polytope.use_upper >= 1
    if possible.all():
        return polytope
    return build_polytope(problem, supply, polytope.candidates.take(possible))


def scaled_to_one(polytope: Polytope) -> Polytope | None:
    """lam of order 1: the relaxation's optimum, or the offered demand for cost and power. None: nothing fits.

    HiGHS's tolerances are absolute.
    """
    if not maximises_rate(polytope.problem.objective):
        return polytope.scaled(total_demand(polytope.problem))
    relaxation = solve_relaxation(polytope, polytope.goal_throughput())
    if not np.isfinite(relaxation.objective) or relaxation.lam <= 0:
        return None
    return polytope.scaled(relaxation.lam)
