"""The best fleet at the low end of the bands that gives up no more than a fraction of the objective.

Flow: planner.py with `objective.give_up_fraction`, or explanation/robustness.py for the alternative that every plan
names -> the room that the fraction leaves -> methods/low_end.py: most load at the low end, then least cost,
then fewest parts.
"""

from dataclasses import replace

from sutler.solver.methods.low_end import WIDE, Leeway, cheapest, fewest_parts, most_at_low
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import held_at
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.progress import SecondsLeft


def within(
    polytope: Polytope,
    allocation: Allocation,
    *,
    value: float,
    fraction: float,
    relaxation: Relaxation,
    seconds_left: SecondsLeft,
) -> Allocation:
    """The best allocation that gives up no more than the fraction of `value`, that of the plan of this allocation;
    the same where nothing better was found.

    `relaxation`: of the objective, over the candidates of the polytope.
    """
    objective = polytope.problem.objective
    least_lam = objective.carried_load
    if objective.maximises_rate:
        kept = 1 - fraction if objective.kind == "max_throughput" else 1 / (1 + fraction)
        least_lam = allocation.lam * kept
    else:
        row = "budget" if objective.kind == "min_cost" else "limit/max_power_watts"
        most = min(value * (1 + fraction), float(polytope.limit[polytope.resources.index(row)]))
        polytope = polytope.with_limit(row, most)
    room = Leeway(polytope, least_lam, relaxation, seconds_left, WIDE)
    found = most_at_low(room, allocation)
    if found is allocation:
        return allocation
    found = cheapest(room, found)
    return fewest_parts(replace(room, polytope=held_at(polytope, found)), found)
