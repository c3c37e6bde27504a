"""When machines of the simulated day are lost: drawn from seed and name alone, so that every policy meets the same.

- A machine fails once in the day with a chance of `FAILING_FRACTION`, and is gone for an hour.
- An interruptible one is taken away once in `LIFE_S` on average, and is not for rent for a quarter of an hour.
- `WAVES` times a day a wave takes most interruptible machines of a provider; for half an hour those that are rented
  there again are soon taken away, too, and the market goes on to list them.
- Once a day a provider fails with all of its machines, and has none for rent for half an hour.

The rates are chosen to be hard; that losses of interruptible machines come together is what SkyServe saw on AWS and
GCP (arXiv 2411.01438, section 2).
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np

from benchmarks.day.traffic import DAY_S
from sutler.adapters.base import Contract

PROVIDERS: Final = ("vastai", "lium")
FAILING_FRACTION: Final = 0.15
DOWN_S: Final = 3600.0
LIFE_S: Final = 12 * 3600.0
INTERRUPTED_S: Final = 900.0
WAVES: Final = 2
WAVE_S: Final = 1800.0
TAKEN_FRACTION: Final = 0.8
WITHIN_S: Final = 120.0
LIFE_IN_WAVE_S: Final = 300.0
OUTAGE_S: Final = 1800.0

MachineKey = tuple[str, str]
Absence = tuple[float, float]
"""Seconds into the day: lost at the first, for rent again at the second."""


def lost_at(seed: int, machine: MachineKey, contract: Contract, since_s: float) -> float:
    """The moment at which a rental is lost that began at `since_s`; infinite if it never is."""
    found = absences(seed, machine, contract)
    after = bisect_right(found, since_s, key=lambda absence: absence[0])
    return found[after][0] if after < len(found) else math.inf


def is_away(seed: int, machine: MachineKey, contract: Contract, at_s: float) -> bool:
    """Whether the market does not list it although it would."""
    return any(begin_s <= at_s < end_s for begin_s, end_s in absences(seed, machine, contract))


@lru_cache(maxsize=100_000)
def absences(seed: int, machine: MachineKey, contract: Contract) -> tuple[Absence, ...]:
    """All of a day, the first first; after a loss that ends at once the market lists the machine as before."""
    found = [*_failure(seed, machine), *_outage(seed, machine[0])]
    if contract == "interruptible":
        found += [*_interruptions(seed, machine), *_waves(seed, machine)]
    return tuple(sorted(found))


def outage_of(seed: int) -> tuple[str, float]:
    """Which provider fails, and when."""
    draw = _draw(seed, "outage")
    return PROVIDERS[int(draw.integers(len(PROVIDERS)))], float(draw.uniform(0.1, 0.9)) * DAY_S


def waves_of(seed: int) -> tuple[tuple[str, float], ...]:
    """Whose interruptible machines go, and when."""
    draw = _draw(seed, "waves")
    return tuple(
        (PROVIDERS[int(draw.integers(len(PROVIDERS)))], float(draw.uniform(0.05, 0.95)) * DAY_S) for _ in range(WAVES)
    )


def _draw(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng([seed, *(crc32(name.encode()) for name in names)])


def _failure(seed: int, machine: MachineKey) -> Iterator[Absence]:
    draw = _draw(seed, "failure", *machine)
    fails, at_s = draw.random() < FAILING_FRACTION, float(draw.random()) * DAY_S
    if fails:
        yield at_s, at_s + DOWN_S


def _outage(seed: int, provider: str) -> Iterator[Absence]:
    failing, at_s = outage_of(seed)
    if failing == provider:
        yield at_s, at_s + OUTAGE_S


def _interruptions(seed: int, machine: MachineKey) -> Iterator[Absence]:
    for at_s in _moments(_draw(seed, "interruptions", *machine), 0.0, DAY_S, LIFE_S):
        yield at_s, at_s + INTERRUPTED_S


def _waves(seed: int, machine: MachineKey) -> Iterator[Absence]:
    for number, (provider, at_s) in enumerate(waves_of(seed)):
        draw = _draw(seed, "wave", str(number), *machine)
        if provider == machine[0] and draw.random() < TAKEN_FRACTION:
            first_s = at_s + float(draw.random()) * WITHIN_S
            yield first_s, first_s
            yield from ((again_s, again_s) for again_s in _moments(draw, first_s, at_s + WAVE_S, LIFE_IN_WAVE_S))


def _moments(draw: np.random.Generator, begin_s: float, end_s: float, mean_s: float) -> Iterator[float]:
    at_s = begin_s + float(draw.exponential(mean_s))
    while at_s < end_s:
        yield at_s
        at_s += float(draw.exponential(mean_s))
