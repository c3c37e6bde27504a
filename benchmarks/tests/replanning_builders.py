"""A small world for tests of the simulated day: a small market, and traffic that doubles after forty minutes."""

from functools import cache

import numpy as np

from benchmarks.day.fleet import Fleet
from benchmarks.day.market import DayMarket, left_over
from benchmarks.day.planning import GPUS, STARTS, Planner, speeds_of, weights_gb
from benchmarks.day.simulation import Setting
from benchmarks.day.traffic import Trace, day_of
from benchmarks.day.world import Terms

HOUR_S = 3600.0
STEADY_S = 2400.0


@cache
def setting() -> Setting:
    """Eighty minutes with traffic that is steady for the first forty and then rises to twice that."""
    at = np.concatenate([np.arange(0.0, 200.0, 1.0), np.arange(200.0, 2400.0, 0.5)])
    number = np.arange(len(at))
    trace = Trace(at, np.array(200.0 + 300.0 * (number % 5)), np.array(20.0 + 60.0 * (number % 4)))
    market = DayMarket(1, starts_s=STARTS.timestamp(), gpus=GPUS, machines=60)
    day = day_of(trace, mean_rps=24.0, seed=1)
    planner = Planner(day.buckets, relative_gap=0.1, time_limit_s=60.0)  # also on a busy machine
    some = market.offers(0.0)
    terms = Terms(
        startup_s=90.0,
        download_gb_per_s=0.25,
        restart_s=60.0,
        drain_s=30.0,
        min_rental_s=0.0,
        weights_gb=weights_gb(),
        utilisation_fraction=1.0,
    )
    speeds = speeds_of(planner, some, {})
    return Setting(market, day, planner, speeds, speeds, terms, length_s=4800.0)


@cache
def first_fleet(multiple: float = 1.0) -> Fleet:
    made = setting()
    offers = left_over(made.market.offers(0.0), ())
    rates = multiple * made.day.rates_rps(0.0, STEADY_S)
    fleet = made.planner.fleet(made.planner.problem(rates, offers, 0.0))
    assert fleet is not None
    return fleet
