"""The questions that every source of throughput answers about a stage, and the roofline's answers.

A stage kind is a GPU type, a tensor-parallel degree, ranks of attention and the bandwidth inside its machine;
thousands of layouts share a few dozen kinds, so the answers are tables over kinds that composer.py reads. A further
source (an operator database, say) becomes a sibling of RooflineStages.
"""

from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.calibration.factors import Calibration, EngineFactors
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.problem import NO_GUESSES, Role, ServedModel, Speculation
from sutler.solver.throughput.architecture import LayerWork
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.speeds import arithmetic, stage_speeds
from sutler.solver.throughput.stage_times import (
    StageSpeeds,
    decode_layer_s,
    expand,
    head_s,
    prefill_layer_s,
    products_s,
    riding_layer_s,
    stage_work,
)

ROOFLINE: Final = "roofline"
# Factor on the band of tensor parallelism, since no run at hand had its experts spread: some GPUs get more tokens.
EXPERT_PARALLEL_BAND: Final = 1.2
# Chosen: no run with speculation is at hand, and how much is accepted hangs on what is written.
SPECULATION_BAND: Final = 1.2
BAND_BATCHES: Final = np.exp2(np.arange(11.0))


def nearest_band_batch(batch: FloatArray | IntArray) -> IntArray:
    """Index into BAND_BATCHES, of `batch`'s shape."""
    nearest = np.ceil(np.log2(np.maximum(batch, 1)) - 0.5)
    return np.asarray(np.minimum(nearest, len(BAND_BATCHES) - 1).astype(np.int64))


@dataclass(frozen=True, slots=True)
class StageKinds:
    """Distinct stages; arrays [num_kinds]. gpu indexes gpus; ranks: of attention (Layouts.data_parallel)."""

    gpus: tuple[Gpu, ...]
    gpu: IntArray
    tensor_parallel: IntArray
    intra_gb_per_s: FloatArray
    ranks: IntArray

    def __len__(self) -> int:
        return len(self.gpu)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The workloads of one model as arrays [W]. new_tokens are those whose KV is not cached already.

    `prefills`: whether prompts are computed here; decode replicas are handed their keys and values.
    """

    input_tokens: FloatArray
    output_tokens: FloatArray
    new_tokens: FloatArray
    prefills: bool = True

    @property
    def prefilled_tokens(self) -> FloatArray:
        return self.new_tokens if self.prefills else np.zeros_like(self.new_tokens)

    @property
    def mean_context(self) -> FloatArray:
        """Tokens a sequence holds on average while it decodes."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def full_context(self) -> FloatArray:
        return self.input_tokens + self.output_tokens

    @property
    def decode_steps(self) -> FloatArray:
        """The first token comes out of the prefill."""
        return np.maximum(self.output_tokens - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of one pass through a stage = layers x per_layer + per_pass, plus head on the last stage.

    Prefill: per_layer [num_kinds, W], head [num_kinds]. Decode: per_layer [num_kinds, W, num_batches], head
    [num_kinds, num_batches], for batches of 0, 1, 2, ... sequences. per_pass is [num_kinds].
    """

    per_layer: FloatArray
    per_pass: FloatArray
    head: FloatArray

    def scaled(self, factor: float) -> "StageSeconds":
        """The same, so many times as long."""
        return StageSeconds(self.per_layer * factor, self.per_pass * factor, self.head * factor)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a rate on one stage kind rests on: the name of its source, the version of its data, its title, and a
    sentence."""

    source: str
    version: str
    title: str
    sentence: str


class ModelStages(Protocol):
    """The questions for one model, and what preparing layouts and evidence ask beside them."""

    @property
    def work(self) -> LayerWork: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def calibration(self) -> Calibration: ...

    @property
    def engine(self) -> EngineFactors: ...

    def prefill(self, kinds: StageKinds, traffic: Traffic) -> StageSeconds:
        """One prompt of each workload, alone."""
        ...

    def decode(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> StageSeconds:
        """One decode step at the mean context of each workload, for 0 to max_batch sequences."""
        ...

    def products(self, kinds: StageKinds, tokens: FloatArray) -> FloatArray:
        """What of the seconds of a layer grows with the tokens of a step, but for attention [num_kinds, num_tokens]:
        of these many tokens [num_tokens]."""
        ...

    def riding(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> FloatArray:
        """Seconds per layer that one prompt of each workload adds to what 0 to max_batch sequences take that decode
        meanwhile [num_kinds, W, max_batch + 1]."""
        ...

    def bands(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """The error of rates as a factor [num_kinds, W, len(BAND_BATCHES)]."""
        ...

    def basis(self, kinds: StageKinds, traffic: Traffic, *, kind: int, workload: int, batch: float) -> Basis:
        """What one rate on one kind rests on."""
        ...


@dataclass(frozen=True, slots=True)
class StagesOver:
    """What sources that answer instead of another one, where they know better, share with it."""

    base: ModelStages

    @property
    def work(self) -> LayerWork:
        return self.base.work

    @property
    def precision(self) -> Precision:
        return self.base.precision

    @property
    def calibration(self) -> Calibration:
        return self.base.calibration

    @property
    def engine(self) -> EngineFactors:
        return self.base.engine


@dataclass(frozen=True, slots=True)
class RooflineStages:
    """The calibrated roofline behind the questions.

    With speculative decoding, a decode step stands for the part of one that gives every sequence one token.
    """

    work: LayerWork
    precision: Precision
    calibration: Calibration
    engine: EngineFactors
    speculation: Speculation = NO_GUESSES

    def prefill(self, kinds: StageKinds, traffic: Traffic) -> StageSeconds:
        """One rank computes the prompt, the others wait."""
        work, speeds = stage_work(self.work, kinds.tensor_parallel, kinds.ranks), self.speeds(kinds)
        pairs = self.work.attended_pairs(traffic.new_tokens, traffic.input_tokens)
        per_layer = prefill_layer_s(expand(work, 1), expand(speeds, 1), traffic.new_tokens, pairs)
        head = head_s(work, speeds, np.ones(len(kinds)))
        return StageSeconds(per_layer=per_layer, per_pass=np.zeros(len(kinds)), head=head)

    def products(self, kinds: StageKinds, tokens: FloatArray) -> FloatArray:
        """See ModelStages."""
        work, speeds = stage_work(self.work, kinds.tensor_parallel, kinds.ranks), self.speeds(kinds)
        return products_s(expand(work, 1), expand(speeds, 1), tokens)

    def riding(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> FloatArray:
        """See ModelStages; of several ranks one computes the prompt, the others wait."""
        work, speeds = stage_work(self.work, kinds.tensor_parallel, kinds.ranks), self.speeds(kinds)
        pairs = self.work.attended_pairs(traffic.new_tokens, traffic.input_tokens)
        return riding_layer_s(
            expand(work, 2),
            expand(speeds, 2),
            tokens=traffic.new_tokens[:, None],
            pairs=pairs[:, None],
            batch=np.arange(max_batch + 1) / kinds.ranks[:, None, None],
            steps=traffic.decode_steps[:, None],
            mixes=self.engine.mixes,
            checked=self.speculation.checked_tokens,
            share=self.speculation.seconds_per_token,
        )

    def decode(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> StageSeconds:
        """Ranks step together, so that they wait for the one with the most sequences."""
        work, speeds = stage_work(self.work, kinds.tensor_parallel, kinds.ranks, spread=True), self.speeds(kinds)
        ranks = kinds.ranks[:, None]
        batches = np.asarray(np.ceil(np.arange(max_batch + 1) / ranks) * ranks, dtype=np.float64)
        context = self.work.seen_context(traffic.mean_context)[:, None]
        checked = self.speculation.checked_tokens
        per_layer = decode_layer_s(expand(work, 2), expand(speeds, 2), batches[:, None], context, checked=checked)
        head = head_s(expand(work, 1), expand(speeds, 1), batches / ranks, checked=checked)
        of_step = StageSeconds(per_layer=per_layer, per_pass=speeds.step_overhead_s, head=head)
        return of_step.scaled(self.speculation.seconds_per_token)

    def bands(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """See ModelStages: by GPU class, and what the model, its precision and the engine make of it."""
        each = np.array(
            [
                self.calibration.band(
                    kinds.gpus[int(gpu)], self.precision, self.engine.name, has_experts=self.work.experts > 1
                )
                for gpu in kinds.gpu
            ]
        )
        each = np.where(kinds.ranks > 1, each * EXPERT_PARALLEL_BAND, each)
        each = each * SPECULATION_BAND if self.speculation.draft_tokens else each
        return np.broadcast_to(each[:, None, None], (len(kinds), len(traffic.input_tokens), len(BAND_BATCHES)))

    def basis(self, kinds: StageKinds, traffic: Traffic, *, kind: int, workload: int, batch: float) -> Basis:
        """See ModelStages."""
        gpu = kinds.gpus[int(kinds.gpu[kind])]
        sentence = f"{gpu.slug}: {self.calibration.gpu_class(gpu).basis}"
        if kinds.ranks[kind] > 1:
            sentence += ", no run with expert parallelism among them"
        if self.speculation.draft_tokens:
            sentence += f", {self.speculation.tokens_per_step:.2f} tokens a step by speculation"
        return Basis(ROOFLINE, self.calibration.version, "calibrated roofline", sentence)

    def speeds(self, kinds: StageKinds) -> StageSpeeds:
        speeds = stage_speeds(
            kinds.gpus, kinds.gpu, kinds.intra_gb_per_s, self.precision, self.calibration, self.engine
        )
        factors, overhead = self.calibration.factors, np.ones(len(kinds.gpus))
        if self.work.latent_attention:
            overhead *= factors.latent_attention_overhead
        if self.work.experts > 1:
            of_gpu = (self.calibration.kernels_of(self.engine.name, gpu, self.precision) for gpu in kinds.gpus)
            overhead *= factors.expert_overhead * np.array([one.expert_overhead for one in of_gpu])
        return replace(speeds, layer_overhead_s=speeds.layer_overhead_s * overhead[kinds.gpu])


def traffic_of(model: ServedModel, role: Role = "aggregated") -> Traffic:
    """Counts at least one input and one output token per request; a decode replica does at least one step for it."""
    least_output = 2.0 if role == "decode" else 1.0
    inputs = np.array([max(workload.input_tokens, 1.0) for workload in model.workloads])
    outputs = np.array([max(workload.output_tokens, least_output) for workload in model.workloads])
    cached = np.array([model.cached_fraction(workload) for workload in model.workloads])
    new = np.maximum(inputs * (1.0 - cached), 1.0)
    return Traffic(input_tokens=inputs, output_tokens=outputs, new_tokens=new, prefills=role != "decode")


def stage_kinds(layouts: Layouts) -> tuple[StageKinds, IntArray]:
    """The distinct stages of `layouts`, and which one each stage is [num_layouts, max_stages]; padding is
    num_kinds."""
    is_stage = layouts.gpu >= 0
    bandwidths, bandwidth = np.unique(layouts.intra_gb_per_s[is_stage], return_inverse=True)
    spread = np.broadcast_to(layouts.ranks[:, None], layouts.gpu.shape)[is_stage]
    base = int(spread.max(initial=0)) + 1
    degrees, degree = np.unique(layouts.tensor_parallel[is_stage] * base + spread, return_inverse=True)
    code = (layouts.gpu[is_stage] * len(degrees) + degree) * len(bandwidths) + bandwidth
    codes, kind = np.unique(code, return_inverse=True)
    rest, bandwidth_index = np.divmod(codes, max(len(bandwidths), 1))
    gpu, degree_index = np.divmod(rest, max(len(degrees), 1))
    tensor_parallel, ranks = np.divmod(degrees[degree_index], base)
    kinds = StageKinds(
        gpus=layouts.gpus,
        gpu=gpu.astype(np.int64),
        tensor_parallel=tensor_parallel,
        intra_gb_per_s=bandwidths[bandwidth_index],
        ranks=ranks,
    )
    index = np.full(layouts.gpu.shape, len(codes), dtype=np.int64)
    index[is_stage] = kind
    return kinds, index


def kind_errors(kinds: StageKinds, spec: ModelSpec, precision: Precision) -> tuple[str | None, ...]:
    """Why a stage of each kind cannot run the model at all, whatever its memory; None where it can."""
    rows = zip(kinds.gpu, kinds.tensor_parallel, kinds.ranks, kinds.intra_gb_per_s, strict=True)
    return tuple(
        _kind_error(kinds.gpus[gpu], int(tp), int(dp), float(intra), spec, precision) for gpu, tp, dp, intra in rows
    )


def _kind_error(
    gpu: Gpu, tp: int, dp: int, intra_gb_per_s: float, spec: ModelSpec, precision: Precision
) -> str | None:
    error = arithmetic(gpu, precision).error
    if error is not None:
        return error
    if tp < 1 or spec.heads % tp:
        return f"tensor parallel {tp} does not divide the {spec.heads} attention heads of {spec.id}"
    if spec.mla is None and spec.kv_heads % tp and tp % spec.kv_heads:
        return f"tensor parallel {tp} and the {spec.kv_heads} key/value heads of {spec.id} do not divide each other"
    if spec.linear_attention is not None and spec.linear_attention.key_heads % tp:
        heads = spec.linear_attention.key_heads
        return f"tensor parallel {tp} does not divide the {heads} heads of linear attention of {spec.id}"
    if tp * dp > 1 and not intra_gb_per_s > 0:
        name = f"tensor parallel {tp}" if dp == 1 else f"expert parallel {tp * dp}"
        return f"{name} on {gpu.slug} without a bandwidth between its GPUs: give intra_machine_gb_per_s"
    return _uneven_experts(spec, tp * dp) if dp > 1 else None


def _uneven_experts(spec: ModelSpec, gpus: int) -> str | None:
    if spec.moe is None:
        return f"{spec.id} has no experts to spread over {gpus} GPUs, which data parallel ranks of attention are for"
    if spec.moe.experts % gpus:
        return f"the {spec.moe.experts} experts of {spec.id} cannot be spread evenly over {gpus} GPUs"
    return None
