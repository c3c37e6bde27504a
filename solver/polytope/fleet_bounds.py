"""What a fleet can carry at most, as linear inequalities in the replica counts alone.

With the fleet fixed, routing model m is an LP whose dual prices a request of each workload: for any prices
p with sum_w f[w] p[w] = 1,

    lam  <=  sum_c y[c] * max_w p[w] h[c, w]                                              (fleet/<model>)

since no replica earns more per second than on its best-paid workload, or with a fixed mix on all of its workloads.
Some prices are below 0 where mixes bring more of a workload than is asked for. Where prefill and decode run apart a
prompt has a price q >= 0 of its own on every network: prefill replicas earn q[w], decode replicas p[w] - q[w], and
what would lose is left alone. The best prices make it tight (LP duality), so the routing variables can be left out of
the MILP and their rows replaced by the few such inequalities that matter (Benders decomposition). A MILP without
routing has a tenth of the columns, and many candidates that differ only in how they suit particular workloads become
equal.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.polytope.linear import LinearProgram, solve_lp
from sutler.solver.polytope.relaxation import Relaxation, demand_entries, gains
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.polytope.sparse import Entries, column_of, entries_of, stacked

_NEW_PRICES = 1e-7  # relative: HiGHS's tolerance; prices that cut off less are those that are known
_MOST_COMPARISONS = 1e9  # some seconds; beyond that the larger MILP is the better bargain


@dataclass(slots=True)
class FleetBounds:
    """The inequalities found so far: `earned` [C] per inequality, zero outside its model."""

    polytope: Polytope
    earned: list[FloatArray] = field(default_factory=list)

    def add_relaxed(self, relaxation: Relaxation) -> None:
        """The relaxation's own prices, one inequality per model; a provider's share has none here."""
        num_demands = len(self.polytope.demands)
        for model, rows in enumerate(_demands_by_model(self.polytope)):
            fraction = np.array([self.polytope.demands[d].fraction for d in rows])
            duals = relaxation.demand_duals.copy()
            duals[num_demands : num_demands + len(self.polytope.limited_providers)] = 0.0
            if (self.polytope.members[model] <= 1).all() or fraction @ duals[rows] <= 0:
                duals[rows] = np.maximum(np.abs(duals[rows]), 1e-12)
            self._add(model, duals / float(fraction @ duals[rows]))

    def tighten(self, candidate: IntArray, replicas: FloatArray, lam: float) -> float:
        """What the fleet really carries; adds an inequality for every model where that is less than `lam`."""
        carried = np.inf
        for model in range(len(self.polytope.problem.models)):
            own, prices = _carried(self.polytope, model, candidate, replicas)
            carried = min(carried, own)
            if own < lam * (1 - _NEW_PRICES):
                self._add(model, prices)
        return carried

    def tighten_between(self, first: FloatArray, second: FloatArray) -> None:
        """Inequalities at the mean of two fleets [C]: between a claim and a plan they cut deepest (in-out separation,
        Ben-Ameur & Neto, Networks 2007)."""
        mean = (first + second) / 2
        used = np.flatnonzero(mean > 0)
        self.tighten(used, mean[used], np.inf)

    def _add(self, model: int, prices: FloatArray) -> None:
        """`prices` [D + providers + flows], normalised to sum_w f[w] p[w] = 1 over the model's demands; those of
        prompts as negative numbers, as duals of the flow rows are."""
        best = np.maximum(gains(self.polytope, prices).max(axis=1), 0.0)
        self.earned.append(np.where(self.polytope.candidates.model == model, best, 0.0))

    def undominated(self, chosen: IntArray) -> IntArray:
        """The chosen candidates that no single other beats in every inequality at no more of any resource.

        Dropping the rest keeps the optimum of the MILP with the present inequalities.
        """
        models = self.polytope.candidates.model[chosen]
        parts = [self._undominated_of_one_model(chosen[models == model]) for model in np.unique(models)]
        return np.sort(np.concatenate(parts)) if parts else chosen

    def _undominated_of_one_model(self, chosen: IntArray) -> IntArray:
        asked = self.polytope.use[:, chosen].toarray().T  # cost and watts are among the rows
        asked = asked[:, asked.any(axis=0)]
        earned = np.array(self.earned)[:, chosen].T
        earned = earned[:, earned.any(axis=0)]
        order = np.argsort(-earned.sum(axis=1), kind="stable")
        left, asked, earned = chosen[order], asked[order], earned[order]
        first, comparisons = 0, 0
        while first < len(left) and comparisons < _MOST_COMPARISONS:
            beaten: BoolArray = (asked[first] <= asked + 1e-9).all(axis=1)
            beaten &= (earned[first] >= earned - 1e-12).all(axis=1)
            beaten[first] = False
            comparisons += asked.size + earned.size
            first += 1 - int(beaten[:first].sum())
            if beaten.any():
                left, asked, earned = left[~beaten], asked[~beaten], earned[~beaten]
        return np.sort(left)

    def program(
        self,
        goal: Goal,
        chosen: IntArray,
        *,
        rent_lower: FloatArray | None = None,
        rent_upper: FloatArray | None = None,
    ) -> LinearProgram:
        """The MILP over lam, u [K] and y [chosen], with the inequalities in place of routing."""
        polytope = self.polytope
        num_rent, num_rows = len(polytope.cost_rent), len(self.earned)
        earned = entries_of(csr_array(-np.array(self.earned)[:, chosen]))
        used, rented = entries_of(polytope.use[:, chosen]), entries_of(polytope.rent)
        matrix = stacked(
            (1, num_rent, len(chosen)), [[column_of(np.ones(num_rows)), None, earned], [None, rented, used]]
        )
        lower = np.zeros(num_rent) if rent_lower is None else rent_lower
        upper = polytope.rent_upper if rent_upper is None else rent_upper
        return LinearProgram(
            cost=np.concatenate([[goal.lam_weight], goal.rent_cost, goal.use_cost[chosen]]),
            matrix=matrix,
            row_lower=np.full(matrix.shape[0], -np.inf),
            row_upper=np.concatenate([np.zeros(num_rows), polytope.limit]),
            lower=np.concatenate([[goal.lam_lower], lower, np.zeros(len(chosen))]),
            upper=np.concatenate([[np.inf], upper, polytope.use_upper[chosen]]),
            integer=np.concatenate([[False], np.ones(num_rent + len(chosen))]).astype(np.bool_),
        )


def _demands_by_model(polytope: Polytope) -> list[IntArray]:
    models = np.array([demand.model for demand in polytope.demands])
    return [np.flatnonzero(models == m) for m in range(len(polytope.problem.models))]


def _carried(polytope: Polytope, model: int, candidate: IntArray, replicas: FloatArray) -> tuple[float, FloatArray]:
    """lam that the fleet's replicas of one model carry, and the prices that prove it, as `FleetBounds._add` has them.

    The dual of the routing LP: minimise sum_c y[c] v[c] with v[c] at least what c earns on each column at the prices
    p and q, v and q >= 0, and sum_w f[w] p[w] = 1; p >= 0 without mixes, where no harm is in serving too much.
    """
    own = candidate[np.flatnonzero(polytope.candidates.model[candidate] == model)]
    weights = replicas[np.flatnonzero(polytope.candidates.model[candidate] == model)]
    part, column = np.nonzero(polytope.rate[own] > 0)
    demand, asked = demand_entries(polytope, own[part], column), _demands_by_model(polytope)[model]
    pairs, prices, fleet = len(part), polytope.num_rate_rows, len(own)
    fractions = np.array([polytope.demands[d].fraction for d in asked])
    normalised = Entries(fractions, np.zeros(len(asked), dtype=np.int64), asked, 1)
    spent = Entries(np.full(pairs, -1.0), np.arange(pairs), part, pairs)
    num_demands, num_shares = len(polytope.demands), len(polytope.limited_providers)
    of_demands = np.full(num_demands, -np.inf if (polytope.members[model] > 1).any() else 0.0)
    of_prompts = np.full(polytope.num_flows, -np.inf)
    program = LinearProgram(
        cost=np.concatenate([np.zeros(prices), weights]),
        matrix=stacked((prices, fleet), [[demand.transposed(pairs), spent], [normalised, None]]),
        row_lower=np.append(np.full(pairs, -np.inf), 1.0),
        row_upper=np.append(np.zeros(pairs), 1.0),
        lower=np.concatenate([of_demands, np.zeros(num_shares), of_prompts, np.zeros(fleet)]),
        upper=np.concatenate([np.full(num_demands, np.inf), np.zeros(prices - num_demands), np.full(fleet, np.inf)]),
        integer=np.zeros(prices + fleet, dtype=np.bool_),
    )
    solution = solve_lp(program)
    assert solution.x is not None
    return solution.objective, solution.x[:prices]
