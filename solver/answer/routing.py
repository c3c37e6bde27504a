"""The last word on routing: with the fleet fixed, the best routing is an LP, solved once more on its own.

MILP solvers return shares within their tolerances; the plan's numbers come from here, so that fractions sum to
1 and every utilisation holds exactly.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.polytope.column_generation import demand_entries, lam_column
from sutler.solver.polytope.linear import LinearProgram, solve_lp
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.polytope.sparse import column_of, ones, stacked

_LEAST_FRACTION = 1e-7  # of a demand: HiGHS's tolerance
_IDLE_SHARE = 1e-9  # of a replica's time, or of lam: what sums of floats may be off by
_OUT_OF_PROPORTION = 1e-5  # of what goes to a mix; less is the LP's rounding


@dataclass(frozen=True, slots=True)
class Routing:
    """fraction [D, n]: share of each demand that goes to each candidate of the allocation; rows sum to 1 over those
    that serve, and prefill candidates have what is decoded on their network beside that.

    share [n, V]: share of their time that the replicas of each candidate spend on each column of rates, times their
    number
    lam: largest multiple of the demand that this routing carries, in the polytope's scale.
    """

    fraction: FloatArray
    share: FloatArray
    lam: float


def route(polytope: Polytope, allocation: Allocation) -> Routing:
    """The routing of a fleet that carries the most."""
    candidate = allocation.candidate
    part, column = np.nonzero(polytope.rate[candidate] > 0)
    demand = demand_entries(polytope, candidate[part], column)
    pairs, fleet = len(part), len(candidate)
    program = LinearProgram(
        cost=np.concatenate([[-1.0], np.zeros(pairs)]),
        matrix=stacked(
            (1, pairs),
            [[column_of(lam_column(polytope)), demand], [None, ones(part, np.arange(pairs), fleet)]],
        ),
        row_lower=np.concatenate(
            [np.zeros(len(polytope.demands)), np.full(demand.height - len(polytope.demands) + fleet, -np.inf)]
        ),
        row_upper=np.concatenate([np.zeros(demand.height), allocation.replicas.astype(np.float64)]),
        lower=np.zeros(1 + pairs),
        upper=np.full(1 + pairs, np.inf),
        integer=np.zeros(1 + pairs, dtype=np.bool_),
    )
    solution = solve_lp(program)
    shares = np.zeros((fleet, polytope.rate.shape[1]))
    if solution.x is None or solution.x[0] <= 0:
        return Routing(np.zeros((len(polytope.demands), fleet)), shares, 0.0)
    shares[part, column] = np.maximum(solution.x[1:], 0.0)
    return _exact(polytope, allocation, shares)


def within(routing: Routing, lam: float) -> Routing:
    """The routing with no more than `lam` of the load, at which a reserve is enough."""
    if lam >= routing.lam:
        return routing
    return replace(routing, share=routing.share * (lam / routing.lam), lam=lam)


def without_idle(polytope: Polytope, allocation: Allocation, *, at_low: bool = True) -> tuple[Allocation, Routing]:
    """The allocation without the replicas that its best routing leaves idle, and the routing of the rest.

    `at_low`: those stay that the best routing at the low end of all bands needs, as long as something goes to others
    of their kind. A reserve is there to be idle.
    """
    routing = route(polytope, allocation)
    if polytope.problem.keeps_reserve:
        return allocation, within(routing, allocation.lam) if polytope.losses.any else routing
    busy = routing.share.sum(axis=1)
    if at_low:
        busy = np.maximum(busy, route(polytope.at("low"), allocation).share.sum(axis=1))
    needed = np.ceil(busy - _IDLE_SHARE).astype(np.int64)
    needed = np.minimum(np.where(routing.fraction.any(axis=0), np.maximum(needed, 1), 0), allocation.replicas)
    if routing.lam <= 0 or np.array_equal(needed, allocation.replicas):
        return allocation, routing
    kept = needed > 0
    trimmed = replace(allocation, candidate=allocation.candidate[kept], replicas=needed[kept])
    rerouted = route(polytope, trimmed)
    trimmed = replace(trimmed, lam=rerouted.lam)
    return (trimmed, rerouted) if rerouted.lam >= routing.lam * (1 - _IDLE_SHARE) else (allocation, routing)


def balanced(polytope: Polytope, allocation: Allocation, fraction: FloatArray) -> Routing:
    """The routing with these fractions [D, n], rows summing to 1, and what it carries: 0 where a demand has none, or
    where a replica of a fixed mix gets another one."""
    candidate, columns = allocation.candidate, polytope.rate.shape[1]
    rate, share = polytope.rate[candidate], np.zeros((len(candidate), columns))
    offered = np.array([demand.fraction for demand in polytope.demands])
    _, workload = polytope.model_and_workload
    some = polytope.candidates.take(candidate)
    is_mix = some.is_mix(polytope.problem)
    alone = np.where(is_mix[:, None], 0.0, rate)[:, workload].T
    needed = np.divide(fraction, alone, out=np.zeros_like(alone), where=alone > 0)
    np.add.at(share.T, workload, offered[:, None] * needed)
    for at in np.flatnonzero(is_mix & fraction.any(axis=0)).tolist():
        column = int(np.argmax(rate[at]))
        mix = polytope.mixed[[some.model[at] * columns + column]].toarray()[0]
        given = offered * fraction[:, at]
        share[at, column] = given.sum() / rate[at, column] if is_in_proportion(given, mix) else np.inf
    busy = share.sum(axis=1)
    served = bool((fraction.sum(axis=1) > 0).all())
    with np.errstate(divide="ignore"):
        lam = float(np.where(busy > 0, allocation.replicas / busy, np.inf).min()) if served else 0.0
    return Routing(fraction, share * lam if lam > 0 else np.zeros_like(share), lam)


def is_in_proportion(given: FloatArray, mix: FloatArray) -> bool:
    """Whether requests/s are shared as in a mix."""
    return bool(np.abs(given - given.sum() * mix).max() <= _OUT_OF_PROPORTION * given.sum())


def _exact(polytope: Polytope, allocation: Allocation, share: FloatArray) -> Routing:
    """Fractions that sum to 1, and the load multiple that the busiest replica leaves room for. `share`: as of
    Routing."""
    candidate, columns = allocation.candidate, polytope.rate.shape[1]
    kind = polytope.candidates.model[candidate][:, None] * columns + np.arange(columns)
    carried, first = polytope.rate[candidate] * share, np.arange(len(candidate) + 1) * columns
    shape = (len(candidate), polytope.mixed.shape[0])
    of_kind = csr_array((carried.ravel(), kind.ravel(), first), shape=shape)
    served = (of_kind @ polytope.mixed).toarray().T
    fraction = _fractions(polytope, candidate, served)
    if fraction is None:
        return Routing(np.zeros_like(served), share, 0.0)
    return replace(balanced(polytope, allocation, fraction), share=share)


def _fractions(polytope: Polytope, candidate: IntArray, served: FloatArray) -> FloatArray | None:
    """Returns the fractions [D, n] of each demand: what serves it adds up to 1, and on every network prefill to what
    is decoded there.

    None where nothing can serve one. A demand may be too small for the LP's tolerance to see.
    """
    rate, serves = polytope.rates_on(np.arange(len(served)), candidate), polytope.serves[candidate]
    _, workload = polytope.model_and_workload
    flow = polytope.flow_of[candidate][:, workload].T
    networks = np.unique(flow[flow >= 0]).tolist()
    able, prefilling = np.where(serves & (flow < 0), rate, 0.0), {}
    for network in networks:
        prefilling[network] = np.where(~serves & (flow == network), rate, 0.0)
        is_prefilled = (prefilling[network] > 0).any(axis=1, keepdims=True)
        able = np.where(serves & (flow == network) & is_prefilled, rate, able)
    fraction = _shares_of(able, served)
    if not fraction.any(axis=1).all():
        return None
    fraction[fraction < _LEAST_FRACTION] = 0.0
    fraction /= fraction.sum(axis=1, keepdims=True)
    for network in networks:
        decoded = np.where(serves & (flow == network), fraction, 0.0).sum(axis=1, keepdims=True)
        fraction += _shares_of(prefilling[network], served) * decoded
    return fraction


def _shares_of(able: FloatArray, served: FloatArray) -> FloatArray:
    """Shares [D, n] by what is served where it can be; by the fastest where nothing is; 0 where nothing can."""
    weights = np.where(able > 0, served, 0.0)
    fastest = np.where(able == able.max(axis=1, initial=0.0, keepdims=True), able, 0.0)
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, fastest)
    whole = weights.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(weights, whole, out=np.zeros_like(weights), where=whole > 0)
    return shares
