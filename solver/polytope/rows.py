"""The polytope of all plans, as arrays: what may be rented, run and routed.

Variables
    lam          multiple of the demand that is served (scaled, see `Polytope.scale_rps`)
    u[k]         machines rented of offer class k, integer
    y[c]         replicas of candidate c, integer
    z[c, v]      share of their time that the replicas of c spend on column v: a workload, or a fixed mix of some, of
                 which s[v, w] of the requests are w (throughput/mixes.py)
    N[g]         replicas per group g of candidates with the same model and pieces (only in the MILP)

Rows, by the names that plans use
    demand/<model>/<workload>     sum_c,v h[c,v] s[v,w] z[c,v]  =  lam f[w]      aggregated and decode candidates
    flow (unnamed)                sum_c h[c,w] z[c,w] of decode  <=  the same of prefill,
                                  per model, network (or machine without one) and workload
    capacity (unnamed)            sum_v z[c,v]  <=  y[c]
    supply/<pool>/<size>          GPUs of all pieces of at least this size  <=  room for them on rented machines; of
                                  a size that fills a machine: of just this size  <=  machines of just this size
    budget                        sum price u + direct GPU prices and storage of y  <=  B
    limit/<name>                  GPUs per type and per provider, machines per host, replicas, watts, shares of the
                                  requests/s
    (unnamed)                     slices of one machine, see market/supply.py

With z = r/h this is the paper's MILP (Jiang et al., eqs. 1-7 and 8-12) written in rates: T = 1/lam turns its
bilinear makespan rows into linear ones. The supply rows are exact machine packing because the piece sizes 1, 2,
4, 8 divide each other (Coffman, Garey & Johnson, "Bin packing with divisible item sizes", J. Complexity 1987).
h is what a candidate is counted on for at its operating point, within all limits; that of prefill and decode replicas
is no more than what their links carry (throughput/roles.py), so that the flow rows are all that disaggregation adds.
Every combination of prefill and decode replicas at any ratio (GPU Combos of Cauchy, machine pools of Splitwise) is a
point of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.dominance import signatures
from sutler.solver.candidates.enumerate import (
    AGGREGATED,
    DECODE,
    PREFILL,
    Candidates,
    kv_network,
    power_cap_fractions,
)
from sutler.solver.market.pools import PIECE_SIZES
from sutler.solver.market.supply import Supply, room_of
from sutler.solver.polytope.losses import Losses, losses_of
from sutler.solver.problem import Problem
from sutler.solver.throughput.base import RatesAt
from sutler.solver.throughput.mixes import mixes_of

RARE = 0.99  # of a replica's time: less than this is worth a row
_LEAST_BUSY = 1e-4  # coefficients below it are hard on HiGHS
_ROUNDING = 1e-6  # relative: HiGHS's mip_feasibility_tolerance


@dataclass(frozen=True, slots=True)
class Demand:
    """One workload of one model; `fraction` of all offered requests."""

    name: str
    model: int
    workload: int
    fraction: float


@dataclass(frozen=True, slots=True)
class LimitedShare:
    """At most `fraction` of the routed requests/s may go to its members; `name` as limits have it."""

    name: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Goal:
    """minimise  lam_weight * lam + use_cost @ y + rent_cost @ u,  with lam >= lam_lower."""

    lam_weight: float
    use_cost: FloatArray  # [C]
    rent_cost: FloatArray  # [K]
    lam_lower: float = 0.0


@dataclass(frozen=True, slots=True)
class Polytope:
    """C candidates, K offer classes, R resource rows, D demands.

    rate [C, V]: requests/s within all limits, divided by `scale_rps`
    mixed [models * V, D]: shares of the requests of each column of rates, s above; a single 1 for each workload
    use [R, C], rent [R, K]: resource rows  use @ y + rent @ u <= limit
    cost_use, watts_use [C]; cost_rent, watts_rent [K]: $/h and W, of replicas (direct pools) and of machines. Where
    GPUs may be capped, those that run nothing are set to the lowest cap, and replicas are charged what lies above it
    use_upper [C], rent_upper [K]: most replicas and machines that can ever be had
    share_of [C, 2]: indices into `shares` of its provider's share and of its contract's, -1 where it is not limited
    flow_of [C, V]: which of the `num_flows` flow rows, -1 for aggregated candidates
    losses: what plans survive
    curve_of [K]: classes with the same number are the price steps of one supply curve, -1: a class by itself
    """

    problem: Problem
    supply: Supply
    candidates: Candidates
    demands: tuple[Demand, ...]
    rate: FloatArray
    scale_rps: float
    resources: tuple[str, ...]
    use: csr_array
    rent: csr_array
    limit: FloatArray
    cost_use: FloatArray
    cost_rent: FloatArray
    watts_use: FloatArray
    watts_rent: FloatArray
    use_upper: FloatArray
    rent_upper: FloatArray
    shares: tuple[LimitedShare, ...]
    share_of: IntArray
    curve_of: IntArray
    flow_of: IntArray
    num_flows: int
    mixed: csr_array
    losses: Losses

    @property
    def serves(self) -> BoolArray:
        """[C] whether what a candidate takes counts as served: prompts alone do not."""
        served: BoolArray = self.candidates.role != PREFILL
        return served

    @property
    def num_rate_rows(self) -> int:
        """Rows that rates stand in: demands, limited shares, flows."""
        return len(self.demands) + len(self.shares) + self.num_flows

    @property
    def offered(self) -> FloatArray:
        """[models, V] share of all offered requests that the workloads of each column make up."""
        fraction = np.array([demand.fraction for demand in self.demands])
        of_column = np.repeat(np.arange(self.mixed.shape[0]), np.diff(self.mixed.indptr))
        sums = np.bincount(of_column, fraction[self.mixed.indices], minlength=self.mixed.shape[0])
        return np.asarray(sums, dtype=np.float64).reshape(-1, self.rate.shape[1])

    @property
    def members(self) -> IntArray:
        """[models, V] how many workloads each column serves: more than one in a fixed mix."""
        return np.asarray(np.diff(self.mixed.indptr).reshape(-1, self.rate.shape[1]))

    def busy_at_most(self, candidate: IntArray, column: IntArray, most_lam: float) -> FloatArray:
        """[pairs] the share of its time that one replica needs for all that is asked of the column's workloads where
        lam is `most_lam`; inf: for pairs of no rate, and where lam is not limited."""
        rate = self.rate[candidate, column]
        most = np.maximum(self.offered[self.candidates.model[candidate], column], 1e-300) * most_lam * (1 + _ROUNDING)
        busy = np.divide(most, rate, out=np.full(rate.shape, np.inf), where=rate > 0)
        return np.asarray(np.maximum(busy, _LEAST_BUSY))

    def shares_of(self, row: int) -> FloatArray:
        """[V] how much of the requests of each column of its model demand number `row` is."""
        columns = self.rate.shape[1]
        first = self.demands[row].model * columns
        starts = self.mixed.indptr[first : first + columns + 1]
        places = starts[0] + np.flatnonzero(self.mixed.indices[starts[0] : starts[-1]] == row)
        shares = np.zeros(columns)
        shares[np.searchsorted(starts, places, side="right") - 1] = self.mixed.data[places]
        return shares

    def rates_on(self, rows: IntArray, candidate: IntArray) -> FloatArray:
        """[rows, n] the most requests/s of each candidate in a column that each of the demands is part of."""
        model, workload = self.model_and_workload[:, rows]
        rate = self.rate[candidate]
        found = rate[:, workload].T
        model_of_mix, mixes = np.nonzero(self.members > 1)
        for of_model, column in zip(model_of_mix.tolist(), mixes.tolist(), strict=True):
            first, last = self.mixed.indptr[of_model * rate.shape[1] + column :][:2]
            part = np.isin(rows, self.mixed.indices[first:last])
            found[part] = np.maximum(found[part], rate[:, column])
        return np.where(self.candidates.model[candidate] == model[:, None], found, 0.0)

    @property
    def model_and_workload(self) -> IntArray:
        """[2, D] the model of each demand, and which workload of it."""
        return np.array([[each.model for each in self.demands], [each.workload for each in self.demands]])

    def servable(self) -> BoolArray:
        """[D] demands that some candidate serves, or prefill and decode on one network."""
        role = self.candidates.role
        found = np.zeros(len(self.demands), dtype=np.bool_)
        for row, demand in enumerate(self.demands):
            rates = self.rates_on(np.array([row]), np.arange(len(self.candidates)))[0]
            able = (rates > 0) & (self.use_upper >= 1)
            flows = [self.flow_of[able & (role == each), demand.workload] for each in (PREFILL, DECODE)]
            found[row] = bool((able & (role == AGGREGATED)).any()) or len(np.intersect1d(*flows)) > 0
        return found

    def scaled(self, factor: float) -> "Polytope":
        """The same polytope with lam measured in units `factor` times as large."""
        return replace(self, rate=self.rate / factor, scale_rps=self.scale_rps * factor)

    def without(self, dropped: BoolArray) -> "Polytope":
        """The polytope of the other candidates."""
        reduced = build_polytope(self.problem, self.supply, self.candidates.take(~dropped)).scaled(self.scale_rps)
        return replace(reduced, rate=self.rate[~dropped])

    def at(self, rates_at: RatesAt) -> "Polytope":
        """The same candidates counted on for their rates, or for the low end of their bands."""
        rps = self.candidates.rps if rates_at == "nominal" else self.candidates.low_rps
        return replace(self, rate=rps / self.scale_rps)

    def with_limit(self, resource: str, limit: float) -> "Polytope":
        limits = self.limit.copy()
        limits[self.resources.index(resource)] = limit
        return replace(self, limit=limits)

    def without_shares(self) -> "Polytope":
        """The same rows without limited shares."""
        return replace(self, shares=(), share_of=np.full_like(self.share_of, -1))

    def goal_throughput(self) -> Goal:
        return Goal(-1.0, np.zeros(len(self.cost_use)), np.zeros(len(self.cost_rent)))

    def goal_cost(self, lam_lower: float) -> Goal:
        return Goal(0.0, self.cost_use, self.cost_rent, lam_lower)

    def goal_power(self, lam_lower: float) -> Goal:
        return Goal(0.0, self.watts_use, self.watts_rent, lam_lower)


def build_polytope(problem: Problem, supply: Supply, candidates: Candidates) -> Polytope:
    """All rows of the problem over the given candidates. lam starts in requests/s of the whole mix."""
    demands = _demands(problem)
    gpus_use = _gpus_per_direct_pool(supply, candidates)
    rows = _Rows(len(candidates), len(supply.classes))
    price_of_pool = np.array([supply.gpu_price_usd_per_hour.get(p, 0.0) for p in range(len(supply.pools))])
    tdp_of_pool = np.array([problem.gpus[pool.gpu].tdp_watts or 0.0 for pool in supply.pools])
    idle_watts = tdp_of_pool * min(power_cap_fractions(problem))
    cost_use = gpus_use @ price_of_pool + candidates.storage_usd_per_hour
    watts_use = gpus_use @ idle_watts + _watts_of_work(problem, candidates, tdp_of_pool)
    cost_rent = np.array([c.price_usd_per_hour for c in supply.classes])
    watts_rent = np.array([idle_watts[c.pool] * c.gpus for c in supply.classes])
    budget = np.inf if problem.budget_usd_per_hour is None else problem.budget_usd_per_hour
    rows.add("budget", cost_use, cost_rent, budget)
    power = np.inf if problem.limits.max_power_watts is None else problem.limits.max_power_watts
    rows.add("limit/max_power_watts", watts_use, watts_rent, power)
    _add_supply_rows(rows, supply, candidates)
    _add_gpu_limits(rows, problem, supply, gpus_use)
    _add_host_limits(rows, problem, supply)
    _add_least_replicas(rows, problem, supply, candidates)
    for coupling in supply.couplings:
        terms = np.zeros(len(supply.classes))
        for index, factor in coupling.terms:
            terms[index] = factor
        rows.add("", None, terms, coupling.limit)
    shares, share_of = _limited_shares(problem, supply, candidates)
    flow_of, num_flows = _flows(supply, candidates)
    use, rent, limit = rows.matrices()
    return Polytope(
        problem=problem,
        supply=supply,
        candidates=candidates,
        demands=demands,
        rate=np.asfortranarray(candidates.rps),  # columns are few and long
        scale_rps=1.0,
        resources=tuple(rows.names),
        use=use,
        rent=rent,
        limit=limit,
        cost_use=cost_use,
        cost_rent=cost_rent,
        watts_use=watts_use,
        watts_rent=watts_rent,
        use_upper=_most_replicas(supply, candidates, use, rent, limit),
        rent_upper=np.array([float(c.count) for c in supply.classes]),
        shares=shares,
        share_of=share_of,
        curve_of=_supply_curves(problem, supply),
        flow_of=flow_of,
        num_flows=num_flows,
        mixed=_mixed(problem, demands, candidates.rps.shape[1]),
        losses=losses_of(problem, supply, candidates),
    )


def _watts_of_work(problem: Problem, candidates: Candidates, tdp_of_pool: FloatArray) -> FloatArray:
    """[C] by how much the caps of a replica's GPUs lie above the lowest cap, which all others are set to."""
    above = candidates.power_cap_fraction - min(power_cap_fractions(problem))
    tdp = np.append(tdp_of_pool, 0.0)
    watts: FloatArray = (tdp[candidates.pool] * candidates.gpus).sum(axis=1) * above
    return watts


def piece_groups(candidates: Candidates) -> IntArray:
    """[C] the same number for candidates with the same model, role, cap and pieces, counted from 0."""
    groups: IntArray = np.unique(signatures(candidates), return_inverse=True)[1]
    return groups


class _Rows:
    """Collects resource rows; `use` parts as entries of one sparse matrix, `rent` parts dense."""

    def __init__(self, num_candidates: int, num_classes: int) -> None:
        self.names: list[str] = []
        self._num_candidates, self._num_classes = num_candidates, num_classes
        self._columns: list[IntArray] = []
        self._values: list[FloatArray] = []
        self._rent: list[FloatArray] = []
        self._limits: list[float] = []

    def add(self, name: str, use: FloatArray | None, rent: FloatArray, limit: float) -> None:
        """Adds a row; `use` [C], None: no candidate uses any."""
        columns = np.flatnonzero(np.zeros(0) if use is None else use)
        self.add_entries(name, columns, np.zeros(0) if use is None else use[columns], rent, limit)

    def add_entries(self, name: str, columns: IntArray, values: FloatArray, rent: FloatArray, limit: float) -> None:
        """Adds a row of entries; `values` of the same column add up."""
        self.names.append(name)
        self._columns.append(columns)
        self._values.append(values)
        self._rent.append(rent)
        self._limits.append(limit)

    def matrices(self) -> tuple[csr_array, csr_array, FloatArray]:
        row_of = np.repeat(np.arange(len(self._columns)), [len(columns) for columns in self._columns])
        use = csr_array(
            (np.concatenate(self._values), (row_of, np.concatenate(self._columns))),
            shape=(len(self._columns), self._num_candidates),
        )
        use.sum_duplicates()
        return (
            use,
            csr_array(np.array(self._rent).reshape(len(self._rent), self._num_classes)),
            np.array(self._limits),
        )


def _demands(problem: Problem) -> tuple[Demand, ...]:
    total = sum(workload.demand for model in problem.models for workload in model.workloads)
    return tuple(
        Demand(f"demand/{model.name}/{workload.name}", m, w, workload.demand / total)
        for m, model in enumerate(problem.models)
        for w, workload in enumerate(model.workloads)
    )


def _mixed(problem: Problem, demands: Sequence[Demand], columns: int) -> csr_array:
    shares = np.zeros((len(problem.models), columns, len(demands)))
    each = [mixes_of(model) for model in problem.models]
    for row, demand in enumerate(demands):
        shares[demand.model, : len(each[demand.model]), row] = each[demand.model][:, demand.workload]
    return csr_array(shares.reshape(-1, len(demands)))


def _gpus_per_direct_pool(supply: Supply, candidates: Candidates) -> csr_array:
    """[C, pools] GPUs that a replica takes from pools without rental variables."""
    direct = np.array([p in supply.gpu_price_usd_per_hour for p in range(len(supply.pools))] + [False])
    rows, columns = np.nonzero((candidates.piece_size > 0) & direct[candidates.piece_pool])
    taken = candidates.piece_size[rows, columns].astype(np.float64)
    shape = (len(candidates), len(supply.pools))
    matrix = csr_array((taken, (rows, candidates.piece_pool[rows, columns])), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _add_supply_rows(rows: _Rows, supply: Supply, candidates: Candidates) -> None:
    """One row per pool and size of its pieces; a larger size with the same room as the one before says nothing.

    A piece that fills a machine takes from the room for every size what its machine has of it, and counts in a row of
    its own, of the machines of its size: taken first, it leaves the others their room.
    """
    owner = np.repeat(np.arange(len(candidates)), candidates.piece_size.shape[1])
    piece_pool, piece_size = candidates.piece_pool.ravel(), candidates.piece_size.ravel()
    class_pool = np.array([c.pool for c in supply.classes], dtype=np.int64)
    class_gpus = np.array([c.gpus for c in supply.classes], dtype=np.int64)
    for index, pool in enumerate(supply.pools):
        members = np.flatnonzero(piece_pool == index)
        previous: FloatArray | None = None
        for size in np.unique(piece_size[members]).tolist():
            rent = np.where(class_pool == index, -room_of(size, class_gpus), 0).astype(np.float64)
            room = np.append(rent, float(supply.room_gpus.get((index, size), 0)))
            if previous is not None and np.array_equal(previous, room):
                continue
            previous = room if size in PIECE_SIZES else previous
            used = room_of(size, piece_size[members])
            large = members[used > 0]
            rows.add_entries(
                f"supply/{pool.name}/{size}", owner[large], used[used > 0].astype(np.float64), rent, room[-1]
            )


def _add_gpu_limits(rows: _Rows, problem: Problem, supply: Supply, gpus_use: csr_array) -> None:
    for slug, most in problem.limits.max_gpus.items():
        of_type = np.array([float(pool.gpu == slug) for pool in supply.pools])
        rent = np.array([float(c.gpus) if supply.pools[c.pool].gpu == slug else 0.0 for c in supply.classes])
        rows.add(f"limit/max_gpus/{slug}", gpus_use @ of_type, rent, most)
    for provider, most in problem.limits.max_gpus_per_provider.items():
        rent = np.array([float(c.gpus) if c.provider == provider else 0.0 for c in supply.classes])
        rows.add(f"limit/max_gpus_per_provider/{provider}", None, rent, most)


def _add_host_limits(rows: _Rows, problem: Problem, supply: Supply) -> None:
    most = problem.limits.max_machines_per_host
    if most is None:
        return
    offers = [problem.offers[offer_class.offers[0][0]] for offer_class in supply.classes]
    hosts = [f"{offer.provider}/{offer.host}" if offer.host is not None else "" for offer in offers]
    count = np.array([offer_class.count for offer_class in supply.classes])
    for host in sorted({*hosts} - {""}):
        there = np.array([host == each for each in hosts])
        if count[there].sum() > 1:
            rows.add(f"limit/max_machines_per_host/{host}", None, there.astype(np.float64), most)


def _add_least_replicas(rows: _Rows, problem: Problem, supply: Supply, candidates: Candidates) -> None:
    nothing = np.zeros(len(supply.classes))
    is_taken = np.array([pool.contract == "interruptible" for pool in supply.pools] + [False])
    for number, model in enumerate(problem.models):
        for field, least in model.least_replicas.items():
            answers = (candidates.model == number) & (candidates.role != PREFILL)
            if field == "min_on_demand_replicas":
                answers &= ~is_taken[candidates.pool].any(axis=1)
            rows.add(f"limit/{field}/{model.name}", -answers.astype(np.float64), nothing, -least)


def _supply_curves(problem: Problem, supply: Supply) -> IntArray:
    """Untied classes of one pool and machine size: a plan rents the cheaper ones first, so only their sum counts."""
    tied = {index for coupling in supply.couplings for index, _ in coupling.terms}
    numbers: dict[tuple[int, int, bool], int] = {}
    curve = np.full(len(supply.classes), -1, dtype=np.int64)
    if problem.limits.max_gpus_per_provider or problem.limits.max_machines_per_host is not None:
        return curve
    for index, offer_class in enumerate(supply.classes):
        if index not in tied:
            curve[index] = numbers.setdefault((offer_class.pool, offer_class.gpus, offer_class.held), len(numbers))
    steps = np.bincount(curve[curve >= 0], minlength=len(numbers))
    curve[curve >= 0] = np.where(steps[curve[curve >= 0]] > 1, curve[curve >= 0], -1)
    return np.unique(np.append(curve, -1), return_inverse=True)[1][:-1].astype(np.int64) - 1


def _limited_shares(
    problem: Problem, supply: Supply, candidates: Candidates
) -> tuple[tuple[LimitedShare, ...], IntArray]:
    """Limited shares and whose members candidates are; prompts count where they are decoded, on the same site. Pools
    carry their provider exactly where its share is limited."""
    limits, answers = problem.limits, candidates.role != PREFILL
    shares: list[LimitedShare] = []
    share_of = np.full((len(candidates), 2), -1)
    if limits.max_share_per_provider_fraction < 1:
        for name in sorted({pool.provider for pool in supply.pools if pool.provider is not None}):
            of_pool = np.array([pool.provider == name for pool in supply.pools])
            share_of[answers & of_pool[candidates.pool[:, 0]], 0] = len(shares)
            fraction = limits.max_share_per_provider_fraction
            shares.append(LimitedShare(f"max_share_per_provider_fraction/{name}", fraction))
    for contract, fraction in sorted(limits.max_share_per_contract_fraction.items()):
        of_pool = np.array([pool.contract == contract for pool in supply.pools] + [False])
        share_of[answers & of_pool[candidates.pool].any(axis=1), 1] = len(shares)
        shares.append(LimitedShare(f"max_share_per_contract_fraction/{contract}", fraction))
    return tuple(shares), share_of


def _flows(supply: Supply, candidates: Candidates) -> tuple[IntArray, int]:
    """Numbers of the flow rows [C, V]: one per model, network and column of rates that something prefills or decodes;
    those of mixes, which are of whole requests, stay empty."""
    flow_of = np.full(candidates.rps.shape, -1, dtype=np.int64)
    apart = np.flatnonzero(candidates.role != AGGREGATED)
    if not len(apart):
        return flow_of, 0
    keys = np.column_stack([candidates.model[apart], kv_network(candidates, supply)[apart]])
    groups, number = np.unique(keys, axis=0, return_inverse=True)
    columns = candidates.rps.shape[1]
    flow_of[apart] = number.reshape(-1, 1) * columns + np.arange(columns)
    return flow_of, len(groups) * columns


def _most_replicas(
    supply: Supply, candidates: Candidates, use: csr_array, rent: csr_array, limit: FloatArray
) -> FloatArray:
    """[C] replicas that every single row allows when all machines are rented and nothing else runs."""
    counts = np.array([float(c.count) for c in supply.classes])
    gained = np.maximum(-rent.toarray(), 0.0) @ counts if len(counts) else 0.0
    most = np.full(len(candidates), np.inf)
    room = limit + gained
    row_of = np.repeat(np.arange(use.shape[0]), np.diff(use.indptr))
    positive = use.data > 0
    np.minimum.at(most, use.indices[positive], room[row_of[positive]] / use.data[positive])
    cheapest = supply.cheapest_gpu_usd_per_hour()
    direct = [p in supply.gpu_price_usd_per_hour for p in range(len(supply.pools))]
    least_cost = candidates.summed(np.where(direct, 0.0, cheapest)) + use[[0]].toarray()[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        affordable = np.where(least_cost > 0, limit[0] / least_cost, np.inf)
    replicas: FloatArray = np.floor(np.minimum(most, affordable) * (1 + 1e-9))
    return replicas
