"""Mélange's planner (Griggs et al., arXiv 2404.14527, section 5.4): slices of workloads as items, GPU types as bins.

Every workload is cut into `slice_factor` equal slices (8 as in its release), and each slice goes whole to one GPU
type. A type stands for one configuration, as it was profiled: one machine, tensor parallelism without pipeline, of
the degrees the one that serves the most workloads of the model, then the most requests/s of the mix per GPU. The
same GPU with other links is a type of its own. The ILP buys the fewest $/h (watts for min_power) whose replicas hold
the slices; equal slices are interchangeable, so it counts them instead of placing each. Beyond Mélange it keeps to
the caller's supply, budget and limits, and buys machines as they are offered.

Where the load is not given it is the largest for which the ILP finds a fleet, by bisection. Slices of a type are
spread evenly over its replicas.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.sparse import block_array, csr_array

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates
from sutler.solver.market.supply import build_supply
from sutler.solver.polytope.linear import LinearProgram, solve_milp
from sutler.solver.polytope.objectives import LEAST_LAM
from sutler.solver.polytope.preparation import of_possible, scaled_to_one
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.straight_line import Ruled, aggregated, answered, refuse_conditions, started

SLICE_FACTOR = 8  # as in its release

_REMEDY = "each of its slices goes whole to one GPU type without pipelines: add offers or raise the budget"
_GAP = 1e-4  # a tenth of what sutler is asked for by default, so that the rule is not blamed for its ILP
_CARRIES = 1 - 1e-6  # of the load: HiGHS's tolerances hide the rest
_NO_SLICE = 1e-9  # of a workload
_MOST_SLICES_SECONDS = 5.0  # of one ILP in the bisection


@dataclass(frozen=True, slots=True)
class _Bins:
    """J GPU types. of_candidate [C]: the type of each candidate; rate [D, J]: of one replica, 0: not served."""

    polytope: Polytope
    of_candidate: IntArray
    rate: FloatArray


def plan(problem: Problem, seconds_left: SecondsLeft, *, slice_factor: int = SLICE_FACTOR) -> StrategyPlan:
    """The plan of the ILP. Raises NotApplicableError."""
    refuse_conditions(problem)
    run, bins = started(problem, seconds_left), _bins(aggregated(problem))
    found = None
    if bins is not None:
        run.candidates = len(bins.polytope.candidates)
        if problem.objective.maximises_rate:
            found = _most_loaded(bins, slice_factor, run.first_phase_seconds_left)
        else:
            wanted = problem.objective.carried_load
            found = _packed(bins, wanted, slice_factor, run.first_phase_seconds_left())
    return answered(run, problem, "melange", found, remedy=_REMEDY)


def _bins(problem: Problem) -> _Bins | None:
    """The GPU types to buy; None: not even slices of no size could serve everything."""
    supply = build_supply(problem)
    enumerated = enumerate_candidates(problem, supply)
    plain = np.flatnonzero(enumerated.is_one_stage & enumerated.one_piece & ~enumerated.is_mix(problem))
    gpus = [pool.gpu for pool in supply.pools]
    chosen = _profiled(problem, enumerated.take(plain), gpus)
    polytope = scaled_to_one(of_possible(problem, supply, enumerated.take(plain[chosen])))
    if polytope is None:
        return None
    candidates = polytope.candidates
    kinds: dict[tuple[int, str, tuple[float, ...]], int] = {}
    of_candidate = np.array(
        [
            kinds.setdefault((int(model), gpus[pool], tuple(np.round(rps, 9))), len(kinds))
            for model, pool, rps in zip(candidates.model, candidates.pool[:, 0].tolist(), candidates.rps, strict=True)
        ],
        dtype=np.int64,
    )
    rate = np.zeros((len(polytope.demands), len(kinds)))
    for row, demand in enumerate(polytope.demands):
        own = np.flatnonzero(candidates.model == demand.model)
        rate[row, of_candidate[own]] = polytope.rate[own, demand.workload]
    return _Bins(polytope, of_candidate, rate)


def _profiled(problem: Problem, candidates: Candidates, gpus: list[str]) -> IntArray:
    """Returns of each model and GPU type the candidates of the best degree, in all pools."""
    worth: dict[tuple[int, str], dict[int, tuple[int, float]]] = defaultdict(dict)
    keys = [
        (int(model), gpus[pool]) for model, pool in zip(candidates.model, candidates.pool[:, 0].tolist(), strict=True)
    ]
    degrees = candidates.gpus[:, 0].tolist()
    for row, (key, degree) in enumerate(zip(keys, degrees, strict=True)):
        rated = _worth(problem, key[0], candidates.rps[row], degree)
        worth[key][degree] = max(rated, worth[key].get(degree, rated))
    best = {key: max(by_degree, key=lambda degree: by_degree[degree]) for key, by_degree in worth.items()}
    return np.array([r for r, key in enumerate(keys) if degrees[r] == best[key]], dtype=np.int64)


def _worth(problem: Problem, model: int, rps: FloatArray, gpus: int) -> tuple[int, float]:
    """How many workloads a replica serves, and how many requests/s of their mix per GPU."""
    demand = np.array([workload.demand for workload in problem.models[model].workloads])
    own = rps[: len(demand)]
    served = own > 0
    return int(served.sum()), float(demand[served].sum() / (demand[served] / own[served]).sum()) / gpus


def _most_loaded(bins: _Bins, slice_factor: int, seconds_left: SecondsLeft) -> Ruled | None:
    """The best fleet by bisection over the load, to the asked gap; lam 1 is what the relaxation carries at most."""
    gap = bins.polytope.problem.options.relative_gap
    best, carried, beyond = None, 0.0, 1.0 + gap
    while beyond - carried > gap * beyond and beyond > LEAST_LAM and seconds_left() > 0:
        load = (carried + beyond) / 2
        found = _packed(bins, load, slice_factor, min(seconds_left(), _MOST_SLICES_SECONDS))
        if found is None:
            beyond = load
        else:
            best, carried = found, found.routing.lam
    return best


def _packed(bins: _Bins, load: float, slice_factor: int, seconds: float) -> Ruled | None:
    """The cheapest fleet for `load` times the demand. Columns: slices n [D, J] | replicas [C] | machines [K]."""
    polytope = bins.polytope
    row, kind = np.nonzero(bins.rate > 0)
    slices, replicas, machines = len(row), len(polytope.candidates), len(polytope.cost_rent)
    share = np.array([polytope.demands[r].fraction for r in row]) * load / slice_factor / bins.rate[row, kind]
    demands, kinds, resources = len(polytope.demands), bins.rate.shape[1], len(polytope.limit)
    of_demand = csr_array((np.ones(slices), (row, np.arange(slices))), shape=(demands, slices))
    of_kind = csr_array((share, (kind, np.arange(slices))), shape=(kinds, slices))
    held = csr_array((-np.ones(replicas), (bins.of_candidate, np.arange(replicas))), shape=(kinds, replicas))
    goal = polytope.goal_power(load) if polytope.problem.objective.kind == "min_power" else polytope.goal_cost(load)
    integers = slices + replicas + machines
    program = LinearProgram(
        cost=np.concatenate([np.zeros(slices), goal.use_cost, goal.rent_cost]),
        matrix=csr_array(
            block_array(
                [[of_demand, None, None], [of_kind, held, None], [None, polytope.use, polytope.rent]], format="csr"
            )
        ),
        row_lower=np.concatenate([np.full(demands, float(slice_factor)), np.full(kinds + resources, -np.inf)]),
        row_upper=np.concatenate([np.full(demands, float(slice_factor)), np.zeros(kinds), polytope.limit]),
        lower=np.zeros(integers),
        upper=np.concatenate([np.full(slices, float(slice_factor)), polytope.use_upper, polytope.rent_upper]),
        integer=np.ones(integers, dtype=np.bool_),
    )
    solution = solve_milp(program, relative_gap=_GAP, time_limit_s=seconds)
    if solution.x is None:
        return None
    counts = np.round(solution.x).astype(np.int64)
    part = np.zeros(bins.rate.shape)
    part[row, kind] = counts[:slices] / slice_factor
    fleet = _spread(bins, part, counts[slices : slices + replicas], counts[slices + replicas :])
    return fleet if fleet.routing.lam >= load * _CARRIES else None  # the ILP's tolerances hide what is very small


def _spread(bins: _Bins, part: FloatArray, replicas: IntArray, machines: IntArray) -> Ruled:
    """part [D, J]: of each workload to each type; replicas of a type that is sent nothing are left out."""
    useful: BoolArray = np.any(part > 0, axis=0)
    candidate = np.flatnonzero((replicas > 0) & useful[bins.of_candidate])
    kind, counts = bins.of_candidate[candidate], replicas[candidate]
    of_type = np.bincount(kind, weights=counts, minlength=part.shape[1])
    fraction = part[:, kind] * counts / of_type[kind]
    fraction /= np.maximum(fraction.sum(axis=1, keepdims=True), _NO_SLICE)
    return Ruled.of(bins.polytope, candidate, counts, machines, fraction)
