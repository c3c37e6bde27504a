"""What all strategies share: sutler's own line from a polytope to a verified plan, entered where each needs it.

A strategy that restricts the problem is `solved`; one with rules of its own searches a polytope with planner.search,
or counts replicas itself, and is `answered` under a routing of its own. None of them has a solver.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sutler.solver import planner
from sutler.solver.answer.describe import in_unit
from sutler.solver.answer.routing import Routing, balanced, without_idle
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.plan import Conflict, Plan
from sutler.solver.planner import SolveRun
from sutler.solver.polytope.linear import LinearProgram, solve_milp
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import cost_of, first_goal, power_of
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Objective, Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan

CARRIES = 1 - 1e-9  # what of the wanted load counts as all of it

_MACHINES_GAP = 1e-6  # of a small MILP: as good as none
_ROUNDING = 1e-9  # relative: what sums of floats may be off by
_MOST_PURCHASES = 12  # a whole search each; halving from the double to _LOAD_STEP takes seven
_LOAD_STEP = 0.01  # chosen: a rival is not judged by a percent of its load


@dataclass(frozen=True, slots=True)
class Ruled:
    """A fleet under the routing that a rule gives it."""

    polytope: Polytope
    allocation: Allocation
    routing: Routing

    @classmethod
    def of(
        cls, polytope: Polytope, candidate: IntArray, replicas: IntArray, machines: IntArray, fraction: FloatArray
    ) -> "Ruled":
        """A fleet of so many replicas of some candidates, with these fractions [D, n] of the demands."""
        fleet = Allocation(candidate, replicas, machines, 0.0)
        routing = balanced(polytope, fleet, fraction)
        return cls(polytope, replace(fleet, lam=routing.lam), routing)

    @property
    def load_multiple(self) -> float:
        """How often the fleet carries the demand."""
        return self.routing.lam * self.polytope.scale_rps / self.polytope.problem.total_demand

    def worth(self, problem: Problem) -> float:
        """Watts where the problem asks for few of them, else $/h."""
        worth = power_of if problem.objective.kind == "min_power" else cost_of
        return worth(self.polytope, self.allocation)


def started(problem: Problem, seconds_left: SecondsLeft) -> SolveRun:
    """A run that ends with the problem's time limit or with the strategy's, whichever comes first."""
    return SolveRun(_limited(problem, seconds_left), lambda: -seconds_left(), lambda progress: None)


def _half_of(seconds_left: SecondsLeft) -> SecondsLeft:
    """Half of the time that is left now, for a search that others have to follow."""
    kept_s = seconds_left() / 2
    return lambda: seconds_left() - kept_s


def solved(problem: Problem, seconds_left: SecondsLeft) -> Plan:
    """Sutler's plan without its alternatives."""
    return planner.solve(_limited(problem, seconds_left), clock=lambda: -seconds_left())


def best_fleet(run: SolveRun, polytope: Polytope) -> Ruled | None:
    """Sutler's own fleet and routing on a polytope, by the objective of the polytope's problem; None: none found."""
    found = planner.search(run, polytope)
    if not isinstance(found, planner.FoundFleet):
        return None
    return Ruled(found.polytope, *without_idle(found.polytope, found.allocation))


def bought(run: SolveRun, polytope: Polytope) -> Ruled | None:
    """The same within half of the time that is left, where other searches may have to follow."""
    buying = started(polytope.problem, _half_of(run.first_phase_seconds_left))
    fleet = best_fleet(buying, polytope)
    if buying.limit is not None:
        run.end_early()
    return fleet


def optimum(
    run: SolveRun, polytope: Polytope, strategy: str, *, remedy: str, most_replicas: float = np.inf
) -> StrategyPlan:
    """Sutler's plan on a polytope of its own making, or why there is none.

    Raises NotApplicableError for more than `most_replicas`.
    """
    run.candidates = len(polytope.candidates)
    run.mark("candidates")
    found = planner.search(run, polytope)
    if not isinstance(found, planner.FoundFleet):
        return refused(run, polytope.problem, strategy, remedy=remedy)
    used, routing = without_idle(found.polytope, found.allocation)
    replicas = int(used.replicas.sum())
    if replicas > most_replicas:
        limit = f"at most {most_replicas:,} are written out one by one: lower the load or the budget"
        raise NotApplicableError(f"its plan has {replicas:,} replicas, and {limit}")
    plan = planner.stated(run, found.polytope, used, routing, bound=in_unit(found.polytope, found.first.bound))
    return StrategyPlan(plan, polytope.problem)


def for_the_most_load(problem: Problem) -> Problem:
    """The same market and limits, asked how much they carry."""
    return replace(problem, objective=Objective("max_throughput", robust=problem.objective.robust))


def _limited(problem: Problem, seconds_left: SecondsLeft) -> Problem:
    limit_s = max(0.0, min(problem.options.time_limit_s, seconds_left()))
    return replace(problem, options=replace(problem.options, alternatives=False, time_limit_s=limit_s))


def answered(
    run: SolveRun, problem: Problem, strategy: str, fleet: Ruled | None, *, remedy: str, carried: float = 0.0
) -> StrategyPlan:
    """The verified plan of a fleet, its bound what the relaxation proves of every plan for the problem; where the
    strategy found none, why (as `refused` says it)."""
    if fleet is None:
        return refused(run, problem, strategy, carried=carried, remedy=remedy)
    _say_if_time_ran_out(run)
    polytope = replace(fleet.polytope, problem=problem)
    plan = planner.stated(run, polytope, fleet.allocation, fleet.routing, bound=_proven_bound(problem))
    return StrategyPlan(plan, problem)


def _say_if_time_ran_out(run: SolveRun) -> None:
    if run.first_phase_seconds_left() <= 0:
        run.end_early()


def _proven_bound(problem: Problem) -> float | None:
    scaled = scaled_to_one(prepare(problem))
    assert scaled is not None  # there is a fleet
    return in_unit(scaled, solve_relaxation(scaled, first_goal(scaled)).bound)


def refused(run: SolveRun, problem: Problem, strategy: str, *, remedy: str, carried: float = 0.0) -> StrategyPlan:
    """Why there is no plan: there is none at all, or none by the strategy's rules, which carry so many multiples of
    the load. Unknown where the time ran out before that was known."""
    _say_if_time_ran_out(run)
    if run.limit is not None:
        return StrategyPlan(planner.without_fleet(run, "unknown"), problem)
    plan = solved(problem, run.seconds_left)
    if plan.value is not None:
        wanted = Conflict(f"strategy/{strategy}", problem.objective.carried_load, carried, "times the load", remedy)
        if problem.objective.maximises_rate:
            wanted = replace(wanted, needed=1.0, unit="plan")
        plan = planner.without_fleet(run, "infeasible", (wanted,))
    return StrategyPlan(plan, problem)


def aggregated(problem: Problem) -> Problem:
    """The problem without prefill and decode on replicas of their own, for strategies that know of none."""
    if problem.search.disaggregation == "only":
        reason = "runs prefill and decode on the same replicas: set search.disaggregation to auto or off"
        raise NotApplicableError(reason)
    return replace(problem, search=replace(problem.search, disaggregation="off"))


def refuse_conditions(problem: Problem) -> None:
    """Raise NotApplicableError where a rule would break conditions on the fleet that it is blind to."""
    if problem.limits.max_share_per_provider_fraction < 1:
        reason = "routes by a rule that knows no providers: set limits.max_share_per_provider_fraction to 1"
        raise NotApplicableError(reason)
    if problem.limits.max_share_per_contract_fraction:
        raise NotApplicableError("routes by a rule that knows no contracts: unset max_share_per_contract_fraction")
    if problem.keeps_reserve:
        raise NotApplicableError("keeps no reserve: unset resilience.survive and the least numbers of replicas")


def raised_until_carried(
    run: SolveRun, problem: Problem, buy: Callable[[float], Ruled | None]
) -> tuple[Ruled | None, float]:
    """The cheapest fleet found that carries the demand, and the most that any of them carried.

    `buy(load)`: the fleet that sutler would buy for `load` times the demand, under the rule. What it carries under
    the rule need not grow with the load, so the load is raised until one carries enough, then halved back. Where
    throughput is maximised there is no load to carry, and the first fleet is the answer.
    """
    wanted = problem.objective.carried_load
    if problem.objective.maximises_rate:
        return buy(wanted), 0.0
    best: Ruled | None = None
    load, short, enough, most = wanted, wanted, np.inf, 0.0
    for _ in range(_MOST_PURCHASES):
        fleet = buy(load)
        carried = 0.0 if fleet is None else fleet.load_multiple
        most = max(most, carried)
        if fleet is not None and carried >= wanted * CARRIES:
            if best is None or fleet.worth(problem) < best.worth(problem):
                best = fleet
            enough = load
        elif fleet is None:
            enough = load
        else:
            short = load
        if enough <= short * (1 + _LOAD_STEP) or run.first_phase_seconds_left() <= 0:
            break
        if np.isfinite(enough):
            load = (short + enough) / 2
        else:
            load *= min(2.0, max(1 + _LOAD_STEP, wanted / carried)) if carried > 0 else 2.0
    return best, most


def machines_for(polytope: Polytope, candidate: IntArray, replicas: IntArray, seconds: float) -> IntArray | None:
    """[K] the machines, cheapest or least hungry in all, that hold these replicas within all limits.

    None: none do.
    """
    left = polytope.limit - polytope.use[:, candidate] @ replicas
    left += _ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite(polytope.limit), polytope.limit, 0.0)))
    classes = len(polytope.cost_rent)
    if classes == 0:
        return np.zeros(0, dtype=np.int64) if (left >= 0).all() else None
    hungry = polytope.problem.objective.kind == "min_power"
    program = LinearProgram(
        cost=polytope.watts_rent if hungry else polytope.cost_rent,
        matrix=polytope.rent,
        row_lower=np.full(len(left), -np.inf),
        row_upper=left,
        lower=np.zeros(classes),
        upper=polytope.rent_upper,
        integer=np.ones(classes, dtype=np.bool_),
    )
    solution = solve_milp(program, relative_gap=_MACHINES_GAP, time_limit_s=seconds)
    return None if solution.x is None else np.round(solution.x).astype(np.int64)
