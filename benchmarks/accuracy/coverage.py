"""Bands from the errors on groups that were left out (split conformal prediction), and how many runs they cover.

A score is |log(predicted / measured)| of the requests/s of a run, predicted by the fit that left its group out. The
band of n scores is e to their ceil(0.9 (n + 1))-th smallest (Vovk, Gammerman & Shafer 2005, ch. 4; Angelopoulos &
Bates 2021, arXiv 2107.07511, eq. 1). It would cover 90 % of new runs that come like those; runs of one group come
alike, so what it covers is measured group by group, with a band made of the other groups' runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.accuracy.errors import FloatArray, closed_form
from benchmarks.accuracy.held_out import Fold
from sutler.solver.throughput.runs import ServingRun, with_room

COVERED_FRACTION: Final = 0.9
LEAST_BAND: Final = 1.1


@dataclass(frozen=True, slots=True)
class Score:
    """The error of one run in one fold; signed: above 0 where too much was predicted."""

    fold: Fold
    run: ServingRun
    log_error: float


@dataclass(frozen=True, slots=True)
class Covered:
    """How many runs of a group lie within a band, a factor."""

    fold: Fold
    band: float
    inside: int
    rows: int

    @property
    def fraction(self) -> float:
        return self.inside / max(self.rows, 1)


def scores(runs: Sequence[ServingRun], folds: Sequence[Fold]) -> list[Score]:
    """Collects the errors of the runs that have room for a cache, once per fold they are left out in."""
    found = []
    for fold in folds:
        tested = with_room([runs[i] for i in fold.index])
        predicted = closed_form(tested, fold.calibration).req_per_s
        found += [
            Score(fold, run, float(np.log(rate / run.req_per_s))) for run, rate in zip(tested, predicted, strict=True)
        ]
    return found


def conformal_band(found: Sequence[Score]) -> float:
    """The factor within which nine of ten new runs are to be; LEAST_BAND at least and without scores."""
    if not found:
        return LEAST_BAND
    sizes = np.sort([abs(score.log_error) for score in found])
    rank = int(np.ceil(COVERED_FRACTION * (len(sizes) + 1)))
    return max(LEAST_BAND, float(np.exp(sizes[min(rank, len(sizes)) - 1])))


def outside(found: Sequence[Score], fold: Fold) -> list[Score]:
    """The scores of other groups' runs, whichever way they were left out."""
    return [score for score in found if not fold.has(score.run)]


def coverage(found: Sequence[Score], folds: Sequence[Fold], *, engine: str | None = None) -> list[Covered]:
    """Covers every fold, or its runs of one engine, by the band that the runs outside its group make."""
    return [covered(found, fold, conformal_band(outside(found, fold)), engine=engine) for fold in folds]


def covered(found: Sequence[Score], fold: Fold, band: float, *, engine: str | None = None) -> Covered:
    """The runs of the fold under any band."""
    mine = [one.log_error for one in found if one.fold is fold and engine in (None, one.run.engine)]
    return Covered(fold, band, int((np.abs(mine) <= np.log(band)).sum()), len(mine))


def pooled_fraction(found: Sequence[Covered]) -> float:
    """The fraction of all their runs that is inside; NaN of none."""
    rows = sum(one.rows for one in found)
    return sum(one.inside for one in found) / rows if rows else float("nan")


def band_of(log_errors: FloatArray) -> float:
    """The factor within which nine of ten of them are, rounded outwards."""
    return rounded_outwards(float(np.exp(np.quantile(np.abs(log_errors), COVERED_FRACTION))))


def rounded_outwards(band: float) -> float:
    """Rounds to hundredths."""
    return float(np.ceil(round(100.0 * band, 6)) / 100.0)
