"""What NVIDIA's operator database (aiconfigurator-core) calls our GPUs, precisions and models, and what it lacks.

Flow: catalogue entries -> names and config.json (here) -> operator_database.py, which asks. Nothing here imports the
package. Models are always described by a config.json of our own: names would be looked up in a hub.
"""

from dataclasses import asdict, dataclass
from typing import Final

from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision

# GPUs with measured operators under vLLM in 0.12.0; others (H100 PCIe, A100 PCIe, A30, L4) have speeds of light only.
SYSTEMS: Final = {
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "a100-sxm4-80gb": "a100_sxm",
    "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}
# Their all-reduces are pessimistic: on eight L40S the prefill of 2,000 tokens of an 8B model would take 1 s.
SINGLE_ONLY: Final = frozenset({"l40s", "rtx-pro-6000-server"})
KV_MODES: Final[dict[Precision, str]] = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
DENSE_MODES: Final[dict[Precision, str]] = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "fp4": "nvfp4"}
DEEPSEEK_LATENT_DIMS: Final = (512, 64, 128, 128)  # kv_lora_rank, rope, nope and value head: what was measured
WITH_QK_NORM: Final = ("Qwen/Qwen3", "MiniMaxAI/")
GPT_OSS: Final = "openai/gpt-oss"


@dataclass(frozen=True, slots=True)
class QuantModes:
    """Names in the package's enumerations, for dense products, experts and the KV cache."""

    gemm: str
    experts: str
    kv: str


def quant_modes(spec: ModelSpec, precision: Precision, kv_precision: Precision) -> QuantModes | str:
    """The modes, or why there are none.

    FP8 mixtures of experts are published with block scales (DeepSeek-V3, Qwen3, MiniMax), dense models with one scale
    per tensor; gpt-oss keeps MXFP4 experts and 16-bit attention.
    """
    kv, gemm = KV_MODES.get(kv_precision), DENSE_MODES.get(precision)
    if kv is None:
        return f"no operators were measured with a KV cache of {kv_precision}"
    if gemm is None:
        return f"no operators were measured with weights of {precision}"
    if _is_gpt_oss(spec) and precision == "fp4":
        return QuantModes("bfloat16", "w4a16_mxfp4", kv)
    if spec.moe is not None and precision == "fp8":
        return QuantModes("fp8_block", "fp8_block", kv)
    return QuantModes(gemm, gemm, kv)


def system_error(gpu: Gpu, tensor_parallel: int) -> str | None:
    """Why no operators are known on stages of this GPU, whatever the model."""
    if gpu.slug not in SYSTEMS:
        return f"no operators were measured on {gpu.slug}"
    if tensor_parallel > 1 and gpu.slug in SINGLE_ONLY:
        return f"the all-reduces measured on {gpu.slug} are pessimistic, so only single ones are known"
    return None


def link_error(gpu: Gpu, tensor_parallel: int, intra_gb_per_s: float) -> str | None:
    """All-reduces were measured over the link that the GPU comes with, so a slower one is not known."""
    link = gpu.link_gb_per_s or 0.0
    if tensor_parallel == 1 or intra_gb_per_s >= 0.9 * link > 0:
        return None
    return f"all-reduces were measured over {link:g} GB/s on {gpu.slug}, not over {intra_gb_per_s:g} GB/s"


def model_error(spec: ModelSpec) -> str | None:
    """What of the architecture the package cannot express, or None."""
    if _is_gpt_oss(spec):
        return None
    for kind, part in (
        ("linear attention", spec.linear_attention),
        ("sparse attention", spec.sparse_attention),
        ("sliding windows", spec.sliding_window),
    ):
        if part is not None:
            return f"the {kind} of {spec.id} cannot be expressed"
    if spec.mla is not None:
        latent = spec.mla
        dims = (latent.kv_lora_rank, latent.qk_rope_head_dim, latent.qk_nope_head_dim, latent.v_head_dim)
        if dims != DEEPSEEK_LATENT_DIMS or latent.q_lora_rank is None or spec.moe is None:
            return f"the latent attention of {spec.id} is unlike DeepSeek-V3's, the one that was measured"
        return None
    if spec.moe is not None:
        unlike = spec.moe.shared_experts or spec.moe.dense_layers
        return f"the shared experts or dense layers of {spec.id} cannot be expressed" if unlike else None
    return (
        None
        if _is_gated(spec)
        else f"the feed-forward part of {spec.id} is not gated, unlike those that were measured"
    )


def config_json(spec: ModelSpec) -> dict[str, object]:
    """A publisher's config.json with what the package reads of it; for a spec without model_error."""
    config: dict[str, object] = {
        "architectures": [_architecture(spec)],
        "num_hidden_layers": spec.layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context_tokens,
    }
    if spec.moe is not None:
        config["num_experts_per_tok"] = spec.moe.experts_per_token
        config["num_experts"] = spec.moe.experts
        config["moe_intermediate_size"] = spec.moe.expert_intermediate_size
        config["n_shared_experts"] = spec.moe.shared_experts
        config["first_k_dense_replace"] = spec.moe.dense_layers
    return config | (asdict(spec.mla) if spec.mla is not None else {})  # the entry's fields are called as there


def _architecture(spec: ModelSpec) -> str:
    """The class that the package's model families are named after."""
    if _is_gpt_oss(spec):
        return "GptOssForCausalLM"
    if spec.mla is not None:
        return "DeepseekV3ForCausalLM"
    normed = (spec.hf_id or "").startswith(WITH_QK_NORM)
    if spec.moe is not None:
        return "Qwen3MoeForCausalLM" if normed else "MixtralForCausalLM"
    return "Qwen3ForCausalLM" if normed else "LlamaForCausalLM"


def _is_gpt_oss(spec: ModelSpec) -> bool:
    """Its windows and its 4-bit experts are built into the package."""
    return (spec.hf_id or "").startswith(GPT_OSS)


def _is_gated(spec: ModelSpec) -> bool:
    """Whether the parameters are those of attention and three feed-forward matrices a layer."""
    attention = spec.hidden_size * spec.head_dim * 2.0 * (spec.heads + spec.kv_heads)
    gated = spec.layers * (attention + 3.0 * spec.hidden_size * spec.intermediate_size)
    return spec.total_params >= 0.95 * gated
