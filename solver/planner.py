"""The front door's work: from a problem to a verified plan, in one straight line.

supply -> candidates -> dominance -> polytope -> method (first objective, then the finish) -> what may be given up of
it -> routing -> packing -> verify -> explanation, and beside it robustness.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from sutler.solver.answer.describe import describe, in_unit, plan_of
from sutler.solver.answer.routing import Routing, without_idle
from sutler.solver.candidates.enumerate import Candidates
from sutler.solver.checks import check
from sutler.solver.errors import PlanViolationError
from sutler.solver.explanation.alternatives import alternatives, gpus_used
from sutler.solver.explanation.binding import binding
from sutler.solver.explanation.conflicts import NOTHING_FOR_RENT, find_conflicts
from sutler.solver.explanation.networks import network_bindings
from sutler.solver.explanation.precision_alternative import precision_alternative
from sutler.solver.explanation.robustness import robustness_of
from sutler.solver.methods import binary_search, exact, giving_up
from sutler.solver.methods.finishing import finished
from sutler.solver.methods.search import SearchOutcome
from sutler.solver.plan import (
    Alternative,
    Conflict,
    PhaseSeconds,
    Plan,
    PrecisionAlternative,
    Robustness,
    SolveReport,
    Status,
)
from sutler.solver.polytope.by_need import enumerated_by_need
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import FIRST_PHASE_GAP_SHARE, LEAST_LAM, first_goal
from sutler.solver.polytope.preparation import Enumerated, scaled_to_one, widened
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem, Resilience
from sutler.solver.progress import Clock, Progress, at_most
from sutler.solver.threads import TwoAtOnce
from sutler.solver.verify import verify
from sutler.solver.version import VERSION

# Shares of the time limit at which rating, the first objective and the finish end, chosen so that each leaves what
# follows some seconds of the default limit: rating the search, that the finish, the finish describing and verifying.
_RATING_TIME_SHARE = 0.4
_FIRST_PHASE_TIME_SHARE = 0.85
_FINISH_TIME_SHARE = 0.94
_SURVIVING_TIME_SHARE = 0.65  # of the first, where what surviving costs is to be found afterwards

_PRECISION_SECONDS = 3.0  # at most, for what another precision would bring; chosen: a tenth of the default limit


def solve(
    problem: Problem,
    *,
    clock: Clock = time.monotonic,
    on_progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """The best plan for a problem with its proof, or what makes the problem infeasible.

    Raises PlanViolationError if the plan fails verification, which is a defect of sutler.
    """
    check(problem)
    run = SolveRun(problem, clock, on_progress or (lambda progress: None))
    market = enumerated_by_need(problem, run.rating_seconds_left)
    polytope = market.polytope(problem)
    run.candidates = len(polytope.candidates)
    run.mark("candidates")
    found = search(run, polytope, market)
    if found == "unknown":
        return without_fleet(run, found)
    if found == "infeasible":
        conflicts = find_conflicts(problem, run.seconds_left)
        run.mark("conflicts")
        return without_fleet(run, found, conflicts)
    polytope, first = found.polytope, found.first
    used, routing, optimum_value = _given_up(run, found)
    plan = stated(run, polytope, used, routing, bound=in_unit(polytope, first.bound), optimum_value=optimum_value)
    plan = _with_what_is_left_out(market, replace(plan, binding=binding(found.searched, first.prices)))
    if problem.options.alternatives:
        plan = _explained(run, found, market, used, plan)
    return replace(plan, solver=run.report())


@dataclass(frozen=True, slots=True)
class FoundFleet:
    """The fleet that a search ended with, in the scale of its polytope, and what the first phase proved.

    `searched`: the polytope of the first phase, whose candidates are the first of `polytope`. `relaxation`: the
    closest of the first objective over `polytope`.
    """

    polytope: Polytope
    allocation: Allocation
    first: SearchOutcome
    searched: Polytope
    relaxation: Relaxation


def search(
    run: "SolveRun", polytope: Polytope, market: Enumerated | None = None
) -> FoundFleet | Literal["infeasible", "unknown"]:
    """The polytope's best fleet by the objective and its finish, or why there is none.

    `market`: what the finish may find more candidates in, good at low rates, and what the proof has to cover.
    """
    floor, hopes = (np.inf, None) if market is None or not len(market.hopes) else (market.floor, market.hopes)
    scaled = scaled_to_one(polytope) if polytope.servable().all() else None
    if scaled is None:
        return "infeasible" if np.isinf(floor) else "unknown"
    scale = scaled.scale_rps if first_goal(scaled).lam_weight else 1.0
    first = _first_phase(run, scaled, hopes)
    first = first.at_least(max(floor / scale, first.covered))
    carries_nothing = first.allocation is not None and first.allocation.lam < LEAST_LAM
    proven = first.proven or (carries_nothing and first.bound > -LEAST_LAM)
    if not proven:
        run.end_early()
    if first.allocation is None or carries_nothing:
        return "infeasible" if proven else "unknown"
    end = finished(
        scaled,
        first.allocation,
        relaxation=first.relaxation,
        seconds_left=run.finish_seconds_left,
        mark=run.mark,
        widen=None if market is None else lambda known, r: widened(known, r, market.only_kept_at_low()),
    )
    return FoundFleet(end.polytope, end.allocation, first, scaled, end.relaxation)


def stated(
    run: "SolveRun",
    polytope: Polytope,
    allocation: Allocation,
    routing: Routing,
    *,
    bound: float | None,
    optimum_value: float | None = None,
) -> Plan:
    """The verified plan of a fleet under a routing. `bound`: proven, in the objective's unit; `optimum_value`: of
    which a fraction was given up.

    Raises PlanViolationError.
    """
    fleet = describe(polytope, allocation, routing)
    run.mark("plan")
    plan = plan_of(polytope.problem, fleet, bound=bound, solver=run.report(), optimum_value=optimum_value)
    return _verified(run, polytope.problem, plan)


def _verified(run: "SolveRun", problem: Problem, plan: Plan) -> Plan:
    violations = verify(problem, plan)
    if violations:
        raise PlanViolationError(violations)
    run.mark("verify")
    return plan


def _given_up(run: "SolveRun", found: FoundFleet) -> tuple[Allocation, Routing, float | None]:
    """The fleet to rent with its routing, and the value of the optimum where a fraction of it may be given up."""
    polytope, objective = found.polytope, run.problem.objective
    used, routing = without_idle(polytope, found.allocation)
    if not objective.give_up_fraction:
        return used, routing, None
    value = describe(polytope, used, routing, in_full=False).value(objective)
    robust = giving_up.within(
        polytope,
        replace(used, lam=routing.lam),
        value=value,
        fraction=objective.give_up_fraction,
        relaxation=found.relaxation,
        seconds_left=run.finish_seconds_left,
    )
    run.mark("give up")
    return *without_idle(polytope, robust), value


@dataclass(slots=True)
class SolveRun:
    """Time, progress and phases of one solve."""

    problem: Problem
    clock: Clock
    on_progress: Callable[[Progress], None]
    candidates: int = 0
    limit: str | None = None
    phases: list[PhaseSeconds] = field(default_factory=list)
    is_given_up: bool = False
    started: float = field(init=False)
    marked: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.marked = self.clock()

    def seconds_left(self) -> float:
        if self.is_given_up:
            return 0.0
        return self.problem.options.time_limit_s - (self.clock() - self.started)

    def first_phase_seconds_left(self) -> float:
        options, share = self.problem.options, _FIRST_PHASE_TIME_SHARE
        if self.problem.resilience.survive and options.alternatives:
            share = _SURVIVING_TIME_SHARE
        return self.seconds_left() - (1 - share) * options.time_limit_s

    def rating_seconds_left(self) -> float:
        return self.seconds_left() - (1 - _RATING_TIME_SHARE) * self.problem.options.time_limit_s

    def finish_seconds_left(self) -> float:
        return self.seconds_left() - (1 - _FINISH_TIME_SHARE) * self.problem.options.time_limit_s

    def end_early(self) -> None:
        """Report that the time limit ended a search."""
        self.limit = f"time limit of {self.problem.options.time_limit_s:g} s"

    def mark(self, phase: str) -> None:
        """End a phase."""
        now = self.clock()
        self.phases.append(PhaseSeconds(phase, now - self.marked))
        self.marked = now
        self.tell(phase)

    def tell(self, phase: str, value: float | None = None, bound: float | None = None) -> None:
        gap = None if value is None or bound is None or value == 0 else abs(bound - value) / abs(value)
        seconds = self.clock() - self.started
        self.on_progress(Progress(phase, seconds, self.candidates or None, value, bound, gap))

    def report(self) -> SolveReport:
        return SolveReport(
            method=self.problem.options.method,
            seconds=self.clock() - self.started,
            candidates=self.candidates,
            phases=tuple(self.phases),
            version=VERSION,
            limit=self.limit,
        )


def _first_phase(run: SolveRun, polytope: Polytope, hopes: Candidates | None) -> SearchOutcome:
    options = run.problem.options
    goal = first_goal(polytope)

    def report(phase: str, value: float, bound: float) -> None:
        run.tell(phase, in_unit(polytope, value), in_unit(polytope, bound))

    if options.method == "binary_search":
        outcome = binary_search.minimise(polytope, goal, seconds_left=run.first_phase_seconds_left, report=report)
    else:
        outcome = exact.minimise(
            polytope,
            goal,
            relative_gap=FIRST_PHASE_GAP_SHARE * options.relative_gap,
            seconds_left=run.first_phase_seconds_left,
            report=report,
            hopes=hopes,
        )
    run.mark("solve")
    return outcome


def _with_what_is_left_out(market: Enumerated, plan: Plan) -> Plan:
    """The plan with a warning where its proof is not of all pipelines, or the wider for those that were not rated."""
    warnings = []
    if market.unlisted:
        warnings.append(
            f"{market.unlisted} deep pipelines are too many to be listed: those that are the best at the prices of "
            "the market and of the relaxation were considered, and the proof covers no others (fewer "
            "search.max_pipeline_stages lists all)"
        )
    if len(market.hopes) and plan.status != "optimal":
        warnings.append(
            f"{len(market.hopes)} layouts that seemed less good were not rated within their latency limits for want "
            "of time: they are not in the plan, and the bound counts what they could carry at most (a higher "
            "solver.time_limit_s rates more)"
        )
    return replace(plan, warnings=(*plan.warnings, *warnings))


@contextmanager
def _threads(run: SolveRun) -> Iterator[Executor]:
    """Where explanations run; when one fails, or Ctrl-C comes, the others have no time left."""
    with TwoAtOnce() as threads:
        try:
            yield threads
        except BaseException:
            run.is_given_up = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _explained(run: SolveRun, found: FoundFleet, market: Enumerated, allocation: Allocation, plan: Plan) -> Plan:
    """The plan with what else there is, and with what it is worth at low rates.

    None of it knows of the rest, and most of it is HiGHS, which leaves the interpreter alone: a second processor
    shortens the wait.
    """
    is_valued = run.problem.options.robustness
    with _threads(run) as threads:
        if is_valued:
            valued = threads.submit(_robustness, run, found, market, allocation, plan)
        sought = alternatives(found.polytope, allocation, run.seconds_left, threads)
        if is_valued:
            at_8_bits = threads.submit(_precision, run, plan)
        if run.problem.search.disaggregation != "off":
            plan = _with_networks(run, found.searched, found.first.prices, plan)
        known = [one.result() for one in sought]
        plan = _with_alternatives(run, plan, known, gpus_used(found.polytope, allocation))
        if run.problem.resilience.survive:
            plan = _with_price_of_survival(run, plan)
        if not is_valued:
            return plan
        plan = replace(plan, precision_alternative=at_8_bits.result())
        run.mark("precision")
        robustness, optimum_value = valued.result()
    run.mark("robustness")
    return _verified(run, run.problem, replace(plan, robustness=robustness, optimum_value=optimum_value))


def _with_networks(run: SolveRun, polytope: Polytope, relaxation: Relaxation, plan: Plan) -> Plan:
    """The plan with what its networks cost it; rating anew takes as long as rating did."""
    rating_s = run.phases[0].seconds
    found = network_bindings(polytope, relaxation, lambda: run.finish_seconds_left() - rating_s)
    run.mark("networks")
    return replace(plan, binding=(*plan.binding, *found))


def _with_alternatives(run: SolveRun, plan: Plan, known: Sequence[Alternative | None], gpus: Sequence[str]) -> Plan:
    """The plan with its alternatives, and a warning where not every GPU type got one."""
    found = tuple(one for one in known if one is not None)
    run.mark("alternatives")
    missing = [gpu for gpu in gpus if gpu not in {one.without for one in found}]
    if not missing:
        return replace(plan, alternatives=found)
    remedy = "raise solver.time_limit_s, or set one to 0 in limits.max_gpus"
    warning = f"no alternative was found without {', '.join(missing)}: {remedy}"
    return replace(plan, alternatives=found, warnings=(*plan.warnings, warning))


def _with_price_of_survival(run: SolveRun, plan: Plan) -> Plan:
    """The plan with the best that need not survive anything, where time is left to find it."""
    seconds = run.finish_seconds_left()
    if seconds <= 0:
        warning = "what surviving costs was not sought: raise solver.time_limit_s"
        return replace(plan, warnings=(*plan.warnings, warning))
    options = replace(run.problem.options, alternatives=False, time_limit_s=seconds)
    free = solve(replace(run.problem, resilience=Resilience(), options=options), clock=run.clock)
    run.mark("price of survival")
    found = Alternative("resilience", free.value, free.cost_usd_per_hour, free.rentals)
    return replace(plan, alternatives=(found, *plan.alternatives))


def _robustness(
    run: SolveRun, found: FoundFleet, market: Enumerated, allocation: Allocation, plan: Plan
) -> tuple[Robustness, float | None]:
    """What the plan is worth at the low end of every band; and of a robust one, with what could be had at the rates
    themselves, were they sure, where time is left for it."""
    robustness = robustness_of(
        found.polytope,
        allocation,
        plan,
        found.relaxation,
        market.candidates,
        seconds_left=run.finish_seconds_left,
    )
    seconds = run.finish_seconds_left()
    if not run.problem.objective.robust or seconds <= 0 or plan.value is None:
        return robustness, plan.optimum_value
    plain = replace(run.problem.objective, robust=False)
    options = replace(run.problem.options, alternatives=False, time_limit_s=seconds)
    sure = solve(replace(run.problem, objective=plain, options=options), clock=run.clock)
    if sure.value is None:
        return robustness, plan.optimum_value
    better = max if plan.objective == "max_throughput" else min
    return robustness, better(sure.value, plan.value)


def _precision(run: SolveRun, plan: Plan) -> PrecisionAlternative | None:
    """What 8 bits would bring; rating anew takes as long as rating did."""
    rating_s = run.phases[0].seconds
    room = at_most(_PRECISION_SECONDS, lambda: run.finish_seconds_left() - rating_s)
    return precision_alternative(run.problem, plan, room)


def nothing_for_rent(problem: Problem, *, clock: Clock = time.monotonic) -> Plan:
    """The answer where a market that has something for rent has nothing left for this problem."""
    return without_fleet(SolveRun(problem, clock, lambda progress: None), "infeasible", (NOTHING_FOR_RENT,))


def without_fleet(run: SolveRun, status: Status, conflicts: tuple[Conflict, ...] = ()) -> Plan:
    """The answer where no fleet was found."""
    return Plan(status=status, objective=run.problem.objective.kind, conflicts=conflicts, solver=run.report())
