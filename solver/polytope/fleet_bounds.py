"""What a fleet can carry at most, as linear inequalities in the replica counts alone.

With the fleet fixed, routing model m is an LP whose dual prices a request of each workload: for any prices
p with sum_w f[w] p[w] = 1,

    lam  <=  sum_c y[c] * max_w p[w] h[c, w]                                              (fleet/<model>)

since no replica earns more per second than on its best-paid workload, or with a fixed mix on all of its workloads.
Some prices are below 0 where mixes bring more of a workload than is asked for. Where prefill and decode run apart a
prompt has a price q >= 0 of its own on every network: prefill replicas earn q[w], decode replicas p[w] - q[w], and
what would lose is left alone. A limited share s of the requests has a price sigma >= 0: members earn p[w] - sigma,
sum_w f[w] p[w] - s sigma = 1, and the inequality is one for all models, since the share is of all that is routed.
The best prices make it tight (LP duality), so the routing variables can be left out of the MILP and their rows
replaced by the few such inequalities that matter (Benders decomposition). A MILP without routing has a tenth of the
columns, and many candidates that differ only in how they suit particular workloads become equal.

What has to be carried after a loss is the same inequality over what stands (losses.py). Where any one machine may be
lost, used[c] is 1 for candidates with replicas, and what falls with c is subtracted where it is used. And of M
machines one has at least the M-th part of what a fleet earns at any prices, A = sum_c y[c] a[c], however packed:

    rho * load  <=  A (1 - 1/M)

For a load that is given that is A >= rho * load * M / (M - 1), convex in M; else, with A at least what the best plan
so far carries, A_0, it is rho * lam <= A - A_0 / M. Both are lines between whole numbers of machines.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.polytope.column_generation import FleetRow, Relaxation, demand_entries, gains, lam_column
from sutler.solver.polytope.linear import LinearProgram, solve_lp
from sutler.solver.polytope.rows import RARE, Goal, Polytope
from sutler.solver.polytope.sparse import Entries, column_of, diagonal, entries_of, ones, stacked

_NEW_PRICES = 1e-7  # relative: HiGHS's tolerance; prices that cut off less are those that are known
_NONE = np.zeros(0, dtype=np.int64)
_MOST_COMPARISONS = 1e9  # some seconds; beyond that the larger MILP is the better bargain


@dataclass(slots=True)
class FleetBounds:
    """The inequalities found so far. `least_lam`: only fleets that carry more are of interest; `most_lam`: none needs
    to carry more, so that a replica earns nothing with what is beyond that.

    `is_strict`: more is asked than must hold: what fell together with a machine is spared wherever it is used, and of
    machines that several offers are slices of one slice is rented.
    """

    polytope: Polytope
    rows: list[FleetRow] = field(default_factory=list)
    least_lam: float = 0.0
    most_lam: float = np.inf
    is_strict: bool = False

    @property
    def earned(self) -> FloatArray:
        """[inequalities, C] what a replica of each candidate adds to what may be carried."""
        return np.array([row.earned for row in self.rows])

    def add_relaxed(self, relaxation: Relaxation) -> None:
        """The relaxation's own prices, one inequality per group of models that are routed together."""
        num_demands = len(self.polytope.demands)
        shares = slice(num_demands, num_demands + len(self.polytope.shares))
        for models in _routed_together(self.polytope):
            duals, normal = relaxation.demand_duals.copy(), _normal(self.polytope, models)
            if (self.polytope.members[models] <= 1).all():
                duals[:num_demands] = np.maximum(np.abs(duals[:num_demands]), 1e-12)
            if normal @ duals <= 0:
                duals[:num_demands] = np.maximum(np.abs(duals[:num_demands]), 1e-12)
                duals[shares] = 0.0
            earned = _earned(self.polytope, models, duals / float(normal @ duals), self.most_lam)
            self.rows.append(FleetRow(earned))

    def of_workloads(self) -> list[FleetRow]:
        """What each demand by itself asks of a fleet."""
        found, num_demands = [], len(self.polytope.demands)
        for models in _routed_together(self.polytope):
            normal = _normal(self.polytope, models)
            for demand in np.flatnonzero(normal[:num_demands] > 0):
                prices = np.zeros(self.polytope.num_rate_rows)
                prices[demand] = 1 / normal[demand]
                found.append(FleetRow(_earned(self.polytope, models, prices, self.most_lam)))
        return found

    def tighten(self, candidate: IntArray, replicas: FloatArray, lam: float, rented: float | None = None) -> float:
        """What the fleet may carry, so that what stands after each loss carries what it has to; adds the inequalities
        that show it where that is less than `lam`.

        `rented`: machines, of a fleet of whole replicas; None: losses of machines are not asked of it.
        """
        polytope, losses = self.polytope, self.polytope.losses
        carried = self._tighten(candidate, replicas, lam)
        if not losses.any:
            return carried
        after = polytope.without_shares()
        needed, least = losses.needed(lam, polytope.scale_rps), self._tighten_lost(after, candidate, replicas, lam)
        if losses.of_any_machine and rented is not None:
            for fallen in candidate.tolist():
                least = min(least, self._tighten_after(after, candidate, replicas, needed, {fallen: 1}))
            least = min(least, self._tighten_shared(after, candidate, replicas, needed, rented))
        return min(carried, losses.lam_with(least, polytope.scale_rps))

    def lam_after(
        self, candidate: IntArray, replicas: FloatArray, lam: float, fallen: Mapping[int, int], *, adds: bool
    ) -> float:
        """What the fleet may carry so that it survives the loss of so many replicas of some candidates. `adds`:
        inequalities that ask this, where it is less than `lam`, of every fleet that uses these: more than must hold
        where several replicas fall."""
        losses, scale, known = self.polytope.losses, self.polytope.scale_rps, len(self.rows)
        after, needed = self.polytope.without_shares(), losses.needed(lam, scale)
        left = self._tighten_after(after, candidate, replicas, needed, fallen)
        if not adds:
            del self.rows[known:]
        return losses.lam_with(left, scale)

    def tighten_between(self, first: FloatArray, second: FloatArray) -> None:
        """Inequalities at the mean of two fleets [C]: between a claim and a plan they cut deepest (in-out separation,
        Ben-Ameur & Neto, Networks 2007)."""
        mean = (first + second) / 2
        used = np.flatnonzero(mean > 0)
        self.tighten(used, mean[used], self.most_lam)

    def _tighten(self, candidate: IntArray, replicas: FloatArray, lam: float) -> float:
        """What replicas carry before any loss."""
        carried = np.inf
        for models, own, prices in _carried(self.polytope, candidate, replicas, self.most_lam):
            carried = min(carried, own)
            if own < lam * (1 - _NEW_PRICES):
                self.rows.append(FleetRow(_earned(self.polytope, models, prices, self.most_lam)))
        return carried

    def _tighten_lost(self, after: Polytope, candidate: IntArray, replicas: FloatArray, lam: float) -> float:
        """What replicas carry after the worst loss for them. Prices that show that one is too much for the fleet are
        an inequality for each of its losses: what it would be changed to has the others to survive as well."""
        losses, scale, least = self.polytope.losses, self.polytope.scale_rps, np.inf
        needed, most = losses.needed(lam, scale), losses.needed(self.most_lam, scale)
        hurting = losses.stands[~losses.stands[:, candidate[replicas > 0]].all(axis=1)]
        for stands in hurting:
            for models, own, prices in _carried(after, candidate, replicas * stands[candidate], most):
                least = min(least, own)
                if own < needed * (1 - _NEW_PRICES):
                    earned, fixed = _earned(after, models, prices, most), losses.fixed(scale)
                    self.rows += [FleetRow(earned * left, losses.lam_share, fixed) for left in hurting]
        return least

    def _tighten_after(
        self, after: Polytope, candidate: IntArray, replicas: FloatArray, needed: float, fallen: Mapping[int, int]
    ) -> float:
        """What is carried after a loss of replicas, by candidate."""
        losses, counts = self.polytope.losses, np.array([float(fallen.get(c, 0)) for c in candidate.tolist()])
        carried, most = np.inf, losses.needed(self.most_lam, self.polytope.scale_rps)
        for models, own, prices in _carried(after, candidate, np.maximum(replicas - counts, 0.0), most):
            carried = min(carried, own)
            if not own < needed * (1 - _NEW_PRICES):
                continue
            earned = _earned(after, models, prices, most)
            falling = np.zeros(len(earned))
            falling[candidate] = earned[candidate] * counts
            fixed = losses.fixed(self.polytope.scale_rps)
            self.rows.append(FleetRow(earned, losses.lam_share, fixed, falling))
        return carried

    def _tighten_shared(
        self, after: Polytope, candidate: IntArray, replicas: FloatArray, needed: float, rented: float
    ) -> float:
        """At most what is carried after the loss of the machine with the most, of so many."""
        losses = self.polytope.losses
        pieces = _direct_pieces(self.polytope)
        machines = round(rented + float(pieces[candidate] @ replicas))
        if machines < 2:
            self.rows.append(FleetRow(pieces, 0.0, 2.0, machine=1.0))
            return 0.0
        least, n = np.inf, machines
        for models, own, prices in _carried(after, candidate, replicas, self.most_lam):
            left = own * (1 - 1 / n)
            least = min(least, left)
            if not left < needed * (1 - _NEW_PRICES):
                continue
            earned = _earned(after, models, prices, self.most_lam)
            fixed = losses.fixed(self.polytope.scale_rps)
            if losses.load_rps is None:
                slope = self.least_lam / (n * (n + 1))
                fixed = slope * (2 * n + 1)
            else:
                slope = fixed / (n * (n - 1))
                fixed *= n / (n - 1) + 1 / (n - 1)
            self.rows.append(FleetRow(earned + slope * pieces, losses.lam_share, fixed, machine=slope))
        return least

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
        earned = self.earned[:, chosen].T
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
        """The MILP over lam, u [K] and y [chosen], with the inequalities in place of routing, first of its rows; then
        used, of those chosen that something falls with."""
        polytope, rows = self.polytope, self.rows
        num_rent, fleet = len(polytope.cost_rent), len(chosen)
        falling = np.zeros((len(rows), fleet))
        for number, row in enumerate(rows):
            if row.falling is not None:
                falling[number] = row.falling[chosen]
        marked = np.flatnonzero(falling.any(axis=0))
        earned = entries_of(csr_array(-self.earned[:, chosen]))
        used, rented = entries_of(polytope.use[:, chosen]), entries_of(polytope.rent)
        most = polytope.use_upper[chosen]
        runs = Entries(np.ones(len(marked)), np.arange(len(marked)), marked, len(marked))
        of_machines = entries_of(csr_array(np.outer([-row.machine for row in rows], np.ones(num_rent))))
        of_lam = column_of(np.array([row.lam for row in rows]))
        tied = _machines_shared(polytope) if self.is_strict else ones(_NONE, _NONE, 0)
        matrix = stacked(
            (1, num_rent, fleet, len(marked)),
            [
                [of_lam, of_machines, earned, entries_of(csr_array(falling[:, marked]))],
                [None, rented, used, None],
                [None, None, runs, diagonal(-most[marked])],
                [None, tied, None, None],
            ],
        )
        lower = np.zeros(num_rent) if rent_lower is None else rent_lower
        upper = polytope.rent_upper if rent_upper is None else rent_upper
        fixed = np.array([-row.fixed for row in rows])
        counted = num_rent + fleet + len(marked)
        return LinearProgram(
            cost=np.concatenate([[goal.lam_weight], goal.rent_cost, goal.use_cost[chosen], np.zeros(len(marked))]),
            matrix=matrix,
            row_lower=np.full(matrix.shape[0], -np.inf),
            row_upper=np.concatenate([fixed, polytope.limit, np.zeros(len(marked)), np.ones(tied.height)]),
            lower=np.concatenate([[goal.lam_lower], lower, np.zeros(fleet + len(marked))]),
            upper=np.concatenate([[max(self.most_lam, goal.lam_lower)], upper, most, np.ones(len(marked))]),
            integer=np.concatenate([[False], np.ones(counted)]).astype(np.bool_),
        )


def _machines_shared(polytope: Polytope) -> Entries:
    """[machines, K] ones at the classes of each machine that offers say they are slices of."""
    offers, rows = polytope.problem.offers, list[int]()
    number: dict[tuple[str, str], int] = {}
    columns = []
    for k, offer_class in enumerate(polytope.supply.classes):
        offer = offers[offer_class.offers[0][0]]
        if offer.machine_id is not None:
            rows.append(number.setdefault((offer.provider, offer.machine_id), len(number)))
            columns.append(k)
    return ones(np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64), len(number))


def _direct_pieces(polytope: Polytope) -> FloatArray:
    """[C] machines that a replica takes in pools without rental variables: one for each of its pieces."""
    pools = range(len(polytope.supply.pools))
    direct = np.array([*(pool in polytope.supply.gpu_price_usd_per_hour for pool in pools), False])
    return np.asarray(direct[polytope.candidates.piece_pool].sum(axis=1, dtype=np.float64))


def _routed_together(polytope: Polytope) -> list[IntArray]:
    """Models whose routing is one program: each by itself, all of them where shares of all requests are limited."""
    models = np.arange(len(polytope.problem.models))
    return [models] if polytope.shares else [models[[m]] for m in models]


def _normal(polytope: Polytope, models: IntArray) -> FloatArray:
    """[D + shares + flows] what prices are normalised over: the demands of these models and the limited shares."""
    normal = -lam_column(polytope)
    of_others = ~np.isin([demand.model for demand in polytope.demands], models)
    normal[: len(polytope.demands)][of_others] = 0.0
    return normal


def _earned(polytope: Polytope, models: IntArray, prices: FloatArray, most_lam: float) -> FloatArray:
    """[C] what a replica earns at `prices` [D + shares + flows], normalised over the demands and shares of these
    models, with no more of each column than is asked for; those of prompts are negative numbers, as duals of the flow
    rows are."""
    gained = np.maximum(gains(polytope, prices), 0.0)
    if np.isfinite(most_lam):
        each, columns = np.arange(gained.shape[0])[:, None], np.argsort(-gained, axis=1)
        until = np.minimum(np.cumsum(polytope.busy_at_most(each, columns, most_lam), axis=1), 1.0)
        best = (gained[each, columns] * np.diff(until, axis=1, prepend=0.0)).sum(axis=1)
    else:
        best = gained.max(axis=1)
    if len(models) == len(polytope.problem.models):
        return np.asarray(best)
    return np.where(np.isin(polytope.candidates.model, models), best, 0.0)


def _carried(
    polytope: Polytope, candidate: IntArray, replicas: FloatArray, most_lam: float
) -> Iterator[tuple[IntArray, float, FloatArray]]:
    """For every group of models: lam that the fleet's replicas carry, up to `most_lam` at least, and the prices that
    prove it.

    The dual of the routing LP: minimise sum_c y[c] v[c] + sum_c,w u[c, w] y[c] s[c, w] with v[c] + s[c, w] at least
    what c earns on each column at the prices p, q and sigma, v >= 0, s >= 0, and the coefficient of lam 1; p >= 0
    without mixes, where no harm is in serving too much. u: the share of its time that a replica needs for all that is
    asked of a column; where that is all of its time there is no s.
    """
    num_demands, num_shares = len(polytope.demands), len(polytope.shares)
    prices = polytope.num_rate_rows
    for models in _routed_together(polytope):
        among = np.isin(polytope.candidates.model[candidate], models) & (replicas > 0)
        own, weights = candidate[among], replicas[among]
        part, column = np.nonzero(polytope.rate[own] > 0)
        demand, pairs, fleet = demand_entries(polytope, own[part], column), len(part), len(own)
        normal = _normal(polytope, models)
        asked = np.flatnonzero(normal)
        normalised = Entries(normal[asked], np.zeros(len(asked), dtype=np.int64), asked, 1)
        spent = Entries(np.full(pairs, -1.0), np.arange(pairs), part, pairs)
        busy = polytope.busy_at_most(own[part], column, most_lam)
        rare = np.flatnonzero(busy < RARE)
        beyond = Entries(np.full(len(rare), -1.0), rare, np.arange(len(rare)), pairs)
        extra = fleet + len(rare)
        of_demands = np.full(num_demands, -np.inf if (polytope.members[models] > 1).any() else 0.0)
        below_0 = np.full(num_shares + polytope.num_flows, -np.inf)
        program = LinearProgram(
            cost=np.concatenate([np.zeros(prices), weights, weights[part[rare]] * busy[rare]]),
            matrix=stacked(
                (prices, fleet, len(rare)), [[demand.transposed(pairs), spent, beyond], [normalised, None, None]]
            ),
            row_lower=np.append(np.full(pairs, -np.inf), 1.0),
            row_upper=np.append(np.zeros(pairs), 1.0),
            lower=np.concatenate([of_demands, below_0, np.zeros(extra)]),
            upper=np.concatenate(
                [np.full(num_demands, np.inf), np.zeros(prices - num_demands), np.full(extra, np.inf)]
            ),
            integer=np.zeros(prices + extra, dtype=np.bool_),
        )
        solution = solve_lp(program)
        assert solution.x is not None
        yield models, solution.objective, solution.x[:prices]
