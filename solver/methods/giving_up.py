"""The best fleet at the low end of the bands that gives up no more than a fraction of the objective.

Flow: planner.py with `objective.give_up_fraction`, or robustness.py for the alternative that every plan names
-> the room that the fraction leaves -> methods/low_end.py: most load at the low end, then least cost, then fewest
parts.
"""

from collections.abc import Callable
from dataclasses import replace

from sutler.solver.methods.low_end import WIDE, Room, cheapest, fewest_parts, most_at_low
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import held_at, maximises_rate
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope


def within(
    polytope: Polytope,
    allocation: Allocation,
    *,
    value: float,
    fraction: float,
    relaxation: Relaxation,
    seconds_left: Callable[[], float],
) -> Allocation:
    """From an allocation whose plan has this value of the objective; itself where nothing better was found.

    `relaxation`: of the objective, over the candidates of the polytope.
    """
    room = _room(polytope, allocation, value, fraction, relaxation, seconds_left)
    found = most_at_low(room, allocation)
    if found is allocation:
        return allocation
    found = cheapest(room, found)
    return fewest_parts(replace(room, polytope=held_at(room.polytope, found)), found)


def _room(
    polytope: Polytope,
    allocation: Allocation,
    value: float,
    fraction: float,
    relaxation: Relaxation,
    seconds_left: Callable[[], float],
) -> Room:
    objective = polytope.problem.objective
    if maximises_rate(objective):
        kept = 1 - fraction if objective.kind == "max_throughput" else 1 / (1 + fraction)
        return Room(polytope, allocation.lam * kept, relaxation, seconds_left, WIDE)
    row = "budget" if objective.kind == "min_cost" else "limit/max_power_watts"
    most = min(value * (1 + fraction), float(polytope.limit[polytope.resources.index(row)]))
    return Room(polytope.with_limit(row, most), objective.carried_load, relaxation, seconds_left, WIDE)
