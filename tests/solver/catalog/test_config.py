"""A config.json as a model: facts of published ones give the catalogue's entries, and what is unreadable is named."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver.catalog import load_models, spec_of_config
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.errors import InvalidProblemError

LINEAR = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
}
LATENT_V3 = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


def sizes(*figures: int, **others: Any) -> dict[str, Any]:
    """Layers, hidden, heads, key/value heads, feed-forward, vocabulary, context by the names of config.json."""
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    )
    return {**dict(zip(names, figures, strict=True)), **others}


LLAMA = sizes(32, 4096, 32, 8, 14336, 128256, 131072, model_type="llama", tie_word_embeddings=False)
DEEPSEEK_V3 = sizes(
    61,
    7168,
    128,
    128,
    18432,
    129280,
    163840,
    model_type="deepseek_v3",
    first_k_dense_replace=3,
    moe_layer_freq=1,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    **LATENT_V3,
)
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA,
    "llama-3.2-1b": sizes(16, 2048, 32, 8, 8192, 128256, 131072, head_dim=64, tie_word_embeddings=True),
    "qwen2.5-coder-7b": sizes(
        28, 3584, 28, 4, 18944, 152064, 32768, use_sliding_window=False, sliding_window=131072, max_window_layers=28
    ),
    "qwen3-32b": sizes(64, 5120, 64, 8, 25600, 151936, 40960, head_dim=128, sliding_window=None),
    "qwen3-30b-a3b": sizes(
        48,
        2048,
        32,
        4,
        6144,
        151936,
        40960,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "mixtral-8x7b": sizes(
        32, 4096, 32, 8, 14336, 32000, 32768, num_local_experts=8, num_experts_per_tok=2, sliding_window=None
    ),
    "mistral-7b-v0.1": sizes(32, 4096, 32, 8, 14336, 32000, 32768, model_type="mistral", sliding_window=4096),
    "llama-4-maverick": {
        "model_type": "llama4",
        "text_config": sizes(
            48,
            5120,
            40,
            8,
            8192,
            202048,
            1048576,
            model_type="llama4_text",
            head_dim=128,
            intermediate_size_mlp=16384,
            num_local_experts=128,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
            attention_chunk_size=8192,
            no_rope_layer_interval=4,
        ),
        "vision_config": {"hidden_size": 1408},
    },
    "gemma-2-9b": sizes(42, 3584, 16, 8, 14336, 256000, 8192, model_type="gemma2", head_dim=256, sliding_window=4096),
    "gemma-3-27b": {
        "model_type": "gemma3",
        "text_config": sizes(
            62,
            5376,
            32,
            16,
            21504,
            262208,
            131072,
            model_type="gemma3_text",
            head_dim=128,
            sliding_window=1024,
            sliding_window_pattern=6,
        ),
    },
    "gpt-oss-120b": sizes(
        36,
        2880,
        64,
        8,
        2880,
        201088,
        131072,
        model_type="gpt_oss",
        head_dim=64,
        num_local_experts=128,
        experts_per_token=4,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 18,
    ),
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-v3.2": {**DEEPSEEK_V3, "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128},
    "glm-4.5-air": sizes(
        46,
        4096,
        96,
        8,
        10944,
        151552,
        131072,
        model_type="glm4_moe",
        head_dim=128,
        first_k_dense_replace=1,
        moe_intermediate_size=1408,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=8,
    ),
    "glm-5": sizes(
        78,
        6144,
        64,
        64,
        12288,
        154880,
        202752,
        model_type="glm_moe_dsa",
        head_dim=64,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        kv_lora_rank=512,
        q_lora_rank=2048,
        qk_rope_head_dim=64,
        qk_nope_head_dim=192,
        v_head_dim=256,
        index_topk=2048,
        index_n_heads=32,
        index_head_dim=128,
    ),
    "minimax-m2": sizes(
        62,
        3072,
        48,
        8,
        1536,
        200064,
        196608,
        model_type="minimax_m2",
        head_dim=128,
        num_local_experts=256,
        num_experts_per_tok=8,
        shared_intermediate_size=0,
        attn_type_list=[1] * 62,
    ),
    "qwen3-next-80b-a3b": sizes(
        48,
        2048,
        16,
        2,
        5120,
        151936,
        262144,
        model_type="qwen3_next",
        head_dim=256,
        full_attention_interval=4,
        linear_num_value_heads=32,
        num_experts=512,
        num_experts_per_tok=10,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        decoder_sparse_step=1,
        **LINEAR,
    ),
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_5_moe_text",
            "attn_output_gate": True,
            "num_hidden_layers": 60,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15,
            "linear_num_value_heads": 64,
            "mamba_ssm_dtype": "float32",
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 1024,
            "shared_expert_intermediate_size": 1024,
            **LINEAR,
        },
    },
}


def compressed(bits: int, kind: str) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def read(config: dict[str, Any]) -> ModelSpec:
    return spec_of_config(config, name="mine")


@pytest.mark.parametrize("model", CONFIGS)
def test_the_facts_of_a_published_config_give_the_entry_of_the_catalogue(model: str) -> None:
    known, found = load_models()[model], read(CONFIGS[model])
    counted = replace(known, total_params=found.total_params, active_params=found.active_params)
    assert found == replace(
        counted, id="mine", hf_id=None, checkpoints=(), kv_schemes=(), precisions=found.precisions
    )
    assert found.total_params == pytest.approx(known.total_params, rel=0.02)


@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "fp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        (compressed(4, "int"), "int4"),
        (compressed(8, "float"), "fp8"),
        ({"quant_method": "something-new"}, None),
        (None, None),
    ],
)
def test_the_weights_beside_it_are_at_the_precision_that_it_states(quantization: Any, precision: str | None) -> None:
    spec = spec_of_config({**LLAMA, "quantization_config": quantization}, name="mine", hf_id="org/mine")
    assert spec.native_precision == precision
    assert spec.checkpoints == (((precision, "org/mine"),) if precision else ())


def test_what_leaves_out_fields_is_as_transformers_reads_it() -> None:
    spec = read({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert (spec.kv_heads, spec.head_dim, spec.tied_embeddings) == (32, 128, False)
    assert read({**LLAMA, "model_type": "gemma", "tie_word_embeddings": None}).tied_embeddings


def test_feed_forward_parts_without_a_gate_have_two_matrices() -> None:
    plain, gated = (read({**LLAMA, "model_type": kind}).total_params for kind in ("gpt_neox", "llama"))
    assert gated - plain == 32 * 4096 * 14336


@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_missing_field_is_named_with_where_it_may_come_from(field: str) -> None:
    with pytest.raises(InvalidProblemError, match=r"is missing: .*AutoConfig") as caught:
        read({key: value for key, value in LLAMA.items() if key != field})
    assert caught.value.field == f"config.{field}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_attention_heads": 30, "num_key_value_heads": 30}, "head_dim"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types"),
        ({"layer_types": ["mamba"] * 32}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"attn_type_list": [0, 1] * 16}, "attn_type_list"),
        ({"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern"),
        ({"compress_ratios": [0, 4]}, "compress_ratios"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"index_topk": 2048}, "index_n_heads"),
        ({"linear_num_value_heads": 32}, "full_attention_interval"),
        ({"quantization_config": "fp8"}, "quantization_config"),
    ],
)
def test_what_cannot_be_read_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        read({**LLAMA, **changes})
    assert caught.value.field == f"config.{field}"
    assert len(str(caught.value)) < 300


def test_fields_of_the_language_part_are_named_with_their_place() -> None:
    with pytest.raises(InvalidProblemError, match=r"config\.text_config\.vocab_size"):
        read({"text_config": {key: value for key, value in LLAMA.items() if key != "vocab_size"}})
