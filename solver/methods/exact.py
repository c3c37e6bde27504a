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

Everything is minimised; throughput is minimised as -lam.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from sutler.solver.answer.losses import machines_of
from sutler.solver.answer.packing import pack
from sutler.solver.answer.routing import route, within
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import kv_network
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.linear import MilpSolution, solve_lp, solve_milp
from sutler.solver.polytope.milp import Allocation, Milp, build_milp
from sutler.solver.polytope.relaxation import Relaxation, most_lam, solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope, piece_groups
from sutler.solver.problem import Resilience
from sutler.solver.progress import SecondsLeft

Report = Callable[[str, float, float], None]

# What follows steers the searches. None of it decides what is right: bounds and gaps hold with any value. Unless a
# source is named a value was chosen: a larger one finds better plans, or closes the gap in fewer steps, on hard
# problems and costs time on easy ones.

# Columns of the MILPs that look for a plan: the best reduced costs overall, and so many of each model at least, that
# no model is left with the layouts of the relaxation alone.
_INCUMBENT_COLUMNS = 60
_COLUMNS_PER_MODEL = 12
_QUICK_COLUMNS, _QUICK_COLUMNS_PER_MODEL = 30, 6  # of alternatives, which are many and need not be the best
_FINISH_COLUMNS, _FINISH_COLUMNS_PER_MODEL = 20, 4  # of later goals, whose answers lie near the plan so far
_COLUMNS_PER_WIDEST = 3  # for so many columns one more that serves the most workloads on its kind of machines
_MIXED_COLUMNS = 150  # where replicas may serve fixed mixes: kinds of machines have more points that matter
_INCUMBENT_NODES = 300  # chosen, as all limits on nodes are: the same plan on any machine, some seconds at most
_QUICK_NODES, _QUICK_GAP = 20, 0.005  # what alternatives are good for: to tell half a percent

_MANY_NETWORKS = 3  # of two networks a search among all columns finds what one of them is good for
_NETWORKS_TRIED = 2  # each takes a MILP, and the second is for a first that misleads
_ONE_NETWORK_COLUMNS = 80  # between those of the first MILP and those for mixes: prefill and decode need both

_ONE_MILP = 400  # candidates, or survivors, that a single MILP may as well have all of, without steps before it
RENTAL_HEURISTIC_EFFORT = 0.2  # HiGHS's own is 0.05; with rentals and routing in the MILP good plans are found late
_CUTOFF_SHARE = 0.8  # of the allowed gap: the nearer to 1, the fewer survivors; the rest is for HiGHS's tolerances

# Inequalities on fleets take the place of routing in steps: on so many columns first, then on all survivors.
_FLEET_STEPS = (40, 150, 500)  # about four times as many each, as a MILP takes more than proportionally longer
_RESERVE_STEPS = _FLEET_STEPS[:2]  # where a reserve is kept: its MILPs are harder, and the proof needs its time
_FEW_ENOUGH = 3  # survivors per column of the last step at which all of them are searched: no more than a step
_FLEET_ROUNDS = 25  # of MILPs on one set of columns; each adds inequalities, and most sets need a few
_FLEET_NODES = 500  # of a MILP without routing, whose nodes are quick
_FLEET_GAP_SHARE = 0.5  # of the gap: the other half is for what the inequalities still claim too much
_SPARE_ROOM = (1.0, 1.25, 1.6, 2.0, 3.0, 4.0)  # times the load: where to look for a first fleet with a reserve
_RELAXED_ROUNDS = 40  # of LPs, which are quicker than the MILPs that they spare: solves took half the time with them
_RELAXED_CLOSE = 1e-5  # of lam, well below any gap that is asked for
_LEAST_RELAXED = 1e-9  # replicas of a relaxed fleet below this are the LP's rounding

# Fleets with their routing, where replicas serve fixed mixes: inequalities tell such fleets apart late.
_POINTS_NEARBY = 8  # of every kind of machines in use: operating points of one layout lie close together
_NEARBY_TIME_SHARE = 0.3  # of what is left, so that three searches that help leave a third for the proof
_ROUTED_COLUMNS = 400  # as many as a single MILP takes
_ROUTED_GAP = 0.02  # with more still open the routing is worth its columns
_ROUTED_TIME_SHARE = 0.5  # of what is left: the other half is the proof's
_ROUTED_PAIRS = 8000  # of survivors and columns of rates: no more for a MILP with its routing

_NEEDED_ROUNDS = 3  # of lower rates and closer relaxations: each gains less than the one before
_ROUNDING = 1e-6  # relative: HiGHS's mip_feasibility_tolerance


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What one phase ended with. `bound` is a lower limit of the minimum; `allocation` None: none found.

    proven: the search ended by its gap (or by proving infeasibility), not by a limit.
    relaxation: the closest that is known; stated: at the rates as they are, where that is another one.
    """

    allocation: Allocation | None
    objective: float
    bound: float
    proven: bool
    relaxation: Relaxation
    stated: Relaxation | None = None

    @property
    def prices(self) -> Relaxation:
        """The relaxation whose duals are shadow prices."""
        return self.stated or self.relaxation


def untold(phase: str, value: float, bound: float) -> None:
    """Report to nobody."""


def minimise(
    polytope: Polytope,
    goal: Goal,
    *,
    relative_gap: float,
    seconds_left: SecondsLeft,
    node_limit: int | None = None,
    report: Report = untold,
    start: Allocation | None = None,
) -> SearchOutcome:
    """Minimise a goal to a relative gap, or as far as time and nodes allow. `start`: known to be feasible."""
    relaxation = solve_relaxation(polytope, goal, start=None if start is None else start.candidate)
    if not np.isfinite(relaxation.objective):
        return SearchOutcome(None, np.inf, np.inf, True, relaxation)
    stated, (polytope, relaxation) = relaxation, as_busy_as_needed(polytope, goal, relaxation)
    if not np.isfinite(relaxation.objective):
        return SearchOutcome(None, np.inf, np.inf, True, stated)
    report("relaxation", np.nan, relaxation.bound)
    search = _Search(polytope, goal, relaxation, relative_gap, seconds_left, report, start)
    if polytope.problem.keeps_reserve:
        search.prove_without_routing(node_limit)
        return replace(search.outcome(), stated=stated)
    nodes = node_limit or _INCUMBENT_NODES
    for chosen in _on_one_network(polytope, relaxation):
        if not search.closed():
            search.improve(chosen, nodes)
    fleet_first, mixed = _routes_last(polytope, goal), bool(polytope.candidates.is_mix(polytope.problem).any())
    if not search.closed() and len(polytope.candidates) > _ONE_MILP and (mixed or not fleet_first):
        count = _MIXED_COLUMNS if mixed else _INCUMBENT_COLUMNS
        chosen = promising(polytope, relaxation, count)
        search.improve(chosen, nodes)
        if mixed:
            search.improve_nearby(nodes)
    many = len(search.survivors()[0]) > _ONE_MILP
    if not search.closed() and (many or fleet_first) and not (mixed and search.is_routed_sooner()):
        search.prove_without_routing(node_limit)
    if not search.closed() and search.seconds_left() > 0:
        search.prove(node_limit)
    return replace(search.outcome(), stated=stated)


def bare_of(polytope: Polytope) -> Polytope:
    """The same rows with nothing to survive; least numbers of replicas stay."""
    problem = replace(polytope.problem, resilience=Resilience())
    models = tuple(model.without_least_replicas() for model in problem.models)
    losses = replace(polytope.losses, names=(), stands=polytope.losses.stands[:0], of_any_machine=False)
    return replace(polytope, problem=replace(problem, models=models), losses=losses)


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
        most = most_lam(goal, relaxation) * polytope.offered[polytope.candidates.model] * (1 + _ROUNDING)
        needed = replace(polytope, rate=np.where(alone, np.minimum(rate, most), rate))
        if np.array_equal(needed.rate, polytope.rate):
            break
        found = solve_relaxation(needed, goal, columns=relaxation.columns)
        if not found.bound > relaxation.bound:
            break
        polytope, relaxation = needed, found
    return polytope, relaxation


def first_incumbent(polytope: Polytope, goal: Goal, seconds: float) -> Allocation | None:
    """The best allocation over the relaxation's most promising candidates: quick and good, not proven."""
    relaxation = solve_relaxation(polytope, goal)
    if not np.isfinite(relaxation.objective):
        return None
    search = _Search(polytope, goal, relaxation, _QUICK_GAP, lambda: seconds)
    search.improve(promising(polytope, relaxation, _QUICK_COLUMNS, _QUICK_COLUMNS_PER_MODEL), _QUICK_NODES)
    return search.incumbent


def near_best(
    polytope: Polytope,
    goal: Goal,
    relaxation: Relaxation,
    *,
    relative_gap: float,
    seconds: float,
    besides: IntArray | None = None,
) -> Allocation | None:
    """Searches as `first_incumbent`, over more candidates and from a known relaxation: what `minimise` starts
    from. `besides`: candidates that are searched in any case."""
    search = _Search(polytope, goal, relaxation, relative_gap, lambda: seconds)
    chosen = promising(polytope, relaxation, _INCUMBENT_COLUMNS)
    search.improve(chosen if besides is None else np.union1d(chosen, besides), _INCUMBENT_NODES)
    return search.incumbent


def _routes_last(polytope: Polytope, goal: Goal) -> bool:
    """Whether the fleet alone is a small MILP, as without rental variables: inequalities on it beat routing
    variables."""
    return len(polytope.cost_rent) == 0 and goal.lam_weight < 0


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
    search = _Search(polytope, goal, relaxation, relative_gap, seconds_left, incumbent=incumbent)
    if not search.closed():
        near = promising(polytope, relaxation, _FINISH_COLUMNS, _FINISH_COLUMNS_PER_MODEL)
        search.improve(np.union1d(near, incumbent.candidate), node_limit)
    return search.incumbent or incumbent


def objective_of(goal: Goal, allocation: Allocation) -> float:
    """The goal's value at an allocation."""
    return float(
        goal.lam_weight * allocation.lam
        + goal.use_cost[allocation.candidate] @ allocation.replicas
        + goal.rent_cost @ allocation.rented
    )


def promising(
    polytope: Polytope, relaxation: Relaxation, count: int, per_model: int = _COLUMNS_PER_MODEL
) -> IntArray:
    """The relaxation's support and the best reduced costs: `count` overall, at least `per_model` of each model; and
    of the best machines, however a relaxation of replicas that each suit one workload sees them, what serves most."""
    reduced = relaxation.reduced_cost_use
    chosen = [np.flatnonzero(relaxation.load > 1e-9), _smallest(reduced, np.arange(len(reduced)), count)]
    chosen += [
        _smallest(reduced, np.flatnonzero(polytope.candidates.model == model), per_model)
        for model in range(len(polytope.problem.models))
    ]
    chosen.append(_widest(polytope, reduced, count // _COLUMNS_PER_WIDEST))
    return np.unique(np.concatenate(chosen))


def _widest(polytope: Polytope, reduced: FloatArray, count: int) -> IntArray:
    """Returns of each of the `count` best kinds of machines the candidate that serves the most workloads, by reduced
    cost."""
    kinds = piece_groups(polytope.candidates)
    best = np.full(int(kinds.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, kinds, reduced)
    served = np.where(polytope.rate > 0, polytope.members[polytope.candidates.model], 0).sum(axis=1)
    order = np.lexsort((reduced, -served, kinds))
    widest = order[np.unique(kinds[order], return_index=True)[1]]
    return widest[_smallest(best, np.arange(len(best)), count)]


def surviving(polytope: Polytope, relaxation: Relaxation, slack: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Candidates, least and most machines of plans whose goal is at most `slack` above the relaxation's bound."""
    slack += 1e-9 * abs(relaxation.bound)
    chosen = np.flatnonzero(relaxation.reduced_cost_use <= slack)
    reduced, most = relaxation.reduced_cost_rent, polytope.rent_upper
    with np.errstate(divide="ignore", invalid="ignore"):
        moves = np.where(np.abs(reduced) > 1e-12, np.floor(slack / np.abs(reduced) + 1e-9), np.inf)
    upper = np.where(reduced > 0, np.minimum(most, moves), most)
    lower = np.where(reduced < 0, np.maximum(0.0, most - moves), 0.0)
    return chosen, lower, upper


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


def _smallest(values: FloatArray, rows: IntArray, count: int) -> IntArray:
    return rows[np.argsort(values[rows], kind="stable")[:count]]


@dataclass(slots=True)
class _Search:
    """Incumbent and bound of one goal while MILPs over ever better chosen columns run."""

    polytope: Polytope
    goal: Goal
    relaxation: Relaxation
    relative_gap: float
    seconds_left: SecondsLeft
    report: Report = untold
    incumbent: Allocation | None = None
    value: float = np.inf
    bound: float = -np.inf
    exhausted: bool = False  # the last search ran to its end
    claimed: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # the last fleet of a MILP

    def __post_init__(self) -> None:
        """What costs nothing is the best there is where no cost is negative, however the relaxation is rounded."""
        if self.incumbent is not None:
            self.value = objective_of(self.goal, self.incumbent)
        costs = np.concatenate([[self.goal.lam_weight], self.goal.use_cost, self.goal.rent_cost])
        if (costs >= 0).all():
            self.bound = 0.0

    def closed(self, relative_gap: float | None = None) -> bool:
        """The incumbent is within the gap of what is proven; None: the one that is asked for."""
        gap = self.relative_gap if relative_gap is None else relative_gap
        proven = max(self.bound, self.relaxation.bound)
        return bool(np.isfinite(self.value)) and self.value - proven <= gap * abs(self.value) + 1e-12

    def improve(self, chosen: IntArray, node_limit: int, time_share: float = 1.0) -> None:
        """Search among the chosen candidates only, within a share of the time that is left; proves nothing."""
        if self.polytope.problem.keeps_reserve:
            self._improve_among(self._bounds(), chosen, node_limit)
            return
        self._solve(
            build_milp(self.polytope, self.goal, chosen, most_lam=most_lam(self.goal, self.relaxation)),
            node_limit,
            time_share,
        )
        self.report("incumbent", self.value, self.relaxation.bound)

    def improve_nearby(self, node_limit: int) -> None:
        """Search among other ways to run the kinds of machines in use, as long as it helps; then more widely. Where
        replicas suit only some workloads, fleets look alike to inequalities long after routing tells them apart."""
        kinds, before = piece_groups(self.polytope.candidates), np.inf
        while not self.closed() and self.seconds_left() > 0 and self.value < before:
            before = self.value
            used = np.zeros(int(kinds.max()) + 1, dtype=np.bool_)
            used[kinds[self.relaxation.load > _LEAST_RELAXED]] = True
            if self.incumbent is not None:
                used[kinds[self.incumbent.candidate]] = True
            near = [
                _smallest(self.relaxation.reduced_cost_use, np.flatnonzero(kinds == kind), _POINTS_NEARBY)
                for kind in np.flatnonzero(used)
            ]
            own = np.zeros(0, dtype=np.int64) if self.incumbent is None else self.incumbent.candidate
            self.improve(np.unique(np.concatenate([*near, own])), node_limit, _NEARBY_TIME_SHARE)
        if not self.closed(_ROUTED_GAP) and self.seconds_left() > 0:
            few = promising(self.polytope, self.relaxation, _ROUTED_COLUMNS)
            self.improve(few, node_limit, _ROUTED_TIME_SHARE)

    def is_routed_sooner(self) -> bool:
        """Whether a MILP over fleets with their routing is the better bargain: much is open, few columns are left."""
        chosen, _, _ = self.survivors()
        return not self.closed(_ROUTED_GAP) and int((self.polytope.rate[chosen] > 0).sum()) <= _ROUTED_PAIRS

    def prove(self, node_limit: int | None) -> None:
        """Search everything that could be in a better plan; the bound then covers the whole problem."""
        cutoff = self._cutoff()
        chosen, rent_lower, rent_upper = self.survivors()
        milp = build_milp(
            self.polytope,
            self.goal,
            chosen,
            rent_lower=rent_lower,
            rent_upper=rent_upper,
            most_lam=most_lam(self.goal, self.relaxation),
        )
        solution = self._solve(milp, node_limit)
        self.bound = max(self.bound, min(solution.bound, cutoff))
        self.exhausted = solution.status in ("optimal", "infeasible")
        self.report("proof", self.value, max(self.bound, self.relaxation.bound))

    def _solve(self, milp: Milp, node_limit: int | None, time_share: float = 1.0) -> MilpSolution:
        """Run a MILP with routing; a better solution becomes the incumbent."""
        solution = solve_milp(
            milp.program,
            relative_gap=self.relative_gap,
            time_limit_s=self.seconds_left() * time_share,
            node_limit=node_limit,
            heuristic_effort=RENTAL_HEURISTIC_EFFORT,
        )
        if solution.x is not None and solution.objective < self.value:
            self.incumbent, self.value = milp.read(solution, self.polytope.rate.shape[1]), solution.objective
        return solution

    def prove_without_routing(self, node_limit: int | None) -> None:
        """Close the gap with inequalities on the fleet; every round is valid for the whole problem."""
        bounds = self._bounds()
        keeps_reserve = self.polytope.problem.keeps_reserve
        if self.incumbent is not None:
            own = self.incumbent.replicas.astype(np.float64)
            bounds.tighten(self.incumbent.candidate, own, bounds.most_lam)
        for count in _RESERVE_STEPS if keeps_reserve else _FLEET_STEPS:
            self.improve_without_routing(bounds, count, _FLEET_NODES)
            if keeps_reserve and self.incumbent is None:
                self._start_from_spare_room(bounds)
            if self.closed() or self.seconds_left() <= 0:
                return
            if len(bounds.undominated(self.survivors()[0])) <= _FEW_ENOUGH * count:
                break
        for _ in range(_FLEET_ROUNDS):
            if self.closed() or self.seconds_left() <= 0:
                return
            chosen = bounds.undominated(self.survivors()[0])
            if not self._fleet_round(bounds, chosen, node_limit, covers_all=True):
                break
            if keeps_reserve and not self.polytope.losses.of_any_machine:
                near = promising(self.polytope, self.relaxation, _FLEET_STEPS[0])
                self._improve_among(bounds, np.union1d(near, self.claimed))
        if self.polytope.losses.of_any_machine and not self.closed():
            self._improve_packed(bounds, self.survivors()[0], node_limit)

    def _start_from_spare_room(self, bounds: FleetBounds) -> None:
        """Fleets without regard to their reserve, for ever more load, until one of them has it by chance; where load
        is maximised, what the first may be loaded with."""
        polytope, goal = bare_of(self.polytope), self.goal
        for factor in _SPARE_ROOM if goal.lam_lower > 0 else (1.0,):
            wanted = replace(goal, lam_lower=goal.lam_lower * factor)
            relaxation = solve_relaxation(polytope, wanted)
            if not np.isfinite(relaxation.objective) or self.seconds_left() <= 0:
                return
            search = _Search(polytope, wanted, relaxation, _QUICK_GAP, self.seconds_left)
            search.improve(promising(polytope, relaxation, _INCUMBENT_COLUMNS), _QUICK_NODES)
            fleet = search.incumbent
            if fleet is not None:
                replicas, rented = fleet.replicas.astype(np.float64), float(fleet.rented.sum())
                carried = bounds.tighten(fleet.candidate, replicas, fleet.lam, rented)
                self._adopt(bounds, fleet.candidate, fleet.replicas, fleet.rented, carried)
            if self.incumbent is not None:
                return

    def _bounds(self) -> FleetBounds:
        """The inequalities that the relaxation knows."""
        keeps_reserve = self.polytope.problem.keeps_reserve
        most = most_lam(self.goal, self.relaxation) if keeps_reserve else np.inf
        bounds = FleetBounds(self.polytope, list(self.relaxation.cuts), most_lam=most)
        if not bounds.rows:
            bounds.add_relaxed(self.relaxation)
        return bounds

    def improve_without_routing(self, bounds: FleetBounds, count: int, node_limit: int) -> None:
        """Collect inequalities, and better incumbents on the way, on the `count` most promising candidates."""
        few = promising(self.polytope, self.relaxation, count)
        self._improve_among(bounds, few, node_limit)
        if self.polytope.losses.of_any_machine and not self.closed():
            self._improve_packed(bounds, few, node_limit)

    def _improve_among(self, bounds: FleetBounds, few: IntArray, node_limit: int = _FLEET_NODES) -> None:
        self._cut_relaxed(bounds, np.intersect1d(few, self.survivors()[0]))
        for _ in range(_FLEET_ROUNDS):
            left = bounds.undominated(np.intersect1d(few, self.survivors()[0]))
            if self.closed() or self.seconds_left() <= 0 or len(left) == 0:
                return
            if not self._fleet_round(bounds, left, node_limit, covers_all=False):
                return

    def _cut_relaxed(self, bounds: FleetBounds, chosen: IntArray) -> None:
        """Inequalities that cut off relaxed fleets: an LP each, they spare MILPs that would teach the same."""
        first = 1 + len(self.goal.rent_cost)
        for _ in range(_RELAXED_ROUNDS):
            if len(chosen) == 0 or self.seconds_left() <= 0:
                return
            program = bounds.program(self.goal, chosen)
            solution = solve_lp(replace(program, integer=np.zeros(len(program.cost), dtype=np.bool_)))
            if solution.x is None:
                return
            replicas, claimed = np.maximum(solution.x[first : first + len(chosen)], 0.0), float(solution.x[0])
            used = np.flatnonzero(replicas > _LEAST_RELAXED)
            carried = bounds.tighten(chosen[used], replicas[used], claimed)
            if carried >= claimed * (1 - _RELAXED_CLOSE):
                return
            self._cut_between(bounds, chosen[used], replicas[used])

    def _improve_packed(self, bounds: FleetBounds, chosen: IntArray, node_limit: int | None) -> None:
        """Search for fleets that survive the loss of a machine as they are packed: what stood together on one whose
        loss is too much is to be spared by every fleet that uses it. That is more than must hold: nothing is
        proven."""
        strict = replace(bounds, rows=list(bounds.rows), is_strict=True)
        for _ in range(_FLEET_ROUNDS):
            known, left = len(strict.rows), strict.undominated(np.intersect1d(chosen, self.survivors()[0]))
            if len(left):
                self._fleet_round(strict, left, node_limit or _FLEET_NODES, covers_all=False)
            if len(strict.rows) == known or self.closed() or self.seconds_left() <= 0:
                break

    def _lam_with_machines(self, bounds: FleetBounds, fleet: Allocation) -> float:
        """The load that the fleet may carry so that it survives the loss of any one machine, as it is packed."""
        rentals, placed = pack(self.polytope, fleet)
        on_machines = machines_of(self.polytope.problem, rentals, placed).values()
        fallen = {tuple(sorted(Counter(placed[n].candidate for n in numbers).items())) for numbers in on_machines}
        replicas = fleet.replicas.astype(np.float64)
        lams = [
            bounds.lam_after(fleet.candidate, replicas, fleet.lam, dict(each), adds=bounds.is_strict)
            for each in sorted(fallen)
        ]
        return min(lams, default=np.inf)

    def _cut_between(self, bounds: FleetBounds, candidate: IntArray, replicas: FloatArray) -> None:
        """An inequality between a fleet that claims too much and the incumbent."""
        if self.incumbent is None:
            return
        claim, plan = np.zeros(len(self.polytope.candidates)), np.zeros(len(self.polytope.candidates))
        claim[candidate], plan[self.incumbent.candidate] = replicas, self.incumbent.replicas
        bounds.tighten_between(claim, plan)

    def _fleet_round(
        self, bounds: FleetBounds, chosen: IntArray, node_limit: int | None, *, covers_all: bool
    ) -> bool:
        """One MILP over the fleet alone. True where its answer taught something: it carries less than claimed."""
        cutoff, goal = self._cutoff(), self.goal
        if np.isfinite(cutoff) and np.isfinite(most_lam(goal, self.relaxation)) and goal.lam_weight < 0:
            goal = replace(goal, lam_lower=max(goal.lam_lower, cutoff / goal.lam_weight))  # or it is no better
        _, rent_lower, rent_upper = self.survivors()
        program = bounds.program(
            goal,
            chosen,
            rent_lower=rent_lower if covers_all else None,
            rent_upper=rent_upper if covers_all else None,
        )
        close = gap = _FLEET_GAP_SHARE * self.relative_gap
        if self.polytope.problem.keeps_reserve and not covers_all:
            gap = max(close, _QUICK_GAP)
        solution = solve_milp(program, relative_gap=gap, time_limit_s=self.seconds_left(), node_limit=node_limit)
        if covers_all:
            self.bound = max(self.bound, min(solution.bound, cutoff))
            self.exhausted = self.exhausted or solution.status == "infeasible"
        if solution.x is None:
            return False
        first = 1 + len(self.goal.rent_cost)
        replicas = np.maximum(solution.x[first : first + len(chosen)], 0.0)
        rented = solution.x[1:first].astype(np.int64)
        used = np.flatnonzero(replicas > 0)
        claimed, self.claimed = float(solution.x[0]), chosen[used]
        known = len(bounds.rows)
        bounds.least_lam = 0.0 if self.incumbent is None else self.incumbent.lam
        carried = bounds.tighten(chosen[used], replicas[used], claimed, float(rented.sum()))
        if carried < claimed * (1 - _FLEET_GAP_SHARE * self.relative_gap):
            self._cut_between(bounds, chosen[used], replicas[used])
        self._adopt(bounds, chosen[used], replicas[used].astype(np.int64), rented, carried)
        self.report("fleet bounds", self.value, max(self.bound, self.relaxation.bound))
        return len(bounds.rows) > known and carried < claimed * (1 - close)

    def _adopt(
        self, bounds: FleetBounds, candidate: IntArray, replicas: IntArray, rented: IntArray, carried: float
    ) -> None:
        """Take a fleet as the incumbent if it carries what the goal asks for and is better; what it carries where any
        machine may be lost is known once it is packed."""
        share = np.zeros((len(candidate), self.polytope.rate.shape[1]))  # routed later, see answer/routing.py
        fleet = Allocation(candidate, replicas, share, rented, carried)
        if self.polytope.losses.of_any_machine and carried >= self.goal.lam_lower:
            carried = min(carried, self._lam_with_machines(bounds, fleet))
            fleet = replace(fleet, lam=carried)
        if carried < self.goal.lam_lower:
            return
        value = objective_of(self.goal, fleet)
        if value < self.value:
            is_capped = np.isfinite(bounds.most_lam) and not self.polytope.losses.of_any_machine
            if is_capped:  # it may carry more than the inequalities count
                carried = FleetBounds(self.polytope).tighten(candidate, replicas.astype(np.float64), np.inf)
            routed = within(route(self.polytope, fleet), carried)
            self.incumbent, self.value = replace(fleet, share=routed.share, lam=routed.lam), value

    def _cutoff(self) -> float:
        """Only plans better than this matter: the incumbent less most of the allowed gap."""
        if not np.isfinite(self.value):
            return np.inf
        return self.value - _CUTOFF_SHARE * self.relative_gap * abs(self.value)

    def survivors(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Candidates and machine counts that a plan better than the cutoff can have."""
        return surviving(self.polytope, self.relaxation, self._cutoff() - self.relaxation.bound)

    def outcome(self) -> SearchOutcome:
        bound = min(max(self.bound, self.relaxation.bound), self.value)
        proven = self.closed() or self.exhausted
        return SearchOutcome(self.incumbent, self.value, bound, proven, self.relaxation)
