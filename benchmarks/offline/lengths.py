"""Distributions of lengths with the statistics that the paper prints, where it keeps the lengths themselves.

Flow: applications.py asks for a mean between two ends -> solver/offline/application.Lengths.
"""

from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.stats import lognorm

from sutler.solver.arrays import FloatArray
from sutler.solver.offline.application import LengthDistribution

_NEVER: Final = 1e-12
"""Lengths of a smaller share are left out, except for the two ends."""


def lognormal(*, mean: float, spread: float, least: int, most: int) -> LengthDistribution:
    """Whole numbers from `least` to `most` like a lognormal between them; `mean` is theirs, not the uncut curve's.

    `spread`: the standard deviation of the logarithm. Raises ValueError where no such curve has that mean.
    """
    values = np.arange(least, most + 1, dtype=np.float64)

    def excess(scale_log: float) -> float:
        return float(np.diff(_cumulative(values, scale_log, spread), prepend=0.0) @ values) - mean

    scale_log = brentq(excess, np.log(least) - 3 * spread, np.log(most) + 3 * spread)
    return _lengths(list(range(least, most + 1)), _cumulative(values, scale_log, spread))


def heavy_tailed(*, median: int, spread: float, most: int, top_fraction: float) -> LengthDistribution:
    """Like a lognormal of that median, but `top_fraction` of all are `most` and no other is above half of it."""
    values = np.arange(1, most // 2 + 1)
    curve = lognorm.cdf(values + 0.5, s=spread, scale=median)
    below = np.minimum(curve, 1 - top_fraction)
    below[-1] = 1 - top_fraction
    return _lengths([*values.tolist(), most], np.append(below, 1.0))


def spaced(lengths: LengthDistribution, count: int, *, seed: int) -> tuple[int, ...]:
    """`count` lengths at even shares, from the least to the most, in an order drawn from the seed: a recording with
    the statistics of the distribution and no luck in them."""
    shares = np.linspace(0.0, np.nextafter(1.0, 0.0), count)
    return tuple(np.random.default_rng(seed).permutation(lengths.at(shares)).tolist())


def _cumulative(values: FloatArray, scale_log: float, spread: float) -> FloatArray:
    curve = lognorm(s=spread, scale=np.exp(scale_log))
    start, end = curve.cdf(values[0] - 0.5), curve.cdf(values[-1] + 0.5)
    return np.asarray((curve.cdf(values + 0.5) - start) / (end - start))


def _lengths(values: list[int], cumulative: FloatArray) -> LengthDistribution:
    is_kept = np.diff(cumulative, prepend=0.0) > _NEVER
    is_kept[[0, -1]] = True
    kept = [value for value, keep in zip(values, is_kept, strict=True) if keep]
    return LengthDistribution(tuple(kept), (*cumulative[is_kept][:-1].tolist(), 1.0))
