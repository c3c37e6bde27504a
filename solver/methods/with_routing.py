"""MILPs over a fleet and its routing together (polytope/milp.py), by HiGHS: what rentals need, and small problems.

Flow: exact.py -> improve, improve_nearby, improve_by_models, improve_beside, prove (here) -> a better plan, or a
bound, in the Search.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from sutler.solver.arrays import BoolArray, IntArray
from sutler.solver.methods.search import (
    INCUMBENT_COLUMNS,
    QUICK_GAP,
    Search,
    nearby_classes,
    of_kinds_in_use,
    promising,
)
from sutler.solver.polytope.linear import MilpSolution, solve_milp
from sutler.solver.polytope.milp import Milp, build_milp, with_goal_at_most
from sutler.solver.polytope.relaxation import most_lam
from sutler.solver.polytope.rows import piece_groups

_Chosen = Callable[[Search, IntArray], IntArray]

RENTAL_HEURISTIC_EFFORT = 0.2  # HiGHS's own is 0.05; with rentals and routing in the MILP good plans are found late
_POINTS_NEARBY = 8  # of every kind of machines in use: operating points of one layout lie close together
_CLASSES_NEARBY = 60  # of 470 single machines all take a search four times as long, which then finds less
_NEARBY_TIME_SHARE = 0.3  # of what is left, so that three searches that take it all leave a third for the proof
_MODELS_AT_ONCE = 4
_COLUMNS_OF_MODELS, _CLASSES_OF_MODELS = 300, 24  # with all classes of machines a search takes four times as long
_IDLE_SEARCHES = 12
_ROUTED_COLUMNS = 400  # as many as a single MILP takes
_ROUTED_GAP = 0.02  # with more still open the routing is worth its columns
_REPLICAS_TIME_SHARE = 0.6  # of what is left, where that much is open: the rest finds a plan, or proves one
_ROUTED_PAIRS = 8000  # of survivors and columns of rates: no more for a MILP with its routing


def improve(search: Search, chosen: IntArray, node_limit: int) -> None:
    """Search among the chosen candidates only; proves nothing."""
    most = most_lam(search.goal, search.relaxation)
    _solve(search, build_milp(search.polytope, search.goal, chosen, most_lam=most), node_limit)
    search.report("incumbent", search.value, search.relaxation.bound)


def improve_beside(
    search: Search, chosen: IntArray, classes: BoolArray, node_limit: int, time_share: float = 1.0
) -> None:
    """Search among these candidates and classes of machines [K] for what is better than the incumbent by the gap:
    that nothing is, is told sooner than what is the best."""
    able, rent_lower, rent_upper = search.survivors()
    rent_upper = np.where(classes, rent_upper, 0.0)
    milp = build_milp(
        search.polytope,
        search.goal,
        np.intersect1d(chosen, able),
        rent_lower=np.minimum(rent_lower, rent_upper),
        rent_upper=rent_upper,
        most_lam=most_lam(search.goal, search.relaxation),
    )
    _solve(search, with_goal_at_most(milp, search.cutoff()), node_limit, time_share)


def improve_nearby(search: Search, node_limit: int) -> None:
    """Search among ways to run the kinds of machines in use, then more widely; from the first again as soon as that
    helps (variable neighbourhoods: Mladenovic and Hansen, 1997). Where replicas suit only some workloads, fleets look
    alike to inequalities long after routing tells them apart."""
    kinds, position = piece_groups(search.polytope.candidates), 0
    wider: list[tuple[_Chosen, bool]] = (
        [(_that_serve_most, True), (_that_serve_most, False)] if _has_many(search) else [(_promising, False)]
    )
    in_use: _Chosen = partial(of_kinds_in_use, count=_POINTS_NEARBY)
    ways = [(in_use, True), *wider]
    while position < len(ways) and search.is_open():
        before, (chosen, is_near) = search.value, ways[position]
        used = np.zeros(0, dtype=np.int64) if search.incumbent is None else search.incumbent.candidate
        classes = np.ones(len(search.polytope.cost_rent), dtype=np.bool_)
        if is_near and search.incumbent is not None:
            classes = nearby_classes(search.incumbent.rented, (search.relaxation,), _CLASSES_NEARBY)
        columns = np.union1d(chosen(search, kinds), used)
        improve_beside(search, columns, classes, node_limit, _NEARBY_TIME_SHARE)
        search.report("incumbent", search.value, search.relaxation.bound)
        position = 0 if search.value < before else position + 1


def _has_many(search: Search) -> bool:
    """Whether so many classes of machines can be rented that it helps to look at some of them only."""
    return len(search.polytope.cost_rent) > _CLASSES_NEARBY


def _promising(search: Search, kinds: IntArray) -> IntArray:
    """Many, of whatever kinds."""
    return promising(search.polytope, search.relaxation, _ROUTED_COLUMNS)


def _that_serve_most(search: Search, kinds: IntArray) -> IntArray:
    """What the relaxation has, and the points of each of the kinds [num_candidates] that serve the most workloads:
    they take what is left of each, where the relaxation has parts of replicas."""
    polytope = search.polytope
    served = np.where(polytope.rate > 0, polytope.members[polytope.candidates.model], 0).sum(axis=1)
    most = np.zeros(int(kinds.max()) + 1)
    np.maximum.at(most, kinds, served)
    few = promising(polytope, search.relaxation, INCUMBENT_COLUMNS)
    return np.union1d(few, np.flatnonzero(served == most[kinds]))


def improve_by_models(search: Search, node_limit: int) -> None:
    """Search for better fleets of a few models at a time, on machines that are rented or nearly, while the others
    keep their replicas, until many such searches in a row find none (large neighbourhoods: Shaw, CP 1998)."""
    polytope, model = search.polytope, search.polytope.candidates.model
    models = np.unique(model)
    near, draw, idle = promising(polytope, search.relaxation, _COLUMNS_OF_MODELS), np.random.default_rng(0), 0
    while search.incumbent is not None and idle < _IDLE_SEARCHES and search.is_open():
        some = draw.choice(models, min(_MODELS_AT_ONCE, len(models) - 1), replace=False)
        fleet, value = search.incumbent, search.value
        classes = nearby_classes(fleet.rented, (search.relaxation,), _CLASSES_OF_MODELS)
        milp = build_milp(
            polytope,
            search.goal,
            np.union1d(near[np.isin(model[near], some)], fleet.candidate),
            rent_upper=np.where(classes, polytope.rent_upper, 0.0),
            most_lam=most_lam(search.goal, search.relaxation),
        )
        kept = ~np.isin(model[fleet.candidate], some)
        _solve(search, milp.with_at_least(fleet.candidate[kept], fleet.replicas[kept]), node_limit, gap=QUICK_GAP)
        search.report("models", search.value, max(search.bound, search.relaxation.bound))
        idle = idle + 1 if search.value == value else 0


def is_routed_sooner(search: Search) -> bool:
    """Whether a MILP over fleets with their routing is the better bargain: much is open, few columns are left."""
    chosen, _, _ = search.survivors()
    return not search.closed(_ROUTED_GAP) and int((search.polytope.rate[chosen] > 0).sum()) <= _ROUTED_PAIRS


def prove(search: Search, node_limit: int | None) -> None:
    """Search everything that could be in a better plan; the bound then covers the whole problem."""
    cutoff = search.cutoff()
    chosen, rent_lower, rent_upper = search.survivors()
    milp = build_milp(
        search.polytope,
        search.goal,
        chosen,
        rent_lower=rent_lower,
        rent_upper=rent_upper,
        most_lam=most_lam(search.goal, search.relaxation),
    )
    is_known_to_be_far = search.incumbent is not None and not search.closed(_ROUTED_GAP)
    is_bounded_apart = node_limit is None and _has_many(search) and is_known_to_be_far
    time_share = 1.0 - _REPLICAS_TIME_SHARE if is_bounded_apart else 1.0
    solution = _solve(search, milp, node_limit, time_share)
    search.bound = max(search.bound, min(solution.bound, cutoff))
    search.exhausted = solution.status in ("optimal", "infeasible")
    search.report("proof", search.value, max(search.bound, search.relaxation.bound))
    if is_bounded_apart and search.is_open():
        _prove_by_replicas(search, milp)


def _prove_by_replicas(search: Search, milp: Milp) -> None:
    """What whole replicas on parts of machines cost at least: of hundreds of machines that is known long before what
    they cost on whole ones."""
    solution = solve_milp(
        milp.with_machines_in_parts().program,
        relative_gap=search.relative_gap,
        time_limit_s=search.seconds_left(),
    )
    search.bound = max(search.bound, min(solution.bound, search.cutoff()))
    search.report("replicas", search.value, max(search.bound, search.relaxation.bound))


def _solve(
    search: Search, milp: Milp, node_limit: int | None, time_share: float = 1.0, gap: float | None = None
) -> MilpSolution:
    """Run a MILP with routing to the search's gap or another; a better solution becomes the incumbent."""
    solution = solve_milp(
        milp.program,
        relative_gap=search.relative_gap if gap is None else gap,
        time_limit_s=search.seconds_left() * time_share,
        node_limit=node_limit,
        heuristic_effort=RENTAL_HEURISTIC_EFFORT,
    )
    if solution.x is not None and solution.objective < search.value:
        search.incumbent, search.value = milp.read(solution), solution.objective
    return solution
