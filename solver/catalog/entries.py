"""What the catalogue holds: GPUs and models as plain facts, without prices and without speeds measured on them."""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "fp16", "fp8", "int8", "int4", "fp4"]
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator. Peaks are dense tensor rates with FP32 accumulation; None: no such tensor cores.

    Fields other than slug and memory are None for a GPU that is only used with measured rates.
    """

    slug: str
    memory_gb: float
    architecture: str | None = None
    memory_bandwidth_gb_per_s: float | None = None
    peak_tflops_bf16_dense: float | None = None
    peak_tflops_fp8_dense: float | None = None
    peak_tflops_fp4_dense: float | None = None
    supports_bf16: bool = True
    link_gb_per_s: float | None = None  # one direction, per GPU, to the other GPUs of its machine
    link: str | None = None
    tdp_watts: float | None = None


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Routed and shared experts of a model; `dense_layers` leading layers have an ordinary feed-forward part."""

    experts: int
    experts_per_token: int
    expert_intermediate_size: int
    shared_experts: int = 0
    shared_expert_intermediate_size: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 §2.1): one compressed KV entry a token and layer."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """`window_tokens` of context in every layer but `global_layers` of them."""

    window_tokens: int
    global_layers: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Architecture of one decoder-only transformer.

    `total_params` and `active_params` (per token) are counted from the architecture unless the publisher's
    figure is given; both are numbers of parameters, not billions.
    """

    id: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    total_params: float
    active_params: float
    tied_embeddings: bool = False
    moe: MixtureOfExperts | None = None
    mla: LatentAttention | None = None
    sliding_window: SlidingWindow | None = None
    precisions: tuple[Precision, ...] = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")
    hf_id: str | None = None
