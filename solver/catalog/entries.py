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
    """Routed and shared experts of a model; `dense_layers` layers, leading or in between, have an ordinary
    feed-forward part."""

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
class LinearAttention:
    """Gated DeltaNet (arXiv 2412.06464) in every layer but `full_layers` of them: such a layer keeps a state of fixed
    size per sequence instead of keys and values that grow with the context."""

    full_layers: int
    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel_tokens: int
    state_value_bytes: int = 2  # engines keep the state at 4 where config.json says mamba_ssm_dtype float32

    @property
    def channels(self) -> int:
        """Queries, keys and values, which pass through the short convolution."""
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    @property
    def state_values(self) -> int:
        """The values of the recurrence: one matrix per value head."""
        return self.value_heads * self.key_head_dim * self.value_head_dim


@dataclass(frozen=True, slots=True)
class SparseAttention:
    """DeepSeek's sparse attention (DeepSeek-V3.2-Exp report): an indexer, with a key of its own per token and layer,
    picks the `top_tokens` that a token attends to. Every token stays in the cache."""

    top_tokens: int
    index_heads: int
    index_head_dim: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Architecture of one decoder-only transformer.

    `total_params` and `active_params` (per token) are counted from the architecture unless the publisher's
    figure is given; both are numbers of parameters, not billions. `gated_attention`: the output of full attention
    is gated by a projection as wide as the queries. `checkpoints`: repositories whose weights are at a precision
    already. `kv_schemes`: KV caches that those ask for in their own configuration, by the precision of the weights.
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
    linear_attention: LinearAttention | None = None
    sparse_attention: SparseAttention | None = None
    gated_attention: bool = False
    checkpoints: tuple[tuple[Precision, str], ...] = ()
    kv_schemes: tuple[tuple[Precision, Precision], ...] = ()

    @property
    def repository(self) -> str:
        """What an engine loads unless a checkpoint is known for the precision."""
        return self.hf_id or self.id

    @property
    def native_precision(self) -> Precision | None:
        """What `repository` holds, where that is not 16-bit weights."""
        return next((precision for precision, name in self.checkpoints if name == self.repository), None)

    def checkpoint(self, precision: Precision) -> str | None:
        """The repository whose weights are at `precision`, where one is known."""
        known = dict(self.checkpoints).get(precision)
        if known is None and precision in ("bf16", "fp16") and self.native_precision is None:
            return self.repository
        return known


def usual_kv_precision(spec: ModelSpec | None, weights: Precision) -> Precision:
    """The precision of the KV cache that engines keep unless they are told otherwise (vLLM's `--kv-cache-dtype
    auto`), on any GPU: what the checkpoint asks for, else that of the activations."""
    asked_for = dict(spec.kv_schemes).get(weights) if spec is not None else None
    return asked_for or ("fp16" if weights == "fp16" else "bf16")
