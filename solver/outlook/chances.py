"""The chance that a machine is still there, with an interval, and the chance of a fleet that has spares."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, expm1, inf, log, prod
from typing import Final

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray
from sutler.solver.outlook.cells import Estimates
from sutler.solver.outlook.hazards import PRIOR, Rate, Step
from sutler.solver.outlook.lives import (
    AGES_H,
    BLOCK_H,
    DAY_S,
    HOUR_S,
    OLD,
    UNKNOWN_AGE,
    Slot,
    age_class,
    time_class,
)

SURE: Final = (0.05, 0.95)  # the ends of a 90 % interval
LEAST_CHANCE: Final = 1e-12  # what a logarithm is taken of at least
LONGEST_LIFE_H: Final = 24.0 * 365  # chosen: what is expected to last longer is said to last a year

Kind = tuple[str, str, str, int]
"""(provider, gpu, contract, gpus)."""


@dataclass(frozen=True, slots=True)
class Chance:
    """A chance, the mean over what the rates may be, and the ends of its 90 % interval."""

    fraction: float
    low_fraction: float
    high_fraction: float


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is to be expected of a slot: the chance that it stays, and that it is there then, be it again.

    `cell` names what was told apart, `lives` and so on what was seen of its kind.
    """

    stays: Chance
    is_there: Chance
    rate_per_hour: float
    rate_low_per_hour: float
    rate_high_per_hour: float
    expected_lifetime_h: float
    machines: int
    lives: int
    deaths: int
    machine_hours: float
    cell: tuple[Step, ...]


class Prospects:
    """Answers questions about slots from what was learnt."""

    def __init__(self, found: Estimates) -> None:
        self.estimates = found
        self._counts: dict[Kind, tuple[int, int, int, float]] = {}
        self._back: dict[Kind, FloatArray] = {}
        self._count()

    def of(self, slot: Slot, *, at_s: float, within_s: float) -> Prospect | None:
        """What is to be expected of a slot that was seen at `at_s`, `within_s` later; None where no machine of its
        kind was ever watched."""
        counts = self._counts.get(_kind(slot))
        if counts is None:
            return None
        cells = self.estimates.of(slot.provider)
        since_s, is_known = self.estimates.lives.since_s.get(slot, (at_s, True))
        age_h = max(0.0, at_s - since_s) / HOUR_S
        pieces = [
            (cells.rate(slot, age, time), hours)
            for age, time, hours in _path(age_h, is_known=is_known, at_s=at_s, for_h=within_s / HOUR_S)
        ]
        stays = survival(pieces)
        is_there = _or_back(stays, within_s / HOUR_S, self._returns_per_hour(slot, within_s / HOUR_S))
        now = cells.rate(slot, int(age_class(age_h, is_known=is_known)), int(time_class(at_s)))
        rate_low, rate_high = (_quantile(now, q) for q in SURE)
        oldest = cells.rate(slot, OLD if is_known else UNKNOWN_AGE, int(time_class(at_s))).per_hour
        lasts_h = _expected_h(pieces, oldest)
        return Prospect(stays, is_there, now.per_hour, rate_low, rate_high, lasts_h, *counts, cells.chain)

    def _count(self) -> None:
        lives = self.estimates.lives
        deaths = np.bincount(lives.atoms.slot, lives.atoms.deaths, len(lives.slots))
        hours = np.bincount(lives.atoms.slot, lives.atoms.hours, len(lives.slots))
        for i, slot in enumerate(lives.slots):
            m, n, d, e = self._counts.get(_kind(slot), (0, 0, 0, 0.0))
            own = int(lives.counts[i])
            self._counts[_kind(slot)] = (m + 1, n + own, d + int(deaths[i]), e + float(hours[i]))
            seen = np.stack([lives.returns[i], lives.away_hours[i]])
            self._back[_kind(slot)] = self._back.get(_kind(slot), np.zeros_like(seen)) + seen

    def _returns_per_hour(self, slot: Slot, within_h: float) -> float:
        """The rate at which its kind comes back in so many hours of absence: many come back soon or not for long."""
        classes = max(1, int(np.searchsorted(AGES_H, within_h, "left")))
        returns, hours = self._back[_kind(slot)][:, :classes].sum(axis=1).tolist()
        return Rate(PRIOR.shape + returns, PRIOR.hours + hours).per_hour


def _kind(slot: Slot) -> Kind:
    return slot.provider, slot.gpu, slot.contract, slot.gpus


def survival(pieces: Sequence[tuple[Rate, float]]) -> Chance:
    """The chance to outlive so many hours at each of these rates, and the ends of its 90 % interval.

    The chance is the mean over what the rates may be. The interval takes the sum of rate x hours for a Gamma variable
    of the same mean and variance, which it is where there is one rate.
    """
    joined: dict[Rate, float] = {}
    for rate, hours in pieces:
        joined[rate] = joined.get(rate, 0.0) + hours
    chance = prod((rate.hours / (rate.hours + hours)) ** rate.shape for rate, hours in joined.items())
    mean = sum(rate.per_hour * hours for rate, hours in joined.items())
    variance = sum(rate.shape * (hours / rate.hours) ** 2 for rate, hours in joined.items())
    if mean <= 0 or variance <= 0:
        return Chance(1.0, 1.0, 1.0)
    total = Rate(mean**2 / variance, mean / variance)
    low, high = (exp(-_quantile(total, q)) for q in reversed(SURE))
    return Chance(chance, low, high)


def _or_back(stays: Chance, hours: float, returns_per_hour: float) -> Chance:
    """The chance to be there at the end, where what goes comes back at a rate and may go again."""

    def found(chance: float) -> float:
        leaves = -log(max(chance, LEAST_CHANCE)) / hours
        both = leaves + returns_per_hour
        return 1.0 - leaves / both * -expm1(-both * hours)

    return Chance(*map(found, (stays.fraction, stays.low_fraction, stays.high_fraction)))


def _quantile(rate: Rate, q: float) -> float:
    return float(scipy.special.gammaincinv(rate.shape, q) / rate.hours)


def _expected_h(pieces: Sequence[tuple[Rate, float]], then_per_hour: float) -> float:
    """Hours to be expected at the mean rates: of the pieces, and after them at the rate of the old."""
    expected, alive = 0.0, 1.0
    for rate, hours in pieces:
        left = exp(-rate.per_hour * hours)
        expected += alive * (1.0 - left) / rate.per_hour
        alive *= left
    return min(expected + alive / then_per_hour, LONGEST_LIFE_H)


def _path(age_h: float, *, is_known: bool, at_s: float, for_h: float) -> Iterator[tuple[int, int, float]]:
    """The classes of age and time that a machine goes through, with the hours in each."""
    gone_h = 0.0
    while gone_h < for_h:
        at = at_s + gone_h * HOUR_S
        older = next((edge - age_h for edge in AGES_H if edge - age_h > gone_h + 1e-9), inf)
        block_h = BLOCK_H - (at % DAY_S / HOUR_S) % BLOCK_H
        end_h = min(for_h, older, gone_h + max(block_h, 1e-9))
        yield int(age_class(age_h + gone_h, is_known=is_known)), int(time_class(at)), end_h - gone_h
        gone_h = end_h


def any_of(chances: Iterable[float]) -> float:
    """The chance that at least one is there, where each goes for itself."""
    return 1.0 - prod(1.0 - chance for chance in chances)
