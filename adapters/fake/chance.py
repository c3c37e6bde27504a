"""Chance that depends on nothing but its key: the same key gives the same number, in any order, on any machine.

A process over time is a sequence of steps whose numbers come from (key, step); so the state of a market at any
instant can be computed alone, without the instants before it.
"""

import math
from functools import lru_cache
from typing import Final

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_PIECE: Final = 0xFFFF
GOLDEN_FRACTION: Final = 0.6180339887498949


@lru_cache(maxsize=1 << 15)  # a market of some hundred machines asks for the same draws until their next steps
def bits(*key: int) -> int:
    """64 bits that look random (SplitMix64 over the key, https://doi.org/10.1145/2714064.2660195)."""
    state = 0
    for part in key:
        state = (state ^ (part & _MASK)) + _GOLDEN & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def uniform(*key: int) -> float:
    """Draws evenly from [0, 1)."""
    return bits(*key) / 2.0**64


def between(low: float, high: float, *key: int) -> float:
    return low + (high - low) * uniform(*key)


def normal(*key: int) -> float:
    """Draws with mean 0 and variance 1, within ±3.5: the sum of four uniform pieces of one draw."""
    drawn = bits(*key)
    total = (drawn & _PIECE) + (drawn >> 16 & _PIECE) + (drawn >> 32 & _PIECE) + (drawn >> 48)
    return (total / 65_536.0 - 2.0) * math.sqrt(3.0)


def step_at(t_s: float, period_s: float, *key: int) -> int:
    """Which step of a process with this period runs at `t_s`; each key has a phase of its own."""
    return math.floor(t_s / period_s + uniform(*key, -1))


def level(t_s: float, period_s: float, *key: int) -> float:
    """A stepwise process around 0 with variance 1: the mean of the last four draws, so that it always comes back."""
    step = step_at(t_s, period_s, *key)
    return (normal(*key, step) + normal(*key, step - 1) + normal(*key, step - 2) + normal(*key, step - 3)) / 2.0


def share_below(value: float) -> float:
    """The share of a standard normal below `value`, from 0 to 1."""
    return 0.5 * (1.0 + math.erf(value / math.sqrt(2.0)))


def spread(number: int, *key: int) -> float:
    """Draws from [0, 1) such that the first n numbers lie evenly for every n."""
    return (number * GOLDEN_FRACTION + uniform(*key)) % 1.0
