"""Fits the roofline's factors to measured runs; pure, so that a user's own runs can refit the shipped ones.

Flow: runs -> fit (here) -> Calibration; benchmarks/roofline_accuracy.py writes it to calibration.toml.

Least squares on logarithms (scipy.optimize.least_squares, soft-L1) of requests/s, TTFT, TPOT and layer times, with
a normal prior on the logarithm of every factor. GPU classes and engines are deviations from the shared factors with
priors centred on zero, so that a class with few rows stays close to the others and one without rows equals them
(partial pooling, Gelman & Hill 2007 ch. 12). Rows of one (GPU, model, precision, TP, engine) weigh as 15 together,
or a long sweep of one configuration would outvote the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from scipy.optimize import least_squares

from solver.catalog.entries import Gpu, ModelSpec, Precision
from solver.throughput.architecture import LayerWork, layer_work
from solver.throughput.base import FloatArray
from solver.throughput.composer import Composed
from solver.throughput.factors import Calibration, Engine, Factors, GpuClass
from solver.throughput.latency import Load, closed_loop, first_token
from solver.throughput.memory import stage_memory
from solver.throughput.stage_times import decode_layer_s, head_s, kernels_s, prefill_layer_s, stage_work
from solver.throughput.stages import RooflineStages, StageKinds

# Standard deviations of the priors, as logarithms: how far a factor may plausibly be from its prior mean.
FACTOR_SPREAD: Final = {
    "compute_fraction": 0.2,
    "fp8_fraction": 0.15,
    "fp4_fraction": 0.3,
    "attention_fraction": 0.4,
    "bandwidth_fraction": 0.1,
    "kv_bandwidth_fraction": 0.15,
    "ridge_exponent": 0.5,
    "allreduce_latency_s": 0.7,
    "allreduce_fraction": 0.4,
    "layer_overhead_s": 0.5,
    "step_overhead_s": 0.7,
    "sequence_overhead_s": 1.0,
    "kernel_overhead_fraction": 0.3,
    "first_token_base_s": 0.5,
    "first_token_prefills": 0.5,
    "first_token_wave_fraction": 0.5,
}
CLASS_SPREAD: Final = {"compute": 0.1, "bandwidth": 0.07, "overhead": 0.2}
ENGINE_SPREAD: Final = {
    "compute": 0.1,
    "kv_bandwidth": 0.15,
    "overhead": 0.2,
    "first_token_base": 0.5,
    "first_token_prefills": 0.5,
    "first_token_wave": 0.5,
}
WEIGHTS: Final = {"req_per_s": 3.0, "ttft_s": 0.5, "tpot_s": 1.5, "layer_s": 0.3}
ROWS_PER_GROUP: Final = 15.0
# Errors beyond a factor e are queues or failed runs, not speeds.
LARGEST_LOG_ERROR: Final = 1.0
SOFT_L1_SCALE: Final = 0.3
LARGEST_WEIGHT_FRACTION: Final = 0.9


@dataclass(frozen=True, slots=True)
class ServingRun:
    """One closed-loop run of one tensor-parallel replica. Latencies are means; `source` says where it is from."""

    gpu: Gpu
    spec: ModelSpec
    precision: Precision
    kv_precision: Precision
    engine: str
    tensor_parallel: int
    input_tokens: float
    output_tokens: float
    concurrency: float
    req_per_s: float
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Kernel time of one layer without attention and communication, for `tokens` tokens."""

    gpu: Gpu
    spec: ModelSpec
    precision: Precision
    tensor_parallel: int
    tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Arrays [num_runs]."""

    req_per_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that share model, precisions and engine, with what does not depend on the factors.

    index: positions in the caller's sequence; batch: what runs at once, by memory.
    """

    index: FloatArray
    kinds: StageKinds
    work: LayerWork
    precision: Precision
    engine: str
    new_tokens: FloatArray
    decode_steps: FloatArray
    context: FloatArray
    concurrency: FloatArray
    batch: FloatArray


def with_room(runs: Sequence[ServingRun]) -> list[ServingRun]:
    """Runs whose weights leave a good part of the memory for the cache. Of the others the rate says how much the
    engine reserved for itself, not how fast the GPU is."""
    return [run for run in runs if _weight_fraction(run) <= LARGEST_WEIGHT_FRACTION]


def _weight_fraction(run: ServingRun) -> float:
    work = layer_work(run.spec, run.precision, run.kv_precision)
    memory = stage_memory(work, _kinds([run]))
    weights = memory.first + memory.last - memory.tied + work.layers * memory.layer
    return float(weights[0] / memory.free[0])


def run_groups(runs: Sequence[ServingRun]) -> tuple[RunGroup, ...]:
    keys = [(run.spec.id, run.precision, run.kv_precision, run.engine) for run in runs]
    return tuple(
        _group(runs, np.array([i for i, one in enumerate(keys) if one == key])) for key in dict.fromkeys(keys)
    )


def _group(runs: Sequence[ServingRun], index: FloatArray) -> RunGroup:
    chosen = [runs[int(i)] for i in index]
    first = chosen[0]
    work = layer_work(first.spec, first.precision, first.kv_precision)
    kinds = _kinds(chosen)
    inputs = np.array([run.input_tokens for run in chosen])
    outputs = np.array([run.output_tokens for run in chosen])
    concurrency = np.array([run.concurrency for run in chosen])
    context = inputs + outputs / 2
    memory = stage_memory(work, kinds)
    free = memory.free - memory.first - memory.last + memory.tied - work.layers * memory.layer
    room = free / (work.layers * memory.kv * work.seen_context(context))
    return RunGroup(
        index=index,
        kinds=kinds,
        work=work,
        precision=first.precision,
        engine=first.engine,
        new_tokens=inputs,
        decode_steps=np.maximum(outputs - 1.0, 0.0),
        context=context,
        concurrency=concurrency,
        batch=np.clip(np.floor(room), 1.0, concurrency),
    )


def _kinds(runs: Sequence[ServingRun] | Sequence[LayerRun]) -> StageKinds:
    gpus = tuple({run.gpu.slug: run.gpu for run in runs}.values())
    position = {gpu.slug: i for i, gpu in enumerate(gpus)}
    return StageKinds(
        gpus=gpus,
        gpu=np.array([position[run.gpu.slug] for run in runs]),
        tensor_parallel=np.array([run.tensor_parallel for run in runs]),
        intra_gb_per_s=np.array([run.gpu.link_gb_per_s or 0.0 for run in runs]),
    )


def predict(groups: Sequence[RunGroup], calibration: Calibration) -> Predicted:
    """What the roofline says of every run, in the order they were grouped from."""
    size = sum(len(group.index) for group in groups)
    out = Predicted(np.empty(size), np.empty(size), np.empty(size))
    for group in groups:
        rate, ttft, tpot = _predict_group(group, calibration)
        out.req_per_s[group.index] = rate
        out.ttft_s[group.index] = ttft
        out.tpot_s[group.index] = tpot
    return out


def _predict_group(group: RunGroup, calibration: Calibration) -> tuple[FloatArray, FloatArray, FloatArray]:
    engine = calibration.engine(group.engine)
    source = RooflineStages(group.work, group.precision, calibration, engine)
    work, speeds = stage_work(group.work, group.kinds.tensor_parallel), source.speeds(group.kinds)
    pairs = group.work.attended_pairs(group.new_tokens, group.new_tokens)
    prefill = group.work.layers * prefill_layer_s(work, speeds, group.new_tokens, pairs) + head_s(
        work, speeds, np.ones_like(group.batch)
    )
    decode = group.work.layers * decode_layer_s(work, speeds, group.batch, group.work.seen_context(group.context))
    decode = decode + head_s(work, speeds, group.batch) + speeds.step_overhead_s
    rate = group.batch / (group.batch * prefill + group.decode_steps * decode)
    composed = Composed(rate, prefill, prefill, decode, np.zeros(len(rate), dtype=np.int64))
    loop = closed_loop(Load(composed, group.batch, group.decode_steps), first_token(calibration.factors, engine))
    queue = (group.concurrency - group.batch) / loop.rate_rps
    return loop.rate_rps, loop.ttft_s + queue, loop.tpot_s


def predict_layers(runs: Sequence[LayerRun], calibration: Calibration) -> FloatArray:
    """Seconds per layer [num_runs], in order."""
    out = np.empty(len(runs))
    keys = [(run.spec.id, run.precision) for run in runs]
    engine = next(iter(calibration.engines.values()))
    for key in dict.fromkeys(keys):
        index = np.array([i for i, one in enumerate(keys) if one == key])
        chosen = [runs[int(i)] for i in index]
        layer = layer_work(chosen[0].spec, chosen[0].precision, chosen[0].precision)
        kinds = _kinds(chosen)
        work = stage_work(layer, kinds.tensor_parallel)
        speeds = RooflineStages(layer, chosen[0].precision, calibration, engine).speeds(kinds)
        tokens = np.array([run.tokens for run in chosen])
        overhead = speeds.layer_overhead_s * calibration.factors.kernel_overhead_fraction
        out[index] = kernels_s(work, speeds, tokens) + overhead
    return out


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that is fitted, as the logarithm of its ratio to the prior mean."""

    place: str  # "factors", or the name of a GPU class ("class:hopper") or engine ("engine:vllm")
    name: str
    spread: float


def parameters(prior: Calibration, classes: Sequence[str], engines: Sequence[str]) -> tuple[Parameter, ...]:
    """The shared factors, and deviations of those classes and engines (the first engine is the reference)."""
    shared = [Parameter("factors", name, spread) for name, spread in FACTOR_SPREAD.items()]
    by_class = [Parameter(f"class:{one}", name, s) for one in classes for name, s in CLASS_SPREAD.items()]
    by_engine = [Parameter(f"engine:{one}", name, s) for one in engines for name, s in ENGINE_SPREAD.items()]
    return (*shared, *by_class, *by_engine)


def fit(
    runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], prior: Calibration, reference_engine: str
) -> Calibration:
    """`prior` with its factors, and the classes and engines that have runs, moved to fit them."""
    gpus = [run.gpu for run in runs] + [run.gpu for run in layer_runs]
    classes = dict.fromkeys(prior.gpu_class(gpu).name for gpu in gpus)
    fitted_engines = prior.engines.keys() - {reference_engine}
    engines = dict.fromkeys(run.engine for run in runs if run.engine in fitted_engines)
    chosen = parameters(prior, tuple(classes), tuple(engines))
    groups = run_groups(runs)
    weights = _row_weights(runs)
    spread = np.array([parameter.spread for parameter in chosen])
    observed = [
        np.log(np.array([run.req_per_s for run in runs])),
        np.log(np.array([run.ttft_s for run in runs])),
        np.log(np.array([run.tpot_s for run in runs])),
    ]
    layer_observed = np.log(np.array([run.seconds for run in layer_runs]))

    def residuals(moves: FloatArray) -> FloatArray:
        calibration = _moved(prior, chosen, moves)
        predicted = predict(groups, calibration)
        parts = [
            weight * weights * _log_error(values, seen)
            for weight, values, seen in zip(
                (WEIGHTS["req_per_s"], WEIGHTS["ttft_s"], WEIGHTS["tpot_s"]),
                (predicted.req_per_s, predicted.ttft_s, predicted.tpot_s),
                observed,
                strict=True,
            )
        ]
        layers = WEIGHTS["layer_s"] * (np.log(predict_layers(layer_runs, calibration)) - layer_observed)
        return np.concatenate([*parts, layers, moves / spread])

    solution = least_squares(
        residuals, np.zeros(len(chosen)), loss="soft_l1", f_scale=SOFT_L1_SCALE, max_nfev=40, xtol=1e-5, ftol=1e-5
    )
    return _moved(prior, chosen, solution.x)


def _row_weights(runs: Sequence[ServingRun]) -> FloatArray:
    keys = [(run.gpu.slug, run.spec.id, run.precision, run.tensor_parallel, run.engine) for run in runs]
    counts = {key: keys.count(key) for key in dict.fromkeys(keys)}
    return np.sqrt([ROWS_PER_GROUP / counts[key] for key in keys])


def _log_error(predicted: FloatArray, observed: FloatArray) -> FloatArray:
    error = np.log(np.maximum(predicted, 1e-12)) - observed
    return np.asarray(np.clip(error, -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR))


def _moved(prior: Calibration, chosen: Sequence[Parameter], moves: FloatArray) -> Calibration:
    """`prior` with every parameter multiplied by exp(move)."""
    factors, classes, engines = prior.factors, {one.name: one for one in prior.gpu_classes}, dict(prior.engines)
    for parameter, ratio in zip(chosen, np.exp(moves), strict=True):
        kind, _, name = parameter.place.partition(":")
        if kind == "factors":
            factors = _scaled(factors, parameter.name, ratio)
        elif kind == "class":
            classes[name] = _scaled(classes[name], parameter.name, ratio)
        else:
            engines[name] = _scaled(engines[name], parameter.name, ratio)
    return replace(prior, factors=factors, gpu_classes=tuple(classes.values()), engines=engines)


Scaled = TypeVar("Scaled", Factors, GpuClass, Engine)


def _scaled(entry: Scaled, name: str, ratio: float) -> Scaled:
    return replace(entry, **{name: getattr(entry, name) * float(ratio)})
