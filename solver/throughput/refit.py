"""Moves the shipped calibration to a user's own runs, so that a handful of them already helps.

Flow: runs of one engine -> refit (here) -> Calibration; service/profiles/calibrating.py names and stores it.

Few runs cannot tell twenty factors apart, so all of them are asked at once (generalised least squares): the errors of
neighbouring runs hang together as corrections.py says, a factor moves only as far as it explains what they have in
common, and what remains is kriged. Factors are held to the shipped ones, SPREAD of the range in which those were
sought. Errors beyond a few standard deviations count for less (soft L1). What first tokens of the engine wait for
beside its steps comes second; it is part of the time of a request, so what remains of rates is kriged anew beside it.

Either is followed only as far as runs predict each other (`_share`): every run is predicted by a fit to the others,
and between the start and the fit the place is taken at which those predictions are best. So left-out errors do not
rise; where no step towards the fit makes them fall, the start is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import MOST_POINTS, Corrections, covariance, krige, restored
from sutler.solver.calibration.factors import MAY_VANISH, REFERENCE_ENGINE, Calibration, EngineFactors
from sutler.solver.throughput.calibrate import (
    FIRST_TOKEN_SPREAD,
    LARGEST_LOG_ERROR,
    ROWS_PER_GROUP,
    Parameter,
    between,
    fitted,
    kernel_parameters,
    parameters,
    with_kernels,
)
from sutler.solver.throughput.latency import ClosedLoop, first_token
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
FIRST_TOKEN_ERROR: Final = 0.3  # chosen: how far off first tokens are by chance, as a logarithm
LEAST_MULTIPLE: Final = 0.1  # chosen: prompts take some time, however fast the engine
LEAST_PROMPT: Final = 0.05  # chosen: of the time to a first token
MOST_UNSURE: Final = 10.0  # chosen: as a logarithm, far beyond what anything is expected to be off
FOLDS: Final = 10  # chosen: with more, many runs take long; with fewer, too little is left to fit


@dataclass(frozen=True, slots=True)
class RunErrors(ClosedLoop):
    """Logarithms of predicted over measured, arrays [num_runs]."""


@dataclass(frozen=True, slots=True)
class Refit:
    """A calibration for runs of one engine, and how far off it is on them.

    before: by the calibration it started from; after: in sample; left_out: each run by fits that did not see it (NaN
    with fewer than two). rates_share, first_token_share: how far the fit was followed, from 0, which leaves rates or
    first tokens as they were, to 1.
    """

    calibration: Calibration
    before: RunErrors
    after: RunErrors
    left_out: RunErrors
    rates_share: float
    first_token_share: float

    @property
    def is_kept(self) -> bool:
        """Whether the runs left the calibration as it was."""
        return self.rates_share == self.first_token_share == 0.0


def refit(runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration) -> Refit:
    """`runs` of one engine; at least one run or layer profile. Raises ValueError where engines are mixed."""
    engines = {run.engine for run in runs}
    if len(engines) > 1:
        raise ValueError(f"runs of several engines ({', '.join(sorted(engines))}): calibrate each on its own")
    before, parts = errors(runs, start), _parts(len(runs))
    kept = [[run for i, run in enumerate(runs) if i not in part] for part in parts]
    roomy = [with_room(some) for some in kept]

    def left_out(found: Sequence[Calibration]) -> RunErrors:
        answers = (errors([runs[i] for i in part], one) for part, one in zip(parts, found, strict=True))
        return _joined(len(runs), parts, answers)

    moved = [_refitted(some, layer_runs, start) for some in kept]
    rates_share = _share(before.req_per_s, left_out(moved).req_per_s)
    followed = [_followed(start, one, rates_share) for one in moved]
    waiting = [_with_first_tokens(some, one, start) for some, one in zip(roomy, followed, strict=True)]
    first_token_share = _share(left_out(followed).ttft_s, left_out(waiting).ttft_s)
    ends = [
        _kriged(some, between(*both, first_token_share), start)
        for some, both in zip(roomy, zip(followed, waiting, strict=True), strict=True)
    ]
    found = _followed(start, _refitted(runs, layer_runs, start), rates_share)
    fitting = with_room(runs)
    found = _kriged(fitting, between(found, _with_first_tokens(fitting, found, start), first_token_share), start)
    return Refit(found, before, errors(runs, found), left_out(ends), rates_share, first_token_share)


def _followed(start: Calibration, moved: Calibration, share: float) -> Calibration:
    """What is so far on the way to the fit."""
    kernels = (start.kernels_at(*one.key) for one in moved.kernels)
    engines = {name: start.engine(name) for name in moved.engines}
    return between(replace(start, engines=engines, kernels=tuple(kernels)), moved, share)


def _parts(count: int) -> list[list[int]]:
    """Runs one by one, or in FOLDS parts of which every run is in one; none of a single run."""
    return [part.tolist() for part in np.array_split(np.arange(count), min(FOLDS, count))] if count > 1 else []


def _joined(count: int, parts: Sequence[list[int]], found: Iterable[RunErrors]) -> RunErrors:
    """In the order of runs; NaN where they are in no part."""
    out = RunErrors(*(np.full(count, np.nan) for _ in range(3)))
    for part, one in zip(parts, found, strict=True):
        out.req_per_s[part], out.ttft_s[part], out.tpot_s[part] = one.req_per_s, one.ttft_s, one.tpot_s
    return out


def _share(before: FloatArray, left_out: FloatArray) -> float:
    """Returns the share of the way from errors before to left-out ones at which their squares are least, runs that
    were far off counting for less; 1 where nothing was left out or off."""
    seen = np.isfinite(before) & np.isfinite(left_out)
    start, gain = before[seen], (before - left_out)[seen]
    weight = (LARGEST_LOG_ERROR / np.maximum(np.abs(start), LARGEST_LOG_ERROR)) ** 2
    way = float((weight * gain**2).sum())
    if way < 1e-12:
        return float(not start.any())
    return float(np.clip((weight * start * gain).sum() / way, 0.0, 1.0))


def errors(runs: Sequence[ServingRun], calibration: Calibration) -> RunErrors:
    """Returns how far off is what plans rest on, corrections included."""
    found = predict_corrected(runs, calibration)
    return RunErrors(*(_log_errors(runs, found, name) for name in ("req_per_s", "ttft_s", "tpot_s")))


def _log_errors(runs: Sequence[ServingRun], found: ClosedLoop, name: str) -> FloatArray:
    """NaN where nothing was measured: requests of a single token have no time between tokens."""
    measured = np.array([getattr(run, name) or np.nan for run in runs])
    return np.asarray(np.log(np.maximum(getattr(found, name), 1e-12) / measured))


def _refitted(runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], start: Calibration) -> Calibration:
    engine = runs[0].engine if runs else start.serves
    least_band = 1.0 if engine in start.engines else start.priors.engine_band
    roomy = with_room(runs)
    if not roomy:
        return replace(_fitted(roomy, layer_runs, start, engine), serves=engine)
    known = replace(with_kernels(start, roomy), engines=_with_engine(start, engine), serves=engine)
    found = _fitted(roomy, layer_runs, known, engine)
    return replace(found, corrections=_corrections(roomy, found, start, least_band))


def _corrections(
    runs: Sequence[ServingRun], calibration: Calibration, start: Calibration, least_band: float
) -> Corrections:
    """What the factors leave of the errors of rates, and of decode steps against prompts."""
    engine, points, left = runs[0].engine, points_of(runs, start), _errors_left(runs, calibration)
    rates = krige(calibration.correlation, engine, points, left, least_band=least_band)
    return replace(rates, phases=_phases(runs, calibration, start))


def _errors_left(runs: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    found = -_log_errors(runs, predict(run_groups(runs), calibration), "req_per_s")
    return np.clip(found, -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR)


def _phases(runs: Sequence[ServingRun], calibration: Calibration, start: Calibration) -> Corrections | None:
    """How much longer decode steps take against prompts than the factors say. A prompt is what first tokens do not
    wait for otherwise, and as unsure as that."""
    alone = [run for run in runs if run.tells_of_phases]
    if not alone:
        return None
    found, ttft_s, base_s = predict(run_groups(alone), calibration), _ttft_s(alone), _base_s(alone, calibration)
    prompts_s = np.maximum(ttft_s - base_s, LEAST_PROMPT * ttft_s)
    apart = -_log_errors(alone, found, "tpot_s") - np.log(prompts_s / found.prompt_s)
    noise = np.hypot(calibration.correlation.noise, np.minimum(base_s / prompts_s, MOST_UNSURE))
    surest = np.argsort(noise, kind="stable")[:MOST_POINTS]
    return restored(
        calibration.correlation,
        alone[0].engine,
        points_of([alone[i] for i in surest], start),
        np.clip(apart[surest], -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR),
        noise[surest],
        runs=len(alone),
        least_band=1.0,
    )


def _ttft_s(runs: Sequence[ServingRun]) -> FloatArray:
    return np.array([run.ttft_s for run in runs])


def _base_s(runs: Sequence[ServingRun], calibration: Calibration) -> float:
    return first_token(calibration.factors, calibration.engine(runs[0].engine)).base_s


def _kriged(runs: Sequence[ServingRun], calibration: Calibration, start: Calibration) -> Calibration:
    """With what its factors leave of the errors of rates as they are now: what first tokens wait for is part of the
    time of a request."""
    known = calibration.corrections
    if known is None or not runs:
        return calibration
    points = points_of(runs, start)
    if known.points.labels == points.labels and np.array_equal(known.points.log2, points.log2):
        found = replace(known.told(_errors_left(runs, calibration)), phases=_phases(runs, calibration, start))
    else:
        found = _corrections(runs, calibration, start, known.least_band)
    return replace(calibration, corrections=found.followed(known.share))


def _with_engine(start: Calibration, engine: str) -> dict[str, EngineFactors]:
    return {**start.engines, engine: start.engine(engine)}


def _with_first_tokens(runs: Sequence[ServingRun], moved: Calibration, start: Calibration) -> Calibration:
    """`moved` with what first tokens of the runs' engine wait for moved to their means."""
    waited = [run for run in runs if run.ttft_s > 0.0]
    if not waited:
        return moved
    waited = waited[:: -(-len(waited) // MOST_POINTS)]  # as many as are kriged one by one
    engine, alone = waited[0].engine, [run for run in waited if run.tells_of_phases]
    known = _kriged(waited, replace(moved, engines=_with_engine(moved, engine)), start)

    def found(calibration: Calibration) -> FloatArray:
        ttft_s = errors(waited, _kriged(waited, calibration, start)).ttft_s
        return np.concatenate([ttft_s, _first_tokens_alone(alone, calibration)]) / FIRST_TOKEN_ERROR

    chosen = [
        Parameter(f"engine:{engine}", name, spread, may_vanish=name in MAY_VANISH)
        for name, spread in FIRST_TOKEN_SPREAD.items()
    ]
    end = fitted(known, chosen, found, soft_l1_scale=SOFT_L1_SCALE, most_evaluations=20, tolerance=1e-3)
    return _kriged(runs, end, start)


def _first_tokens_alone(alone: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    """How far off first tokens are where nothing else runs, as logarithms, if prompts of any length take the same
    multiple of what is predicted: so what is waited for beside them is told from them."""
    if len(alone) < 2:
        return np.zeros(0)
    base_s, ttft_s = _base_s(alone, calibration), _ttft_s(alone)
    prompt_s = predict(run_groups(alone), calibration).prompt_s
    multiple = ((ttft_s - base_s) * prompt_s / ttft_s**2).sum() / ((prompt_s / ttft_s) ** 2).sum()
    return np.asarray(np.log((base_s + max(multiple, LEAST_MULTIPLE) * prompt_s) / ttft_s))


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
        return np.concatenate([scipy.linalg.solve_triangular(whiten, rates, lower=True), layers * layer_weight])

    engines = () if engine == REFERENCE_ENGINE or not runs else (engine,)
    rates = (one for one in parameters(start, runs, layer_runs, engines) if "first_token" not in one.name)
    movable = [*rates, *kernel_parameters(start, runs)]
    chosen = [replace(one, spread=one.spread * _reach(one, start)) for one in movable]
    return fitted(start, chosen, errors, soft_l1_scale=SOFT_L1_SCALE, most_evaluations=30, tolerance=1e-4)


def _reach(parameter: Parameter, start: Calibration) -> float:
    """How far a parameter may move, as a share of the range in which the shipped factors were sought; more for GPU
    classes nobody measured, and all of it for kernels, which a few models alone spoke for."""
    kind, _, name = parameter.place.partition(":")
    if kind == "kernels":
        return 1.0
    if kind != "class":
        return SPREAD
    band = next(one.band for one in start.gpu_classes if one.name == name)
    return SPREAD * float(start.spread(np.array(band)))


def _whitening(runs: Sequence[ServingRun], start: Calibration) -> FloatArray:
    """Returns the lower triangular [n, n] Cholesky factor of the covariance of the errors."""
    noise = start.correlation.noise**2 * np.eye(len(runs))
    return np.asarray(np.linalg.cholesky(covariance(start.correlation, points_of(runs, start)) + noise))
