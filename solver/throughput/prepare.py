"""One model on many layouts, made ready to be composed: tables, layer splits, largest batches, error bands.

Flow: roofline.py and evidence.py -> prepare (here) -> stages.py, memory.py, split.py, composer.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.errors import InvalidProblemError
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.composer import Pairs, Pipelines, compose, pipelines, prefill_seconds, riding_seconds
from sutler.solver.throughput.latency import LimitOfEach
from sutler.solver.throughput.memory import (
    StageMemory,
    free_after_vocabulary,
    padded,
    sequences_in_memory,
    stage_memory,
)
from sutler.solver.throughput.mixes import offered_shares
from sutler.solver.throughput.roles import (
    Handover,
    asked_of,
    handing_over,
    limits_in,
    prompts_in_flight,
    share_of_limit,
)
from sutler.solver.throughput.split import BATCHES, SplitCosts, balanced_layers
from sutler.solver.throughput.stages import (
    ModelStages,
    StageKinds,
    Traffic,
    kind_errors,
    nearest_band_batch,
    stage_kinds,
    traffic_of,
)

# Sequences of pipelines that are priced (stage_costs): closer than those of splits, since memory decides by them what
# fits; chosen: between two of them room differs by a quarter at most, where pipelines are any good.
_PRICED_BATCHES: Final = (1, 8, 32, 64, 96, 128, 160, 200, 256)


@dataclass(frozen=True, slots=True)
class PreparedLayouts:
    """What does not depend on limits. Layouts are sorted by depth; order [num_layouts] is the caller's index.

    max_batch [num_layouts, W]: what memory, context length and errors leave of the engine's limit. fits
    [num_layouts]: weights and one sequence of some workload, or of all the context that servers are to accept.

    What the role of the layouts makes of the model: limits, share [W] of an end-to-end limit, handover.
    """

    order: IntArray
    layouts: Layouts
    kinds: StageKinds
    kind: IntArray
    errors: tuple[str | None, ...]
    layers: IntArray
    pipes: Pipelines
    max_batch: IntArray
    fits: BoolArray
    limits: tuple[LimitOfEach, ...]
    share: FloatArray
    handover: Handover


def prepare(
    model: ServedModel,
    layouts: Layouts,
    source: ModelStages,
    *,
    max_sequences: int,
    paged: bool = False,
) -> PreparedLayouts:
    """`paged`: memory holds each sequence at its mean instead of its full length, which is what an engine that
    admits sequences while pages are free reaches in a steady state; planning asks for the full length."""
    order = np.argsort(-(layouts.gpu >= 0).sum(axis=1), kind="stable")
    layouts = layouts.take(order)
    asked = asked_of(model, layouts.role)
    kinds, kind = stage_kinds(layouts)
    traffic, memory = traffic_of(asked, layouts.role), stage_memory(source.work, kinds)
    spec = known_spec(model)
    errors = kind_errors(kinds, spec, model.precision)
    broken: BoolArray = np.array([*(error is not None for error in errors), False], dtype=np.bool_)
    possible = ~broken[kind].any(axis=1) & are_linked(layouts)
    layers = layouts.layers
    if layers is None:
        layers = _balanced(asked, traffic, source, layouts, kinds, kind, memory)
    pipes = pipelines(
        layouts,
        kinds=kinds,
        kind=kind,
        layers=layers,
        traffic=traffic,
        source=source,
        max_batch=max_sequences,
    )
    held = traffic.mean_context if paged else traffic.full_context

    def in_cache(tokens: FloatArray) -> FloatArray:
        return sequences_in_memory(memory, kind, layers, pipes.stages, source.work.held_context(tokens))

    in_memory = np.floor(np.minimum(in_cache(held), max_sequences)) * layouts.ranks[:, None]
    in_memory = in_memory * np.equal(layers.sum(axis=1, keepdims=True), spec.layers)
    in_context = traffic.full_context <= spec.max_context_tokens
    # vLLM refuses to start where one sequence of max_model_len exceeds the cache
    wanted = float(model.max_context_tokens or 0)
    holds_context = (in_cache(np.array([wanted]))[:, 0] >= 1) if wanted else np.ones(len(layers), dtype=np.bool_)
    running = np.minimum(in_memory, max_sequences)
    if layouts.role == "prefill":
        running = np.minimum(running, prompts_in_flight(traffic.new_tokens, pipes.stages))
    batch = running * np.logical_and(np.reshape(possible, (-1, 1)), in_context)
    return PreparedLayouts(
        order=order,
        layouts=layouts,
        kinds=kinds,
        kind=kind,
        errors=errors,
        layers=layers,
        pipes=pipes,
        max_batch=batch.astype(np.int64),
        fits=possible & (in_memory >= 1).any(axis=1) & holds_context,
        limits=limits_in(model, layouts.role),
        share=share_of_limit(model, layouts.role),
        handover=_handover(model, layouts, layers, source, pipes),
    )


def _handover(
    model: ServedModel, layouts: Layouts, layers: IntArray, source: ModelStages, pipes: Pipelines
) -> Handover:
    shape = (len(layouts), len(model.workloads))
    alone_s, activation_s = np.zeros(shape), np.zeros(shape)
    if layouts.role != "aggregated":
        pairs = Pairs(np.repeat(np.arange(shape[0]), shape[1]), np.tile(np.arange(shape[1]), shape[0]))
        with np.errstate(invalid="ignore"):  # no tokens over no link, where a layout cannot run anyway
            alone_s = compose(pipes, pairs, np.ones(len(pairs))).prefill_s.reshape(shape)
        tokens = pipes.traffic.prefilled_tokens + pipes.traffic.decode_steps
        across = np.where(layouts.cross_machine.T, pipes.hop_s_per_token, 0.0).max(axis=0)
        activation_s = across[:, None] * tokens
    priors = source.calibration.priors
    return handing_over(model, layouts, layers, source.work, priors, prefill_s=alone_s, activation_s=activation_s)


def stated_bands(
    prepared: PreparedLayouts, source: ModelStages, batch: IntArray, rows: IntArray | None = None
) -> FloatArray:
    """The error of every rate as a factor [num_layouts, W] at `batch` of that shape: the widest among what a layout
    rests on. In the order of `prepared`, or of its layouts `rows`."""
    kinds = prepared.kind if rows is None else prepared.kind[rows]
    of_kind = source.bands(prepared.kinds, prepared.pipes.traffic)
    of_kind = np.concatenate([of_kind, np.ones((1, *of_kind.shape[1:]))])
    at, workload = nearest_band_batch(batch), np.arange(batch.shape[1])[None, :]
    is_pipeline = (kinds < len(prepared.kinds)).sum(axis=1) > 1
    widest = np.where(is_pipeline, source.calibration.priors.pipeline_band, 1.0)[:, None]
    for stage in kinds.T:
        widest = np.maximum(widest, of_kind[stage[:, None], workload, at])
    return np.asarray(widest)


def are_linked(layouts: Layouts) -> BoolArray:
    """Whether every stage has a bandwidth to the next [num_layouts]."""
    has_next = np.zeros(layouts.gpu.shape, dtype=np.bool_)
    has_next[:, :-1] = layouts.gpu[:, 1:] >= 0
    return np.asarray(np.all(~has_next | (layouts.hop_gb_per_s > 0), axis=1))


def known_spec(model: ServedModel) -> ModelSpec:
    """Raises InvalidProblemError where the architecture is unknown."""
    if model.spec is None:
        remedy = "give a catalogue model or an inline architecture, or use measured rates only"
        raise InvalidProblemError("models[].model", model.name, remedy)
    return model.spec


def _balanced(
    model: ServedModel,
    traffic: Traffic,
    source: ModelStages,
    layouts: Layouts,
    kinds: StageKinds,
    kind: IntArray,
    memory: StageMemory,
) -> IntArray:
    """Layer splits for the mean request of the model's traffic [num_layouts, max_stages]."""
    costs = _split_costs(
        model, traffic, source, kinds, memory, offered_shares(model), deepest=kind.shape[1], batches=BATCHES
    )
    stages = (layouts.gpu >= 0).sum(axis=1)
    return balanced_layers(costs, kind, stages, free_after_vocabulary(memory, kind, stages), source.work.layers)


def _split_costs(
    model: ServedModel,
    traffic: Traffic,
    source: ModelStages,
    kinds: StageKinds,
    memory: StageMemory,
    shares: FloatArray,
    *,
    deepest: int,
    batches: Sequence[int],
) -> SplitCosts:
    """What layers cost for the mean of requests in these `shares` [W], in pipelines of up to `deepest` stages."""
    typical = Traffic(
        input_tokens=np.array([shares @ traffic.input_tokens]),
        output_tokens=np.array([shares @ traffic.output_tokens]),
        new_tokens=np.array([shares @ traffic.new_tokens]),
        prefills=traffic.prefills,
    )
    prefill = prefill_seconds(source, kinds, typical)
    riding = riding_seconds(source, kinds, typical, max_batch=max(batches))
    decode = source.decode(kinds, typical, max_batch=max(batches))
    steps = float(typical.decode_steps[0])
    contexts = [*typical.full_context, *traffic.full_context, *filter(None, [model.max_context_tokens])]
    held = source.work.held_context(np.array(contexts))
    kv, state = padded(memory.kv), padded(memory.state)
    micro = np.maximum(np.array(batches) // np.arange(1, deepest + 1)[:, None], 1)  # of pipelines, by stages
    return SplitCosts(
        layer_s=padded(riding[:, 0, micro] + steps * (decode.per_layer[:, 0, micro] / micro)),
        head_s=padded(prefill.head[:, None, None] + steps * (decode.head[:, micro] / micro)),
        layer_bytes=padded(memory.layer),
        sequence_bytes=kv * held[0] + state,
        longest_bytes=kv * held[1:].max() + state,
        shortest_bytes=kv * held[1:].min() + state,
    )


@dataclass(frozen=True, slots=True)
class StageCosts:
    """What one layer costs a pipeline on each of T stages, for R kinds of requests and B numbers of sequences.

    shares [R, W]: of the requests of a kind. layer_s [R, T, stages, B]: seconds per request, by the stages that the
    pipeline has, less 1. room_layers [R, T, B]: layers at most, as memory allows; 0 of a stage that cannot run.
    """

    shares: FloatArray
    layer_s: FloatArray
    room_layers: IntArray
    layers: int


def stage_costs(model: ServedModel, layouts: Layouts, source: ModelStages, *, deepest: int) -> StageCosts:
    """Of layouts of a single stage each, as stages of pipelines of up to `deepest`: for the requests as they are
    offered, and for each workload alone."""
    asked = asked_of(model, layouts.role)
    kinds, kind = stage_kinds(layouts)
    kind = kind[:, 0]
    traffic, memory = traffic_of(asked, layouts.role), stage_memory(source.work, kinds)
    able = np.array([error is None for error in kind_errors(kinds, known_spec(model), model.precision)])
    shares = np.unique(np.vstack([offered_shares(model), np.eye(len(model.workloads))]), axis=0)
    each = [
        _split_costs(asked, traffic, source, kinds, memory, one, deepest=deepest, batches=_PRICED_BATCHES)
        for one in shares
    ]
    held = [
        np.maximum(np.multiply.outer(one.sequence_bytes, _PRICED_BATCHES), one.longest_bytes[:, None]) for one in each
    ]
    room = [memory.free[kind, None] / (memory.layer[:, None] + one[:-1])[kind] for one in held]
    return StageCosts(
        shares=shares,
        layer_s=np.array([one.layer_s[kind] for one in each]),
        room_layers=np.floor(np.maximum(room, 0.0) * able[kind, None]).astype(np.int64),
        layers=source.work.layers,
    )
