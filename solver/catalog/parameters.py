"""Counts a model's parameters from its architecture, for catalogue entries and for specs that callers describe."""

from dataclasses import dataclass

from sutler.solver.catalog.entries import LatentAttention, LinearAttention, ModelSpec, SparseAttention

GATED_FEED_FORWARD_MATRICES = 3  # gate, up and down (Shazeer, arXiv 2002.05202); older models have two


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Numbers of parameters: all of them, and those that one token passes through."""

    total: float
    active: float


def count_parameters(spec: ModelSpec, *, feed_forward_matrices: int = GATED_FEED_FORWARD_MATRICES) -> ParameterCount:
    """Weight matrices of a decoder-only transformer, whatever its spec states as totals; biases and norms (below
    0.1 %) are left out.

    Active parameters of a mixture of experts count the shared and the routed experts that a token uses, and both
    embedding matrices, as most publishers do.
    """
    attention, hidden_size, moe = attention_parameters(spec), spec.hidden_size, spec.moe
    embeddings = spec.vocab_size * hidden_size * (1 if spec.tied_embeddings else 2)
    dense = feed_forward_matrices * hidden_size * spec.intermediate_size
    if moe is None:
        total = embeddings + attention + spec.layers * dense
        return ParameterCount(float(total), float(total))
    common = embeddings + attention + moe.dense_layers * dense
    expert = GATED_FEED_FORWARD_MATRICES * hidden_size * moe.expert_intermediate_size
    shared = GATED_FEED_FORWARD_MATRICES * hidden_size * moe.shared_expert_intermediate_size * moe.shared_experts
    always = shared + hidden_size * moe.experts  # the router
    sparse_layers = spec.layers - moe.dense_layers
    return ParameterCount(
        total=float(common + sparse_layers * (always + moe.experts * expert)),
        active=float(common + sparse_layers * (always + moe.experts_per_token * expert)),
    )


def attention_parameters(spec: ModelSpec) -> int:
    """The projections around attention, of all layers together."""
    hidden_size, linear = spec.hidden_size, spec.linear_attention
    full = hidden_size * spec.head_dim * ((3 if spec.gated_attention else 2) * spec.heads + 2 * spec.kv_heads)
    if spec.mla is not None:
        full = _latent(hidden_size, spec.heads, spec.mla)
    if spec.sparse_attention is not None:
        full += _indexer(hidden_size, spec.mla, spec.sparse_attention)
    if linear is None:
        return spec.layers * full
    return linear.full_layers * full + (spec.layers - linear.full_layers) * _delta_net(hidden_size, linear)


def _delta_net(hidden_size: int, linear: LinearAttention) -> int:
    """Counts those of one layer: in for queries, keys, values, their gate, and two rates per value head; out; the
    convolution."""
    values = linear.value_heads * linear.value_head_dim
    into = linear.channels + values + 2 * linear.value_heads
    return hidden_size * (into + values) + linear.channels * linear.conv_kernel_tokens


def _indexer(hidden_size: int, mla: LatentAttention | None, sparse: SparseAttention) -> int:
    """Queries from where attention takes its own, one key per token, a weight per head."""
    query_from = (mla.q_lora_rank if mla else None) or hidden_size
    queries = query_from * sparse.index_heads * sparse.index_head_dim
    return queries + hidden_size * (sparse.index_head_dim + sparse.index_heads)


def _latent(hidden_size: int, heads: int, mla: LatentAttention) -> int:
    """Projections of DeepSeek-V2's attention (arXiv 2405.04434, section 2.1 and appendix B)."""
    query_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    rank = mla.q_lora_rank
    query = hidden_size * query_width if rank is None else rank * (hidden_size + query_width)
    compressed = hidden_size * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    expanded = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    output = heads * mla.v_head_dim * hidden_size
    return query + compressed + expanded + output
