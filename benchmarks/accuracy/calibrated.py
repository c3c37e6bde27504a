"""What a handful of runs of a group that was left out does for the rest of it (solver/throughput/refit.py).

Flow: folds, whose bands and correlation come from other groups' runs too -> after_runs (here) -> findings.py.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.bands import with_uncertainty
from benchmarks.accuracy.coverage import Score, outside
from benchmarks.accuracy.errors import BoolArray, FloatArray
from benchmarks.accuracy.held_out import Fold
from sutler.solver.calibration.corrections import narrowed
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.refit import errors, refit
from sutler.solver.throughput.runs import ServingRun, points_of, with_room

LEAST_ROWS: Final = 15
SEEDS: Final = 10


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """Errors on the rest of one group's runs of one engine, every seed's after the other's, arrays [num_rests].

    rows: runs of the group; rests: those that were asked for; before and after: |predicted / measured - 1| of
    requests/s and TTFT; inside: whether the band narrowed by the runs covers it; bands: those, factors; share: how
    far rates followed the runs, the mean of `seeds` draws.
    """

    kind: str
    group: str
    engine: str
    rows: int
    rests: Sequence[ServingRun]
    before: FloatArray
    after: FloatArray
    ttft_before: FloatArray
    ttft_after: FloatArray
    inside: BoolArray
    bands: FloatArray
    share: float
    seeds: int


def starts(folds: Sequence[Fold], found: Sequence[Score], reference: Sequence[Score]) -> list[Calibration]:
    """What a user of every fold's group would have started from: nothing in it saw the group's errors. `reference`:
    as of with_uncertainty."""
    return [with_uncertainty(fold.calibration, outside(found, fold), reference) for fold in folds]


def after_runs(
    runs: Sequence[ServingRun],
    folds: Sequence[Fold],
    started: Sequence[Calibration],
    *,
    count: int,
    seeds: int = SEEDS,
    chosen: Callable[[str], bool] = lambda engine: True,
) -> list[Recalibrated]:
    """Predicts every fold and chosen engine with LEAST_ROWS runs, refitted to `count` of them, `seeds` times."""
    asked = [
        (fold, engine, of_engine, start, count, seeds)
        for fold, start in zip(folds, started, strict=True)
        for engine, of_engine in _by_engine([runs[i] for i in fold.index])
        if chosen(engine)
    ]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_recalibrated, *zip(*asked, strict=True))) if asked else []


def _by_engine(runs: Sequence[ServingRun]) -> Iterator[tuple[str, list[ServingRun]]]:
    for engine in sorted({run.engine for run in runs}):
        of_engine = with_room([run for run in runs if run.engine == engine])
        if len(of_engine) >= LEAST_ROWS:
            yield engine, of_engine


def _recalibrated(
    fold: Fold, engine: str, runs: Sequence[ServingRun], start: Calibration, count: int, seeds: int
) -> Recalibrated:
    draws = [_draw(runs, start, count, seed) for seed in range(seeds)]

    def every(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(draw, name) for draw in draws])

    return Recalibrated(
        kind=fold.kind,
        group=fold.group,
        engine=engine,
        rows=len(runs),
        rests=[run for draw in draws for run in draw.rest],
        before=_size(every("before")),
        after=_size(every("after")),
        ttft_before=_size(every("ttft_before")),
        ttft_after=_size(every("ttft_after")),
        inside=np.abs(every("after")) <= np.log(every("bands")),
        bands=every("bands"),
        share=float(np.mean([draw.share for draw in draws])),
        seeds=seeds,
    )


@dataclass(frozen=True, slots=True)
class _Draw:
    """What became of the runs that were not drawn: log(predicted / measured), and the band stated."""

    rest: Sequence[ServingRun]
    before: FloatArray
    after: FloatArray
    ttft_before: FloatArray
    ttft_after: FloatArray
    bands: FloatArray
    share: float


def _draw(runs: Sequence[ServingRun], start: Calibration, count: int, seed: int) -> _Draw:
    picked, rest = drawn(runs, count, seed)
    found = refit(picked, [], start)
    before, after = errors(rest, start), errors(rest, found.calibration)
    bands = narrowed_bands(rest, found.calibration)
    return _Draw(rest, before.req_per_s, after.req_per_s, before.ttft_s, after.ttft_s, bands, found.rates_share)


def drawn(runs: Sequence[ServingRun], count: int, seed: int) -> tuple[list[ServingRun], list[ServingRun]]:
    """`count` random runs, and the others."""
    places = set(np.random.default_rng(seed).choice(len(runs), count, replace=False).tolist())
    return [runs[i] for i in sorted(places)], [run for i, run in enumerate(runs) if i not in places]


def narrowed_bands(runs: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    """The bands as CorrectedStages.bands states them [num_runs]; the calibration's own without corrections."""
    bands = np.array(
        [calibration.band(one.gpu, one.precision, one.engine, has_experts=one.spec.moe is not None) for one in runs]
    )
    if calibration.corrections is None:
        return bands
    _, left = calibration.corrections.at(points_of(runs, calibration))
    return narrowed(bands, left)


def _size(log_errors: FloatArray) -> FloatArray:
    return np.asarray(np.abs(np.exp(log_errors) - 1.0))
