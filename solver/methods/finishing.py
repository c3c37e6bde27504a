"""The later objectives of the lexicographic finish, one after the other; objectives.py says which they are.

Flow: exact.minimise or binary_search.minimise -> finished (here) -> routing.without_idle.
"""

from collections.abc import Callable
from dataclasses import replace

from solver.allocation import Polytope
from solver.methods import exact
from solver.milp import Allocation
from solver.objectives import FINISH_NODE_LIMIT, FINISH_RELATIVE_GAP, finishes


def finished(
    polytope: Polytope,
    allocation: Allocation,
    *,
    seconds_left: Callable[[], float],
    mark: Callable[[str], None] = lambda phase: None,
    least_lam: float = 0.0,
) -> Allocation:
    """The allocation after the later objectives, the earlier ones held; what a phase does not improve stays.

    `mark` is told the name of each phase at its end. No phase goes below `least_lam`, in the polytope's scale.
    """
    problem = polytope.problem
    for finish in finishes(problem.objective, problem.options.relative_gap):
        polytope, goal = finish.hold(polytope, allocation)
        if seconds_left() <= 0:
            break
        allocation = exact.finish(
            polytope,
            replace(goal, lam_lower=max(goal.lam_lower, least_lam)),
            allocation,
            relative_gap=FINISH_RELATIVE_GAP,
            seconds_left=seconds_left,
            node_limit=FINISH_NODE_LIMIT,
        )
        mark(finish.name)
    return allocation
