"""Fleets without their routing, searched by MILPs of HiGHS one after another: where rentals are decided as well, any
one machine may be lost, or the tree was not compiled.

Flow: exact.minimise -> prove (here) -> rounds: a MILP, its fleet routed, the inequalities that it breaks (fleets.py).
"""

from dataclasses import replace

import numpy as np

from sutler.solver.arrays import IntArray
from sutler.solver.methods import with_routing
from sutler.solver.methods.fleets import RELAXED_CLOSE, adopt, bounds_of, cut_between
from sutler.solver.methods.search import INCUMBENT_COLUMNS, LEAST_RELAXED, QUICK_GAP, QUICK_NODES, Search, promising
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.linear import solve_lp, solve_milp
from sutler.solver.polytope.relaxation import most_lam, solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Resilience

# On so many columns first, then on all survivors: about four times as many each, as a MILP takes more than
# proportionally longer.
_STEPS = (40, 150, 500)
_RESERVE_STEPS = _STEPS[:2]  # where a reserve is kept: its MILPs are harder, and the proof needs its time
_FEW_ENOUGH = 3  # survivors per column of the last step at which all of them are searched: no more than a step
_ROUNDS = 25  # of MILPs on one set of columns; each adds inequalities, and most sets need a few
_NODES = 500  # of a MILP without routing, whose nodes are quick
_GAP_SHARE = 0.5  # of the gap: the other half is for what the inequalities still claim too much
_SPARE_ROOM = (1.0, 1.25, 1.6, 2.0, 3.0, 4.0)  # times the load: where to look for a first fleet with a reserve
_RELAXED_ROUNDS = 40  # of LPs, which are quicker than the MILPs that they spare: solves took half the time with them


def prove(search: Search, node_limit: int | None) -> None:
    """Close the gap with inequalities on the fleet; every round is valid for the whole problem."""
    bounds = bounds_of(search)
    keeps_reserve = search.polytope.problem.keeps_reserve
    if search.incumbent is not None:
        own = search.incumbent.replicas.astype(np.float64)
        bounds.tighten(search.incumbent.candidate, own, bounds.most_lam)
    for count in _RESERVE_STEPS if keeps_reserve else _STEPS:
        _improve(search, bounds, count, _NODES)
        if keeps_reserve and search.incumbent is None:
            _start_from_spare_room(search, bounds)
        if search.closed() or search.seconds_left() <= 0:
            return
        if len(bounds.undominated(search.survivors()[0])) <= _FEW_ENOUGH * count:
            break
    for _ in range(_ROUNDS):
        if search.closed() or search.seconds_left() <= 0:
            return
        chosen = bounds.undominated(search.survivors()[0])
        if not _round(search, bounds, chosen, node_limit, covers_all=True):
            break
        if keeps_reserve and not search.polytope.losses.of_any_machine:
            near = promising(search.polytope, search.relaxation, _STEPS[0])
            improve_among(search, bounds, np.union1d(near, search.claimed))
    if search.polytope.losses.of_any_machine and not search.closed():
        _improve_packed(search, bounds, search.survivors()[0], node_limit)


def improve_among(search: Search, bounds: FleetBounds, few: IntArray, node_limit: int = _NODES) -> None:
    """Rounds over a few candidates, until one teaches nothing; they prove nothing."""
    _cut_relaxed(search, bounds, np.intersect1d(few, search.survivors()[0]))
    for _ in range(_ROUNDS):
        left = bounds.undominated(np.intersect1d(few, search.survivors()[0]))
        if search.closed() or search.seconds_left() <= 0 or len(left) == 0:
            return
        if not _round(search, bounds, left, node_limit, covers_all=False):
            return


def bare_of(polytope: Polytope) -> Polytope:
    """The same rows with nothing to survive; least numbers of replicas stay."""
    problem = replace(polytope.problem, resilience=Resilience())
    models = tuple(model.without_least_replicas() for model in problem.models)
    losses = replace(polytope.losses, names=(), stands=polytope.losses.stands[:0], of_any_machine=False)
    return replace(polytope, problem=replace(problem, models=models), losses=losses)


def _start_from_spare_room(search: Search, bounds: FleetBounds) -> None:
    """Fleets without regard to their reserve, for ever more load, until one of them has it by chance; where load
    is maximised, what the first may be loaded with."""
    polytope, goal = bare_of(search.polytope), search.goal
    for factor in _SPARE_ROOM if goal.lam_lower > 0 else (1.0,):
        wanted = replace(goal, lam_lower=goal.lam_lower * factor)
        relaxation = solve_relaxation(polytope, wanted)
        if not np.isfinite(relaxation.objective) or search.seconds_left() <= 0:
            return
        bare = Search(polytope, wanted, relaxation, QUICK_GAP, search.seconds_left)
        with_routing.improve(bare, promising(polytope, relaxation, INCUMBENT_COLUMNS), QUICK_NODES)
        fleet = bare.incumbent
        if fleet is not None:
            replicas, rented = fleet.replicas.astype(np.float64), float(fleet.rented.sum())
            carried = bounds.tighten(fleet.candidate, replicas, fleet.lam, rented)
            adopt(search, bounds, fleet.candidate, fleet.replicas, fleet.rented, carried)
        if search.incumbent is not None:
            return


def _improve(search: Search, bounds: FleetBounds, count: int, node_limit: int) -> None:
    """Collect inequalities, and better incumbents on the way, on the `count` most promising candidates."""
    few = promising(search.polytope, search.relaxation, count)
    improve_among(search, bounds, few, node_limit)
    if search.polytope.losses.of_any_machine and not search.closed():
        _improve_packed(search, bounds, few, node_limit)


def _cut_relaxed(search: Search, bounds: FleetBounds, chosen: IntArray) -> None:
    """Inequalities that cut off relaxed fleets: an LP each, they spare MILPs that would teach the same."""
    first = 1 + len(search.goal.rent_cost)
    for _ in range(_RELAXED_ROUNDS):
        if len(chosen) == 0 or search.seconds_left() <= 0:
            return
        program = bounds.program(search.goal, chosen)
        solution = solve_lp(replace(program, integer=np.zeros(len(program.cost), dtype=np.bool_)))
        if solution.x is None:
            return
        replicas, claimed = np.maximum(solution.x[first : first + len(chosen)], 0.0), float(solution.x[0])
        used = np.flatnonzero(replicas > LEAST_RELAXED)
        carried = bounds.tighten(chosen[used], replicas[used], claimed)
        if carried >= claimed * (1 - RELAXED_CLOSE):
            return
        cut_between(search, bounds, chosen[used], replicas[used])


def _improve_packed(search: Search, bounds: FleetBounds, chosen: IntArray, node_limit: int | None) -> None:
    """Search for fleets that survive the loss of a machine as they are packed: what stood together on one whose
    loss is too much is to be spared by every fleet that uses it. That is more than must hold: nothing is
    proven."""
    strict = replace(bounds, rows=list(bounds.rows), is_strict=True)
    for _ in range(_ROUNDS):
        known, left = len(strict.rows), strict.undominated(np.intersect1d(chosen, search.survivors()[0]))
        if len(left):
            _round(search, strict, left, node_limit or _NODES, covers_all=False)
        if len(strict.rows) == known or search.closed() or search.seconds_left() <= 0:
            break


def _round(
    search: Search, bounds: FleetBounds, chosen: IntArray, node_limit: int | None, *, covers_all: bool
) -> bool:
    """One MILP over the fleet alone. True where its answer taught something: it carries less than claimed."""
    cutoff, goal = search.cutoff(), search.goal
    if np.isfinite(cutoff) and np.isfinite(most_lam(goal, search.relaxation)) and goal.lam_weight < 0:
        goal = replace(goal, lam_lower=max(goal.lam_lower, cutoff / goal.lam_weight))  # or it is no better
    _, rent_lower, rent_upper = search.survivors()
    program = bounds.program(
        goal,
        chosen,
        rent_lower=rent_lower if covers_all else None,
        rent_upper=rent_upper if covers_all else None,
    )
    close = gap = _GAP_SHARE * search.relative_gap
    if search.polytope.problem.keeps_reserve and not covers_all:
        gap = max(close, QUICK_GAP)
    solution = solve_milp(program, relative_gap=gap, time_limit_s=search.seconds_left(), node_limit=node_limit)
    if covers_all:
        search.bound = max(search.bound, min(solution.bound, cutoff))
        search.exhausted = search.exhausted or solution.status == "infeasible"
    if solution.x is None:
        return False
    first = 1 + len(search.goal.rent_cost)
    replicas = np.maximum(solution.x[first : first + len(chosen)], 0.0)
    rented = solution.x[1:first].astype(np.int64)
    used = np.flatnonzero(replicas > 0)
    claimed, search.claimed = float(solution.x[0]), chosen[used]
    known = len(bounds.rows)
    bounds.least_lam = 0.0 if search.incumbent is None else search.incumbent.lam
    carried = bounds.tighten(chosen[used], replicas[used], claimed, float(rented.sum()))
    if carried < claimed * (1 - _GAP_SHARE * search.relative_gap):
        cut_between(search, bounds, chosen[used], replicas[used])
    adopt(search, bounds, chosen[used], replicas[used].astype(np.int64), rented, carried)
    search.report("fleet bounds", search.value, max(search.bound, search.relaxation.bound))
    return len(bounds.rows) > known and carried < claimed * (1 - close)
