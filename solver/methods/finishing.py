"""The later objectives of the lexicographic finish, one after the other; polytope/objectives.py says
which they are.

Flow: exact.minimise or binary_search.minimise -> finished (here), low_end.py -> routing.without_idle.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sutler.solver.answer.routing import without_idle
from sutler.solver.methods import exact
from sutler.solver.methods.low_end import Leeway, fewest_parts, most_at_low
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import FINISH_NODE_LIMIT, FINISH_RELATIVE_GAP, finishes, held_at, kept_lam
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.progress import SecondsLeft


@dataclass(frozen=True, slots=True)
class Finished:
    """An allocation of the polytope, without limits that the finish has held; `relaxation`: of its first goal."""

    polytope: Polytope
    allocation: Allocation
    relaxation: Relaxation


def finished(
    polytope: Polytope,
    allocation: Allocation,
    *,
    relaxation: Relaxation,
    seconds_left: SecondsLeft,
    mark: Callable[[str], None] = lambda phase: None,
    least_lam: float = 0.0,
    widen: Callable[[Polytope, Relaxation], tuple[Polytope, Relaxation]] | None = None,
) -> Finished:
    """The allocation after the later objectives, the earlier ones held; what a phase does not improve stays.

    Where plans keep a reserve, its replicas are not spent on the low end or on fewer parts.
    `widen` adds candidates that can only be better at low rates, at the end.
    `relaxation`: of the first objective. `mark` is told the name of each phase at its end. No phase goes below
    `least_lam`, in the polytope's scale.
    """
    problem, free = polytope.problem, polytope
    least_lam = max(least_lam, kept_lam(problem.objective, problem.options.relative_gap, allocation))
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
    allocation, _ = without_idle(polytope, allocation, at_low=False)
    if seconds_left() <= 0 or problem.keeps_reserve:
        return Finished(free, allocation, relaxation)
    wide, relaxation = (free, relaxation) if widen is None else widen(free, relaxation)
    room = Leeway(held_at(wide, allocation), least_lam, relaxation, seconds_left)
    allocation = most_at_low(room, allocation)
    mark("low end")
    allocation = fewest_parts(room, allocation)
    mark("fewest parts")
    return Finished(wide, allocation, relaxation)
