"""The best plan when every rate is at the low end of its band: the planner's own search over other candidates.

What is dominated depends on the rates, so the candidates are those enumerated, pruned anew.

Flow: robustness.py asks whether a plan is beaten there -> polytope, search and description of what beats it (here).
"""

from dataclasses import dataclass, replace

import numpy as np

from sutler.solver.answer.describe import describe, in_unit
from sutler.solver.answer.routing import Routing, route, without_idle
from sutler.solver.candidates.enumerate import Candidates
from sutler.solver.methods import exact
from sutler.solver.methods.finishing import finished
from sutler.solver.methods.search import SearchOutcome, quick_gap
from sutler.solver.plan import RobustAlternative
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import FIRST_PHASE_GAP_SHARE, first_goal
from sutler.solver.polytope.preparation import prepare_at_low, scaled_to_one
from sutler.solver.polytope.rows import Polytope
from sutler.solver.progress import SecondsLeft, at_most

_NODES = 300  # as of the first plans of methods/exact.py
_MOST_CARRIED_SECONDS = 5.0  # as of the alternatives


@dataclass(frozen=True, slots=True)
class FoundAtLow:
    """What a search ended with, in the scale of its polytope, which counts on the low rates."""

    low: Polytope
    outcome: SearchOutcome

    @property
    def carried_rps(self) -> float:
        """The requests/s of the mix; 0 where nothing was found."""
        return 0.0 if self.outcome.allocation is None else self.outcome.allocation.lam * self.low.scale_rps

    @property
    def bound(self) -> float | None:
        """What no plan beats there, in the objective's unit; None: it says nothing."""
        return in_unit(self.low, self.outcome.bound)


def widest_share(enumerated: Candidates) -> float:
    """The largest low end / rate of any candidate on any workload."""
    served = enumerated.rps > 0
    return float((enumerated.low_rps[served] / enumerated.rps[served]).max(initial=0.0))


def best_from(
    polytope: Polytope, allocation: Allocation, enumerated: Candidates, *, least_rps: float, seconds_left: SecondsLeft
) -> FoundAtLow:
    """The most that is carried at low rates, searched from an allocation of the nominal polytope.

    Within the quick gap where that is more than `least_rps`, else within the gap that is asked for.
    """
    own = polytope.candidates.take(allocation.candidate)
    low = scaled_to_one(prepare_at_low(polytope.problem, polytope.supply, enumerated, first=own))
    assert low is not None  # the allocation carries something
    start = replace(allocation, candidate=np.arange(len(own)))
    found = _searched(low, quick_gap(low), seconds_left, replace(start, lam=route(low, start).lam))
    settled = not found.outcome.proven or max(found.carried_rps, -found.outcome.bound * low.scale_rps) <= least_rps
    if found.carried_rps > least_rps or settled:
        return found
    return _searched(low, low.problem.options.relative_gap, seconds_left, found.outcome.allocation)


def cheapest(polytope: Polytope, enumerated: Candidates, seconds_left: SecondsLeft) -> FoundAtLow:
    """The least cost or power that carries the load and its headroom at low rates."""
    low = scaled_to_one(prepare_at_low(polytope.problem, polytope.supply, enumerated))
    assert low is not None  # scaled by the demand
    return _searched(low, quick_gap(low), seconds_left)


def _searched(low: Polytope, gap: float, seconds_left: SecondsLeft, start: Allocation | None = None) -> FoundAtLow:
    """Searches to most of the gap, which leaves the rest to the finish."""
    outcome = exact.minimise(
        low,
        first_goal(low),
        relative_gap=FIRST_PHASE_GAP_SHARE * gap,
        seconds_left=seconds_left,
        node_limit=_NODES,
        start=start,
    )
    return FoundAtLow(low, outcome)


def most_carried(low: Polytope, seconds_left: SecondsLeft) -> float:
    """The largest lam found; good, not proven."""
    found = exact.quick(low, low.goal_throughput(), at_most(_MOST_CARRIED_SECONDS, seconds_left))
    return 0.0 if found is None else without_idle(low, found)[1].lam


def alternative_of(found: FoundAtLow, least_rps: float, seconds_left: SecondsLeft) -> RobustAlternative:
    """The plan found, after the finish, with what its fleet does at the low rates and at the rates themselves."""
    low = found.low
    assert found.outcome.allocation is not None
    end = finished(
        low,
        found.outcome.allocation,
        relaxation=found.outcome.relaxation,
        seconds_left=seconds_left,
        least_lam=least_rps / low.scale_rps,
    )
    return stated_at_low(low, *without_idle(low, end.allocation))


def stated_at_low(low: Polytope, allocation: Allocation, routing: Routing) -> RobustAlternative:
    """What a fleet does at the low rates, under its routing there, and at the rates themselves."""
    problem = low.problem
    nominal = low.at("nominal")
    fleet = describe(nominal, allocation, route(nominal, allocation), in_full=False)
    rps, demand, value = routing.lam * low.scale_rps, problem.total_demand, fleet.value(problem.objective)
    at_low = {"max_throughput": rps, "min_makespan": demand / rps}
    return RobustAlternative(
        value_at_low=at_low.get(problem.objective.kind, value),
        value=value,
        load_multiple_at_low=None if problem.objective.maximises_rate else rps / demand,
        load_multiple=fleet.load_multiple,
        cost_usd_per_hour=fleet.cost_usd_per_hour,
        rentals=fleet.rentals,
    )
