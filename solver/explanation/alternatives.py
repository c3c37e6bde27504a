"""The next-best fleets of a plan: good ones, of one model mostly within half a percent of the best, and not proven.

Flow: planner.py, once the plan is known -> alternatives (here) -> Plan.alternatives. precision_alternative.py finds
its fleet by quick_fleet, too.
"""

from concurrent.futures import Executor, Future

import numpy as np

from sutler.solver.answer.describe import DescribedFleet, describe
from sutler.solver.answer.routing import without_idle
from sutler.solver.methods import exact
from sutler.solver.plan import Alternative
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import LEAST_LAM, first_goal
from sutler.solver.polytope.rows import Polytope
from sutler.solver.progress import SecondsLeft, at_most

_SECONDS = 5.0  # chosen: of each, so that all of them fit into the default time limit
_MOST_ALTERNATIVES = 6  # chosen: as many as fit, and as anybody compares


def alternatives(
    polytope: Polytope, allocation: Allocation, seconds_left: SecondsLeft, threads: Executor
) -> "list[Future[Alternative | None]]":
    """Seeks the best plan without each rented GPU type in turn; None: there may be one, but no time to find it."""
    slugs = gpus_used(polytope, allocation)[:_MOST_ALTERNATIVES]
    return [threads.submit(_without, polytope, slug, seconds_left) for slug in slugs]


def gpus_used(polytope: Polytope, allocation: Allocation) -> list[str]:
    """The GPU types of an allocation's replicas."""
    used = polytope.candidates.pool[allocation.candidate]
    return list(dict.fromkeys(polytope.supply.pools[p].gpu for p in used.ravel().tolist() if p >= 0))


def quick_fleet(polytope: Polytope, seconds_left: SecondsLeft) -> DescribedFleet | None:
    """A good fleet by the problem's objective; None: none was found that carries anything."""
    found = exact.quick(polytope, first_goal(polytope), seconds_left)
    if found is None:
        return None
    allocation, routing = without_idle(polytope, found)
    return describe(polytope, allocation, routing, in_full=False) if routing.lam > LEAST_LAM else None


def _without(polytope: Polytope, slug: str, seconds_left: SecondsLeft) -> Alternative | None:
    if seconds_left() <= 0:
        return None
    room = at_most(_SECONDS, seconds_left)
    forbidden = np.array([pool.gpu == slug for pool in polytope.supply.pools] + [False])
    reduced = polytope.without(np.asarray(forbidden[polytope.candidates.pool].any(axis=1)))
    fleet = quick_fleet(reduced, room) if len(reduced.candidates) else None
    if fleet is None:
        return Alternative(slug, None, None, ()) if room() > 0 else None
    return Alternative(slug, fleet.value(polytope.problem.objective), fleet.cost_usd_per_hour, fleet.rentals)
