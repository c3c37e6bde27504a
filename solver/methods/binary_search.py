"""The paper's method: binary search on the makespan (Jiang et al., Algorithm 1 and Appendix F).

For a candidate makespan T the polytope with lam fixed at 1/T is asked for any point at all. The lower bound of T
is the paper's: every workload on its fastest configuration, as many of it as there are. Its upper bound, all
workloads on the slowest configuration, does not exist where no single affordable configuration serves every
workload; a first feasible plan always gives one. A check that runs into the time limit proves nothing: the
search stops and the answer is feasible, not optimal.
"""

from dataclasses import replace

import numpy as np

from sutler.solver.answer.routing import route
from sutler.solver.methods.search import Report, SearchOutcome, untold
from sutler.solver.polytope.linear import solve_milp
from sutler.solver.polytope.milp import Allocation, build_milp
from sutler.solver.polytope.objectives import LEAST_LAM
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.progress import SecondsLeft

_FEASIBILITY_GAP = 1e-6  # of a goal that is 0 everywhere: any point closes it
_FIRST_PLAN_GAP = 0.5  # chosen: a first plan is enough, and the halving does the rest


def minimise(
    polytope: Polytope,
    goal: Goal,
    *,
    seconds_left: SecondsLeft,
    report: Report = untold,
) -> SearchOutcome:
    """Maximise lam (goal: -lam) by bisecting T = 1/lam until it is known within `tolerance_fraction` of T."""
    tolerance = polytope.problem.options.tolerance_fraction
    relaxation = solve_relaxation(polytope, goal)
    everything = np.arange(len(polytope.candidates))
    milp = build_milp(polytope, Goal(0.0, np.zeros_like(goal.use_cost), np.zeros_like(goal.rent_cost)), everything)

    def feasible_at(makespan: float) -> tuple[str, Allocation | None]:
        lower, upper = milp.program.lower.copy(), milp.program.upper.copy()
        lower[0] = upper[0] = 1.0 / makespan
        fixed = replace(milp.program, lower=lower, upper=upper)
        solution = solve_milp(fixed, relative_gap=_FEASIBILITY_GAP, time_limit_s=seconds_left())
        found = None if solution.x is None else milp.read(solution)
        return solution.status, found

    shortest = 1.0 / fastest_conceivable(polytope)
    first = solve_milp(
        build_milp(polytope, goal, everything).program, relative_gap=_FIRST_PLAN_GAP, time_limit_s=seconds_left()
    )
    best = None if first.x is None else milp.read(first)
    best = None if best is None else _routed(polytope, best)
    if best is None or best.lam <= LEAST_LAM:
        return SearchOutcome(None, np.inf, -1.0 / shortest, first.status != "unknown", relaxation)
    longest = 1.0 / best.lam
    while longest - shortest > tolerance * longest:
        makespan = (longest + shortest) / 2
        status, found = feasible_at(makespan)
        if found is not None:
            best = _routed(polytope, found)
            longest = min(makespan, 1.0 / best.lam)
        elif status == "infeasible":
            shortest = makespan
        else:
            return SearchOutcome(best, -1.0 / longest, -1.0 / shortest, False, relaxation)
        report("binary search", -1.0 / longest, -1.0 / shortest)
    return SearchOutcome(best, -1.0 / longest, -1.0 / shortest, True, relaxation)


def _routed(polytope: Polytope, allocation: Allocation) -> Allocation:
    """The allocation with the load that its best routing carries."""
    return replace(allocation, lam=route(polytope, allocation).lam)


def fastest_conceivable(polytope: Polytope) -> float:
    """lam if every workload ran on its fastest configuration, as many replicas as the market allows each."""
    lam = np.inf
    for row, demand in enumerate(polytope.demands):
        rows = (polytope.candidates.model == demand.model) & polytope.serves
        rate = (polytope.rate[rows] * polytope.shares_of(row)).max(axis=1, initial=0.0) * polytope.use_upper[rows]
        lam = min(lam, float(rate.sum()) / demand.fraction)
    return lam
