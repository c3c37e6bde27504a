"""Why a problem has no plan, and what would have to give by how much.

Asked in the order in which a person would: can anything on this market serve the workload at all; if not, is it
the latency limit or the memory; if yes, does the cheapest set of replicas that serves everything exceed the
budget, the market or a limit; and if even that fits, how much of the demand can be carried.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from solver.allocation import Goal, Polytope
from solver.linear import LinearProgram, solve_milp
from solver.methods import exact
from solver.milp import Allocation, build_milp
from solver.objectives import LEAST_LAM, maximises_rate, total_demand
from solver.plan import Conflict
from solver.problem import Problem
from solver.relaxation import demand_rows, rough_price_usd_per_hour
from solver.throughput.base import FloatArray, IntArray
from solver.unserved_conflicts import demands_of, polytope_of, unserved_among, why_unserved, without_limits

_SLACK_PENALTY = 1000.0
_SECONDS = 10.0
_COVER_CANDIDATES = 40
_MANY_REPLICAS = 1000.0  # that one prefill replica is enough for where all that counts is that there is one
_FLEET_GAP = 0.001
_FLEET_NODES = 300


def find_conflicts(problem: Problem) -> tuple[Conflict, ...]:
    """What makes `problem` infeasible; at least one entry."""
    free = without_limits(problem)
    polytope = polytope_of(free)
    unserved = unserved_among(polytope, demands_of(problem))
    if unserved:
        return why_unserved(problem, unserved)
    found = _cheapest_cover(problem, polytope)
    if not maximises_rate(problem.objective):
        found = _cheapest_fleet(problem, polytope) or _undersupplied(problem) or found
    return found or (_too_tight(problem),)


@dataclass(frozen=True, slots=True)
class _Elastic:
    rows: list[int]
    slack: FloatArray


def _cheapest_cover(problem: Problem, polytope: Polytope) -> tuple[Conflict, ...]:
    """Rows that the cheapest set of replicas serving every workload at least once breaks."""
    limits = polytope.limit.copy()
    for index, name in enumerate(polytope.resources):
        limits[index] = _stated_limit(problem, name, limits[index])
    elastic = _solve_elastic(polytope, limits, supply=False) or _solve_elastic(polytope, limits, supply=True)
    if elastic is None:
        return ()
    conflicts = []
    for row, slack in zip(elastic.rows, elastic.slack, strict=True):
        if slack > 1e-6 * max(1.0, abs(limits[row])):
            conflicts.append(_row_conflict(polytope.resources[row], limits[row] + slack, limits[row]))
    return tuple(conflicts)


def _cheapest_fleet(problem: Problem, polytope: Polytope) -> tuple[Conflict, ...]:
    """What the cheapest fleet that carries the whole demand needs beyond budget and limits; () if there is none.

    Cheapest within the watts, if they are enough for any; else of the least power.
    """
    scaled = polytope.scaled(total_demand(problem))
    wanted = 1.0 + problem.objective.headroom_fraction
    goal = scaled.goal_cost(wanted) if problem.objective.kind == "min_cost" else scaled.goal_power(wanted)
    power = "limit/max_power_watts"
    within = scaled.with_limit(power, _stated_limit(problem, power, np.inf))
    fleet = _incumbent(within, goal) or _incumbent(scaled, scaled.goal_power(wanted))
    if fleet is None:
        return ()
    used = scaled.use[:, fleet.candidate] @ fleet.replicas + scaled.rent @ fleet.rented
    conflicts = []
    for row, name in enumerate(scaled.resources):
        limit = _stated_limit(problem, name, scaled.limit[row])
        if name and not name.startswith("supply/") and used[row] > limit * (1 + 1e-9):
            conflicts.append(_row_conflict(name, float(used[row]), limit))
    return tuple(conflicts)


def _incumbent(polytope: Polytope, goal: Goal) -> Allocation | None:
    return exact.first_incumbent(polytope, goal, relative_gap=_FLEET_GAP, seconds=_SECONDS, nodes=_FLEET_NODES)


def _stated_limit(problem: Problem, name: str, present: float) -> float:
    """The caller's value of a row that was lifted."""
    if name == "budget":
        return np.inf if problem.budget_usd_per_hour is None else problem.budget_usd_per_hour
    if name == "limit/max_power_watts":
        return np.inf if problem.limits.max_power_watts is None else problem.limits.max_power_watts
    kind, _, key = name.removeprefix("limit/").partition("/")
    if kind == "max_gpus":
        return float(problem.limits.max_gpus[key])
    if kind == "max_gpus_per_provider":
        return float(problem.limits.max_gpus_per_provider[key])
    return present


def _solve_elastic(polytope: Polytope, limits: FloatArray, *, supply: bool) -> _Elastic | None:
    """Least relative violation of the named rows, then least cost, such that every demand has a replica.

    With `supply` the market itself may give too. None: even so there is none.
    """
    chosen = _cheapest_per_demand(polytope)
    goal = polytope.goal_cost(0.0)
    milp = build_milp(polytope, goal, chosen)
    program = milp.program
    named = [
        r
        for r, name in enumerate(polytope.resources)
        if name and np.isfinite(limits[r]) and (supply or not name.startswith("supply/"))
    ]
    first = polytope.num_rate_rows + len(chosen)
    columns = csr_array(
        (-np.ones(len(named)), ([first + r for r in named], np.arange(len(named)))),
        shape=(program.matrix.shape[0], len(named)),
    )
    cover = _cover_rows(polytope, chosen, program.matrix.shape[1], len(polytope.cost_rent), len(milp.pair_candidate))
    needed = np.append(np.ones(len(polytope.demands)), np.zeros(polytope.num_flows))
    matrix = vstack(
        [hstack([program.matrix, columns]), hstack([cover, csr_array((cover.shape[0], len(named)))])], format="csr"
    )
    row_upper = program.row_upper.copy()
    row_upper[first : first + len(limits)] = limits
    scale = np.array([max(1.0, abs(limits[r])) for r in named])
    cost_scale = max(1.0, float(program.cost.max(initial=0.0)))
    elastic = LinearProgram(
        cost=np.concatenate([program.cost / cost_scale, _SLACK_PENALTY / scale]),
        matrix=csr_array(matrix),
        row_lower=np.concatenate([program.row_lower, needed]),
        row_upper=np.concatenate([row_upper, np.full(cover.shape[0], np.inf)]),
        lower=np.concatenate([program.lower, np.zeros(len(named))]),
        upper=np.concatenate([[0.0], program.upper[1:], np.full(len(named), np.inf)]),
        integer=np.concatenate([program.integer, np.zeros(len(named), dtype=np.bool_)]),
    )
    solution = solve_milp(elastic, relative_gap=0.001, time_limit_s=_SECONDS)
    if solution.x is None:
        return None
    return _Elastic(named, solution.x[len(program.cost) :])


def _cheapest_per_demand(polytope: Polytope) -> IntArray:
    """For every demand the candidates that serve it at the least price, and those that prefill and decode it on each
    network: a cover needs no others."""
    price, role = rough_price_usd_per_hour(polytope), polytope.candidates.role
    chosen = []
    for demand in polytope.demands:
        serving = (polytope.candidates.model == demand.model) & (polytope.rate[:, demand.workload] > 0)
        flow = polytope.flow_of[:, demand.workload]
        for network in np.unique(flow[serving]):
            for each in np.unique(role[serving & (flow == network)]):
                rows = np.flatnonzero(serving & (flow == network) & (role == each))
                chosen.append(rows[np.argsort(price[rows], kind="stable")[:_COVER_CANDIDATES]])
    return np.unique(np.concatenate(chosen))


def _cover_rows(polytope: Polytope, chosen: IntArray, columns: int, num_rent: int, num_pairs: int) -> csr_array:
    """[D + flows, columns] the replicas that serve each demand; where one decodes, another has to prefill."""
    row_of = demand_rows(polytope)[polytope.candidates.model[chosen]]
    candidate, workload = np.nonzero((polytope.rate[chosen] > 0) & (row_of >= 0))
    column, flow = 1 + num_rent + num_pairs + candidate, polytope.flow_of[chosen][candidate, workload]
    serves, apart = polytope.serves[chosen][candidate], flow >= 0
    num_demands = len(polytope.demands)
    return csr_array(
        (
            np.concatenate([np.ones(int(serves.sum())), np.where(serves, -1.0, _MANY_REPLICAS)[apart]]),
            (
                np.concatenate([row_of[candidate, workload][serves], num_demands + flow[apart]]),
                np.concatenate([column[serves], column[apart]]),
            ),
        ),
        shape=(num_demands + polytope.num_flows, columns),
    )


def _row_conflict(name: str, needed: float, available: float) -> Conflict:
    if name == "budget":
        remedy = "raise budget_usd_per_hour, use a smaller precision, or widen the market"
        return Conflict(name, float(needed), float(available), "usd_per_hour", remedy)
    if name.startswith("supply/"):
        return Conflict(
            name,
            float(needed),
            float(available),
            "gpu",
            "wait for or add offers of this kind, or widen market.filter",
        )
    unit = "watt" if name == "limit/max_power_watts" else "gpu"
    return Conflict(
        name, float(needed), float(available), unit, f"raise limits.{name.removeprefix('limit/').split('/')[0]}"
    )


def _undersupplied(problem: Problem) -> tuple[Conflict, ...]:
    """How much of the demand the market and the limits can carry at most."""
    polytope = polytope_of(problem)
    outcome = exact.minimise(
        polytope, polytope.goal_throughput(), relative_gap=0.01, seconds_left=lambda: _SECONDS, node_limit=200
    )
    if outcome.allocation is None:
        return ()
    carried_rps = outcome.allocation.lam
    wanted = 1.0 + problem.objective.headroom_fraction
    multiple = carried_rps / total_demand(problem)
    if multiple >= wanted or multiple <= LEAST_LAM:
        return ()
    by_name = {d.name: d.fraction for d in demands_of(problem)}
    apart = problem.search.disaggregation == "only"
    or_mix = ", let the network be faster, or set search.disaggregation to auto" if apart else ""
    return tuple(
        Conflict(
            name,
            rate * wanted,
            rate * multiple,
            "rps",
            f"this market carries {multiple:.3g} of the demand within budget and limits: lower rate_rps or "
            f"headroom_fraction, raise the budget, or add offers{or_mix}",
        )
        for name, rate in by_name.items()
    )


def _too_tight(problem: Problem) -> Conflict:
    """Every single workload fits, the whole does not: shares per provider or slices that exclude each other."""
    share = problem.limits.max_share_per_provider_fraction
    if share < 1:
        providers = len({offer.provider for offer in problem.offers})
        return Conflict(
            "limit/max_share_per_provider_fraction",
            1.0,
            share,
            "fraction",
            f"with {providers} provider(s) on the market no plan keeps to this share for every workload: raise "
            "limits.max_share_per_provider_fraction (1 always works) or add offers of another provider",
        )
    return Conflict(
        "limit/shared_machines", 1.0, 0.0, "plan", "offers that share a machine exclude each other: add offers"
    )
