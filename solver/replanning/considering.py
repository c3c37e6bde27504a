"""The options of a running fleet under new facts: keep, re-route, lay out anew, change the fleet; each valued.

    keep       the routing that is in force, on what still stands
    reroute    the best routing on what still stands                                an LP
    relayout   the best replicas on the machines that are held                      a small MILP
    refleet    the best fleet of held and new machines, every change charged        a MILP

An option's benefit is against keeping, in USD/h: what it costs less, or what it carries more at what capacity is
worth. Before any MILP is solved, the relaxation bounds the net benefit of every possible change: below what is worth
doing, nothing better exists, and that is the proof of keeping.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from sutler.solver.answer.describe import DescribedFleet, in_unit, plan_of
from sutler.solver.answer.expected import counted_usd_per_hour, interruptions_of
from sutler.solver.answer.routing import Routing
from sutler.solver.candidates.power import power_watts
from sutler.solver.checks import check
from sutler.solver.errors import PlanViolationError
from sutler.solver.explanation.binding import binding
from sutler.solver.explanation.conflicts import NOTHING_FOR_RENT, carried_part, find_conflicts
from sutler.solver.plan import Conflict, PhaseSeconds, Plan, Rental, SolveReport
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.problem import Problem
from sutler.solver.progress import Clock, Progress
from sutler.solver.replanning.lasting import LastingBound, lasting_bound
from sutler.solver.replanning.proof import bounded
from sutler.solver.replanning.standing import (
    StandingCandidates,
    StandingDeployment,
    StandingFleet,
    capacity_rps,
    standing_candidates,
    standing_fleet,
    within_search,
)
from sutler.solver.replanning.steady import (
    SteadyProblem,
    least_cost_usd_per_hour,
    least_usd_per_hour,
    may_start,
    relaxed,
    steady_fleet,
    steady_problem,
    step_fleet,
)
from sutler.solver.replanning.steps import UNLIMITED, StepLimits
from sutler.solver.replanning.switching import FleetChange, Switching, change_of
from sutler.solver.units import SECONDS_PER_HOUR
from sutler.solver.verify import verify
from sutler.solver.version import VERSION

OptionKind = Literal["keep", "reroute", "relayout", "refleet"]

_CARRIES = 1e-6  # relative shortage below which a load counts as carried
_STEADY_GAP = 0.002  # chosen: a change that nets less is not worth its risk
_SAME_CAPACITY = 1e-3  # relative, chosen: what is carried more for as much is no reason for a change
_FREE_USD_PER_WATT = 0.002  # about 1.4 $/h for a card of 700 W
_NO_CHANGE = FleetChange(0, 0, 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Consideration:
    """What to consider. The problem's offers hold, with `held`, every machine of `standing`.

    Nothing is sought beyond re-routing where no change can bring `least_net_usd` within the horizon (inf: where no
    sum is enough), unless `is_urgent` or the running fleet does not carry its load. `is_issued_anyway`: even `keep`
    needs its proof.
    `limits`: of what one change stops and starts, as far as the problem can be met within them.
    """

    problem: Problem
    standing: StandingDeployment
    switching: Switching
    least_net_usd: float = 0.0
    is_urgent: bool = False
    is_issued_anyway: bool = False
    limits: StepLimits = UNLIMITED


@dataclass(frozen=True, slots=True)
class ReplanOption:
    """One thing to do. `plan` None: there is nothing to run (all is lost), or only `keep` describes it.

    `cost_usd_per_hour`: what it counts for, the expected cost where interruptions count. `carries`: the load, where
    there is one to carry, else everything at all; and what has to be after losses that are to be survived.
    `is_valid`: the plan holds under the problem's budget and limits, which may be other than when it was made.
    `is_step`: of a change that is too large for one plan; it nets what that one does.
    """

    kind: OptionKind
    plan: Plan | None
    capacity_rps: float
    load_multiple: float | None
    cost_usd_per_hour: float
    carries: bool
    change: FleetChange
    benefit_usd_per_hour: float = 0.0
    net_usd: float = 0.0
    is_valid: bool = True
    is_step: bool = False

    @property
    def break_even_s(self) -> float | None:
        """The seconds until the benefit has paid for the change; None: never."""
        if self.change.usd <= 0:
            return 0.0
        if self.benefit_usd_per_hour <= 0:
            return None
        return self.change.usd / self.benefit_usd_per_hour * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Kept:
    """What was found of a fleet that carries its load as it is routed: it is as true on other markets.

    `lasting`: what a change saves there at most; None: that is not known.
    """

    capacity_rps: float
    load_multiple: float | None
    lasting: LastingBound | None


@dataclass(frozen=True, slots=True)
class Considered:
    """What was found: `options` by disruption, `keep` first. `most_net_usd`: no change nets more within the horizon,
    proven; inf: that was not asked.

    `searched`: whether changes of the fleet were sought. `conflicts`: why no fleet carries the load, if none does,
    and `carried_part`: the largest part of it that one was found to carry. `kept`: where what
    runs carries its load as it is routed, what later looks need not find again.
    """

    options: tuple[ReplanOption, ...]
    most_net_usd: float
    searched: bool
    conflicts: tuple[Conflict, ...] = ()
    carried_part: float = 0.0
    seconds: float = 0.0
    kept: Kept | None = None

    def option(self, kind: OptionKind) -> ReplanOption | None:
        return next((option for option in self.options if option.kind == kind), None)

    @property
    def keep(self) -> ReplanOption:
        return self.options[0]


def consider(
    consideration: Consideration,
    *,
    clock: Clock = time.monotonic,
    on_progress: Callable[[Progress], None] | None = None,
) -> Considered:
    """The options, each verified but `keep`, which is what it is.

    Raises InvalidProblemError, and PlanViolationError for an option that does not hold, a defect of sutler.
    """
    tell = on_progress or (lambda progress: None)
    run = _Run(consideration, clock, tell, clock(), consideration.switching)
    if not consideration.problem.models:
        return run.ended_service()
    if not consideration.problem.offers and not consideration.standing.rentals:
        return _nothing(consideration)
    check(consideration.problem)
    return run.considered()


def kept_again(consideration: Consideration, kept: Kept, plan: Plan) -> Considered | None:
    """What `consider` would find, where that is clear from what it found of the same fleet, under the same load, on
    another market: that it is kept. None: it is not clear. `plan`: what runs.
    """
    if consideration.is_urgent or consideration.is_issued_anyway:
        return None
    problem, switching = consideration.problem, consideration.switching
    cost, most = counted_usd_per_hour(problem, consideration.standing.rentals), float("inf")
    if consideration.least_net_usd < float("inf"):
        if kept.lasting is None:
            return None
        worth = switching.usd_per_rps * kept.capacity_rps
        most = switching.horizon_h * kept.lasting.most_saved_usd_per_hour(
            problem, switching, cost_usd_per_hour=cost, worth_usd_per_hour=worth
        )
        if most >= consideration.least_net_usd:
            return None
    keep = ReplanOption("keep", plan, kept.capacity_rps, kept.load_multiple, cost, True, _NO_CHANGE)
    return Considered((keep,), most, searched=False, kept=kept)


def _nothing(consideration: Consideration) -> Considered:
    """Nothing is held, nothing for rent."""
    cost = counted_usd_per_hour(consideration.problem, consideration.standing.rentals)
    keep = ReplanOption("keep", None, 0.0, 0.0, cost, False, _NO_CHANGE)
    return Considered((keep,), float("-inf"), searched=True, conflicts=(NOTHING_FOR_RENT,))


@dataclass(slots=True)
class _Run:
    consideration: Consideration
    clock: Clock
    on_progress: Callable[[Progress], None]
    started: float
    switching: Switching
    options: list[ReplanOption] = field(default_factory=list)
    lasting: LastingBound | None = None

    @property
    def problem(self) -> Problem:
        return self.consideration.problem

    def considered(self) -> Considered:
        standing = self.consideration.standing
        found = standing_candidates(self.problem, standing)
        running = standing_fleet(self.problem, standing, found)
        self._add_standing(running)
        if self._is_kept_in_any_case:
            return self._ended(float("inf"), searched=False)
        steady = self._steady(self.problem, found)
        if steady is None:
            return self._ended(float("-inf"), searched=True, conflicts=self._conflicts())
        relaxation = relaxed(steady)
        if not np.isfinite(relaxation.objective) and self.problem.objective.headroom_fraction > 0:
            # where no fleet has room to spare, one that just carries the load is better than none
            steady = self._steady(self.problem.with_headroom(0.0)) or steady
            relaxation = relaxed(steady)
        self._tell("routing")
        if not self.options[0].carries and self.switching.needed_weight > self.switching.weight > 0:
            steady = steady.weighed(self.switching.needed_weight / self.switching.weight)
            relaxation = relaxed(steady)
            self.switching = replace(self.switching, weight=self.switching.needed_weight)
        most, self.lasting = self._most_net_usd(steady, relaxation)
        self._tell("relaxation")
        keep = self.options[0]
        needed = self.consideration.is_urgent or not keep.carries
        searched = needed or most >= self.consideration.least_net_usd
        if searched:
            self._add_changes(steady, relaxation)
        if needed and steady.goal().lam_lower > 1 and not any(option.carries for option in self.options):
            # of whole machines there may be none to spare, where fractions of them would do
            bare = self._steady(self.problem.with_headroom(0.0))
            if bare is not None:
                self._add_changes(bare, relaxed(bare))
        if needed or self.consideration.is_issued_anyway or len(self.options) > 1:  # else, nothing is issued
            self._prove(steady, relaxation)
        if not searched:
            return self._ended(most, searched=False)
        best = self.options[-1]
        conflicts = () if best.carries or self.problem.objective.maximises_rate else self._conflicts()
        return self._ended(most, searched=True, conflicts=conflicts)

    @property
    def _is_kept_in_any_case(self) -> bool:
        """Whether what runs does, and no sum is enough for a change."""
        asked = self.consideration
        is_forced = asked.is_urgent or asked.is_issued_anyway or len(self.options) > 1
        return not is_forced and asked.least_net_usd == float("inf") and self.options[0].carries

    def ended_service(self) -> Considered:
        """No model is to be served: what stands is kept with nothing on it, or all of it goes."""
        standing = self.consideration.standing
        kept, left = _serving_nothing(self.problem, standing.rentals), _serving_nothing(self.problem, ())
        self.options.append(self._option("keep", kept, self._of_nothing(kept), _NO_CHANGE))
        if standing.rentals:
            plan = self._of_nothing(left)
            violations = verify(self.problem, plan, is_standing=True)
            if violations:
                raise PlanViolationError(violations)
            change = change_of(self.problem, standing, plan, self.switching)
            self.options.append(self._option("refleet", left, plan, change))
        return self._ended(self.options[-1].net_usd, searched=True)

    def _of_nothing(self, fleet: DescribedFleet) -> Plan:
        """Proven: no fleet costs less than nothing."""
        return bounded(self._plan(fleet), 0.0, self.problem)

    def _prove(self, steady: SteadyProblem, relaxation: Relaxation) -> None:
        """Every plan gets what no plan on this market can beat, and what binds there."""
        free = first_goal(steady.polytope)  # changes cost nothing
        relaxation = solve_relaxation(steady.polytope, free, columns=relaxation.columns)
        if not np.isfinite(relaxation.objective):
            return
        bound, binds = in_unit(steady.polytope, relaxation.bound), binding(steady.polytope, relaxation)
        self.options = [
            option
            if option.plan is None
            else replace(option, plan=replace(bounded(option.plan, bound, self.problem), binding=binds))
            for option in self.options
        ]

    def _add_standing(self, running: StandingFleet | None) -> None:
        standing = self.consideration.standing
        kept = None if running is None else running.as_routed(standing.routing, standing.kv_transfers)
        self.options.append(self._standing_option("keep", running, kept))
        if running is None:
            return
        best = running.rerouted()
        carries_more = kept is None or best.lam > kept.lam * (1 + _CARRIES)
        if carries_more or not self.options[0].is_valid:
            option = self._standing_option("reroute", running, best)
            if carries_more or (option.plan is not None and option.is_valid):
                self.options.append(option)

    def _standing_option(
        self, kind: OptionKind, running: StandingFleet | None, routing: Routing | None
    ) -> ReplanOption:
        standing = self.consideration.standing
        if running is None or routing is None or routing.lam <= 0:
            cost = counted_usd_per_hour(self.problem, standing.rentals)
            return self._valued(ReplanOption(kind, None, 0.0, 0.0, cost, False, _NO_CHANGE))
        fleet = running.under(routing)
        plan = self._plan(fleet)
        valid = not verify(self.problem, plan, is_standing=True)
        return replace(self._option(kind, fleet, plan, _NO_CHANGE), is_valid=valid)

    def _add_changes(self, steady: SteadyProblem, relaxation: Relaxation) -> None:
        """The best fleet; and, where that moves machines, the best on the machines that are held."""
        changed = self._change("refleet", steady, relaxation)
        is_none = changed is not None and changed.change.is_none
        if is_none and not may_start(self.problem):
            return  # it was sought on what is held alone
        if changed is None or is_none or changed.change.started or changed.change.stopped:
            held = self._steady(_held_only(steady.polytope.problem))
            if held is not None and self.consideration.standing.replicas:
                relaid = self._change("relayout", held, relaxed(held))
                if relaid is not None and not relaid.change.is_none:
                    self.options.append(relaid)
            if changed is not None and not is_none:
                self.options.append(changed)
        elif not is_none:
            self.options.append(replace(changed, kind="relayout"))

    def _change(self, kind: OptionKind, steady: SteadyProblem, relaxation: Relaxation) -> ReplanOption | None:
        standing, limits = self.consideration.standing, self.consideration.limits
        if not np.isfinite(relaxation.objective):
            return None
        gap = max(self.problem.options.relative_gap, _STEADY_GAP)
        found = steady_fleet(steady, standing, relaxation, relative_gap=gap, seconds_left=self._seconds_left)
        self._tell(kind)
        if found is None:
            return None
        whole = self._changed_to(kind, found)
        if whole.plan is None or limits.allow(steady.replicas, whole.plan):
            return whole
        for within in (limits, limits.of_stops()):  # what is needed to carry the load is started at once
            left = self._seconds_left
            step = step_fleet(steady, standing, relaxation.columns, within, relative_gap=gap, seconds_left=left)
            option = None if step is None else self._changed_to(kind, step)
            if option is not None and option.plan is not None and within.allow(steady.replicas, option.plan):
                return replace(option, net_usd=whole.net_usd, is_step=True)
        return None if self.options[0].carries and self.options[0].is_valid else whole

    def _changed_to(self, kind: OptionKind, found: DescribedFleet) -> ReplanOption:
        standing = self.consideration.standing
        plan = self._plan(found)
        violations = verify(self.problem, plan, is_standing=True)
        if violations:
            raise PlanViolationError(violations)
        return self._option(kind, found, plan, change_of(self.problem, standing, plan, self.switching))

    def _steady(self, problem: Problem, found: StandingCandidates | None = None) -> SteadyProblem | None:
        """`found`: all that stands, where it is rated for the problem already."""
        standing = self.consideration.standing
        within = within_search(problem, standing)
        if found is None or len(within.replicas) < len(standing.replicas):
            found = standing_candidates(problem, within)
        return steady_problem(problem, found, self.switching, usd_per_watt=self._usd_per_watt())

    def _most_net_usd(self, steady: SteadyProblem, relaxation: Relaxation) -> tuple[float, LastingBound | None]:
        """The most that any change nets against keeping, within the horizon; inf where keeping does not carry the
        load. And what bounds it on later markets."""
        if not np.isfinite(relaxation.objective):
            return float("-inf"), None
        keep = self.options[0]
        if not keep.carries:
            return float("inf"), None
        least, polytope = least_usd_per_hour(steady, relaxation.columns), steady.polytope
        more, is_rate = self._usd_per_hour(keep) - least.usd_per_hour, self.problem.objective.maximises_rate
        lam, held_usd, held_worth_usd = steady.goal().lam_lower, least.alone, None
        if is_rate:
            same_rps = keep.capacity_rps * (1 - _SAME_CAPACITY)
            cheaper = least_cost_usd_per_hour(steady, relaxation.columns, rps=same_rps)
            more = max(more, keep.cost_usd_per_hour - cheaper.usd_per_hour)
            lam, held_usd, held_worth_usd = same_rps / polytope.scale_rps, cheaper.alone, -least.alone
        lasting = None
        if is_rate or self.problem.objective.kind == "min_cost":
            lasting = lasting_bound(
                polytope, least.relaxation, needed_lam=lam, held_usd=held_usd, held_worth_usd=held_worth_usd
            )
        return more * self.switching.horizon_h, lasting

    def _usd_per_hour(self, option: ReplanOption) -> float:
        """What the steady goal says of an option, switching aside."""
        kind = self.problem.objective.kind
        if kind == "min_cost":
            return option.cost_usd_per_hour
        if kind == "min_power":
            return self._usd_per_watt() * (option.plan.power_watts or 0.0 if option.plan else 0.0)
        return -self.switching.usd_per_rps * option.capacity_rps

    def _usd_per_watt(self) -> float:
        """What the fleet pays per watt now; of one that costs nothing, about what a cloud asks."""
        standing = self.consideration.standing
        watts = sum((self.problem.gpus[r.gpu].tdp_watts or 0.0) * r.gpus * r.count for r in standing.rentals)
        cost = counted_usd_per_hour(self.problem, standing.rentals)
        return cost / watts if watts > 0 and cost > 0 else _FREE_USD_PER_WATT

    def _option(self, kind: OptionKind, fleet: DescribedFleet, plan: Plan, change: FleetChange) -> ReplanOption:
        capacity = capacity_rps(fleet, self.problem.total_demand) if fleet.replicas else 0.0
        cost, carries = fleet.counted_usd_per_hour, self._carries(fleet)
        return self._valued(ReplanOption(kind, plan, capacity, fleet.load_multiple, cost, carries, change))

    def _carries(self, fleet: DescribedFleet) -> bool:
        """Whether it carries the load, and enough of it after each loss that is to be survived."""
        asked = self.problem.resilience
        if any(
            loss.kind in asked.survive and loss.carried_fraction < asked.load_fraction * (1 - _CARRIES)
            for loss in fleet.losses
        ):
            return False
        if fleet.load_multiple is None:
            return fleet.throughput_rps > 0 or not self.problem.models
        return fleet.load_multiple >= 1.0 - _CARRIES

    def _valued(self, option: ReplanOption) -> ReplanOption:
        """The option with its benefit against keeping."""
        if not self.options:
            return option
        keep, switching = self.options[0], self.switching
        more_rps = option.capacity_rps - keep.capacity_rps
        saved = keep.cost_usd_per_hour - option.cost_usd_per_hour
        if self.problem.objective.maximises_rate:
            same = abs(more_rps) <= _SAME_CAPACITY * max(keep.capacity_rps, 1e-12)
            benefit = max(saved, 0.0) if same else more_rps * switching.usd_per_rps
        elif self.problem.objective.kind == "min_power" and option.plan and keep.plan:
            watts = (keep.plan.power_watts or 0.0) - (option.plan.power_watts or 0.0)
            benefit = watts * self._usd_per_watt() + self._unserved_usd(more_rps)
        else:
            benefit = saved + self._unserved_usd(more_rps)
        spared = self.problem.objective.give_up_fraction * abs(self._usd_per_hour(keep))
        if keep.carries and 0 < benefit <= spared:
            benefit = 0.0  # what was given up is no reason to change what runs
        net = benefit * switching.horizon_h - switching.weight * option.change.usd
        return replace(option, benefit_usd_per_hour=benefit, net_usd=net)

    def _unserved_usd(self, more_rps: float) -> float:
        return more_rps * self.switching.usd_per_rps * self.switching.unserved_factor

    def _plan(self, fleet: DescribedFleet) -> Plan:
        seconds = self.clock() - self.started
        report = SolveReport(self.problem.options.method, seconds, 0, (PhaseSeconds("consider", seconds),), VERSION)
        return bounded(plan_of(self.problem, fleet, bound=None, solver=report), None, self.problem)

    def _conflicts(self) -> tuple[Conflict, ...]:
        return find_conflicts(self.problem, self._seconds_left)

    def _seconds_left(self) -> float:
        return self.problem.options.time_limit_s - (self.clock() - self.started)

    def _tell(self, phase: str) -> None:
        self.on_progress(Progress(phase, self.clock() - self.started))

    def _ended(self, most: float, *, searched: bool, conflicts: tuple[Conflict, ...] = ()) -> Considered:
        part = carried_part(self.problem, conflicts, self._seconds_left) if conflicts and self._has_load else 0.0
        seconds = self.clock() - self.started
        return Considered(tuple(self.options), most, searched, conflicts, part, seconds, self._kept)

    @property
    def _kept(self) -> Kept | None:
        keep = self.options[0]
        if not (keep.carries and keep.is_valid and keep.plan is not None):
            return None
        return Kept(keep.capacity_rps, keep.load_multiple, self.lasting)

    @property
    def _has_load(self) -> bool:
        return not self.problem.objective.maximises_rate


def _serving_nothing(problem: Problem, rentals: tuple[Rental, ...]) -> DescribedFleet:
    cost, counted = sum(r.price_usd_per_hour * r.count for r in rentals), counted_usd_per_hour(problem, rentals)
    return DescribedFleet(
        rentals=rentals,
        replicas=(),
        routing=(),
        kv_transfers=(),
        combos=(),
        evidence=(),
        throughput_rps=0.0,
        makespan_s=None,
        load_multiple=None,
        cost_usd_per_hour=cost,
        expected_cost_usd_per_hour=counted if problem.objective.count_interruptions else None,
        power_watts=power_watts(problem, rentals, ()),
        usd_per_million_tokens=None,
        losses=(),
        interruptions=interruptions_of(problem, rentals) if problem.objective.count_interruptions else (),
    )


def _held_only(problem: Problem) -> Problem:
    """Nothing more can be rented; pools stay what they are."""
    return replace(problem, offers=tuple(o if o.held else replace(o, available=0) for o in problem.offers))
