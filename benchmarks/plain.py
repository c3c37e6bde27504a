"""The yardstick: the whole polytope handed to HiGHS as one MILP, without column generation, fixing or finish.

Supply, candidates, dominance, polytope, scaling and HiGHS options are those of the planner, so that only the method
differs.
"""

import time
from dataclasses import dataclass

import numpy as np

from sutler.solver.polytope.linear import MilpSolution, solve_milp
from sutler.solver.polytope.milp import build_milp
from sutler.solver.polytope.objectives import FIRST_PHASE_GAP_SHARE, first_goal
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """`value_rps` None: no plan found; `bound_rps` is proven. Seconds of building the polytope and of the MILP."""

    candidates: int
    value_rps: float | None
    bound_rps: float
    limit_hit: bool
    polytope_seconds: float
    solve_seconds: float


def solve_plainly(problem: Problem, *, solve_limit_s: float) -> PlainAnswer:
    """Maximise throughput with one MILP over every candidate, to the gap at which the exact method stops."""
    started = time.perf_counter()
    polytope = whole_polytope(problem)
    built = time.perf_counter()
    solution = _one_milp(polytope, problem.options.relative_gap, solve_limit_s)
    ended = time.perf_counter()
    return PlainAnswer(
        candidates=len(polytope.candidates),
        value_rps=None if solution.x is None else -solution.objective * polytope.scale_rps,
        bound_rps=-solution.bound * polytope.scale_rps,
        limit_hit=solution.status in ("feasible", "unknown"),
        polytope_seconds=built - started,
        solve_seconds=ended - built,
    )


def whole_polytope(problem: Problem) -> Polytope:
    """The planner's polytope of the problem, scaled so that the relaxation's lam is 1."""
    polytope = scaled_to_one(prepare(problem))
    if polytope is None:
        raise ValueError("nothing fits this market: the benchmark's instances all have a plan")
    return polytope


def _one_milp(polytope: Polytope, relative_gap: float, limit_s: float) -> MilpSolution:
    milp = build_milp(polytope, first_goal(polytope), np.arange(len(polytope.candidates)))
    return solve_milp(milp.program, relative_gap=FIRST_PHASE_GAP_SHARE * relative_gap, time_limit_s=limit_s)
