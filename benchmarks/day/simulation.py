"""One day under one policy: polls, decisions, arrivals; and the day of an oracle, which needs no world."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.day.fleet import Fleet
from benchmarks.day.market import DayMarket, left_over
from benchmarks.day.planning import Planner
from benchmarks.day.policies import Policy, Sight
from benchmarks.day.traffic import DAY_S, Day
from benchmarks.day.world import HOUR_S, Span, Speeds, Terms, World

POLL_S: Final = 300.0
UNDER_FRACTION: Final = 0.01
"""A fleet is under capacity while more than this share of what arrives is not served."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all policies of one seed have in common. `speeds` are what engines truly do, `estimates` what is planned
    with."""

    market: DayMarket
    day: Day
    planner: Planner
    speeds: Speeds
    estimates: Speeds
    terms: Terms
    length_s: float = DAY_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """A day in figures. `idle_*`: paid while starting or draining."""

    arrived: float
    served: float
    usd: float
    revisions: int
    started: int
    stopped: int
    lost: int
    idle_machine_hours: float
    idle_gpu_hours: float
    under_capacity_s: float
    mean_gpus: float
    spans: tuple[Span, ...]

    @property
    def unserved(self) -> float:
        return self.arrived - self.served

    @property
    def usd_per_million_served(self) -> float:
        return self.usd / self.served * 1e6

    @property
    def churned_machine_hours(self) -> float:
        return self.idle_machine_hours


def live(setting: Setting, policy: Policy, first: Fleet) -> Outcome:
    """The day under a policy that begins with this fleet."""
    world = World(setting.terms, setting.speeds, setting.market.lost_at)
    world.begin(first, setting.market.offers(0.0))
    revisions, gpu_hours = 0, 0.0
    slice_s = setting.day.slice_s
    for at_s in np.arange(0.0, setting.length_s, slice_s):
        if at_s > 0 and at_s % POLL_S == 0 and world.change is None:
            offers = left_over(setting.market.offers(float(at_s)), world.taken)
            wanted = policy.decide(Sight(float(at_s), offers, world.rented, setting.day))
            if wanted is not None:
                revisions += 1
                world.order(wanted, offers)
        gpu_hours += sum(machine.lease.gpus for machine in world.rented) * slice_s / HOUR_S
        world.advance(float(at_s) + slice_s, setting.day.rates_rps(float(at_s), float(at_s) + slice_s))
    return _outcome(world, revisions, gpu_hours / (setting.length_s / HOUR_S))


def oracle(setting: Setting, *, step_s: float) -> tuple[Span, ...]:
    """The cheapest fleet for the true traffic of every step, on the market of its beginning; changes take nothing.

    What it is worth is a bound: all of a step's requests are served, spread evenly over the step; where the market
    has no fleet for all of them, as large a part as it has one for, in tenths.
    """
    return tuple(_best(setting, float(at_s), step_s) for at_s in np.arange(0.0, setting.length_s, step_s))


def _best(setting: Setting, at_s: float, step_s: float) -> Span:
    rates = setting.day.rates_rps(at_s, at_s + step_s)
    offers = left_over(setting.market.offers(at_s), ())
    arriving = float(rates.sum())
    for tenths in range(10, 0, -1):
        problem = setting.planner.problem(rates * tenths / 10, offers, at_s, headroom_fraction=0.0)
        fleet = setting.planner.fleet(problem)
        if fleet is not None:
            carried = arriving * tenths / 10
            return Span(at_s, at_s + step_s, arriving, carried, carried, fleet.usd_per_hour, 0, 0)
    return Span(at_s, at_s + step_s, arriving, 0.0, 0.0, 0.0, 0, 0)


def outcome_of(
    spans: Sequence[Span], *, revisions: int, started: int, stopped: int, lost: int, gpus: float
) -> Outcome:
    """The figures of a day."""
    length = np.array([span.length_s for span in spans])
    arriving = np.array([span.arriving_rps for span in spans])
    served = np.array([span.served_rps for span in spans])
    hours = length / HOUR_S
    return Outcome(
        arrived=float((arriving * length).sum()),
        served=float((served * length).sum()),
        usd=float((np.array([span.usd_per_hour for span in spans]) * hours).sum()),
        revisions=revisions,
        started=started,
        stopped=stopped,
        lost=lost,
        idle_machine_hours=float((np.array([span.idle_machines for span in spans]) * hours).sum()),
        idle_gpu_hours=float((np.array([span.idle_gpus for span in spans]) * hours).sum()),
        under_capacity_s=float(length[served < arriving * (1 - UNDER_FRACTION)].sum()),
        mean_gpus=gpus,
        spans=tuple(spans),
    )


def _outcome(world: World, revisions: int, gpus: float) -> Outcome:
    return outcome_of(
        world.spans, revisions=revisions, started=world.started, stopped=world.stopped, lost=world.lost, gpus=gpus
    )
