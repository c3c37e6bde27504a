"""Which kinds of layers a config.json describes: experts, windows, linear, latent and sparse attention.

Second step of config_json.py. A kind that the entries cannot say is refused rather than read as something else.
"""

from typing import Final

from sutler.solver.catalog.config_fields import Config
from sutler.solver.catalog.entries import (
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    SlidingWindow,
    SparseAttention,
)

EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
EXPERTS_PER_TOKEN: Final = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
# Fields that tell of layers which the rate model does not know.
UNKNOWN: Final = {
    "hybrid_override_pattern": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "ssm_cfg": "Mamba layers",
    "state_size": "Mamba layers",
    "linear_attn_config": "Kimi Delta Attention",
    "compress_ratios": "compressed caches",
    "block_configs": "layers of different widths",
    "global_head_dim": "attention heads of different widths",
    "hybrid_layer_pattern": "attention heads of different widths",
    "conv_L_cache": "convolution layers",
    "hidden_size_per_layer_input": "per-layer embeddings",
    "ngram_size": "n-gram embeddings",
    "cross_attention_layers": "cross-attention layers",
}
WINDOWED: Final = ("sliding_attention", "chunked_attention")
KNOWN_LAYERS: Final = (*WINDOWED, "full_attention", "linear_attention")
# How many layers make a round of which one sees everything, where config.json leaves it to the class.
USUAL_ROUND: Final = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
INSTEAD: Final = (
    "describe the nearest architecture inline (`sutler schema problem`), or measure it (throughput.table)"
)


def refuse_unknown_layers(text: Config) -> None:
    if text.value("is_encoder_decoder") is True:
        raise text.wrong("is_encoder_decoder", True, f"only decoders are known: {INSTEAD}")
    for key, kind in UNKNOWN.items():
        if text.value(key) not in (None, [], 0):
            raise text.wrong(key, text.value(key), f"{kind} are unknown to the rate model: {INSTEAD}")


def experts_of(text: Config, layers: int) -> MixtureOfExperts | None:
    experts = text.first_integer(EXPERTS, default=0, least=0)
    if experts <= 1:
        return None
    is_llama = text.kind.startswith("llama4")
    width = text.integer("moe_intermediate_size", default=text.integer("intermediate_size", default=0))
    if width == 0:
        raise text.missing("moe_intermediate_size")
    per_token = text.first_integer(EXPERTS_PER_TOKEN)
    if per_token > experts:
        raise text.wrong(EXPERTS_PER_TOKEN[0], per_token, f"must be at most the number of experts ({experts})")
    dense = _dense_layers(text, layers)
    if dense >= layers:
        return None
    shared, shared_width = _shared(text, width, always=is_llama)
    return MixtureOfExperts(
        experts=experts,
        experts_per_token=per_token,
        expert_intermediate_size=width,
        shared_experts=shared,
        shared_expert_intermediate_size=shared_width,
        dense_layers=dense,
    )


def _shared(text: Config, width: int, *, always: bool) -> tuple[int, int]:
    """Number and width. Qwen gives the width of the one, the others how many there are of the usual width."""
    whole = text.first_integer(("shared_expert_intermediate_size", "shared_intermediate_size"), default=0, least=0)
    if whole:
        return 1, whole
    count = text.first_integer(("n_shared_experts", "num_shared_experts"), default=1 if always else 0, least=0)
    return count, width if count else 0


def _dense_layers(text: Config, layers: int) -> int:
    """Those without experts: named one by one, leading, or all but every n-th."""
    kinds = text.words("mlp_layer_types", layers=layers)
    if kinds is not None:
        return kinds.count("dense")
    if isinstance(text.value("moe_layer_freq"), list):
        return (text.numbers("moe_layer_freq", layers=layers) or []).count(0)
    leading = text.integer("first_k_dense_replace", default=0, least=0)
    every = text.integer("moe_layer_freq", default=1)
    step = text.first_integer(("interleave_moe_layer_step", "decoder_sparse_step"), default=1)
    named = text.value("mlp_only_layers")
    apart = set(named) if isinstance(named, list) else set()
    is_sparse = (
        layer >= leading and layer % every == 0 and (layer + 1) % step == 0 and layer not in apart
        for layer in range(layers)
    )
    return layers - sum(is_sparse)


def latent_of(text: Config) -> LatentAttention | None:
    if text.value("kv_lora_rank") is None:
        return None
    return LatentAttention(
        kv_lora_rank=text.integer("kv_lora_rank"),
        q_lora_rank=None if text.value("q_lora_rank") is None else text.integer("q_lora_rank"),
        qk_rope_head_dim=text.integer("qk_rope_head_dim"),
        qk_nope_head_dim=text.integer("qk_nope_head_dim"),
        v_head_dim=text.integer("v_head_dim"),
    )


def sparse_of(text: Config) -> SparseAttention | None:
    """An indexer that several layers share (index_topk_freq) counts once per layer, at a few percent too much."""
    if text.value("index_topk") is None:
        return None
    return SparseAttention(
        top_tokens=text.integer("index_topk"),
        index_heads=text.integer("index_n_heads"),
        index_head_dim=text.integer("index_head_dim"),
    )


def linear_of(text: Config, layers: int) -> LinearAttention | None:
    kinds = _kinds(text, layers)
    has_delta_net = text.value("linear_num_value_heads") is not None
    if kinds is not None and "linear_attention" in kinds and not has_delta_net:
        raise text.wrong("layer_types", "linear_attention", f"only Gated DeltaNet is known: {INSTEAD}")
    if not has_delta_net or (kinds is not None and "linear_attention" not in kinds):
        return None
    full = layers // text.integer("full_attention_interval") if kinds is None else kinds.count("full_attention")
    return LinearAttention(
        full_layers=full,
        key_heads=text.integer("linear_num_key_heads"),
        value_heads=text.integer("linear_num_value_heads"),
        key_head_dim=text.integer("linear_key_head_dim"),
        value_head_dim=text.integer("linear_value_head_dim"),
        conv_kernel_tokens=text.integer("linear_conv_kernel_dim"),
        state_value_bytes=4 if text.value("mamba_ssm_dtype") == "float32" else 2,
    )


def window_of(text: Config, layers: int, max_context_tokens: int) -> SlidingWindow | None:
    """Returns None where the window is switched off, or as long as the longest context."""
    is_llama = text.kind.startswith("llama4")
    key = "attention_chunk_size" if is_llama else "sliding_window"
    if text.value(key) is None or text.value("use_sliding_window") is False:
        return None
    tokens = text.integer(key)
    everywhere = _global_layers(text, layers, is_llama=is_llama)
    if tokens >= max_context_tokens or everywhere >= layers:
        return None
    return SlidingWindow(window_tokens=tokens, global_layers=everywhere)


def _global_layers(text: Config, layers: int, *, is_llama: bool) -> int:
    kinds = _kinds(text, layers)
    if kinds is not None:
        return sum(kind not in WINDOWED for kind in kinds)
    if is_llama:
        with_positions = text.numbers("no_rope_layers", layers=layers)
        if with_positions is not None:
            return with_positions.count(0)
        return layers // text.integer("no_rope_layer_interval", default=4)
    if text.value("use_sliding_window") is True and text.value("max_window_layers") is not None:
        return min(text.integer("max_window_layers", least=0), layers)
    usual = USUAL_ROUND.get(text.kind)
    if usual is None and text.value("sliding_window_pattern") is None:
        return 0
    return layers // text.integer("sliding_window_pattern", default=usual)


def _kinds(text: Config, layers: int) -> list[str] | None:
    kinds = text.words("layer_types", layers=layers)
    unknown = next((kind for kind in kinds or () if kind not in KNOWN_LAYERS), None)
    if unknown is not None:
        raise text.wrong("layer_types", unknown, f"layers of this kind are unknown to the rate model: {INSTEAD}")
    attention = text.numbers("attn_type_list", layers=layers)
    if attention is not None and 0 in attention:
        raise text.wrong("attn_type_list", attention, f"lightning attention is unknown to the rate model: {INSTEAD}")
    return kinds
