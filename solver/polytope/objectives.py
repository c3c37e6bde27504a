"""The four objectives as sequences of linear goals over the same polytope, each finished lexicographically.

    kind                            first               then
    max_throughput, min_makespan    max lam             min cost
    min_cost                        min cost
    min_power                       min watts           min cost

and after these, for each of them, the most load at the low end of the bands, then the fewest parts
(methods/low_end.py). Throughput may be given up in the finish within a tenth of the asked gap (the first phase is
solved to nine tenths, so that the promised gap holds); cost, power and demand are never given up.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.problem import Objective

FIRST_PHASE_GAP_SHARE = 0.9  # of the gap that is asked for; with HELD_GAP_SHARE it stays below all of it
HELD_GAP_SHARE = 0.09  # what later phases may give up of the throughput: most of the tenth that is left
FINISH_RELATIVE_GAP = 0.005  # chosen: nobody rents otherwise for half a percent of a tie
FINISH_NODE_LIMIT = 30  # chosen: later phases take a fraction of a second each
_ROUNDING = 1e-9  # relative: what sums of floats may be off by, so that what is held stays feasible

LEAST_LAM = 1e-6  # below this share of what the relaxation carries, a fleet carries nothing


@dataclass(frozen=True, slots=True)
class Finish:
    """A later phase: given the polytope and the allocation so far, the polytope and goal to go on with."""

    name: str
    hold: Callable[[Polytope, Allocation], tuple[Polytope, Goal]]


def first_goal(polytope: Polytope) -> Goal:
    """The primary objective. For cost and power `polytope` must be scaled so that lam 1 is the offered demand."""
    objective = polytope.problem.objective
    if objective.maximises_rate:
        return polytope.goal_throughput()
    lam_lower = objective.carried_load
    return polytope.goal_cost(lam_lower) if objective.kind == "min_cost" else polytope.goal_power(lam_lower)


def finishes(objective: Objective, relative_gap: float) -> tuple[Finish, ...]:
    """The phases after the first, up to those that spend what they leave."""

    def at_least_cost(polytope: Polytope, first: Allocation) -> tuple[Polytope, Goal]:
        held = _power_held(polytope, first) if objective.kind == "min_power" else polytope
        return held, held.goal_cost(kept_lam(objective, relative_gap, first))

    return () if objective.kind == "min_cost" else (Finish("min cost", at_least_cost),)


def kept_lam(objective: Objective, relative_gap: float, first: Allocation) -> float:
    """What every plan carries after the first phase has ended with this allocation."""
    if objective.maximises_rate:
        return first.lam * (1.0 - HELD_GAP_SHARE * relative_gap)
    return objective.carried_load


def held_at(polytope: Polytope, allocation: Allocation) -> Polytope:
    """Fleets that cost no more, and under min_power draw no more."""
    held = polytope.with_limit("budget", cost_of(polytope, allocation) * (1 + _ROUNDING))
    return _power_held(held, allocation) if polytope.problem.objective.kind == "min_power" else held


def _power_held(polytope: Polytope, allocation: Allocation) -> Polytope:
    return polytope.with_limit("limit/max_power_watts", power_of(polytope, allocation) * (1 + _ROUNDING))


def cost_of(polytope: Polytope, allocation: Allocation) -> float:
    """$/h of an allocation."""
    use = polytope.cost_use[allocation.candidate] @ allocation.replicas
    return float(use + polytope.cost_rent @ allocation.rented)


def power_of(polytope: Polytope, allocation: Allocation) -> float:
    """Watts (TDP of the rented GPUs) of an allocation."""
    use = polytope.watts_use[allocation.candidate] @ allocation.replicas
    return float(use + polytope.watts_rent @ allocation.rented)
