"""How fast an engine is beside its estimate, by what it says of itself while it serves.

Flow: two readings of an engine's metrics -> OperatingPoint -> speed_errors (here) -> calibration/corrections.py.

Under random arrivals a request that decodes sees one more sequence than there are on average (the number of others
in an M/G/infinity queue is Poisson), so that requests of an engine with b in flight take as long as those of a closed
loop of b + 1. Of that the roofline says how long they should take.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import RunPoints, restored
from sutler.solver.calibration.factors import Calibration, GpuClass
from sutler.solver.catalog import load_gpus
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.throughput.latency import first_token
from sutler.solver.throughput.runs import ServingRun, points_of, predict, run_groups, sequences_that_fit

MOST_OVER: Final = 2.0  # chosen: times the sequences that fit by estimate, at their mean length
MOST_OUTSIDE: Final = 0.5  # chosen: of a request's time, what of it can be outside the engine's steps


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """What one engine of one stage did for a while. `sizes`: (input tokens, output tokens, requests) of what
    finished; `residence_s`: the mean time of a request without its wait for a place; `in_flight`: requests on
    average. `engine`: the name of its factors."""

    gpu: Gpu
    spec: ModelSpec
    precision: Precision
    kv_precision: Precision
    engine: str
    tensor_parallel: int
    sizes: tuple[tuple[float, float, float], ...]
    residence_s: float
    in_flight: float
    cached_fraction: float = 0.0

    @property
    def concurrency(self) -> float:
        """The closed loop whose requests take as long."""
        return self.in_flight + 1.0

    @property
    def requests(self) -> float:
        return sum(requests for _, _, requests in self.sizes)

    @property
    def mean_size(self) -> tuple[float, float]:
        """Input and output tokens of a request."""
        inputs, outputs = (sum(size[i] * size[2] for size in self.sizes) / self.requests for i in (0, 1))
        return inputs, outputs


def speed_errors(points: Sequence[OperatingPoint], calibration: Calibration) -> FloatArray:
    """Log of measured over estimated speed of each point, by the roofline of `calibration` without its runs; NaN
    where more were in flight than the memory can hold, so that what is told cannot be."""
    runs = [_run(point, inputs, outputs) for point in points for inputs, outputs, _ in point.sizes]
    expected_s = iter((np.array([run.concurrency for run in runs]) / _rates(runs, calibration)).tolist())
    found = np.empty(len(points))
    for at, point in enumerate(points):
        mean_s = sum(requests * next(expected_s) for _, _, requests in point.sizes) / point.requests
        outside_s = first_token(calibration.factors, calibration.engine(point.engine)).base_s
        inside_s = max(point.residence_s - outside_s, MOST_OUTSIDE * point.residence_s)
        room = MOST_OVER * sequences_that_fit(_run(point, *point.mean_size))
        found[at] = np.log(mean_s / inside_s) if point.in_flight <= room else np.nan
    return found


def log_rates(points: Sequence[OperatingPoint], calibration: Calibration) -> FloatArray:
    """Logs of the requests/s of closed loops at the points, with what the calibration's own runs say [n]."""
    return _log_rates(points, calibration) + corrected_errors(points, calibration)


def corrected_errors(points: Sequence[OperatingPoint], calibration: Calibration) -> FloatArray:
    """The same errors as the calibration's own runs have them there already; 0 without any."""
    if calibration.corrections is None or not points:
        return np.zeros(len(points))
    known = calibration.corrections.at(run_points(points, calibration))[0]
    return np.where([point.engine == calibration.corrections.engine for point in points], known, 0.0)


def learnt(
    points: Sequence[OperatingPoint],
    errors: FloatArray,
    noise: FloatArray,
    calibration: Calibration,
    *,
    name: str,
    readings: int,
) -> Calibration:
    """Returns the calibration with what these points say: `errors` [n] and their `noise` [n] as `speed_errors` has
    them, all of one engine.

    What the points on one class of GPUs share is taken for the speed of the whole class, so that it holds for other
    batches and sizes too; what is left of each is kriged beside the calibration's own runs, which stay as they were.
    """
    engine, known = points[0].engine, calibration.corrections
    of_class = _shared(points, errors, noise, calibration)
    moved = replace(
        calibration,
        gpu_classes=tuple(_faster(one, of_class.get(one.name, 0.0)) for one in calibration.gpu_classes),
        corrections=None,
    )
    left = errors - (_log_rates(points, moved) - _log_rates(points, calibration))
    places, least_band = run_points(points, moved), 1.0
    if engine not in calibration.engines:
        least_band = calibration.priors.engine_band
    if known is not None and known.engine == engine:
        own, least_band, readings = known.points, known.least_band, readings + known.runs
        gpus = {**load_gpus(), **{point.gpu.slug: point.gpu for point in points}}
        classes = {slug: calibration.gpu_class(gpu).name for slug, gpu in gpus.items()}
        shifted = [of_class.get(classes.get(gpu, ""), 0.0) for gpu, _, _ in own.labels]
        log2, spread = np.concatenate([own.log2, places.log2]), np.concatenate([own.spread, places.spread])
        places = RunPoints(log2, (*own.labels, *places.labels), spread)
        left = np.concatenate([known.share * known.errors - np.array(shifted), left])
        noise = np.concatenate([known.noise, noise])
    corrections = restored(calibration.correlation, engine, places, left, noise, runs=readings, least_band=least_band)
    if known is not None and known.engine == engine:  # engines do not tell prompts from decode steps
        corrections = replace(corrections, phases=known.phases)
    return replace(moved, corrections=corrections, serves=engine, name=name)


def _shared(
    points: Sequence[OperatingPoint], errors: FloatArray, noise: FloatArray, calibration: Calibration
) -> dict[str, float]:
    """The mean error by class of GPUs, each with the weight of what is known of it."""
    names = np.array([calibration.gpu_class(point.gpu).name for point in points])
    weights = 1.0 / noise**2
    return {
        str(name): float(np.average(errors[names == name], weights=weights[names == name]))
        for name in dict.fromkeys(names)
    }


def _faster(one: GpuClass, log_faster: float) -> GpuClass:
    faster = float(np.exp(log_faster))
    return replace(
        one, compute=one.compute * faster, bandwidth=one.bandwidth * faster, overhead=one.overhead / faster
    )


def _log_rates(points: Sequence[OperatingPoint], calibration: Calibration) -> FloatArray:
    return np.log(_rates([_run(point, *point.mean_size) for point in points], calibration))


def run_points(points: Sequence[OperatingPoint], calibration: Calibration) -> RunPoints:
    """Where the points lie among runs."""
    return points_of([_run(point, *point.mean_size) for point in points], calibration)


def _run(point: OperatingPoint, input_tokens: float, output_tokens: float) -> ServingRun:
    """The closed loop of one kind of its requests."""
    return ServingRun(
        gpu=point.gpu,
        spec=point.spec,
        precision=point.precision,
        kv_precision=point.kv_precision,
        engine=point.engine,
        tensor_parallel=point.tensor_parallel,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=point.concurrency,
        req_per_s=np.nan,
        ttft_s=np.nan,
        tpot_s=np.nan,
        cached_fraction=point.cached_fraction,
    )


def _rates(runs: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    return predict(run_groups(runs), calibration).req_per_s
