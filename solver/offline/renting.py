"""Which machines to rent for an application: least time within a budget, or least USD by a deadline.

Flow: offers -> machine_sets.py -> bounds, forecasts, and plans for the sets that can still win (here) -> Rented.

Three looks, each at fewer sets: a lower bound of time and USD for all; a schedule on forecasts for those whose bound
no forecast beats in both; and of those whose forecast is on the front of time against USD, a full search for the most
promising, one execution of the forecast schedule for the others.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal

from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline import machine_sets
from sutler.solver.offline.application import Application
from sutler.solver.offline.beam import rolled_out
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs, weights_gb
from sutler.solver.offline.curves import Curves
from sutler.solver.offline.execution import execute
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.greedy import greedy
from sutler.solver.offline.hardware import Hardware, Loading
from sutler.solver.offline.heuristics import min_heuristic
from sutler.solver.offline.improvement import improved
from sutler.solver.offline.machine_sets import BillingTerms, RentedMachines, Unit
from sutler.solver.offline.plan import LowerBound, OfflineOptions, OfflinePlan
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.search import SearchResult, searched
from sutler.solver.offline.stages import Schedule
from sutler.solver.problem import Offer
from sutler.solver.units import SECONDS_PER_HOUR

# All are chosen, to divide the time limit between looking at many sets and planning few of them well.
FORECAST_STEPS: Final = 200  # local changes for each set: a quarter of a row of the full search
FORECAST_SHARE: Final = 0.6  # of the time limit, for forecasts of all sets
PLANNED: Final = 6  # sets that are searched in full: forecasts tell the best apart within some per cent only
USUAL_FACTOR: Final = 1.5  # over its bounds that a set is taken to come to: it orders the sets, no more


@dataclass(frozen=True, slots=True)
class RentalGoal:
    """min_time within `budget_usd`, or min_cost by `deadline_s`; None: no limit. Times count from the order."""

    kind: Literal["min_time", "min_cost"]
    budget_usd: float | None = None
    budget_usd_per_hour: float | None = None
    deadline_s: float | None = None
    max_gpus: int | None = None
    max_machines: int | None = None

    def is_met(self, makespan_s: float, usd: float) -> bool:
        return usd <= _limit(self.budget_usd) and makespan_s <= _limit(self.deadline_s)

    def value(self, makespan_s: float, usd: float) -> tuple[float, float]:
        """Smaller is better."""
        return (makespan_s, usd) if self.kind == "min_time" else (usd, makespan_s)

    def rank(self, makespan_s: float, usd: float) -> tuple[float, float, float]:
        """The best first; behind all that meet the limits, those that miss them by least."""
        missed = max(
            amount / limit if limit else inf
            for amount, limit in ((usd, _limit(self.budget_usd)), (makespan_s, _limit(self.deadline_s)))
        )
        return (0.0 if self.is_met(makespan_s, usd) else missed, *self.value(makespan_s, usd))


@dataclass(frozen=True, slots=True)
class MachineSet:
    """What is rented together: `makespan_s` from the order, start-up counted, and `usd` for all of it."""

    machines: tuple[RentedMachines, ...]
    hardware: Hardware
    makespan_s: float
    usd: float


@dataclass(frozen=True, slots=True)
class Rented:
    """The best set with its plan (whose times count from when the machines are up); None where none meets the goal,
    then `least_usd` and `least_s` say what the cheapest and the fastest planned set would need, and
    `least_usd_per_hour` what the cheapest does that can hold the models (None where nothing can be rented). frontier:
    planned sets that no other beats in both time and USD, fastest first. `bound`: no considered set is better, in the
    goal's unit, times from the order. `considered` sets: all that the limits on what is rented leave."""

    best: MachineSet | None
    plan: OfflinePlan | None
    frontier: tuple[MachineSet, ...]
    bound: float | None
    least_usd: float | None
    least_s: float | None
    least_usd_per_hour: float | None
    considered: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A set at what it takes at least, or as forecast with `schedule`."""

    units: tuple[Unit, ...]
    costs: Costs
    bound: LowerBound
    makespan_s: float
    usd: float
    schedule: Schedule = ()

    @property
    def price_usd_per_hour(self) -> float:
        return machine_sets.price_usd_per_hour(self.units)


def rent(
    application: Application,
    offers: Sequence[Offer],
    gpus: Mapping[str, Gpu],
    goal: RentalGoal,
    *,
    terms: BillingTerms | None = None,
    loading: Loading | None = None,
    options: OfflineOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Rented:
    """The best machine set among those of one GPU type.

    Raises InvalidProblemError where no offer's GPUs can hold the models.
    """
    begun_s = clock()
    options, terms = options or OfflineOptions(), terms or BillingTerms()
    pile = sample(application, seed=options.seed)
    candidates = _bounded(application, offers, gpus, goal, terms, loading or Loading(), options, pile)
    affordable = [one for one in candidates if one.price_usd_per_hour <= _limit(goal.budget_usd_per_hour)]
    possible = [one for one in affordable if goal.is_met(one.makespan_s, one.usd)]
    bound = min((goal.value(one.makespan_s, one.usd)[0] for one in possible), default=None)
    deadline_s = begun_s + options.time_limit_s

    def stop() -> bool:
        return clock() > begun_s + FORECAST_SHARE * options.time_limit_s

    promising = sorted(possible or affordable, key=lambda one: _promise(one, goal))
    worth_planning = _worth_planning(_forecast(promising, terms, stop), goal)
    is_cut = stop()
    planned: list[tuple[MachineSet, OfflinePlan]] = []
    for turn, one in enumerate(worth_planning):
        if not planned or clock() < deadline_s:
            is_searched = turn < PLANNED
            planned.append(_planned(one, terms, deadline_s, clock, begun_s, is_searched=is_searched))
    meeting = [pair for pair in planned if goal.is_met(pair[0].makespan_s, pair[0].usd)]
    best, plan = min(meeting, key=lambda pair: goal.value(pair[0].makespan_s, pair[0].usd), default=(None, None))
    if plan is not None and (is_cut or len(planned) < len(worth_planning)):
        plan = replace(plan, hit_time_limit=True)
    return Rented(
        best=best,
        plan=plan,
        frontier=_front([machines for machines, _ in planned]),
        bound=bound,
        least_usd=min((machines.usd for machines, _ in planned), default=None),
        least_s=min((machines.makespan_s for machines, _ in planned), default=None),
        least_usd_per_hour=min((one.price_usd_per_hour for one in candidates), default=None),
        considered=len(affordable),
        seconds=clock() - begun_s,
    )


def _bounded(
    application: Application,
    offers: Sequence[Offer],
    gpus: Mapping[str, Gpu],
    goal: RentalGoal,
    terms: BillingTerms,
    loading: Loading,
    options: OfflineOptions,
    pile: Pile,
) -> list[_Candidate]:
    """Every set that can hold the models, at its lower bounds."""
    disk_gb = sum(map(weights_gb, application.nodes))
    usable = [offer for offer in offers if offer.gpu in gpus]
    found, refused = [], None
    for units in machine_sets.unit_sets(
        usable, disk_gb=disk_gb, max_gpus=goal.max_gpus, max_machines=goal.max_machines
    ):
        costs = Costs(application, machine_sets.hardware_of(units, gpus[units[0].offer.gpu], loading), pile, options)
        try:
            bound = lower_bound(costs)
        except InvalidProblemError as error:
            refused = error
            continue
        all_gpus = costs.hardware.gpus
        busy_usd = machine_sets.cheapest_usd_per_gpu_s(units) * all_gpus * (terms.start_up_s + bound.area_s)
        least_usd = machine_sets.price_usd_per_hour(units) * terms.billed_s(0.0) / SECONDS_PER_HOUR
        found.append(_Candidate(units, costs, bound, terms.start_up_s + bound.seconds, max(busy_usd, least_usd)))
    if not found and refused is not None:
        raise refused
    return found


def _forecast(candidates: Sequence[_Candidate], terms: BillingTerms, stop: Callable[[], bool]) -> list[_Candidate]:
    """Gives each a schedule on forecasts, billed until it ends; leaves out sets whose bounds another's forecast
    beats."""
    found: list[_Candidate] = []
    shared: dict[object, Curves] = {}
    for one in candidates:
        if found and stop():
            break
        if any(other.makespan_s <= one.makespan_s and other.usd <= one.usd for other in found):
            continue
        hardware = one.costs.hardware
        speeds = (hardware.gpu.slug, frozenset((island.gb_per_s, len(island.gpus)) for island in hardware.islands))
        curves = shared.setdefault(speeds, Curves(one.costs))
        forecaster = Forecaster(one.costs, curves)
        now = forecaster.beginning()
        begun = min((rolled_out(forecaster, rule, now) for rule in (greedy, min_heuristic)), key=lambda f: f.end_s)
        better = improved(forecaster, begun, steps=FORECAST_STEPS, seed=0, stop=stop)
        usd = one.price_usd_per_hour * terms.billed_s(better.end_s) / SECONDS_PER_HOUR
        makespan_s = terms.start_up_s + better.end_s
        found.append(replace(one, makespan_s=makespan_s, usd=usd, schedule=better.stages))
    return found


def _promise(one: _Candidate, goal: RentalGoal) -> tuple[float, float, float]:
    """Sets that would meet the goal if they came to USUAL_FACTOR times their bounds are looked at first."""
    return goal.rank(USUAL_FACTOR * one.makespan_s, USUAL_FACTOR * one.usd)


def _worth_planning(forecasts: Sequence[_Candidate], goal: RentalGoal) -> list[_Candidate]:
    """Those on the front, the best first; of several that are forecast alike one with the fewest machines."""
    alike: dict[tuple[float, float], _Candidate] = {}
    for one in sorted(forecasts, key=lambda one: len(one.units)):
        alike.setdefault((one.makespan_s, one.usd), one)
    front = [
        one
        for at, one in alike.items()
        if not any(other != at and other[0] <= at[0] and other[1] <= at[1] for other in alike)
    ]
    return sorted(front, key=lambda one: goal.rank(one.makespan_s, one.usd))


def _planned(
    one: _Candidate,
    terms: BillingTerms,
    deadline_s: float,
    clock: Callable[[], float],
    begun_s: float,
    *,
    is_searched: bool,
) -> tuple[MachineSet, OfflinePlan]:
    forecaster = Forecaster(one.costs)
    if is_searched:
        found = searched(forecaster, deadline_s=deadline_s, clock=clock, most_executed=1)
    else:
        found = SearchResult(execute(one.costs, one.schedule))
    plan = found.plan(forecaster, one.bound, seconds=clock() - begun_s)
    machines = machine_sets.billed(one.units, found.execution, terms)
    makespan_s, usd = terms.start_up_s + found.execution.makespan_s, sum(machine.usd for machine in machines)
    return MachineSet(machines, one.costs.hardware, makespan_s, usd), plan


def _front(sets: Sequence[MachineSet]) -> tuple[MachineSet, ...]:
    found: list[MachineSet] = []
    for one in sorted(sets, key=lambda machines: (machines.makespan_s, machines.usd)):
        if not found or one.usd < found[-1].usd:
            found.append(one)
    return tuple(found)


def _limit(stated: float | None) -> float:
    return inf if stated is None else stated
