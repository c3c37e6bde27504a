"""Whether traffic is climbing, and where that leads by the time a new machine serves. Pure.

Requests per slice of time are Poisson counts, more spread than that where the slices say so. A climb at a constant
rate of growth is one line through their logarithms, fitted by maximum likelihood (McCullagh and Nelder, Generalized
Linear Models, 2nd ed., section 6.2; dispersion by Pearson's statistic, section 9.2.4). It counts where growth differs
from none by far more than chance and explains the slices better than one step from a level to another: a step has
happened, and leads nowhere. So nothing is extrapolated but a climb that is seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray

SLICES: Final = (
    4,
    8,
    16,
    32,
)  # chosen: four tell a line from a step; the shortest stretch that is clear is the newest
CLEAR: Final = 4.0  # standard errors of growth above none: chance alone reaches that once in 30,000 looks
LAGGING: Final = 2.0  # standard deviations: a climb that has ended is worth more to know than one that goes on
ROUNDS: Final = 20  # of Newton's method, which has settled after five


@dataclass(frozen=True, slots=True)
class Trend:
    """A climb: the logarithm of requests/s is `log_rps + per_s * t`, with t from the newest report on.

    `variance`, `covariance` and `variance_per_s` are those of the two.
    """

    log_rps: float
    per_s: float
    variance: float
    covariance: float
    variance_per_s: float

    def rps(self, ahead_s: float, quantile: float) -> float:
        """What the rate does not exceed then, with that probability, if the climb goes on."""
        variance = self.variance + 2 * ahead_s * self.covariance + ahead_s**2 * self.variance_per_s
        spread = float(scipy.special.ndtri(quantile)) * sqrt(max(0.0, variance))
        return exp(self.log_rps + self.per_s * ahead_s + spread)


def trend_of(requests: Sequence[float], seconds: Sequence[float], slice_s: float) -> Trend | None:
    """The climb that slices of `slice_s` tell of, the newest first; `seconds`: of each, those that are told of.

    None where there is none, or too little is known.
    """
    told = next((n for n, covered in enumerate(seconds) if covered < slice_s / 2), len(seconds))
    for number in SLICES:
        if number > told:
            return None
        counts, covered = np.array(requests[:number][::-1]), np.array(seconds[:number][::-1])
        at_s: FloatArray = (np.arange(number, dtype=np.float64) - number + 0.5) * slice_s
        found = _climb(counts, covered, at_s)
        if found is not None:
            return found
    return None


def _climb(counts: FloatArray, covered_s: FloatArray, at_s: FloatArray) -> Trend | None:
    if counts.sum() <= 0:
        return None
    design = np.stack([np.ones_like(at_s), at_s / -at_s[0]], axis=1)
    beta = np.array([np.log(counts.sum() / covered_s.sum()), 0.0])
    for _ in range(ROUNDS):
        mean = covered_s * np.exp(np.clip(design @ beta, -50.0, 50.0))
        information = design.T @ (mean[:, None] * design)
        step = np.linalg.solve(information, design.T @ (counts - mean))
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    mean = covered_s * np.exp(np.clip(design @ beta, -50.0, 50.0))
    dispersion = max(1.0, float(((counts - mean) ** 2 / mean).sum()) / (len(counts) - 2))
    spread = dispersion * np.linalg.inv(information)
    is_clear = beta[1] > CLEAR * sqrt(spread[1, 1])
    is_a_step = _deviance(counts, mean) > _deviance_of_a_step(counts, covered_s)
    if not is_clear or is_a_step or _has_ended(counts, mean):
        return None
    scale = -at_s[0]
    return Trend(
        float(beta[0]),
        float(beta[1] / scale),
        float(spread[0, 0]),
        float(spread[0, 1] / scale),
        float(spread[1, 1] / scale**2),
    )


def _has_ended(counts: FloatArray, mean: FloatArray) -> bool:
    """Whether the newest quarter lags behind the line by more than chance, which is what neighbouring slices
    differ by."""
    newest, off = slice(-(len(counts) // 4), None), (counts - mean) / np.sqrt(mean)
    dispersion = max(1.0, float((np.diff(off) ** 2).mean()) / 2)
    expected = mean[newest].sum()
    return bool(counts[newest].sum() < expected - LAGGING * sqrt(dispersion * expected))


def _deviance(counts: FloatArray, mean: FloatArray) -> float:
    return float(2 * (scipy.special.xlogy(counts, counts / mean) - (counts - mean)).sum())


def _deviance_of_a_step(counts: FloatArray, covered_s: FloatArray) -> float:
    """The least deviance of two levels, one after the other."""

    def level(part: slice) -> float:
        mean = counts[part].sum() / covered_s[part].sum() * covered_s[part]
        return _deviance(counts[part], np.maximum(mean, 1e-12))

    return min(level(slice(cut)) + level(slice(cut, None)) for cut in range(1, len(counts)))
