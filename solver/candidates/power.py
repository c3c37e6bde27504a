"""The watts of a plan: what its GPUs may draw, each at its cap.

Provisioned power, as Splitwise sizes fleets by (section IV.D): TDP, or what a GPU is capped to, whatever it really
draws. Where a problem allows caps, rented GPUs that run nothing are set to the lowest of them.
"""

from collections.abc import Sequence

from sutler.solver.candidates.enumerate import power_cap_fractions
from sutler.solver.plan import Rental, Replica
from sutler.solver.problem import Problem

_SAME_CAP = 2e-6  # watts are rounded


def power_watts(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> float | None:
    """The watts of all rented GPUs; None where the TDP of one of them is unknown."""
    lowest = min(power_cap_fractions(problem))
    watts = 0.0
    for rental in rentals:
        tdp_watts = problem.gpus[rental.gpu].tdp_watts
        if tdp_watts is None:
            return None
        watts += tdp_watts * lowest * rental.gpus * rental.count
    for replica in replicas:
        for stage in replica.stages:
            tdp_watts = problem.gpus[stage.gpu].tdp_watts or 0.0
            cap_watts = tdp_watts if stage.power_cap_watts is None else stage.power_cap_watts
            watts += (cap_watts - tdp_watts * lowest) * stage.gpus
    return watts


def power_cap_fraction(replica: Replica, problem: Problem) -> float:
    """The share of the TDP that the GPUs of a replica are capped to, as the problem states it where it allows this
    cap; 1: not capped."""
    stage = replica.stages[0]
    tdp_watts = problem.gpus[stage.gpu].tdp_watts
    if stage.power_cap_watts is None or not tdp_watts:
        return 1.0
    found = stage.power_cap_watts / tdp_watts
    nearest = min(problem.search.power_caps_fraction, key=lambda cap: abs(cap - found), default=found)
    return nearest if abs(nearest - found) < _SAME_CAP else round(found, 6)
