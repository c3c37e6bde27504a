"""The exact method: LP bound, incumbent, reduced-cost fixing, MILP; one call per objective of the finish.

1. The relaxation by column generation gives a bound Z and a reduced cost for every candidate and offer class; it is
   solved again with replicas of a single column at no higher rates than whole ones need.
2. A MILP over the relaxation's support and the best reduced costs of each model gives an incumbent z; where replicas
   serve fixed mixes, others over the kinds of machines in use follow.
3. Whatever has a reduced cost above (cutoff - Z) is provably absent from every plan better than the cutoff and
   is dropped. The cutoff may be better than z by most of the allowed gap: then "nothing left" proves z as well.
4. What is left runs to the gap as a MILP. Its bound, or the cutoff if that is lower, bounds the whole problem.
   Where much is left, the MILP has no routing variables but inequalities on the fleet
   (polytope/fleet_bounds.py), found first on few columns, then on all that are left, until bound and incumbent meet.

Of few models, and of those that rent no whole machines, steps 2 to 4 are one tree over fleets (fleets_by_tree.py).
Everything is minimised; throughput is minimised as -lam.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from sutler.solver.arrays import IntArray
from sutler.solver.candidates.enumerate import Candidates, kv_network
from sutler.solver.methods import fleets_by_milp, fleets_by_tree, models_apart, with_routing
from sutler.solver.methods.fleets import bounds_of
from sutler.solver.methods.search import (
    INCUMBENT_COLUMNS,
    QUICK_NODES,
    ROUNDING,
    Report,
    Search,
    SearchOutcome,
    has_mixes,
    nearby_classes,
    promising,
    quick_gap,
    untold,
)
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.one_model import LEAST_MODELS
from sutler.solver.polytope.relaxation import Relaxation, most_lam, solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.progress import SecondsLeft, at_most

# Of later goals, whose answers lie near the plan so far.
_FINISH_COLUMNS, _FINISH_COLUMNS_PER_MODEL, _FINISH_CLASSES = 20, 4, 12
_MIXED_COLUMNS = 150  # where replicas may serve fixed mixes: kinds of machines have more points that matter
_INCUMBENT_NODES = 300  # chosen, as all limits on nodes are: the same plan on any machine, some seconds at most

_MANY_NETWORKS = 3  # of two networks a search among all columns finds what one of them is good for
_NETWORKS_TRIED = 2  # each takes a MILP, and the second is for a first that misleads
_ONE_NETWORK_COLUMNS = 80  # between those of the first MILP and those for mixes: prefill and decode need both

_ONE_MILP = 400  # candidates, or survivors, that a single MILP may as well have all of, without steps before it
_APART_TIME_SHARE = 0.75  # of what is left, where searches over all models find better plans
_PART_OF_GAP = 0.5  # what the models of a search may each leave open
_PART_NODES = 400  # of one model's tree, of which there are hundreds
_FEW_REPLICAS = 14  # of one model, relaxed
_EARLY_NODES = 3000  # of a tree before MILPs, some seconds: of 500 machines half of the problems end there
_NEEDED_ROUNDS = 3  # of lower rates and closer relaxations: each gains less than the one before


def minimise(
    polytope: Polytope,
    goal: Goal,
    *,
    relative_gap: float,
    seconds_left: SecondsLeft,
    node_limit: int | None = None,
    report: Report = untold,
    start: Allocation | None = None,
    before: SearchOutcome | None = None,
    is_part: bool = False,
    hopes: Candidates | None = None,
) -> SearchOutcome:
    """Minimise a goal to a relative gap, or as far as time and nodes allow.

    `start`: known to be feasible; `before`: of the same polytope and load, at other costs; `is_part`: of something
    larger, for which the gap is good enough; `hopes`: layouts that no plan may have, but that some bounds cover.
    """
    columns = None if before is None else before.relaxation.columns
    relaxation = solve_relaxation(polytope, goal, start=None if start is None else start.candidate, columns=columns)
    if not np.isfinite(relaxation.objective):
        return SearchOutcome(None, np.inf, np.inf, True, relaxation)
    stated, (polytope, relaxation) = relaxation, as_busy_as_needed(polytope, goal, relaxation)
    if not np.isfinite(relaxation.objective):
        return SearchOutcome(None, np.inf, np.inf, True, stated)
    report("relaxation", np.nan, relaxation.bound)
    if before is not None:
        relaxation = replace(relaxation, cuts=before.relaxation.cuts)
    search = Search(
        polytope, goal, relaxation, relative_gap, seconds_left, report, start, is_part=is_part, hopes=hopes
    )
    is_tried = fleets_by_tree.is_possible(polytope) if is_part else _is_by_tree(polytope)
    if is_tried:
        fleets_by_tree.prove(search, node_limit)
    elif node_limit is None and not has_mixes(polytope) and _is_apart(polytope, relaxation):
        _apart(search)
    if is_part and is_tried:
        return search.outcome()
    if search.is_open() and polytope.problem.keeps_reserve:
        fleets_by_milp.prove(search, node_limit)
    elif search.is_open():
        _with_routing(search, node_limit)
    return replace(search.outcome(), stated=stated)


def _apart(search: Search, time_share: float = 1.0) -> None:
    """Models one by one, in so much of the time that is left."""
    seconds_left = at_most(time_share * search.seconds_left(), search.seconds_left)
    models_apart.prove(search, partial(_one_of_several, search.relative_gap, seconds_left), seconds_left)


def _one_of_several(
    relative_gap: float,
    seconds_left: SecondsLeft,
    part: Polytope,
    goal: Goal,
    start: Allocation | None,
    before: SearchOutcome | None,
) -> SearchOutcome:
    """One model's part of a search that ends at this gap."""
    gap = _PART_OF_GAP * relative_gap
    return minimise(
        part,
        goal,
        relative_gap=gap,
        seconds_left=seconds_left,
        node_limit=_PART_NODES,
        start=start,
        before=before,
        is_part=True,
    )


def as_busy_as_needed(polytope: Polytope, goal: Goal, relaxation: Relaxation) -> tuple[Polytope, Relaxation]:
    """The same whole replicas at no higher rates than they need, and a relaxation that is closer to them.

    Where lam is lam_max at most, a replica of a single column never serves more of it than all that is asked for:
    fractions of replicas that could serve more are worth no more than that.
    """
    if polytope.problem.keeps_reserve:
        return polytope, relaxation  # whose inequalities know it
    rate, alone = polytope.rate, (polytope.rate > 0).sum(axis=1, keepdims=True) == 1
    for _ in range(_NEEDED_ROUNDS):
        if not np.isfinite(most_lam(goal, relaxation)):
            break
        most = most_lam(goal, relaxation) * polytope.offered[polytope.candidates.model] * (1 + ROUNDING)
        needed = replace(polytope, rate=np.where(alone, np.minimum(rate, most), rate))
        if np.array_equal(needed.rate, polytope.rate):
            break
        found = solve_relaxation(needed, goal, columns=relaxation.columns)
        if not found.bound > relaxation.bound:
            break
        polytope, relaxation = needed, found
    return polytope, relaxation


def quick(polytope: Polytope, goal: Goal, seconds_left: SecondsLeft) -> Allocation | None:
    """Within half a percent of the best, or the plan's own gap, where few nodes lead there; of several models, for
    which that takes seconds, the best among the relaxation's most promising candidates, if there is one. None: none
    was found."""
    gap, nodes = quick_gap(polytope), QUICK_NODES
    if len(polytope.problem.models) > 1 and not _is_by_tree(polytope):
        relaxation, seconds = solve_relaxation(polytope, goal), seconds_left()
        found = near_best(polytope, goal, relaxation, relative_gap=gap, seconds=seconds, node_limit=nodes)
        if found is not None:
            return found
    outcome = minimise(polytope, goal, relative_gap=gap, seconds_left=seconds_left, node_limit=nodes, is_part=True)
    return outcome.allocation


def near_best(
    polytope: Polytope,
    goal: Goal,
    relaxation: Relaxation,
    *,
    relative_gap: float,
    seconds: float,
    besides: IntArray | None = None,
    node_limit: int = _INCUMBENT_NODES,
) -> Allocation | None:
    """The best allocation over the relaxation's most promising candidates: what `minimise` starts from, not proven.
    `besides`: candidates that are searched in any case."""
    if not np.isfinite(relaxation.objective):
        return None
    search = Search(polytope, goal, relaxation, relative_gap, lambda: seconds)
    chosen = promising(polytope, relaxation, INCUMBENT_COLUMNS)
    _improve(search, chosen if besides is None else np.union1d(chosen, besides), node_limit)
    return search.incumbent


def finish(
    polytope: Polytope,
    goal: Goal,
    incumbent: Allocation,
    *,
    relative_gap: float,
    seconds_left: SecondsLeft,
    node_limit: int,
) -> Allocation:
    """A better allocation for a later goal, near the incumbent and the goal's own relaxation. Not proven."""
    relaxation = solve_relaxation(polytope, goal, start=incumbent.candidate)
    if not np.isfinite(relaxation.objective):
        return incumbent
    search = Search(polytope, goal, relaxation, relative_gap, seconds_left, incumbent=incumbent)
    if not search.closed():
        near = promising(polytope, relaxation, _FINISH_COLUMNS, _FINISH_COLUMNS_PER_MODEL)
        near = np.union1d(near, incumbent.candidate)
        if _is_by_tree(polytope) or polytope.problem.keeps_reserve:
            _improve(search, near, node_limit)
        else:
            classes = nearby_classes(incumbent.rented, (relaxation,), _FINISH_CLASSES)
            with_routing.improve_beside(search, near, classes, node_limit)
    return search.incumbent or incumbent


def _is_by_tree(polytope: Polytope) -> bool:
    """Whether the tree is tried before any MILP. Of several models with fixed mixes MILPs find better plans, for the
    tree to prove."""
    is_simple = polytope.problem.keeps_reserve or len(polytope.problem.models) == 1 or not has_mixes(polytope)
    return is_simple and fleets_by_tree.is_possible(polytope)


def _is_apart(polytope: Polytope, relaxation: Relaxation) -> bool:
    """Whether models are searched one by one. With fixed mixes a tree soon finds a model's fleet of few replicas,
    which costs much more than the relaxation knows; of many it finds none, and the relaxation is near."""
    if len(polytope.candidates) <= _ONE_MILP or not models_apart.is_possible(polytope):
        return False
    replicas = np.bincount(polytope.candidates.model, weights=relaxation.load)
    return not has_mixes(polytope) or bool(replicas.max() <= _FEW_REPLICAS)


def _with_routing(search: Search, node_limit: int | None) -> None:
    """Plans first, then the proof."""
    polytope, relaxation = search.polytope, search.relaxation
    nodes = node_limit or _INCUMBENT_NODES
    by_tree_later = not _is_by_tree(polytope) and fleets_by_tree.is_possible(polytope)
    if by_tree_later:
        fleets_by_tree.prove(search, min(node_limit or _EARLY_NODES, _EARLY_NODES))
    for chosen in _on_one_network(polytope, relaxation):
        if not search.closed():
            with_routing.improve(search, chosen, nodes)
    fleet_first, mixed = _routes_last(polytope, search.goal), has_mixes(polytope)
    if not search.closed() and len(polytope.candidates) > _ONE_MILP and (mixed or not fleet_first):
        count = _MIXED_COLUMNS if mixed else INCUMBENT_COLUMNS
        are_many = node_limit is None and len(polytope.problem.models) >= LEAST_MODELS
        with_routing.improve(search, promising(polytope, relaxation, count), QUICK_NODES if are_many else nodes)
        if are_many:
            if mixed and search.is_open() and _is_apart(polytope, relaxation):
                _apart(search, _APART_TIME_SHARE)
            with_routing.improve_by_models(search, nodes)
        elif mixed:
            with_routing.improve_nearby(search, nodes)
    if search.is_open() and by_tree_later:
        fleets_by_tree.prove(search, node_limit)
    many = len(search.survivors()[0]) > _ONE_MILP
    if search.is_open() and (many or fleet_first) and not (mixed and with_routing.is_routed_sooner(search)):
        fleets_by_milp.prove(search, node_limit)
    if search.is_open():
        with_routing.prove(search, node_limit)


def _improve(search: Search, chosen: IntArray, node_limit: int) -> None:
    """Search among the chosen candidates only; proves nothing."""
    if _is_by_tree(search.polytope):
        fleets_by_tree.improve(search, chosen, node_limit)
    elif search.polytope.problem.keeps_reserve:
        fleets_by_milp.improve_among(search, bounds_of(search), chosen, node_limit)
    else:
        with_routing.improve(search, chosen, node_limit)


def _routes_last(polytope: Polytope, goal: Goal) -> bool:
    """Whether the fleet alone is a small MILP, as without rental variables: inequalities on it beat routing
    variables."""
    return len(polytope.cost_rent) == 0 and goal.lam_weight < 0


def _on_one_network(polytope: Polytope, relaxation: Relaxation) -> list[IntArray]:
    """Candidates that hand over on one network alone, or not at all, for each of the networks that the relaxation
    uses most: on many alike it spreads what a plan has on one, and a search among all of them finds little."""
    network = kv_network(polytope.candidates, polytope.supply)
    known = np.unique(network[network >= 0])
    if len(known) < _MANY_NETWORKS:
        return []
    load = [float(relaxation.load[network == each].sum()) for each in known]
    used = known[np.argsort(load)[::-1][:_NETWORKS_TRIED]]
    everything = np.arange(len(network))
    best = [everything[(network < 0) | (network == each)] for each in used]
    return [
        rows[np.argsort(relaxation.reduced_cost_use[rows], kind="stable")[:_ONE_NETWORK_COLUMNS]] for rows in best
    ]
