"""The LP relaxation of the polytope by column generation, and the bound that its duals prove, without its reserve.

With y eliminated (a relaxed replica is exactly the time spent on it, y[c] = sum_v z[c, v]) the LP has one row
per demand, flow and resource, however many candidates there are. It starts from a few good columns; every round
prices all pairs of a candidate and a column of rates as one matrix product and adds the best, until none improves.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import ROLES
from sutler.solver.polytope.linear import LinearProgram, LpSolution, solve_lp
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.polytope.sparse import Entries, column_of, entries_of, spread, stacked

# Columns of each model, role and column of rates, chosen: more make larger LPs, fewer make more of them.
_FIRST_OF_EACH = 12
_OF_EACH_AND_ROUND = 10
_MOST_ROUNDS = 200  # a guard: columns run out, or duals settle, long before
_PRICE_TOLERANCE = 1e-9  # relative to lam and scaled costs of order 1: what an LP's rounding makes of 0
_FREE = 1e-6  # $/h of a GPU, so that of free ones fewer are better


@dataclass(frozen=True, slots=True)
class FleetRow:
    """What a fleet carries at most: lam * `lam` + `fixed`  <=  earned @ y - falling @ used + machine * sum(u), where
    used [C] is 1 for candidates with replicas (polytope/fleet_bounds.py)."""

    earned: FloatArray
    lam: float = 1.0
    fixed: float = 0.0
    falling: FloatArray | None = None
    machine: float = 0.0


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Optimum of the relaxation. `objective` inf: the relaxation itself is infeasible.

    bound: what the duals prove, a lower limit for every plan, with pricing and rounding errors charged
    reduced_cost_use [C], reduced_cost_rent [K]: how much the bound rises per replica or machine
    resource_duals [R], demand_duals [D + shares + flows]: change of the minimum per unit of the row's right-hand
    side
    load [C]: relaxed replicas; rented [K]; lam
    columns: of the last LP, numbered candidate * V + column of rates; a start for other goals on the same candidates
    cuts: where plans keep a reserve, the inequalities on fleets that the bound rests on
    """

    objective: float
    bound: float
    reduced_cost_use: FloatArray
    reduced_cost_rent: FloatArray
    resource_duals: FloatArray
    demand_duals: FloatArray
    load: FloatArray
    rented: FloatArray
    lam: float
    columns: IntArray
    cuts: tuple[FleetRow, ...] = ()


def relaxed_without_reserve(
    polytope: Polytope, goal: Goal, start: IntArray | None = None, columns: IntArray | None = None
) -> Relaxation:
    """The LP relaxation as if no replica were kept idle; to start from: candidates known to be useful, `columns` of
    another relaxation."""
    polytope = replace(polytope, limit=np.where(polytope.limit < 0, np.inf, polytope.limit))  # least replicas
    pairs = _Pairs(polytope)
    chosen = pairs.first() if columns is None or len(columns) == 0 else columns
    if start is not None:
        chosen = np.union1d(chosen, pairs.of(start))
    master = _Master(polytope)
    solution = master.solve(goal, chosen)
    if solution.x is None and goal.lam_lower > 0:
        chosen, carried = _columns_that_carry(master, pairs, chosen, goal.lam_lower)
        if carried < goal.lam_lower * (1 - _PRICE_TOLERANCE):
            return infeasible(polytope)
        solution = master.solve(goal, chosen)
    for _ in range(_MOST_ROUNDS):
        if solution.x is None:
            return infeasible(polytope)
        demand_duals, resource_duals = _split_duals(polytope, solution)
        added = pairs.improving(goal, demand_duals, resource_duals, chosen)
        if len(added) == 0:
            break
        chosen = np.union1d(chosen, added)
        solution = master.solve(goal, chosen)
    return _finish(polytope, goal, chosen, solution)


def _columns_that_carry(master: "_Master", pairs: "_Pairs", chosen: IntArray, lam: float) -> tuple[IntArray, float]:
    """Columns added until the LP over them carries `lam`, or as much as anything does; and what they carry."""
    goal = master.polytope.goal_throughput()
    for _ in range(_MOST_ROUNDS):
        solution = master.solve(goal, chosen)
        if solution.x is None:  # cannot be: renting nothing is feasible
            return chosen, 0.0
        carried = float(solution.x[0])
        added = pairs.improving(goal, *_split_duals(master.polytope, solution), chosen)
        if carried >= lam or len(added) == 0:
            break
        chosen = np.union1d(chosen, added)
    return chosen, carried


def demand_entries(polytope: Polytope, candidate: IntArray, column: IntArray) -> Entries:
    """[D + shares + flows, pairs] what every pair of a candidate and a column of rates adds to the rows that it
    stands in."""
    rates = polytope.rate[candidate, column]
    columns = np.arange(len(candidate))
    serves, share = polytope.serves[candidate], polytope.share_of[candidate]
    flow = polytope.flow_of[candidate, column]
    (shared, which), flowing = np.nonzero(share >= 0), flow >= 0
    mixed, kind = polytope.mixed, polytope.candidates.model[candidate] * polytope.rate.shape[1] + column
    counts = np.where(serves, np.diff(mixed.indptr)[kind], 0)
    parts = spread(mixed.indptr[kind], counts)
    first_flow = len(polytope.demands) + len(polytope.shares)
    return Entries(
        np.concatenate(
            [np.repeat(rates, counts) * mixed.data[parts], rates[shared], np.where(serves, rates, -rates)[flowing]]
        ),
        np.concatenate(
            [
                mixed.indices[parts],
                len(polytope.demands) + share[shared, which],
                first_flow + flow[flowing],
            ]
        ),
        np.concatenate([np.repeat(columns, counts), columns[shared], columns[flowing]]),
        polytope.num_rate_rows,
    )


def lam_column(polytope: Polytope) -> FloatArray:
    """[D + shares + flows] coefficients of lam: -f in the demand rows, -share in the share rows."""
    fractions = [*(demand.fraction for demand in polytope.demands), *(share.fraction for share in polytope.shares)]
    return -np.array(fractions + [0.0] * polytope.num_flows)


class _Pairs:
    """Pairs of a candidate and a column of rates, numbered candidate * V + column."""

    def __init__(self, polytope: Polytope) -> None:
        self._polytope = polytope
        self._columns = polytope.rate.shape[1]
        self._serves = polytope.rate > 0
        owner = polytope.candidates.model * len(ROLES) + polytope.candidates.role
        self._of_owners = [np.flatnonzero(owner == each) for each in np.unique(owner)]

    def of(self, candidates: IntArray) -> IntArray:
        """All columns of some candidates."""
        numbers = candidates[:, None] * self._columns + np.arange(self._columns)
        served: IntArray = numbers[self._serves[candidates]]
        return served

    def first(self) -> IntArray:
        """The pairs that serve at the least price, by a rough price of the pieces."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(
                self._serves, self._polytope.rate / rough_price_usd_per_hour(self._polytope)[:, None], -np.inf
            )
        return self._best_of_each(value, _FIRST_OF_EACH, least=0.0)

    def improving(
        self, goal: Goal, demand_duals: FloatArray, resource_duals: FloatArray, chosen: IntArray
    ) -> IntArray:
        """The pairs with a negative reduced cost that are not in the LP yet, the best of each model, role and
        column."""
        gain = gains(self._polytope, demand_duals)
        price = goal.use_cost - self._polytope.use.T @ resource_duals
        value = np.where(self._serves, gain - price[:, None], -np.inf)
        value.ravel()[chosen] = -np.inf
        return self._best_of_each(value, _OF_EACH_AND_ROUND, least=_PRICE_TOLERANCE)

    def _best_of_each(self, value: FloatArray, count: int, *, least: float) -> IntArray:
        best = [np.zeros(0, dtype=np.int64)]
        for owned in self._of_owners:
            for column in range(self._columns):
                rows = owned[value[owned, column] > least]
                if len(rows) > count:
                    rows = rows[np.argpartition(-value[rows, column], count)[:count]]
                best.append(rows * self._columns + column)
        return np.unique(np.concatenate(best))


def rough_price_usd_per_hour(polytope: Polytope) -> FloatArray:
    """[C] least $/h (or GPUs, where prices are zero) that a replica's pieces cost."""
    return polytope.candidates.summed([price + _FREE for price in polytope.supply.least_usd_per_gpu_hour()])


def gains(polytope: Polytope, rate_duals: FloatArray) -> FloatArray:
    """[C, V] what one replica's whole time on a column earns at these duals [D + shares + flows]."""
    num_demands, num_shares = len(polytope.demands), len(polytope.shares)
    of_column = (polytope.mixed @ rate_duals[:num_demands]).reshape(-1, polytope.rate.shape[1])
    per_request = of_column if len(of_column) == 1 else of_column[polytope.candidates.model]
    if num_shares:
        share = np.append(rate_duals[num_demands : num_demands + num_shares], 0.0)[polytope.share_of].sum(axis=1)
        per_request = per_request + share[:, None]
    if polytope.num_flows:
        flow = np.append(rate_duals[num_demands + num_shares :], 0.0)[polytope.flow_of]
        per_request = np.where(polytope.serves[:, None], per_request + flow, -flow)
    earned: FloatArray = polytope.rate * per_request
    return earned


class _Master:
    """The LP over chosen pairs of a candidate and a column of rates, after lam and the rentals."""

    def __init__(self, polytope: Polytope) -> None:
        self.polytope = polytope
        self._use, self._rent = polytope.use.tocsc(), entries_of(polytope.rent)
        self._lam = column_of(lam_column(polytope))

    def solve(self, goal: Goal, chosen: IntArray) -> LpSolution:
        """The optimum over these pairs; `x` None: infeasible."""
        polytope, num_pairs = self.polytope, len(chosen)
        num_demands, num_rent = len(polytope.demands), len(polytope.cost_rent)
        num_rows = polytope.num_rate_rows + len(polytope.limit)
        candidate, column = np.divmod(chosen, polytope.rate.shape[1])
        program = LinearProgram(
            cost=np.concatenate([[goal.lam_weight], goal.rent_cost, goal.use_cost[candidate]]),
            matrix=self._matrix(candidate, column),
            row_lower=np.concatenate([np.zeros(num_demands), np.full(num_rows - num_demands, -np.inf)]),
            row_upper=np.concatenate([np.zeros(polytope.num_rate_rows), polytope.limit]),
            lower=np.concatenate([[goal.lam_lower], np.zeros(num_rent + num_pairs)]),
            upper=np.concatenate([[np.inf], polytope.rent_upper, np.full(num_pairs, np.inf)]),
            integer=np.zeros(1 + num_rent + num_pairs, dtype=np.bool_),
        )
        return solve_lp(program)

    def _matrix(self, candidate: IntArray, column: IntArray) -> csr_array:
        demand = demand_entries(self.polytope, candidate, column)
        first, counts = self._use.indptr[candidate], np.diff(self._use.indptr)[candidate]
        places, of_pairs = spread(first, counts), np.repeat(np.arange(len(candidate)), counts)
        used = Entries(self._use.data[places], self._use.indices[places], of_pairs, self._use.shape[0])
        return stacked(
            (1, len(self.polytope.cost_rent), len(candidate)),
            [[self._lam, None, demand], [None, self._rent, used]],
        )


def _split_duals(polytope: Polytope, solution: LpSolution) -> tuple[FloatArray, FloatArray]:
    top = polytope.num_rate_rows
    return solution.row_duals[:top], solution.row_duals[top:]


def _finish(polytope: Polytope, goal: Goal, chosen: IntArray, solution: LpSolution) -> Relaxation:
    """Reduced costs of every candidate and machine, and the Lagrangian bound at the final duals.

    For any duals (mu <= 0 on resources, free on demands) the Lagrangian minimum is a valid bound: each term
    takes the better end of its variable's range. Where lam is maximised the demand duals are scaled so that its
    reduced cost is zero, and its term vanishes.
    """
    assert solution.x is not None
    demand_duals, resource_duals = _split_duals(polytope, solution)
    resource_duals = np.minimum(resource_duals, 0.0)
    num_demands = len(polytope.demands)
    demand_duals[num_demands:] = np.minimum(demand_duals[num_demands:], 0.0)
    if goal.lam_weight < 0:
        demand_duals = demand_duals * (goal.lam_weight / float(lam_column(polytope) @ demand_duals))
    gain = np.where(polytope.rate > 0, gains(polytope, demand_duals), 0.0).max(axis=1)
    price = goal.use_cost - polytope.use.T @ resource_duals
    reduced_use = price - np.maximum(gain, 0.0)
    reduced_rent = goal.rent_cost - polytope.rent.T @ resource_duals
    bound = bound_of_resources(polytope, resource_duals, reduced_use, reduced_rent)
    bound += (goal.lam_weight - float(lam_column(polytope) @ demand_duals)) * goal.lam_lower
    candidate = chosen // polytope.rate.shape[1]
    num_rent = len(polytope.cost_rent)
    load = np.zeros(len(polytope.candidates))
    np.add.at(load, candidate, solution.x[1 + num_rent :])
    return Relaxation(
        objective=solution.objective,
        bound=min(bound, solution.objective),
        reduced_cost_use=reduced_use,
        reduced_cost_rent=reduced_rent,
        resource_duals=resource_duals,
        demand_duals=demand_duals,
        load=load,
        rented=solution.x[1 : 1 + num_rent],
        lam=float(solution.x[0]),
        columns=chosen,
    )


def bound_of_resources(
    polytope: Polytope, resource_duals: FloatArray, reduced_use: FloatArray, reduced_rent: FloatArray
) -> float:
    """What resources, machines and replicas add to a Lagrangian bound: each at the better end of its range."""
    finite, lost = np.isfinite(polytope.limit), np.minimum(reduced_use, 0.0)
    bound = float(resource_duals[finite] @ polytope.limit[finite])
    bound += float(np.minimum(reduced_rent, 0.0) @ polytope.rent_upper)
    return bound + float(np.sum(lost[lost < 0] * polytope.use_upper[lost < 0]))


def infeasible(polytope: Polytope) -> Relaxation:
    """The relaxation of what no fleet does."""
    nothing = np.zeros(len(polytope.candidates))
    return Relaxation(
        objective=np.inf,
        bound=np.inf,
        reduced_cost_use=nothing,
        reduced_cost_rent=np.zeros(len(polytope.cost_rent)),
        resource_duals=np.zeros(len(polytope.limit)),
        demand_duals=np.zeros(polytope.num_rate_rows),
        load=nothing,
        rented=np.zeros(len(polytope.cost_rent)),
        lam=0.0,
        columns=np.zeros(0, dtype=np.int64),
    )
