"""Measured runs, and what the roofline says of exactly those: what fitting compares.

Flow: a user's profiles or the benchmarks' tables -> ServingRun, LayerRun -> predict (here) -> calibrate.py, refit.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import RunPoints
from sutler.solver.calibration.factors import Calibration
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.throughput.architecture import LayerWork, layer_work
from sutler.solver.throughput.composer import Composed
from sutler.solver.throughput.latency import ClosedLoop, closed_loop, first_token
from sutler.solver.throughput.memory import stage_memory
from sutler.solver.throughput.stage_times import (
    StageSpeeds,
    StageWork,
    decode_attention_s,
    decode_layer_s,
    head_s,
    kernels_s,
    prefill_attention_s,
    prefill_layer_s,
    riding_layer_s,
    stage_work,
)
from sutler.solver.throughput.stages import RooflineStages, StageKinds

MOST_ALONE: Final = 1.5  # requests in flight
LARGEST_WEIGHT_FRACTION: Final = 0.9  # chosen: of the usable memory; beyond, a per cent of it moves the batch by ten


@dataclass(frozen=True, slots=True)
class ServingRun:
    """One run of one tensor-parallel replica: a closed loop, or a static batch of `concurrency` requests that start
    together, where `req_per_s` is their number over the time until the last token. Latencies are means, NaN where
    they were not measured. `engine`: the name of its factors, which stand for several versions; `version`: the one
    that ran, as its source states it, "" where it does not. `cached_fraction`: what of the prompts was in the prefix
    cache."""

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
    is_static: bool = False
    version: str = ""
    cached_fraction: float = 0.0

    @property
    def tells_of_phases(self) -> bool:
        """Whether its latencies are those of a prompt and of decode steps alone: nothing of others comes between."""
        return not self.is_static and self.concurrency < MOST_ALONE and self.tpot_s > 0.0 and self.ttft_s > 0.0


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Kernel time of one layer without communication, for `tokens` tokens.

    Without attention, unless it is of a prefill over so many (query, key) pairs, or of a decode step whose sequences
    see so many tokens together.
    """

    gpu: Gpu
    spec: ModelSpec
    precision: Precision
    tensor_parallel: int
    tokens: float
    seconds: float
    prefill_pairs: float = 0.0
    decode_seen: float = 0.0


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that share model, precisions, engine and kind, with what does not depend on the factors.

    index: positions in the caller's sequence; batch: what runs at once, by memory; new_tokens: of the prompt_tokens,
    those that are not in the prefix cache.
    """

    index: FloatArray
    kinds: StageKinds
    work: LayerWork
    precision: Precision
    engine: str
    new_tokens: FloatArray
    prompt_tokens: FloatArray
    decode_steps: FloatArray
    context: FloatArray
    concurrency: FloatArray
    batch: FloatArray
    is_static: bool


def with_room(runs: Sequence[ServingRun]) -> list[ServingRun]:
    """Runs whose weights leave a good part of the memory for the cache. Of the others the rate says how much the
    engine reserved for itself, not how fast the GPU is."""
    return [run for run in runs if _weight_fraction(run) <= LARGEST_WEIGHT_FRACTION]


def sequences_that_fit(run: ServingRun) -> float:
    """How many of the run's requests the cache holds at once, at the mean of what they hold."""
    [group] = run_groups([replace(run, concurrency=np.inf)])
    return float(group.batch[0])


def _weight_fraction(run: ServingRun) -> float:
    work = layer_work(run.spec, run.precision, run.kv_precision)
    memory = stage_memory(work, _kinds([run]))
    weights = memory.vocabulary + memory.vocabulary - memory.tied + work.layers * memory.layer
    return float(weights[0] / memory.free[0])


def run_groups(runs: Sequence[ServingRun]) -> tuple[RunGroup, ...]:
    keys = [(run.spec.id, run.precision, run.kv_precision, run.engine, run.is_static) for run in runs]
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
    free = memory.free - memory.vocabulary - memory.vocabulary + memory.tied - work.layers * memory.layer
    room = free / (work.layers * memory.kv * (work.held_context(context) + memory.state / memory.kv))
    return RunGroup(
        index=index,
        kinds=kinds,
        work=work,
        precision=first.precision,
        engine=first.engine,
        new_tokens=inputs * (1.0 - np.array([run.cached_fraction for run in chosen])),
        prompt_tokens=inputs,
        decode_steps=np.maximum(outputs - 1.0, 0.0),
        context=context,
        concurrency=concurrency,
        batch=np.clip(np.floor(room), 1.0, concurrency),
        is_static=first.is_static,
    )


def _kinds(runs: Sequence[ServingRun] | Sequence[LayerRun]) -> StageKinds:
    gpus = tuple({run.gpu.slug: run.gpu for run in runs}.values())
    position = {gpu.slug: i for i, gpu in enumerate(gpus)}
    return StageKinds(
        gpus=gpus,
        gpu=np.array([position[run.gpu.slug] for run in runs]),
        tensor_parallel=np.array([run.tensor_parallel for run in runs]),
        intra_gb_per_s=np.array([run.gpu.link_gb_per_s or 0.0 for run in runs]),
        ranks=np.ones(len(runs), dtype=np.int64),
    )


def points_of(runs: Sequence[ServingRun], calibration: Calibration) -> RunPoints:
    """Returns where the runs lie, for what is kriged."""
    lengths = [(run.input_tokens, run.output_tokens, run.concurrency, run.tensor_parallel) for run in runs]
    bands = [
        calibration.band(run.gpu, run.precision, run.engine, has_experts=run.spec.moe is not None) for run in runs
    ]
    return RunPoints(
        log2=np.log2(np.maximum(np.array(lengths, dtype=np.float64).reshape(-1, 4), 1.0)),
        labels=tuple((run.gpu.slug, run.spec.id, run.precision) for run in runs),
        spread=calibration.spread(np.array(bands)),
    )


def predict_corrected(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """What plans rest on: the roofline, corrected by what the calibration's own runs say near these."""
    found, corrections = predict(run_groups(runs), calibration), calibration.corrections
    if corrections is None or not runs:
        return found
    is_known = np.array([run.engine == corrections.engine for run in runs])
    points = points_of(runs, calibration)
    slower = np.exp(-corrections.mean(points))
    factors = (slower, *corrections.split(points, slower, found.stepping_fraction))
    whole, prompts, steps = (np.where(is_known, one, 1.0) for one in factors)
    engine = calibration.engine(corrections.engine)
    # What is outside the steps of the engine takes as long as ever.
    outside_s = np.minimum(first_token(calibration.factors, engine).base_s, found.ttft_s)
    started_s = (found.ttft_s - outside_s) * prompts
    tokens = np.array([run.output_tokens - 1.0 for run in runs])
    rest_s = whole * (found.ttft_s - outside_s + tokens * found.tpot_s) - started_s
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_s = np.where(tokens > 0, rest_s / tokens, found.tpot_s * steps)
    return ClosedLoop(found.req_per_s / whole, outside_s + started_s, tpot_s)


@dataclass(frozen=True, slots=True)
class Predicted(ClosedLoop):
    """Of runs, arrays [num_runs]. stepping_fraction: what of the time within the engine are a request's own decode
    steps; prompt_s: seconds of a prompt that is alone there."""

    stepping_fraction: FloatArray
    prompt_s: FloatArray


def predict(groups: Sequence[RunGroup], calibration: Calibration) -> Predicted:
    """What the roofline alone says of every run, in the order they were grouped from."""
    size = sum(len(group.index) for group in groups)
    out = Predicted(*(np.empty(size) for _ in fields(Predicted)))
    for group in groups:
        loop = _predict_group(group, calibration)
        for one in fields(Predicted):
            getattr(out, one.name)[group.index] = getattr(loop, one.name)
    return out


def _predict_group(group: RunGroup, calibration: Calibration) -> Predicted:
    engine = calibration.engine(group.engine)
    source = RooflineStages(group.work, group.precision, calibration, engine)
    work, speeds = stage_work(group.work, group.kinds.tensor_parallel), source.speeds(group.kinds)
    pairs = group.work.attended_pairs(group.new_tokens, group.prompt_tokens)
    riding = group.work.layers * riding_layer_s(
        work,
        speeds,
        tokens=group.new_tokens,
        pairs=pairs,
        batch=group.batch,
        steps=group.decode_steps,
        mixes=engine.mixes,
    )
    prefill = group.work.layers * prefill_layer_s(work, speeds, group.new_tokens, pairs) + head_s(
        work, speeds, np.ones_like(group.batch)
    )
    decode = group.work.layers * decode_layer_s(work, speeds, group.batch, group.work.seen_context(group.context))
    head = head_s(work, speeds, group.batch)
    if group.is_static:
        return _static_batch(group, work, speeds, pairs, decode_s=decode + head + speeds.step_overhead_s)
    decode, riding = decode + head + speeds.step_overhead_s, riding + head / group.batch
    alone = prefill + group.decode_steps * decode
    rate = 1.0 / np.maximum(riding + group.decode_steps * decode / group.batch, alone / group.batch)
    composed = Composed(rate, prefill, prefill, riding, decode, np.zeros(len(rate), dtype=np.int64))
    loop = closed_loop(composed, group.batch, group.decode_steps, first_token(calibration.factors, engine))
    queue = (group.concurrency - group.batch) / loop.req_per_s
    stepping = group.decode_steps * decode * rate / group.batch
    return Predicted(loop.req_per_s, loop.ttft_s + queue, loop.tpot_s, stepping, prefill)


def _static_batch(
    group: RunGroup, work: StageWork, speeds: StageSpeeds, pairs: FloatArray, *, decode_s: FloatArray
) -> Predicted:
    """All prompts, then the tokens of all, as many times as memory makes waves of them."""
    prompts_s = group.work.layers * prefill_layer_s(work, speeds, group.batch * group.new_tokens, group.batch * pairs)
    ttft = prompts_s + head_s(work, speeds, group.batch) + speeds.step_overhead_s
    waves = np.ceil(group.concurrency / group.batch)
    rate = group.concurrency / (waves * (ttft + group.decode_steps * decode_s))
    unmeasured = np.full(len(rate), np.nan)
    return Predicted(rate, unmeasured, unmeasured, np.zeros(len(rate)), unmeasured)


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
        attention = prefill_attention_s(work, speeds, np.array([run.prefill_pairs for run in chosen]))
        attention += decode_attention_s(work, speeds, np.array([run.decode_seen for run in chosen]))
        out[index] = kernels_s(work, speeds, tokens) + overhead + attention
    return out
