"""What the tests of the planner share: a problem's polytope, and slow, plain ways to its optimum.

`WholeProgram` writes the relaxation with all its variables (lam | u | y | z) as dense rows straight from the
definition in rows.py; `integer_optimum` hands the whole MILP to HiGHS without bounds, fixing or finish.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.dominance import prune_dominated
from sutler.solver.candidates.enumerate import AGGREGATED, PREFILL, enumerate_candidates
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.polytope.linear import solve_milp
from sutler.solver.polytope.milp import Allocation, build_milp
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.rows import Goal, Polytope, build_polytope
from sutler.solver.problem import Limits, Problem
from sutler.solver.throughput.mixes import mixes_of

UNLIMITED_GPUS = 10**6


def about(value: float, *, rel: float = 1e-6) -> Any:
    """pytest.approx for places where types are compared too, as inside a tuple."""
    return pytest.approx(value, rel=rel)


def polytope_of(problem: Problem, *, pruned: bool = True, clamped: bool = True) -> Polytope:
    """The problem's polytope, scaled so that for cost and power lam 1 is the offered demand.

    clamped False: supply and candidates as if budget and limits did not exist; their rows are still there.
    """
    market = problem if clamped else without_limits(problem)
    supply = build_supply(market)
    candidates = enumerate_candidates(market, supply)
    polytope = build_polytope(problem, supply, prune_dominated(candidates) if pruned else candidates)
    if problem.objective.maximises_rate:
        return polytope
    return polytope.scaled(problem.total_demand)


def without_limits(problem: Problem) -> Problem:
    """The same market for somebody with all the money and power in the world; pools stay what they are."""
    limits = replace(
        problem.limits,
        max_gpus=dict.fromkeys(problem.limits.max_gpus, UNLIMITED_GPUS),
        max_gpus_per_provider=dict.fromkeys(problem.limits.max_gpus_per_provider, UNLIMITED_GPUS),
        max_power_watts=None,
    )
    return replace(problem, budget_usd_per_hour=None, limits=limits)


def candidate_with(polytope: Polytope, *stages: str, model: int = 0) -> int:
    """The one candidate with these stages ("a:2" is a tensor-parallel pair of GPUs a)."""
    wanted = [(text.partition(":")[0], int(text.partition(":")[2] or 1)) for text in stages]
    found = [c for c in range(len(polytope.candidates)) if stages_of(polytope, c) == wanted]
    found = [c for c in found if polytope.candidates.model[c] == model]
    assert len(found) == 1, f"{len(found)} candidates with stages {stages}"
    return found[0]


def stages_of(polytope: Polytope, candidate: int) -> list[tuple[str, int]]:
    candidates, pools = polytope.candidates, polytope.supply.pools
    return [
        (pools[pool].gpu, degree)
        for pool, degree in zip(candidates.pool[candidate].tolist(), candidates.gpus[candidate].tolist(), strict=True)
        if pool >= 0
    ]


def a_fleet(polytope: Polytope, replicas: Mapping[int, int], rented: IntArray | None = None) -> Allocation:
    """An allocation with these replicas of these candidates, not routed yet."""
    candidate = np.array(sorted(replicas), dtype=np.int64)
    counts = np.array([replicas[int(c)] for c in candidate], dtype=np.int64)
    machines = np.zeros(len(polytope.cost_rent), dtype=np.int64) if rented is None else rented
    return Allocation(candidate, counts, machines, 0.0)


def within_resources(polytope: Polytope, fleet: Allocation) -> bool:
    used = polytope.use[:, fleet.candidate] @ fleet.replicas + polytope.rent @ fleet.rented
    return bool((used <= polytope.limit + 1e-9).all() and (fleet.rented <= polytope.rent_upper).all())


@dataclass(slots=True)
class WholeProgram:
    """The relaxation in full. Bounds of u and y may be changed before it is solved."""

    polytope: Polytope
    goal: Goal
    pairs: list[tuple[int, int]] = field(init=False)
    rent_lower: FloatArray = field(init=False)
    rent_upper: FloatArray = field(init=False)
    use_lower: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.pairs = [(int(c), int(w)) for c, w in zip(*np.nonzero(self.polytope.rate > 0), strict=True)]
        self.rent_lower = np.zeros(len(self.polytope.cost_rent))
        self.rent_upper = self.polytope.rent_upper.copy()
        self.use_lower = np.zeros(len(self.polytope.candidates))

    def optimum(self) -> float:
        """The least value of the goal; inf: infeasible."""
        return self._solve(self.polytope.limit)

    def optimum_with(self, resource: str, limit: float) -> float:
        """The least value with another limit for one named resource."""
        limits = self.polytope.limit.copy()
        limits[self.polytope.resources.index(resource)] = limit
        return self._solve(limits)

    def _solve(self, limits: FloatArray) -> float:
        polytope, goal = self.polytope, self.goal
        num_rent, num_use, num_pairs = len(self.rent_lower), len(self.use_lower), len(self.pairs)
        demand, lopsided = self._demand_rows(), np.vstack([self._share_rows(), self._flow_rows()])
        capacity = np.zeros((num_use, 1 + num_rent + num_use + num_pairs))
        for column, (c, _) in enumerate(self.pairs):
            capacity[c, 1 + num_rent + num_use + column] = 1.0
        capacity[:, 1 + num_rent : 1 + num_rent + num_use] = -np.eye(num_use)
        finite = np.isfinite(limits)
        resources = np.hstack(
            [
                np.zeros((len(limits), 1)),
                polytope.rent.toarray(),
                polytope.use.toarray(),
                np.zeros((len(limits), num_pairs)),
            ]
        )[finite]
        solved = linprog(
            np.concatenate([[goal.lam_weight], goal.rent_cost, goal.use_cost, np.zeros(num_pairs)]),
            A_ub=np.vstack([capacity, lopsided, resources]),
            b_ub=np.concatenate([np.zeros(num_use + len(lopsided)), limits[finite]]),
            A_eq=demand,
            b_eq=np.zeros(len(demand)),
            bounds=[
                (goal.lam_lower, None),
                *zip(self.rent_lower, self.rent_upper, strict=True),
                *((least, None) for least in self.use_lower),
                *((0.0, None) for _ in self.pairs),
            ],
            method="highs",
        )
        return float(solved.fun) if solved.status == 0 else np.inf

    def _demand_rows(self) -> FloatArray:
        """sum_c,v h[c,v] s[v,w] z[c,v] - lam f[w] = 0"""
        rows = np.zeros((len(self.polytope.demands), self._width()))
        mixes = [mixes_of(model) for model in self.polytope.problem.models]
        for row, demand in enumerate(self.polytope.demands):
            rows[row, 0] = -demand.fraction
            for column, (c, v) in enumerate(self.pairs):
                is_served = self.polytope.candidates.model[c] == demand.model
                if is_served and self.polytope.candidates.role[c] != PREFILL:
                    share = mixes[demand.model][v, demand.workload]
                    rows[row, self._width() - len(self.pairs) + column] = self.polytope.rate[c, v] * share
        return rows

    def _share_rows(self) -> FloatArray:
        """Requests/s of the members of a limited share - share * all of them <= 0."""
        rows = np.zeros((len(self.polytope.shares), self._width()))
        rows[:, 0] = [-share.fraction for share in self.polytope.shares]
        for column, (c, w) in enumerate(self.pairs):
            for share in self.polytope.share_of[c]:
                if share >= 0:
                    rows[share, self._width() - len(self.pairs) + column] = self.polytope.rate[c, w]
        return rows

    def _flow_rows(self) -> FloatArray:
        """What decodes - what prefills <= 0 of every model, network and workload."""
        candidates, supply = self.polytope.candidates, self.polytope.supply
        network = [supply.pools[int(pool)].network for pool in candidates.pool[:, 0]]
        apart = [pair for pair in self.pairs if candidates.role[pair[0]] != AGGREGATED]
        keys = sorted({(int(candidates.model[c]), str(network[c]), w) for c, w in apart})
        rows = np.zeros((len(keys), self._width()))
        for column, (c, w) in enumerate(self.pairs):
            if candidates.role[c] != AGGREGATED:
                row = keys.index((int(candidates.model[c]), str(network[c]), w))
                sign = -1.0 if candidates.role[c] == PREFILL else 1.0
                rows[row, self._width() - len(self.pairs) + column] = sign * self.polytope.rate[c, w]
        return rows

    def _width(self) -> int:
        return 1 + len(self.rent_lower) + len(self.use_lower) + len(self.pairs)


def integer_optimum(polytope: Polytope, goal: Goal, *, relative_gap: float = 1e-9) -> float:
    """The least value of a goal over all integer plans: one MILP over every candidate."""
    if len(polytope.candidates) == 0:
        return 0.0 if goal.lam_lower == 0 else np.inf
    program = build_milp(polytope, goal, np.arange(len(polytope.candidates))).program
    return solve_milp(program, relative_gap=relative_gap, time_limit_s=20.0).objective


def least_value(problem: Problem, *, pruned: bool = True, clamped: bool = True) -> float:
    """The integer optimum of the problem's primary objective, minimised (throughput as its negative)."""
    polytope = polytope_of(problem, pruned=pruned, clamped=clamped)
    return integer_optimum(polytope, first_goal(polytope))


def rented_gpus(plan: Plan) -> dict[str, int]:
    """GPUs of each type that a plan rents."""
    gpus: dict[str, int] = {}
    for rental in plan.rentals:
        gpus[rental.gpu] = gpus.get(rental.gpu, 0) + rental.gpus * rental.count
    return gpus


def replicas_by_layout(plan: Plan) -> dict[str, int]:
    """How many replicas of each layout a plan runs: {"a:2+b:1": 3}."""
    counts: dict[str, int] = {}
    for replica in plan.replicas:
        layout = "+".join(f"{stage.gpu}:{stage.tensor_parallel}" for stage in replica.stages)
        counts[layout] = counts.get(layout, 0) + 1
    return counts


def one_gpu_limit(provider: str = "cloud") -> Limits:
    """A single GPU may be rented in all."""
    return Limits(max_gpus_per_provider={provider: 1})
