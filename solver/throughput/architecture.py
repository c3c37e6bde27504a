"""What one layer of a model asks of its GPUs: parameters, bytes and operations, before any speed is known.

Flow: catalogue entry -> LayerWork (here) -> stage_times.py turns it into seconds, memory.py into bytes.
Layers of unequal kind (dense layers of a mixture of experts, layers with sliding windows or linear attention) are
averaged.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.catalog.entries import LinearAttention, ModelSpec, Precision
from sutler.solver.catalog.parameters import attention_parameters

# Bytes per parameter, or per value of a KV cache, including scales. int4: one FP16 scale and one packed 4-bit zero
# per 128 weights, as GPTQ and AWQ checkpoints store them. fp4: one FP8 scale per 16 weights, as in NVFP4 (MXFP4 is
# 6 % smaller).
PRECISION_BYTES: Final[dict[Precision, float]] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2.5 / 128,
    "fp4": 0.5 + 1.0 / 16,
}
# Values of an indexer's key are kept in FP8 with one FP32 scale per key, whatever the cache's precision (vLLM and
# SGLang: 132 bytes for DeepSeek's 128 dimensions).
INDEX_SCALE_BYTES: Final = 4.0
# Multiplications and additions of one step of the gated delta rule, per value of the state: decay it, read what is
# known of the key, write the correction, read with the query (arXiv 2412.06464, eq. 10).
DELTA_RULE_FLOPS: Final = 7.0
ACTIVATION_BYTES: Final = 2.0  # activations, embeddings and the output head stay 16-bit in published checkpoints


@dataclass(frozen=True, slots=True)
class LayerWork:
    """One average layer of a model, over a whole tensor-parallel group (nothing divided by its size).

    dense_params are used by every token; expert_params is the sum over all routed experts, of which a token
    uses experts_per_token / experts. attention_flops is per (query, key) pair. A token keeps `kv_heads` entries of
    kv_head_bytes, which tensor parallelism divides until one head is left per GPU (`kv_heads` 1: never).
    Layers with a window (window_fraction of them) see at most window_tokens of context. Those with linear attention
    (linear_fraction) see none: they make state_bytes of every sequence and state_flops of every token. With sparse
    attention a token sees top_tokens, and looks at all in an index that takes index_byte_share and index_flop_share
    of what a token of the cache would.
    """

    layers: int
    hidden_size: int
    kv_heads: int
    dense_params: float
    expert_params: float
    experts: int
    experts_per_token: int
    weight_bytes: float
    activation_width: float
    attention_flops: float
    decode_attention_flops: float
    kv_head_bytes: float
    window_tokens: float
    window_fraction: float
    head_params: float
    tied_embeddings: bool
    latent_attention: bool
    linear_fraction: float
    state_bytes: float
    state_flops: float
    top_tokens: float
    index_byte_share: float
    index_flop_share: float

    @property
    def full_fraction(self) -> float:
        return 1.0 - self.window_fraction - self.linear_fraction

    def held_context(self, tokens: FloatArray) -> FloatArray:
        """What memory keeps of sequences of `tokens` (any shape): the mean over the layers, in tokens of a layer's
        cache, without the state of linear attention."""
        windowed = np.minimum(tokens, self.window_tokens)
        return self.full_fraction * (1.0 + self.index_byte_share) * tokens + self.window_fraction * windowed

    def seen_context(self, tokens: FloatArray) -> FloatArray:
        """What a decode step reads of that."""
        windowed = np.minimum(tokens, self.window_tokens)
        picked = np.minimum(tokens, self.top_tokens) + self.index_byte_share * tokens
        return self.full_fraction * picked + self.window_fraction * windowed

    def attended_pairs(self, new: FloatArray, total: FloatArray) -> FloatArray:
        """(query, key) pairs per layer of a causal prefill of the last `new` of `total` tokens."""
        full = new * (total - new / 2)
        windowed = np.minimum(full, new * self.window_tokens)
        picked = np.minimum(full, new * self.top_tokens) + self.index_flop_share * full
        return self.full_fraction * picked + self.window_fraction * windowed

    def kv_bytes_per_token(self, tensor_parallel: IntArray) -> FloatArray:
        """KV bytes per token, layer and GPU [tensor_parallel's shape]; heads are repeated once TP exceeds them."""
        heads_per_gpu = np.ceil(self.kv_heads / np.maximum(tensor_parallel, 1))
        return np.asarray(heads_per_gpu * self.kv_head_bytes, dtype=np.float64)


def layer_work(spec: ModelSpec, precision: Precision, kv_precision: Precision) -> LayerWork:
    """The average layer of `spec` with weights at `precision` and its cache at `kv_precision`."""
    head_params = float(spec.vocab_size) * spec.hidden_size
    embeddings = head_params * (1 if spec.tied_embeddings else 2)
    expert_params = _expert_params(spec)
    body = max(spec.total_params - embeddings - expert_params, float(attention_parameters(spec)))
    moe, window, linear, sparse = spec.moe, spec.sliding_window, spec.linear_attention, spec.sparse_attention
    linear_fraction = 1.0 - linear.full_layers / spec.layers if linear else 0.0
    kv_head_bytes = _kv_entries(spec) * PRECISION_BYTES[kv_precision]
    kv_heads = 1 if spec.mla else spec.kv_heads
    index_bytes = sparse.index_head_dim + INDEX_SCALE_BYTES if sparse else 0.0
    index_flops = 2.0 * sparse.index_heads * sparse.index_head_dim if sparse else 0.0
    return LayerWork(
        layers=spec.layers,
        hidden_size=spec.hidden_size,
        kv_heads=kv_heads,
        dense_params=body / spec.layers,
        expert_params=expert_params / spec.layers,
        experts=moe.experts if moe else 1,
        experts_per_token=moe.experts_per_token if moe else 1,
        weight_bytes=PRECISION_BYTES[precision],
        activation_width=_activation_width(spec),
        attention_flops=_attention_flops(spec),
        decode_attention_flops=_decode_attention_flops(spec),
        kv_head_bytes=kv_head_bytes,
        window_tokens=float(window.window_tokens) if window else float("inf"),
        window_fraction=1.0 - window.global_layers / spec.layers if window else 0.0,
        head_params=head_params,
        tied_embeddings=spec.tied_embeddings,
        latent_attention=spec.mla is not None,
        linear_fraction=linear_fraction,
        state_bytes=linear_fraction * _state_bytes(linear) if linear else 0.0,
        state_flops=linear_fraction * DELTA_RULE_FLOPS * linear.state_values if linear else 0.0,
        top_tokens=float(sparse.top_tokens) if sparse else float("inf"),
        index_byte_share=index_bytes / (kv_heads * kv_head_bytes),
        index_flop_share=index_flops / _attention_flops(spec),
    )


def _state_bytes(linear: LinearAttention) -> float:
    """The bytes that one sequence keeps in one layer: the recurrence and the last inputs of the convolution."""
    convolved = (linear.conv_kernel_tokens - 1) * linear.channels
    return linear.state_values * linear.state_value_bytes + convolved * ACTIVATION_BYTES


def _expert_params(spec: ModelSpec) -> float:
    if spec.moe is None:
        return 0.0
    per_expert = 3.0 * spec.hidden_size * spec.moe.expert_intermediate_size
    return (spec.layers - spec.moe.dense_layers) * spec.moe.experts * per_expert


def _activation_width(spec: ModelSpec) -> float:
    """Values per token and layer that tensor parallelism divides: gate, up and their product, queries and output."""
    used = spec.intermediate_size
    if spec.moe is not None:
        moe = spec.moe
        used = moe.experts_per_token * moe.expert_intermediate_size
        used += moe.shared_experts * moe.shared_expert_intermediate_size
    return 3.0 * used + 2.0 * spec.heads * spec.head_dim


def _attention_flops(spec: ModelSpec) -> float:
    """Per (query, key) pair: a multiply-add for the score and one for the value, over every head."""
    if spec.mla is None:
        return 4.0 * spec.heads * spec.head_dim
    latent = spec.mla
    return 2.0 * spec.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim)


def _decode_attention_flops(spec: ModelSpec) -> float:
    """Latent attention decodes in the compressed space (DeepSeek-V2, arXiv 2405.04434 §2.1.2), at more operations."""
    if spec.mla is None:
        return _attention_flops(spec)
    return 2.0 * spec.heads * (2.0 * spec.mla.kv_lora_rank + spec.mla.qk_rope_head_dim)


def _kv_entries(spec: ModelSpec) -> float:
    """Values per token, layer and key/value head."""
    if spec.mla is None:
        return 2.0 * spec.head_dim
    return float(spec.mla.kv_lora_rank + spec.mla.qk_rope_head_dim)
