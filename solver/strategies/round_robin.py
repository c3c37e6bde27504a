"""Sutler's own fleet under round robin: the MILP paper without its choice of routing (arXiv 2502.00722, Figure 8
"rule-based request assignment").

Every workload is spread evenly over all replicas of its model that can serve it. For the least cost or power, sutler
is asked for fleets for more load than there is until one carries the load under that routing.
"""

from dataclasses import replace

from sutler.solver.polytope.preparation import prepare
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import straight_line
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.rules import spread_evenly
from sutler.solver.strategies.straight_line import Ruled

_REMEDY = (
    "no fleet found carries the load when it is spread evenly: add offers, raise the budget, or route by the plan"
)


def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Sutler's fleet, its requests spread evenly. Raises NotApplicableError."""
    straight_line.refuse_conditions(problem)
    own = straight_line.aggregated(problem)
    run, polytope = straight_line.started(problem, seconds_left), prepare(own)
    run.candidates = len(polytope.candidates)

    def spread(load: float) -> Ruled | None:
        asked = replace(polytope, problem=own.with_headroom(load - 1.0))
        fleet = (
            straight_line.best_fleet(run, asked) if own.objective.maximises_rate else straight_line.bought(run, asked)
        )
        if fleet is None:
            return None
        routing = spread_evenly(fleet.polytope, fleet.allocation)
        return replace(fleet, routing=routing) if routing.lam > 0 else None

    found, carried = straight_line.raised_until_carried(run, own, spread)
    return straight_line.answered(run, problem, "round-robin-assignment", found, remedy=_REMEDY, carried=carried)
