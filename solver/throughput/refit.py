"""Moves the shipped calibration to a user's own runs, so that a handful of them already helps.

Flow: runs of one engine -> refit (here) -> Calibration; service/profiles/calibrating.py names and stores it.

Few runs cannot tell twenty factors apart, so all of them are asked at once (generalised least squares): the errors of
neighbouring runs hang together as corrections.py says, a factor moves only as far as it explains what they have in
common, and what remains is kriged. Factors are held to the shipped ones, SPREAD of the plausible range in which those
were sought themselves. Errors beyond a few standard deviations count for less (soft L1). Only rates are fitted: first
tokens of a closed loop wait for how clients meet, which says nothing of those under random arrivals.

Where predicting every run from the others is no better than the shipped calibration does it, that one is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import covariance, krige
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration
from sutler.solver.throughput.calibrate import LARGEST_LOG_ERROR, ROWS_PER_GROUP, Parameter, fitted, parameters
from sutler.solver.throughput.latency import ClosedLoop
from sutler.solver.throughput.runs import (
    LayerRun,
    ServingRun,
    points_of,
    predict,
    predict_corrected,
    predict_layers,
    run_groups,
    with_room,
)

SPREAD: Final = 0.3  # chosen: so few runs move factors less than the hundreds that the shipped ones were fitted to
LAYER_ERROR: Final = 0.1  # chosen: how far a layer's time alone may be from that in a step, as a logarithm
SOFT_L1_SCALE: Final = 1.5  # in standard deviations
FOLDS: Final = 10  # chosen: with more, many runs take long; with fewer, too little is left to fit
WORSE: Final = 1.4  # chosen: lower, good calibrations by few runs are refused by chance; higher, bad ones are kept


@dataclass(frozen=True, slots=True)
class RunErrors(ClosedLoop):
    """Logarithms of predicted over measured, arrays [num_runs]."""


@dataclass(frozen=True, slots=True)
class Refit:
    """A calibration for runs of one engine, and how far off it is on them.

    before: by the calibration it started from; after: in sample; left_out: each run by a fit that did not see it
    (NaN with fewer than two). is_kept: the runs left the calibration as it was.
    """

    calibration: Calibration
    before: RunErrors
    after: RunErrors
    left_out: RunErrors
    is_kept: bool


def refit(runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration) -> Refit:
    """`runs` of one engine; at least one run or layer profile. Raises ValueError where engines are mixed."""
    engines = {run.engine for run in runs}
    if len(engines) > 1:
        raise ValueError(f"runs of several engines ({', '.join(sorted(engines))}): calibrate each on its own")
    moved_to = _refitted(runs, layer_runs, start)
    before, left_out = errors(runs, start), _left_out(runs, layer_runs, start)
    is_kept = len(runs) > 1 and not layer_runs and _size(left_out.req_per_s) >= WORSE * _size(before.req_per_s)
    found = replace(start, serves=moved_to.serves) if is_kept else moved_to
    return Refit(found, before, errors(runs, found), left_out, is_kept)


def errors(runs: Sequence[ServingRun], calibration: Calibration) -> RunErrors:
    """Returns how far off is what plans rest on, corrections included."""
    found = predict_corrected(runs, calibration)
    return RunErrors(*(_log_errors(runs, found, name) for name in ("req_per_s", "ttft_s", "tpot_s")))


def _log_errors(runs: Sequence[ServingRun], found: ClosedLoop, name: str) -> FloatArray:
    """NaN where nothing was measured: requests of a single token have no time between tokens."""
    measured = np.array([getattr(run, name) or np.nan for run in runs])
    return np.asarray(np.log(np.maximum(getattr(found, name), 1e-12) / measured))


def _size(log_errors: FloatArray) -> float:
    return float(np.sqrt(np.mean(log_errors**2)))


def _left_out(runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration) -> RunErrors:
    """One by one, or in FOLDS parts of which every run is in one."""
    out = RunErrors(*(np.full(len(runs), np.nan) for _ in range(3)))
    if len(runs) < 2:
        return out
    for part in np.array_split(np.arange(len(runs)), min(FOLDS, len(runs))):
        kept = [run for i, run in enumerate(runs) if i not in part]
        found = errors([runs[int(i)] for i in part], _refitted(kept, layer_runs, start))
        out.req_per_s[part], out.ttft_s[part], out.tpot_s[part] = found.req_per_s, found.ttft_s, found.tpot_s
    return out


def _refitted(runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration) -> Calibration:
    engine = runs[0].engine if runs else start.serves
    least_band = 1.0 if engine in start.engines else start.priors.engine_band
    roomy = with_room(runs)
    if not roomy:
        return replace(_fitted(roomy, layer_runs, start, engine), serves=engine)
    known = replace(start, engines={**start.engines, engine: start.engine(engine)}, serves=engine)
    found = _fitted(roomy, layer_runs, known, engine)
    errors_left = -_log_errors(roomy, predict(run_groups(roomy), found), "req_per_s")
    clipped = np.clip(errors_left, -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR)
    points = points_of(roomy, start)
    return replace(found, corrections=krige(found.correlation, engine, points, clipped, least_band=least_band))


def _fitted(
    runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration, engine: str
) -> Calibration:
    groups, whiten = run_groups(runs), _whitening(runs, start)
    layers_seen = np.log(np.array([run.seconds for run in layer_runs]))
    layer_weight = np.sqrt(min(1.0, ROWS_PER_GROUP / max(len(layer_runs), 1))) / LAYER_ERROR

    def errors(calibration: Calibration) -> FloatArray:
        found = predict(groups, calibration)
        rates = np.clip(_log_errors(runs, found, "req_per_s"), -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR)
        layers = np.log(predict_layers(layer_runs, calibration)) - layers_seen
        return np.concatenate([solve_triangular(whiten, rates, lower=True), layers * layer_weight])

    engines = () if engine == REFERENCE_ENGINE or not runs else (engine,)
    movable = (one for one in parameters(start, runs, layer_runs, engines) if "first_token" not in one.name)
    chosen = [replace(one, spread=one.spread * _reach(one, start)) for one in movable]
    return fitted(start, chosen, errors, soft_l1_scale=SOFT_L1_SCALE, most_evaluations=30, tolerance=1e-4)


def _reach(parameter: Parameter, start: Calibration) -> float:
    """How far a parameter may move, as a share of the range in which the shipped factors were sought; more for GPU
    classes nobody measured."""
    kind, _, name = parameter.place.partition(":")
    if kind != "class":
        return SPREAD
    band = next(one.band for one in start.gpu_classes if one.name == name)
    return SPREAD * float(start.spread(np.array(band)))


def _whitening(runs: Sequence[ServingRun], start: Calibration) -> FloatArray:
    """Returns the lower triangular [n, n] Cholesky factor of the covariance of the errors."""
    noise = start.correlation.noise**2 * np.eye(len(runs))
    return np.asarray(np.linalg.cholesky(covariance(start.correlation, points_of(runs, start)) + noise))
