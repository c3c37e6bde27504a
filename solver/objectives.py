"""The four objectives as sequences of linear goals over the same polytope, each finished lexicographically.

    kind                            first               then
    max_throughput, min_makespan    max lam             min cost
    min_cost                        min cost            max lam
    min_power                       min watts           min cost, max lam

Throughput may be given up in the finish within a tenth of the asked gap (the first phase is solved to nine
tenths, so that the promised gap holds); cost, power and demand are never given up.
"""

from collections.abc import Callable
from dataclasses import dataclass

from solver.allocation import Goal, Polytope
from solver.milp import Allocation
from solver.problem import Objective, Problem

FIRST_PHASE_GAP_SHARE = 0.9
HELD_GAP_SHARE = 0.09
FINISH_RELATIVE_GAP = 0.005
FINISH_NODE_LIMIT = 30
_ROUNDING = 1e-9

LEAST_LAM = 1e-6  # below this share of what the relaxation carries, a fleet carries nothing


@dataclass(frozen=True, slots=True)
class Finish:
    """A later phase: given the polytope and the allocation so far, the polytope and goal to go on with."""

    name: str
    hold: Callable[[Polytope, Allocation], tuple[Polytope, Goal]]


def maximises_rate(objective: Objective) -> bool:
    return objective.kind in ("max_throughput", "min_makespan")


def total_demand(problem: Problem) -> float:
    """All offered requests/s (or requests)."""
    return sum(workload.demand for model in problem.models for workload in model.workloads)


def first_goal(polytope: Polytope) -> Goal:
    """The primary objective. For cost and power `polytope` must be scaled so that lam 1 is the offered demand."""
    objective = polytope.problem.objective
    if maximises_rate(objective):
        return polytope.goal_throughput()
    lam_lower = 1.0 + objective.headroom_fraction
    return polytope.goal_cost(lam_lower) if objective.kind == "min_cost" else polytope.goal_power(lam_lower)


def finishes(objective: Objective, relative_gap: float) -> tuple[Finish, ...]:
    """The phases after the first."""
    if maximises_rate(objective):
        kept = 1.0 - HELD_GAP_SHARE * relative_gap
        return (Finish("min cost", lambda polytope, a: (polytope, polytope.goal_cost(a.lam * kept))),)
    if objective.kind == "min_cost":
        return (Finish("max throughput", _cost_held),)
    return (Finish("min cost", _power_held), Finish("max throughput", _cost_held))


def _cost_held(polytope: Polytope, allocation: Allocation) -> tuple[Polytope, Goal]:
    held = polytope.with_limit("budget", cost_of(polytope, allocation) * (1 + _ROUNDING))
    return held, _throughput_above(held)


def _power_held(polytope: Polytope, allocation: Allocation) -> tuple[Polytope, Goal]:
    held = polytope.with_limit("limit/max_power_watts", power_of(polytope, allocation) * (1 + _ROUNDING))
    return held, held.goal_cost(1.0 + held.problem.objective.headroom_fraction)


def _throughput_above(polytope: Polytope) -> Goal:
    goal = polytope.goal_throughput()
    return Goal(goal.lam_weight, goal.use_cost, goal.rent_cost, 1.0 + polytope.problem.objective.headroom_fraction)


def cost_of(polytope: Polytope, allocation: Allocation) -> float:
    """$/h of an allocation."""
    use = polytope.cost_use[allocation.candidate] @ allocation.replicas
    return float(use + polytope.cost_rent @ allocation.rented)


def power_of(polytope: Polytope, allocation: Allocation) -> float:
    """Watts (TDP of the rented GPUs) of an allocation."""
    use = polytope.watts_use[allocation.candidate] @ allocation.replicas
    return float(use + polytope.watts_rent @ allocation.rented)
