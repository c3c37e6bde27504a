"""Whether the network holds back a plan with prefill and decode apart, and what an unlimited one would bring.

The duals of the relaxation say nothing of a network that is too thin to be used at all. So the relaxation is solved
again with keys and values that take no time on one network: what it gains is what that network costs the plan.
"""

import numpy as np

from sutler.solver.answer.describe import in_unit
from sutler.solver.explanation.binding import VALUE_UNITS
from sutler.solver.plan import Binding
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import prepare
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.progress import SecondsLeft

_LEAST_GAIN = 1e-4  # of the objective: less is noise
_MOST_NETWORKS = 4  # each rates all candidates anew


def network_bindings(polytope: Polytope, relaxation: Relaxation, seconds_left: SecondsLeft) -> tuple[Binding, ...]:
    """One for every network that holds the relaxed plan back; of many networks, one for all of them together."""
    problem = polytope.problem
    if problem.search.disaggregation == "off" or not np.isfinite(relaxation.objective):
        return ()
    names = sorted({pool.network for pool in polytope.supply.pools if pool.network is not None})
    groups = [(name, (name,)) for name in names] if len(names) <= _MOST_NETWORKS else [("all", tuple(names))]
    present = in_unit(polytope, relaxation.objective)
    found, unit = [], f"{VALUE_UNITS[problem.objective.kind]} for an unlimited network"
    for name, unlimited in groups:
        if seconds_left() <= 0 or present is None:
            break
        better = _relaxed_value(polytope, unlimited)
        if better is not None and abs(better - present) > _LEAST_GAIN * abs(present):
            found.append(Binding(f"network/{name}", better - present, unit))
    return tuple(found)


def _relaxed_value(polytope: Polytope, unlimited: tuple[str, ...]) -> float | None:
    """The relaxed optimum in the objective's unit; None where nothing is feasible."""
    free = prepare(polytope.problem, unlimited_networks=unlimited).scaled(polytope.scale_rps)
    relaxation = solve_relaxation(free, first_goal(free))
    return in_unit(free, relaxation.objective) if np.isfinite(relaxation.objective) else None
