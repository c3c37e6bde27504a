"""Fleets whose routing is left out of the search: inequalities on what a fleet carries take its place
(polytope/fleet_bounds.py), and what a fleet is worth is known once it is routed.

Flow: fleets_by_tree or fleets_by_milp finds fleets -> Fleets (here) -> inequalities, and incumbents in the Search.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from sutler.solver.answer.losses import machines_of
from sutler.solver.answer.packing import pack
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.methods.search import ROUNDING, Search, objective_of
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.relaxation import most_lam

RELAXED_CLOSE = 1e-5  # of lam, well below any gap that is asked for


def bounds_of(search: Search) -> FleetBounds:
    """The inequalities that the relaxation knows."""
    keeps_reserve = search.polytope.problem.keeps_reserve
    most = most_lam(search.goal, search.relaxation) if keeps_reserve else np.inf
    bounds = FleetBounds(search.polytope, list(search.relaxation.cuts), most_lam=most)
    if not bounds.rows:
        bounds.add_relaxed(search.relaxation)
    return bounds


def adopt(
    search: Search, bounds: FleetBounds, candidate: IntArray, replicas: IntArray, rented: IntArray, carried: float
) -> None:
    """Take a fleet as the incumbent if it carries what the goal asks for, but for rounding, and is better; what it
    carries where any machine may be lost is known once it is packed."""
    if carried >= search.goal.lam_lower * (1 - ROUNDING):
        carried = max(carried, search.goal.lam_lower)
    fleet = Allocation(candidate, replicas, rented, carried)
    if search.polytope.losses.of_any_machine and carried >= search.goal.lam_lower:
        carried = min(carried, lam_with_machines(search, bounds, fleet))
        fleet = replace(fleet, lam=carried)
    if carried < search.goal.lam_lower:
        return
    value = objective_of(search.goal, fleet)
    if value < search.value:
        is_capped = np.isfinite(bounds.most_lam) and not search.polytope.losses.of_any_machine
        if is_capped:  # it may carry more than the inequalities count
            carried = FleetBounds(search.polytope).tighten(candidate, replicas.astype(np.float64), np.inf)
        search.incumbent, search.value = replace(fleet, lam=carried), value


def lam_with_machines(search: Search, bounds: FleetBounds, fleet: Allocation) -> float:
    """The load that the fleet may carry so that it survives the loss of any one machine, as it is packed."""
    rentals, placed = pack(search.polytope, fleet)
    on_machines = machines_of(search.polytope.problem, rentals, placed).values()
    fallen = {tuple(sorted(Counter(placed[n].candidate for n in numbers).items())) for numbers in on_machines}
    replicas = fleet.replicas.astype(np.float64)
    lams = [
        bounds.lam_after(fleet.candidate, replicas, fleet.lam, dict(each), adds=bounds.is_strict)
        for each in sorted(fallen)
    ]
    return min(lams, default=np.inf)


def cut_between(search: Search, bounds: FleetBounds, candidate: IntArray, replicas: FloatArray) -> None:
    """An inequality between a fleet that claims too much and the incumbent."""
    if search.incumbent is None:
        return
    claim, plan = np.zeros(len(search.polytope.candidates)), np.zeros(len(search.polytope.candidates))
    claim[candidate], plan[search.incumbent.candidate] = replicas, search.incumbent.replicas
    bounds.tighten_between(claim, plan)
