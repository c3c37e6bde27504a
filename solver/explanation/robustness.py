"""What a plan is worth when every rate is at the low end of its band, and whether another is better there.

Bands differ by GPU class, so the best plan at the rates themselves need not be the best one at their low ends. The
plan's own fleet is routed anew at those, an LP. The best plan there is the same MILP over other candidates, searched
from that fleet. No plan keeps more of its rates than the candidate with the narrowest band does: that share of the
plan's bound holds for all, and often settles it without a search.

Flow: planner.py, once the plan is verified -> here, low_rates.py -> Plan.robustness.
"""

from dataclasses import dataclass, replace

from sutler.solver.answer.routing import route
from sutler.solver.candidates.enumerate import Candidates
from sutler.solver.errors import EngineError
from sutler.solver.explanation import low_rates
from sutler.solver.explanation.low_rates import FoundAtLow
from sutler.solver.methods.giving_up import within
from sutler.solver.plan import Plan, Robustness
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft

NEAR_FRACTION = 0.01  # of the objective: what many would give up unasked for a plan that is surer

_ROUNDING = 1e-9  # relative: what sums of floats may be off by
_CARRIES = 1e-6  # relative shortage below which the load counts as carried
_LONGEST_SHARE = 1 / 3  # of the time limit: a plan should not wait much longer for what might be better elsewhere


def robustness_of(
    polytope: Polytope,
    allocation: Allocation,
    plan: Plan,
    relaxation: Relaxation,
    enumerated: Candidates,
    *,
    seconds_left: SecondsLeft,
) -> Robustness:
    """Values the plan that this allocation of the polytope is; `verdict` is `unknown` where time or HiGHS gave out.

    `relaxation`: of the plan's objective, over the candidates of the polytope; `enumerated`: all of the market.
    """
    low_rps = min(route(at, allocation).lam for at in (polytope, polytope.at("low"))) * polytope.scale_rps
    options = polytope.problem.options
    gap = options.tolerance_fraction if options.method == "binary_search" else options.relative_gap
    own = _Own(polytope, allocation, plan, low_rps, gap)
    known = Robustness(
        low_fraction=_low_fraction(plan),
        value_at_low=own.value_at_low,
        load_multiple_at_low=None if own.is_rate else low_rps / own.demand,
        verdict="unknown",
        reason=f"the time limit of {options.time_limit_s:g} s came before another plan was sought there",
    )
    capped = _capped(own.problem, seconds_left)
    try:
        known = _with_near_optimum(own, known, relaxation, capped)
        return _compared(own, known, enumerated, capped)
    except EngineError as error:  # no reason to lose a plan that is verified
        return replace(known, reason=str(error))


def _with_near_optimum(
    own: "_Own", known: Robustness, relaxation: Relaxation, seconds_left: SecondsLeft
) -> Robustness:
    """Adds the fleet that carries the most there for a small fraction of the objective; unless that is what the plan
    is, a reserve is kept, or rates are taken as given."""
    objective, value = own.problem.objective, own.plan.value
    assert value is not None
    is_settled = objective.robust or objective.give_up_fraction or own.problem.keeps_reserve
    if is_settled or known.low_fraction >= 1 or seconds_left() <= 0:
        return known
    start = replace(own.allocation, lam=route(own.polytope, own.allocation).lam)
    found = within(
        own.polytope, start, value=value, fraction=NEAR_FRACTION, relaxation=relaxation, seconds_left=seconds_left
    )
    known = replace(known, near_optimum_fraction=NEAR_FRACTION)
    if found is start:
        return known
    low = own.polytope.at("low")
    return replace(known, near_optimum=low_rates.stated_at_low(low, found, route(low, found)))


def _capped(problem: Problem, seconds_left: SecondsLeft) -> SecondsLeft:
    """What is left, but no more than a share of the time limit from now on."""
    unused = max(0.0, seconds_left() - _LONGEST_SHARE * problem.options.time_limit_s)
    return lambda: seconds_left() - unused


def _low_fraction(plan: Plan) -> float:
    fraction = {(e.replica, e.workload): e.low_rps / e.rps for e in plan.evidence}
    routed = [(rate.rps, fraction[r.id, rate.workload]) for r in plan.replicas for rate in r.throughput_rps]
    return min(1.0, sum(rps * low for rps, low in routed) / sum(rps for rps, _ in routed))


@dataclass(frozen=True, slots=True)
class _Own:
    """The plan and its fleet. `low_rps`: requests/s (requests, for a makespan) of the mix that it carries at low
    rates; `gap`: by how much another has to be better."""

    polytope: Polytope
    allocation: Allocation
    plan: Plan
    low_rps: float
    gap: float

    @property
    def problem(self) -> Problem:
        return self.polytope.problem

    @property
    def demand(self) -> float:
        return self.problem.total_demand

    @property
    def is_rate(self) -> bool:
        return self.problem.objective.maximises_rate

    @property
    def value_at_low(self) -> float:
        """What the fleet costs and draws does not depend on rates."""
        nominal = self.plan.value
        assert nominal is not None  # there is a fleet
        if not self.is_rate:
            return nominal
        worse = min if self.problem.objective.kind == "max_throughput" else max
        return worse(self.value_of(self.low_rps), nominal)

    def value_of(self, rps: float) -> float:
        """The requests/s of the mix, or the seconds that the requests take."""
        return rps if self.problem.objective.kind == "max_throughput" else self.demand / rps

    @property
    def least_rps(self) -> float:
        """What another plan has to carry there."""
        if self.is_rate:
            return self.low_rps * (1 + self.gap)
        return self.demand * self.problem.objective.carried_load

    def bound_rps(self, share: float) -> float:
        """The requests/s that are `share` of what is proven of every plan."""
        bound = self.plan.bound
        assert bound is not None
        return share * (bound if self.problem.objective.kind == "max_throughput" else self.demand / bound)


def _compared(own: _Own, known: Robustness, enumerated: Candidates, seconds_left: SecondsLeft) -> Robustness:
    """Adds what another plan would bring."""
    if not own.is_rate and own.low_rps >= own.least_rps * (1 - _CARRIES):
        return replace(known, verdict="none_better", reason="this plan carries the load there")
    if own.is_rate and own.bound_rps(1.0) <= own.least_rps * (1 + _ROUNDING):
        return _none_better(own, known, own.bound_rps(1.0))
    if seconds_left() <= 0:
        return known
    if not own.is_rate:
        return _against_cheapest(own, known, low_rates.cheapest(own.polytope, enumerated, seconds_left), seconds_left)
    most_rps = own.bound_rps(low_rates.widest_share(enumerated))
    if most_rps <= own.least_rps * (1 + _ROUNDING):
        return _none_better(own, known, most_rps)
    found = low_rates.best_from(
        own.polytope, own.allocation, enumerated, least_rps=own.least_rps, seconds_left=seconds_left
    )
    return _against_best(own, known, found, seconds_left)


def _against_best(own: _Own, known: Robustness, found: FoundAtLow, seconds_left: SecondsLeft) -> Robustness:
    """Compares under max_throughput and min_makespan."""
    if found.carried_rps > own.least_rps:
        return _better(own, known, found, seconds_left)
    most_rps = -found.outcome.bound * found.low.scale_rps
    if found.outcome.proven:
        return _none_better(own, known, most_rps)
    reason = f"its limits ended the search; {_none_by_more(own, most_rps)}"
    return replace(known, reason=reason, bound_at_low=own.value_of(most_rps))


def _none_better(own: _Own, known: Robustness, most_rps: float) -> Robustness:
    bound = own.value_of(max(most_rps, own.low_rps))
    return replace(known, verdict="none_better", reason=_none_by_more(own, most_rps), bound_at_low=bound)


def _none_by_more(own: _Own, most_rps: float) -> str:
    most_fraction = max(own.gap, most_rps / own.low_rps - 1)
    return f"no plan is better there by more than {100 * most_fraction:.2g} %"


def _against_cheapest(own: _Own, known: Robustness, found: FoundAtLow, seconds_left: SecondsLeft) -> Robustness:
    """Compares under min_cost and min_power, where the plan does not carry the load at low rates."""
    if found.outcome.allocation is not None:
        return _better(own, known, found, seconds_left)
    if not found.outcome.proven:
        reason = "its limits ended the search for a plan that carries the load there"
        return replace(known, reason=reason, bound_at_low=found.bound)
    most = max(own.low_rps / own.demand, low_rates.most_carried(found.low, seconds_left))
    needed = f"carries {own.least_rps / own.demand:g} times the load there"
    reason = f"no fleet within market, budget and limits {needed}; the most found is {most:.4g} times"
    return replace(known, verdict="cannot_carry", reason=reason, most_load_multiple_at_low=most)


def _better(own: _Own, known: Robustness, found: FoundAtLow, seconds_left: SecondsLeft) -> Robustness:
    other = low_rates.alternative_of(found, own.least_rps, seconds_left)
    bound = other.value_at_low if found.bound is None else found.bound
    more_fraction = abs(bound - other.value_at_low) / other.value_at_low if other.value_at_low else 0.0
    doubt = f"its limits ended the search; one up to {100 * more_fraction:.2g} % better may exist"
    reason = None if found.outcome.proven else doubt
    return replace(known, verdict="better", reason=reason, bound_at_low=bound, alternative=other)
