"""What a search for the minimum of one goal knows so far: the best plan, what is proven, and what may be better.

Flow: exact.minimise makes a Search -> fleets_by_tree, fleets_by_milp and with_routing improve it -> SearchOutcome.

Everything is minimised; throughput is minimised as -lam.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.enumerate import Candidates
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Goal, Polytope, piece_groups
from sutler.solver.progress import SecondsLeft

Report = Callable[[str, float, float], None]

# Here and in the searches: what steers them. None of it decides what is right: bounds and gaps hold with any value.
# Unless a source is named a value was chosen: a larger one finds better plans, or closes the gap in fewer steps, on
# hard problems and costs time on easy ones.

# Columns of the searches for a plan: the best reduced costs overall, and so many of each model at least, that no
# model is left with the layouts of the relaxation alone.
INCUMBENT_COLUMNS = 60
COLUMNS_PER_MODEL = 12
QUICK_NODES, QUICK_GAP = 20, 0.005  # what alternatives are good for: to tell half a percent, where the plan does
CUTOFF_SHARE = 0.8  # of the allowed gap: the nearer to 1, the fewer survivors; the rest is for HiGHS's tolerances
LEAST_RELAXED = 1e-9  # replicas of a relaxed fleet below this are the LP's rounding
ROUNDING = 1e-6  # relative: HiGHS's mip_feasibility_tolerance
_COLUMNS_PER_WIDEST = 3  # for so many columns one more that serves the most workloads on its kind of machines


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What one phase ended with. `bound` is a lower limit of the minimum; `allocation` None: none found.

    proven: the search ended by its gap (or by proving infeasibility), not by a limit.
    relaxation: the closest that is known; stated: at the rates as they are, where that is another one. covered: a
    lower limit of plans with layouts that were not rated, too.
    """

    allocation: Allocation | None
    objective: float
    bound: float
    proven: bool
    relaxation: Relaxation
    stated: Relaxation | None = None
    covered: float = -np.inf

    def at_least(self, objective: float) -> "SearchOutcome":
        """The same where other plans may cost as little as this."""
        if objective >= self.bound:
            return self
        return replace(self, bound=objective, proven=False)

    @property
    def prices(self) -> Relaxation:
        """The relaxation whose duals are shadow prices."""
        return self.stated or self.relaxation


def untold(phase: str, value: float, bound: float) -> None:
    """Report to nobody."""


@dataclass(slots=True)
class Search:
    """Incumbent and bound of one goal while searches over ever better chosen columns run.

    `hopes`: layouts that were not rated, each with what it carries at most; `covered`: a bound of plans with them.
    """

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
    is_part: bool = False  # of a larger search, for which its gap is good enough
    hopes: Candidates | None = None
    covered: float = -np.inf
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

    def is_open(self) -> bool:
        """Whether there is more to search, and time for it."""
        return not self.closed() and not self.exhausted and self.seconds_left() > 0

    def cutoff(self, relative_gap: float | None = None) -> float:
        """Only plans better than this matter: the incumbent less most of the allowed gap, or less a given one."""
        if not np.isfinite(self.value):
            return np.inf
        gap = CUTOFF_SHARE * self.relative_gap if relative_gap is None else relative_gap
        return self.value - gap * abs(self.value)

    def survivors(self, relative_gap: float | None = None) -> tuple[IntArray, FloatArray, FloatArray]:
        """Candidates and machine counts that a plan better than the cutoff can have."""
        return surviving(self.polytope, self.relaxation, self.cutoff(relative_gap) - self.relaxation.bound)

    def outcome(self) -> SearchOutcome:
        bound = min(max(self.bound, self.relaxation.bound), self.value)
        proven = self.closed() or self.exhausted
        return SearchOutcome(self.incumbent, self.value, bound, proven, self.relaxation, covered=self.covered)


def has_mixes(polytope: Polytope) -> bool:
    """Whether replicas may serve fixed mixes: inequalities tell such fleets apart late."""
    return bool(polytope.candidates.is_mix(polytope.problem).any())


def quick_gap(polytope: Polytope) -> float:
    """What a fleet beside the plan may leave open: half a percent, or as much as the plan may."""
    return max(QUICK_GAP, polytope.problem.options.relative_gap)


def objective_of(goal: Goal, allocation: Allocation) -> float:
    """The goal's value at an allocation."""
    return float(
        goal.lam_weight * allocation.lam
        + goal.use_cost[allocation.candidate] @ allocation.replicas
        + goal.rent_cost @ allocation.rented
    )


def promising(polytope: Polytope, relaxation: Relaxation, count: int, per_model: int = COLUMNS_PER_MODEL) -> IntArray:
    """The relaxation's support and the best reduced costs: `count` overall, at least `per_model` of each model; and
    of the best machines, however a relaxation of replicas that each suit one workload sees them, what serves most."""
    reduced = relaxation.reduced_cost_use
    chosen = [np.flatnonzero(relaxation.load > 1e-9), smallest(reduced, np.arange(len(reduced)), count)]
    chosen += [
        smallest(reduced, np.flatnonzero(polytope.candidates.model == model), per_model)
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
    return widest[smallest(best, np.arange(len(best)), count)]


def nearby_classes(rented: IntArray, relaxations: Sequence[Relaxation], count: int) -> BoolArray:
    """[K] classes of machines that a fleet or a relaxation rents, and the `count` best of each relaxation."""
    near = np.asarray(rented > 0)
    for known in relaxations:
        near |= known.rented > ROUNDING
        near[smallest(np.maximum(known.reduced_cost_rent, 0.0), np.arange(len(near)), count)] = True
    return near


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


def of_kinds_in_use(search: Search, kinds: IntArray, count: int) -> IntArray:
    """The `count` best points of each of the kinds [num_candidates] that the relaxation or the plan has."""
    used = np.zeros(int(kinds.max()) + 1, dtype=np.bool_)
    used[kinds[search.relaxation.load > LEAST_RELAXED]] = True
    if search.incumbent is not None:
        used[kinds[search.incumbent.candidate]] = True
    reduced = search.relaxation.reduced_cost_use
    near = [smallest(reduced, np.flatnonzero(kinds == kind), count) for kind in np.flatnonzero(used)]
    return np.unique(np.concatenate(near))


def smallest(values: FloatArray, rows: IntArray, count: int) -> IntArray:
    """The rows of the `count` least values, ascending; of equal values the first."""
    of_rows = values[rows]
    if len(rows) > count > 0:  # sorting few is what makes it quick
        few = np.flatnonzero(of_rows <= np.partition(of_rows, count - 1)[count - 1])
        rows, of_rows = rows[few], of_rows[few]
    return rows[np.argsort(of_rows, kind="stable")[:count]]
