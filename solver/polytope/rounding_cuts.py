"""Inequalities that whole replicas keep in what they carry, and fractions of them break.

A plan that is looked for carries some load at least, so that sum_c a[c] y[c] >= b for every inequality on its fleet
(polytope/fleet_bounds.py) and for each workload by itself. Where two replicas of 0.5 are needed for a load of 0.9,
1.8 of them are not enough: for any step d, with f the fractional part of b / d, whole y keep

    sum_c (floor(a[c] / d) + min(frac(a[c] / d), f) / f) y[c]  >=  ceil(b / d)

(mixed-integer rounding: Nemhauser & Wolsey, Mathematical Programming 46, 1990).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.polytope.column_generation import FleetRow

_STEPS: Final = (1, 2, 3)  # what a used replica earns, and whole parts of that; chosen: smaller ones cut no deeper
_LEAST_PART: Final = 0.02  # f below makes large numbers of small ones
_LEAST_EARNED: Final = 1e-6  # of the load
_BROKEN: Final = 3e-3  # chosen: distances from the point below this move the bound little
_AT_ONCE: Final = 12  # chosen: of more each cuts less
_ALIKE: Final = 0.97  # cosine between cuts of which one is enough
_ROUNDING: Final = 1e-9  # coefficients as far below a whole number are that number


@dataclass(frozen=True, slots=True)
class RoundingCut:
    """The inequality that a step makes of `row` where its left side is `least` or more."""

    row: FleetRow
    least: float
    step: float

    @property
    def right(self) -> float:
        """What the fleet has at least."""
        return float(np.ceil(self.least / self.step)) * (1 - _ROUNDING)

    def left(self, chosen: IntArray) -> FloatArray:
        """[chosen] what a replica of each of these candidates adds to the left side."""
        part = self.least / self.step % 1.0
        return _rounded(self.row.earned[chosen] / self.step, np.array(part))


def rounding_cuts(
    rows: Sequence[FleetRow], candidate: IntArray, replicas: FloatArray, least_lam: float
) -> list[RoundingCut]:
    """The cuts that a fleet [candidate] with fractions of replicas breaks most, where plans carry `least_lam`."""
    plain = [
        row for row in rows if row.falling is None and row.machine == 0.0 and row.lam * least_lam + row.fixed > 0
    ]
    if not plain or not len(candidate):
        return []
    least = np.array([row.lam * least_lam + row.fixed for row in plain])
    earned = np.array([row.earned[candidate] for row in plain])
    steps = np.concatenate([earned / number for number in _STEPS], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = least[:, None] / steps
        part = sides % 1.0
        left = _rounded(earned[:, None, :] / steps[:, :, None], part[:, :, None])
        far = (np.ceil(sides) - left @ replicas) / np.sqrt((left**2).sum(axis=2))
    is_cut = (steps > _LEAST_EARNED * least[:, None]) & (part > _LEAST_PART)
    far = np.where(is_cut & np.isfinite(far), far, 0.0)
    best = far.argmax(axis=1)
    each = np.arange(len(plain))
    chosen, found = list[FloatArray](), list[RoundingCut]()
    for row in np.argsort(-far[each, best], kind="stable").tolist():
        line = left[row, best[row]]
        if far[row, best[row]] < _BROKEN or len(found) == _AT_ONCE:
            break
        line = line / np.linalg.norm(line)
        if all(line @ other < _ALIKE for other in chosen):
            chosen.append(line)
            found.append(RoundingCut(plain[row], float(least[row]), float(steps[row, best[row]])))
    return found


def _rounded(ratio: FloatArray, part: FloatArray) -> FloatArray:
    whole = np.floor(ratio + _ROUNDING)
    return np.asarray(whole + np.minimum(np.maximum(ratio - whole, 0.0), part) / part)
