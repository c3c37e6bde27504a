"""The roofline itself: seconds of one layer's prefill and decode step, elementwise over arrays.

Flow: architecture.py and speeds.py -> StageWork, StageSpeeds -> seconds (here) -> stages.py builds the tables that
the composer reads; calibrate.py calls the same functions on measured rows.

Per layer, with p the ridge exponent:

    gemm(n)     = (compute^p + memory^p)^(1/p)      compute = flops(n) / speed, memory = weights read / bandwidth
    products(n) = gemm(n) + activations + all-reduced bytes
    prefill(n)  = products(n) + latency and overhead + causal attention
    decode(b)   = products(b) + latency and overhead + max(KV read, attention operations) + states read and written

A step that carries m tokens of prompts beside the tokens of b sequences reads the weights once and takes
products(m + b) - products(b) longer than one without them (Sarathi-Serve, arXiv 2403.02310 §4.2: piggybacking).

Layers with linear attention add operations to a prefill and their states to a decode step.

The roofline is Williams, Waterman & Patterson (2009); a ring all-reduce moves 2 (tp - 1) / tp of the message per GPU
(Patarasuk & Yuan 2009), twice per layer (Megatron-LM, arXiv 1909.08053 §3). A batch of b tokens meets
E (1 - (1 - k/E)^b) of E experts when every token picks k of them evenly.

With attention data parallelism every rank of tp GPUs computes attention and dense parts for its own sequences, and
the experts stand on the GPUs of all dp ranks. Then the tokens of all are gathered before the experts, and what these
make of them is reduced and scattered back (docs.vllm.ai/en/latest/serving/expert_parallel_deployment, the default):
on rings 2 (dp - 1) / dp of all their hidden states per GPU, as in the two halves of an all-reduce.
"""

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.throughput.architecture import ACTIVATION_BYTES, LayerWork

# Tokens that pass through a layer at once (vLLM's max_num_batched_tokens for online serving).
CHUNK_TOKENS = 2048.0
# Reads and writes of the hidden state per layer outside the GEMMs: two norms with residual (three each) and two
# GEMM results (one each).
HIDDEN_PASSES = 8.0


@dataclass(frozen=True, slots=True)
class StageWork:
    """What one GPU of a stage does per layer; arrays of one shape [num_kinds]. Flops and bytes are per token
    (dense_bytes, expert_bytes and head_bytes: per pass; state_bytes: per sequence)."""

    dense_flops: FloatArray
    expert_flops: FloatArray
    dense_bytes: FloatArray
    expert_bytes: FloatArray
    experts: FloatArray
    experts_per_token: FloatArray
    activation_bytes: FloatArray
    allreduce_bytes: FloatArray
    allreduce_doublings: FloatArray
    attention_flops: FloatArray
    decode_attention_flops: FloatArray
    kv_bytes: FloatArray
    state_bytes: FloatArray
    state_flops: FloatArray
    head_bytes: FloatArray
    head_flops: FloatArray


@dataclass(frozen=True, slots=True)
class StageSpeeds:
    """What one GPU of a stage reaches; arrays of one shape [num_kinds]. Rates are per second."""

    flops: FloatArray
    expert_flops: FloatArray
    attention_flops: FloatArray
    bandwidth: FloatArray
    expert_bandwidth: FloatArray
    kv_bandwidth: FloatArray
    allreduce_bandwidth: FloatArray
    allreduce_latency_s: FloatArray
    layer_overhead_s: FloatArray
    step_overhead_s: FloatArray
    sequence_overhead_s: FloatArray
    ridge_exponent: FloatArray


def stage_work(
    work: LayerWork, tensor_parallel: IntArray, data_parallel: IntArray | None = None, *, spread: bool = False
) -> StageWork:
    """Divides a layer over `tensor_parallel` [num_kinds] GPUs, and its experts over those of `data_parallel` ranks.

    `spread`: tokens belong to all ranks evenly, else to one of them.
    """
    tp = np.maximum(tensor_parallel, 1).astype(np.float64)
    dp = np.ones_like(tp) if data_parallel is None else data_parallel.astype(np.float64)
    own = 1.0 / dp if spread else np.ones_like(tp)  # share of the tokens on the busiest rank
    ones = np.ones_like(tp)
    expert_share = work.experts_per_token / work.experts
    message = ACTIVATION_BYTES * work.hidden_size
    return StageWork(
        dense_flops=own * 2.0 * work.dense_params / tp,
        expert_flops=2.0 * work.expert_params * expert_share / (tp * dp),
        dense_bytes=work.dense_params * work.weight_bytes / tp,
        expert_bytes=work.expert_params * work.weight_bytes / (tp * dp),
        experts=work.experts * ones,
        experts_per_token=work.experts_per_token * ones,
        activation_bytes=own * ACTIVATION_BYTES * (HIDDEN_PASSES * work.hidden_size + work.activation_width / tp),
        allreduce_bytes=message * 2.0 * (own * 2.0 * (tp - 1.0) / tp + (dp - 1.0) / dp),
        allreduce_doublings=2.0 * np.log2(tp) + np.log2(dp),
        attention_flops=own * work.attention_flops / tp,
        decode_attention_flops=own * work.decode_attention_flops / tp,
        kv_bytes=own * work.kv_bytes_per_token(tensor_parallel),
        state_bytes=own * work.state_bytes / tp,
        state_flops=own * work.state_flops / tp,
        head_bytes=work.head_params * ACTIVATION_BYTES / tp,
        head_flops=2.0 * work.head_params / tp,
    )


Arrays = TypeVar("Arrays", StageWork, StageSpeeds)


def expand(arrays: Arrays, dimensions: int) -> Arrays:
    """The same arrays with `dimensions` trailing axes of length 1, to broadcast over workloads and batches."""
    shape = (..., *([None] * dimensions))
    return type(arrays)(**{field.name: getattr(arrays, field.name)[shape] for field in fields(arrays)})


def gemm_s(work: StageWork, speeds: StageSpeeds, tokens: FloatArray) -> FloatArray:
    """The matrix products of one layer on `tokens` tokens."""
    compute = tokens * (work.dense_flops / speeds.flops + work.expert_flops / speeds.expert_flops)
    share = work.experts_per_token / work.experts
    met = 1.0 - np.maximum(1.0 - share, 1e-300) ** tokens  # one expert is always met
    memory = work.dense_bytes / speeds.bandwidth + work.expert_bytes * met / speeds.expert_bandwidth
    bound = np.maximum(compute, memory)
    ratio = np.minimum(compute, memory) / bound
    return np.asarray(bound * (1.0 + ratio**speeds.ridge_exponent) ** (1.0 / speeds.ridge_exponent))


def kernels_s(work: StageWork, speeds: StageSpeeds, tokens: FloatArray) -> FloatArray:
    """Matrix products and the elementwise work between them, without launch overheads."""
    return np.asarray(gemm_s(work, speeds, tokens) + tokens * work.activation_bytes / speeds.bandwidth)


def products_s(work: StageWork, speeds: StageSpeeds, tokens: FloatArray) -> FloatArray:
    """What grows with the tokens of a step, but for attention."""
    return np.asarray(kernels_s(work, speeds, tokens) + tokens * work.allreduce_bytes / speeds.allreduce_bandwidth)


def fixed_s(work: StageWork, speeds: StageSpeeds) -> FloatArray:
    """What every step takes of a layer, whatever it carries."""
    return np.asarray(work.allreduce_doublings * speeds.allreduce_latency_s + speeds.layer_overhead_s)


def shared_s(work: StageWork, speeds: StageSpeeds, tokens: FloatArray) -> FloatArray:
    """What prefill and decode have in common: everything but attention."""
    return np.asarray(products_s(work, speeds, tokens) + fixed_s(work, speeds))


def prefill_layer_s(work: StageWork, speeds: StageSpeeds, tokens: FloatArray, pairs: FloatArray) -> FloatArray:
    """One layer's prefill of `tokens` new tokens that attend to `pairs` (query, key) pairs."""
    states = tokens * work.state_flops / speeds.attention_flops
    return np.asarray(shared_s(work, speeds, tokens) + prefill_attention_s(work, speeds, pairs) + states)


def riding_layer_s(
    work: StageWork,
    speeds: StageSpeeds,
    *,
    tokens: FloatArray,
    pairs: FloatArray,
    batch: FloatArray,
    steps: FloatArray,
    mixes: bool,
    checked: int = 1,
    share: float = 1.0,
) -> FloatArray:
    """What a prompt adds to one layer of a replica on which `batch` sequences run, each for `steps` decode steps: a
    `share` of one with `checked` tokens of each sequence.

    As many prompts as come while each sequence makes a step share one, at most CHUNK_TOKENS of all tokens; where
    there are more of such steps than sequences make, fewer sequences than `batch` decode beside them. An engine that
    does not mix (`mixes` False) gives prompts steps of their own."""
    batch = np.maximum(batch, 1.0)
    own_steps = steps / batch * mixes
    beside = np.minimum(batch, steps * CHUNK_TOKENS / (tokens + steps)) * mixes
    carried = np.maximum(tokens, tokens * batch / np.maximum(steps, 1.0))
    carried = np.minimum(carried, np.maximum(CHUNK_TOKENS - beside, CHUNK_TOKENS / 2))
    parts = tokens / carried
    fixed = fixed_s(work, speeds)
    step = share * (products_s(work, speeds, beside * checked) + fixed)
    without = own_steps * share * (products_s(work, speeds, batch * checked) + fixed)
    seconds = parts * (products_s(work, speeds, carried + beside) - products_s(work, speeds, beside))
    seconds = seconds + np.maximum(parts, own_steps) * step - without
    states = tokens * work.state_flops / speeds.attention_flops
    return np.asarray(seconds + prefill_attention_s(work, speeds, pairs) + states)


def decode_layer_s(
    work: StageWork, speeds: StageSpeeds, batch: FloatArray, context: FloatArray, *, checked: int = 1
) -> FloatArray:
    """One layer's decode step for `batch` sequences that each see `context` tokens and have `checked` new ones."""
    states = 2.0 * batch * work.state_bytes / speeds.kv_bandwidth
    attention = decode_attention_s(work, speeds, batch * context, checked=checked)
    return np.asarray(shared_s(work, speeds, batch * checked) + attention + states)


def prefill_attention_s(work: StageWork, speeds: StageSpeeds, pairs: FloatArray) -> FloatArray:
    """One layer's attention over so many (query, key) pairs."""
    return np.asarray(pairs * work.attention_flops / speeds.attention_flops)


def decode_attention_s(work: StageWork, speeds: StageSpeeds, seen: FloatArray, *, checked: int = 1) -> FloatArray:
    """One layer's attention of a decode step that sees so many tokens, of all sequences together, from `checked` new
    ones of each."""
    reading = seen * work.kv_bytes / speeds.kv_bandwidth
    return np.maximum(reading, checked * seen * work.decode_attention_flops / speeds.attention_flops)


def head_s(work: StageWork, speeds: StageSpeeds, sequences: FloatArray, *, checked: int = 1) -> FloatArray:
    """The output projection of the last stage for `checked` tokens of each of a rank's `sequences`, and their
    sampling."""
    product = np.maximum(work.head_bytes / speeds.bandwidth, checked * sequences * work.head_flops / speeds.flops)
    return np.asarray(product + sequences * speeds.sequence_overhead_s)
