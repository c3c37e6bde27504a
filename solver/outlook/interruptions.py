"""How often rented machines are taken away, learnt from those that were rented.

Machines of a contract go at a rate per hour, those of a provider and of a GPU type at rates of their own as far as
they tell them apart (hazards.py). Machines are lost together: where incidents took several, what was seen says less
about the rate than so many machines apart would, by the mean size of the incident that a lost machine was in. Before
one was seen, it is taken to go with all of its fleet. The rate stays what was seen; deaths and hours count for that
much less against the prior, and the interval is wider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import scipy

from sutler.solver.outlook.chances import SURE
from sutler.solver.outlook.hazards import PRIOR, Key, Nest, Rate

# Interruptible machines: what is known of machines for rent. Others fail: Llama 3 was trained through 419 unexpected
# interruptions in 54 days on 2,048 machines of 8 GPUs, one in 6,300 machine-hours (arXiv 2407.21783, section 3.3.4).
PRIORS: Final[Mapping[str, Rate]] = {
    "interruptible": PRIOR,
    "on_demand": Rate(0.5, 0.5 * 6300.0),
    "reserved": Rate(0.5, 0.5 * 6300.0),
}


@dataclass(frozen=True, slots=True)
class Rented:
    """For how many hours machines of a kind were held, and how many of them were lost; `fleet`: how many were held
    together, on the mean of these hours."""

    provider: str
    contract: str
    gpu: str
    machine_hours: float
    losses: int
    fleet: float = 1.0


@dataclass(frozen=True, slots=True)
class LearntRate:
    """Losses per machine and hour, with the ends of the 90 % interval; a provider or GPU of None stands for all.

    `losses` in `machine_hours`: what was seen.
    """

    contract: str
    provider: str | None
    gpu: str | None
    per_hour: float
    low_per_hour: float
    high_per_hour: float
    losses: int
    machine_hours: float


def learnt(kinds: Sequence[Rented], incidents: Mapping[str, Sequence[int]]) -> tuple[LearntRate, ...]:
    """The rates of kinds, of providers' contracts and of contracts, the narrowest first; a contract that was never
    held has its prior.

    `incidents`: by contract, how many machines went in each.
    """
    found: list[LearntRate] = []
    for contract, prior in PRIORS.items():
        own = [kind for kind in kinds if kind.contract == contract and kind.machine_hours > 0]
        together = _size(incidents.get(contract, ()), own)
        losses, hours = np.array([kind.losses for kind in own]), np.array([kind.machine_hours for kind in own])
        keys = ([()] * len(own), [(kind.provider,) for kind in own], [(kind.provider, kind.gpu) for kind in own])
        nest = Nest(prior, keys, losses / together, hours / together)
        whole = _Level({(): prior, **nest.rates[0]}, {(): (0.0, 0.0), **nest.seen[0]})
        for level in (whole, *map(_Level, nest.rates[1:], nest.seen[1:])):
            for key, rate in level.rates.items():
                d, e = level.seen[key]
                found.append(_learnt(contract, tuple(map(str, key)), rate, d * together, e * together))
    return tuple(sorted(found, key=lambda rate: (rate.provider is None, rate.gpu is None)))


class _Level(NamedTuple):
    rates: Mapping[Key, Rate]
    seen: Mapping[Key, tuple[float, float]]


def _size(incidents: Sequence[int], kinds: Sequence[Rented]) -> float:
    """The mean size of the incident that a lost machine was in; one, of which nothing is known, took its fleet."""
    hours = sum(kind.machine_hours for kind in kinds)
    fleet = sum(kind.machine_hours * kind.fleet for kind in kinds) / hours if hours else 1.0
    return (sum(size * size for size in incidents) + fleet) / (sum(incidents) + 1)


def _learnt(contract: str, key: tuple[str, ...], rate: Rate, losses: float, hours: float) -> LearntRate:
    provider, gpu = (*key, None, None)[:2]
    low, high = (float(scipy.special.gammaincinv(rate.shape, each)) / rate.hours for each in SURE)
    return LearntRate(contract, provider, gpu, rate.per_hour, low, high, round(losses), hours)
