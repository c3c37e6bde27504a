"""Cauchy's three allocators (sections 3.3.2 and 4.3): whole GPU Combos, a number of each, in one ILP.

With x[n] combos of type n (combos.py), each dedicated to one workload, s[n] of it served by them, and goodput g:

    MCE-LP   maximise  sum C[n] s[n]              cost-efficiency of what is served
    MC-LP    minimise  what is rented             $/h, or watts for min_power
    CO-LP    minimise  sum P[n] / C[n] x[n]       eq. 16

    subject to  sum s[n] = load, s[n] <= g[n] x[n]  of every workload, and the caller's supply, budget and limits

Of equals the cheapest is taken. Cauchy is given a goodput; where a budget is given instead, the goodput is the
largest multiple of the demand that combos carry for it, and the objective decides among those that do. Several models
share the market as in eq. 16, and several workloads of a model likewise. Every combo is sent requests in proportion
to its goodput (section 3.4.1). Opportunistic scheduling (section 3.4.2) is not modelled: prefill replicas decode
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.sparse import block_array, csr_array, vstack

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import enumerate_candidates
from sutler.solver.market.supply import build_supply
from sutler.solver.planner import SolveRun
from sutler.solver.polytope.linear import LinearProgram, solve_milp
from sutler.solver.polytope.objectives import LEAST_LAM
from sutler.solver.polytope.preparation import of_possible, scaled_to_one
from sutler.solver.polytope.rows import Polytope, build_polytope
from sutler.solver.problem import Disaggregation, Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.combos import Combos, combos_of
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.straight_line import Ruled, answered, refuse_conditions, started

Rule = Literal["mce-lp", "mc-lp", "co-lp"]

_REMEDY = "it rents whole combos, each for one workload: add offers, raise the budget, or use sutler"
_GAP = 1e-4  # a tenth of what sutler is asked for by default, so that the rule is not blamed for its ILP
_HELD = 1e-6  # of what an earlier objective found, a later one may give up
_CARRIES = 1 - 1e-6  # of the load: HiGHS's tolerances hide the rest
_MOST_LAM = 1.01  # no combos carry more than the relaxation, which is 1


def plan(rule: Rule, problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The combos that a rule deploys. Raises NotApplicableError."""
    refuse_conditions(problem)
    disaggregation: Disaggregation = "only" if problem.search.disaggregation == "only" else "auto"
    search = replace(problem.search, disaggregation=disaggregation, power_caps_fraction=())
    own = replace(problem, search=search)
    run, polytope = started(own, seconds_left), _plain(own)
    found = None
    if polytope is not None:
        run.candidates = len(polytope.candidates)
        combos = combos_of(polytope)
        if len(combos):
            found = _Allocator(run, polytope, combos).deployed(rule)
    return answered(run, own, f"cauchy/{rule}", found, remedy=_REMEDY)


def _plain(problem: Problem) -> Polytope | None:
    """The polytope of replicas inside one machine, without pipelines. None: they do not serve everything."""
    supply = build_supply(problem)
    enumerated = enumerate_candidates(problem, supply)
    plain = np.flatnonzero(enumerated.is_one_stage & enumerated.one_piece)
    polytope = of_possible(problem, supply, enumerated.take(plain))
    return scaled_to_one(polytope) if polytope.servable().all() else None


@dataclass(slots=True)
class _Allocator:
    """The ILP over columns lam | served s [N] | combos x [N] | machines u [K], and the objectives held so far."""

    run: SolveRun
    polytope: Polytope
    combos: Combos
    held: list[tuple[FloatArray, float]] = field(default_factory=list)

    def deployed(self, rule: Rule) -> Ruled | None:
        """Objective after objective. None: no combos carry the load, or none were found in time."""
        best: FloatArray | None = None
        for cost in self._objectives(rule):
            seconds = self.run.first_phase_seconds_left() if best is None else self.run.finish_seconds_left()
            solution = solve_milp(self._program(cost), relative_gap=_GAP, time_limit_s=seconds)
            if solution.status in ("feasible", "unknown"):
                self.run.end_early()
            if solution.x is None:
                break
            best = solution.x
            value = float(cost @ best)
            self.held.append((cost, value + _HELD * abs(value)))
        return None if best is None else self._fleet(best)

    def _objectives(self, rule: Rule) -> Sequence[FloatArray]:
        combos, polytope = self.combos, self.polytope
        hungry = polytope.problem.objective.kind == "min_power"
        goal = polytope.goal_power(0.0) if hungry else polytope.goal_cost(0.0)
        spent = self._cost(combos=self._replicas().T @ goal.use_cost, machines=goal.rent_cost)
        fraction = np.array([demand.fraction for demand in polytope.demands])[combos.demand]
        of_rule = {
            "mce-lp": [self._cost(served=-fraction * combos.tokens_per_usd / combos.tokens_per_usd.max()), spent],
            "mc-lp": [spent],
            "co-lp": [self._cost(combos=combos.price / combos.tokens_per_usd), spent],
        }[rule]
        is_load_open = polytope.problem.objective.maximises_rate
        return [self._cost(lam=-1.0), *of_rule] if is_load_open else of_rule

    def _cost(
        self,
        *,
        lam: float = 0.0,
        served: FloatArray | None = None,
        combos: FloatArray | None = None,
        machines: FloatArray | None = None,
    ) -> FloatArray:
        types, classes = len(self.combos), len(self.polytope.cost_rent)
        parts = ((served, types), (combos, types), (machines, classes))
        return np.concatenate([[lam], *(np.zeros(size) if part is None else part for part, size in parts)])

    def _replicas(self) -> csr_array:
        """[C, N] replicas of each candidate in each combo."""
        combos, types = self.combos, np.arange(len(self.combos))
        entries = (combos.counts.T.ravel(), (np.concatenate([combos.first, combos.second]), np.tile(types, 2)))
        return csr_array(entries, shape=(len(self.polytope.candidates), len(types)))

    def _program(self, cost: FloatArray) -> LinearProgram:
        polytope, combos = self.polytope, self.combos
        types, demands, resources = len(combos), len(polytope.demands), len(polytope.limit)
        objective = polytope.problem.objective
        is_load_open = objective.maximises_rate
        load = 0.0 if is_load_open else objective.carried_load
        most = _MOST_LAM if is_load_open else load
        fraction = np.array([demand.fraction for demand in polytope.demands])[combos.demand]
        goodput = np.minimum(combos.goodput / fraction, most)  # more than all of it is as good as all of it
        each = csr_array(np.eye(types))
        of_demand = csr_array((np.ones(types), (combos.demand, np.arange(types))), shape=(demands, types))
        lam = csr_array(-np.ones((demands, 1)))
        rows = [
            [lam, of_demand, None, csr_array((demands, len(polytope.cost_rent)))],
            [None, each, csr_array(each * -goodput), None],
            [None, None, csr_array(polytope.use @ self._replicas()), polytope.rent],
        ]
        matrix = csr_array(block_array(rows, format="csr"))
        if self.held:
            matrix = csr_array(vstack([matrix, csr_array(np.array([row for row, _ in self.held]))], format="csr"))
        held = np.array([value for _, value in self.held])
        integer = np.concatenate([np.zeros(1 + types), np.ones(types + len(polytope.cost_rent))])
        return LinearProgram(
            cost=cost,
            matrix=matrix,
            row_lower=np.concatenate([np.zeros(demands), np.full(types + resources + len(held), -np.inf)]),
            row_upper=np.concatenate([np.zeros(demands + types), polytope.limit, held]),
            lower=np.concatenate([[load], np.zeros(2 * types + len(polytope.cost_rent))]),
            upper=np.concatenate([[most], np.full(types, most), self._most(), polytope.rent_upper]),
            integer=integer.astype(np.bool_),
        )

    def _most(self) -> FloatArray:
        """[N] combos that there is room for, nothing else being there."""
        combos, upper = self.combos, self.polytope.use_upper
        with np.errstate(divide="ignore"):
            each = np.floor(upper[np.stack([combos.first, combos.second], axis=1)] / combos.counts)
        most: FloatArray = each.min(axis=1)
        return most

    def _fleet(self, x: FloatArray) -> Ruled | None:
        """Replicas of different combos are kept apart, also where they are alike. None: tolerances hid some load."""
        types = len(self.combos)
        number = np.round(x[1 + types : 1 + 2 * types]).astype(np.int64)
        machines = np.round(x[1 + 2 * types :]).astype(np.int64)
        used = np.flatnonzero(number)
        combos = self.combos
        paired = used[combos.counts[used, 1] > 0]
        combo = np.concatenate([used, paired])
        candidate = np.concatenate([combos.first[used], combos.second[paired]])
        replicas = np.concatenate([combos.counts[used, 0] * number[used], combos.counts[paired, 1] * number[paired]])
        polytope = self._polytope_of(candidate)
        goodput = combos.goodput * number
        total = np.bincount(combos.demand, weights=goodput, minlength=len(polytope.demands))
        if total.min() <= 0:
            return None
        fraction = np.zeros((len(polytope.demands), len(combo)))
        fraction[combos.demand[combo], np.arange(len(combo))] = (goodput / total[combos.demand])[combo]
        fleet = Ruled.of(polytope, np.arange(len(combo)), replicas, machines, fraction)
        objective = polytope.problem.objective
        least = LEAST_LAM if objective.maximises_rate else objective.carried_load * _CARRIES
        return fleet if fleet.routing.lam >= least else None

    def _polytope_of(self, candidate: IntArray) -> Polytope:
        """The polytope of these candidates alone, once for each time that they are named."""
        polytope = self.polytope
        own = build_polytope(polytope.problem, polytope.supply, polytope.candidates.take(candidate))
        return own.scaled(polytope.scale_rps)
