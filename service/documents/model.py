"""GPUs and models that a caller describes in the problem itself, beside those of the catalogue."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, FilePath, Name, PositiveGigabytes, Watts, reject
from sutler.service.errors import FieldProblem

PrecisionName = Literal["bf16", "fp16", "fp8", "int8", "int4", "fp4"]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
SizeOrZero = Annotated[int, Field(ge=0, le=10_000_000)]
Teraflops = Annotated[float, Field(gt=0, le=1e6)]
Bandwidth = Annotated[float, Field(gt=0, le=1e6)]
Parameters = Annotated[float, Field(gt=0, le=1e15)]


class GpuDocument(Document):
    """A GPU of the caller's own. With measured rates alone, `memory_gb` is enough; estimates need the rest."""

    memory_gb: PositiveGigabytes
    """Memory of the card, 10^9 bytes."""
    architecture: Name | None = None
    """Hopper, Ada, ...: which calibration of the estimate applies."""
    memory_bandwidth_gb_per_s: Bandwidth | None = None
    """10^9 bytes/s."""
    peak_tflops_bf16_dense: Teraflops | None = None
    """10^12 operations/s, dense, FP32 accumulation."""
    peak_tflops_fp8_dense: Teraflops | None = None
    """As above for FP8; unset: no such tensor cores."""
    peak_tflops_fp4_dense: Teraflops | None = None
    """As above for FP4; unset: no such tensor cores."""
    supports_bf16: bool = True
    """False for Turing and Volta: weights run as FP16."""
    link_gb_per_s: Bandwidth | None = None
    """10^9 bytes/s, one direction, per GPU, to the other GPUs of its machine."""
    link: Name | None = None
    """Kind of that link, such as NVLink4 or PCIe4."""
    tdp_watts: Watts | None = None
    """Board power; needed by min_power and max_power_watts."""


class MoeDocument(Document):
    """Mixture of experts: each layer but `dense_layers` ordinary ones routes a token to a few experts."""

    experts: Size
    """Routed experts of a layer."""
    experts_per_token: Size
    """Of those, how many a token uses."""
    expert_intermediate_size: Size
    """Width of one routed expert."""
    shared_experts: SizeOrZero = 0
    """Experts of a layer that every token uses."""
    shared_expert_intermediate_size: SizeOrZero = 0
    """Width of one shared expert."""
    dense_layers: SizeOrZero = 0
    """Layers with an ordinary feed-forward part, leading or in between."""


class MlaDocument(Document):
    """Multi-head latent attention, by the names of DeepSeek's config.json."""

    kv_lora_rank: Size
    """Width of the compressed key-value entry."""
    q_lora_rank: Size | None = None
    """Width of the compressed query; unset: not compressed."""
    qk_rope_head_dim: Size
    """Rotary part of a head."""
    qk_nope_head_dim: Size
    """Rest of a head."""
    v_head_dim: Size
    """Width of a value head."""


class SlidingWindowDocument(Document):
    """Layers that see only the last tokens."""

    window_tokens: Size
    """How many tokens they see."""
    global_layers: SizeOrZero
    """Layers that see everything."""


class LinearAttentionDocument(Document):
    """Gated DeltaNet in all layers but some, with a state of fixed size per sequence; names of Qwen's config.json."""

    full_layers: SizeOrZero
    """Layers with full attention."""
    key_heads: Size
    """linear_num_key_heads"""
    value_heads: Size
    """linear_num_value_heads"""
    key_head_dim: Size
    """linear_key_head_dim"""
    value_head_dim: Size
    """linear_value_head_dim"""
    conv_kernel_tokens: Size
    """linear_conv_kernel_dim"""
    state_value_bytes: Annotated[int, Field(ge=1, le=8)] = 2
    """Bytes per value of the state; 4 where mamba_ssm_dtype is float32"""


class SparseAttentionDocument(Document):
    """An indexer picks the tokens that are attended to, by the names of DeepSeek's config.json."""

    top_tokens: Size
    """index_topk"""
    index_heads: Size
    """index_n_heads"""
    index_head_dim: Size
    """index_head_dim"""


class ConfigDocument(Document):
    """A model as its publisher describes it: the content of config.json, or where that file is."""

    config: dict[str, Any] | None = None
    """The content of the repository's config.json, as it is."""
    config_file: FilePath | None = None
    """Path of a config.json, relative to this file (command line only)."""
    hf_id: Name | None = None
    """The repository that it is from, which the serving engine loads; unset: the model's name"""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.config is None) == (self.config_file is None):
            reject([FieldProblem("config", None, "give the content of a config.json, or config_file, not both")])
        return self


class ModelSpecDocument(Document):
    """Architecture of a decoder-only transformer that the catalogue does not hold, by the names of config.json."""

    layers: Annotated[int, Field(ge=1, le=10_000)]
    """num_hidden_layers"""
    hidden_size: Size
    """hidden_size"""
    heads: Size
    """num_attention_heads"""
    kv_heads: Size | None = None
    """num_key_value_heads; unset: as many as heads"""
    head_dim: Size | None = None
    """head_dim; unset: hidden_size / heads"""
    intermediate_size: Size
    """intermediate_size of the dense feed-forward part"""
    vocab_size: Size
    """vocab_size"""
    max_context_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """max_position_embeddings; unset: no limit"""
    total_params: Parameters | None = None
    """Number of parameters (not billions); unset: counted from the architecture"""
    active_params: Parameters | None = None
    """Parameters that one token uses; unset: counted from the architecture"""
    tied_embeddings: bool = False
    """The output head is the embedding matrix."""
    moe: MoeDocument | None = None
    """Mixture of experts"""
    mla: MlaDocument | None = None
    """Multi-head latent attention"""
    sliding_window: SlidingWindowDocument | None = None
    """Sliding-window attention"""
    hf_id: Name | None = None
    """What the serving engine loads; unset: the model's name"""
    linear_attention: LinearAttentionDocument | None = None
    """Linear attention beside full attention"""
    sparse_attention: SparseAttentionDocument | None = None
    """Sparse attention behind an indexer"""
    gated_attention: bool = False
    """attn_output_gate: full attention has a projection more, which gates its output."""
    checkpoints: Mapping[PrecisionName, Name] = {}
    """What the serving engine loads at a precision, in place of hf_id: weights that are quantised already"""
    kv_schemes: Mapping[PrecisionName, PrecisionName] = {}
    """KV caches that these ask for in their own configuration, by the precision of the weights"""

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        reject([*_head_rules(self), *_expert_rules(self), *_parameter_rules(self)])
        return self


def _head_rules(spec: ModelSpecDocument) -> list[FieldProblem]:
    problems = []
    if spec.head_dim is None and spec.hidden_size % spec.heads:
        remedy = f"does not divide hidden_size ({spec.hidden_size}): give head_dim"
        problems.append(FieldProblem("heads", str(spec.heads), remedy))
    if spec.kv_heads is not None and spec.heads % spec.kv_heads:
        problems.append(FieldProblem("kv_heads", str(spec.kv_heads), f"must divide heads ({spec.heads})"))
    parts = {
        "sliding_window.global_layers": spec.sliding_window and spec.sliding_window.global_layers,
        "linear_attention.full_layers": spec.linear_attention and spec.linear_attention.full_layers,
    }
    remedy = f"must be at most layers ({spec.layers})"
    return [*problems, *(FieldProblem(at, str(n), remedy) for at, n in parts.items() if n and n > spec.layers)]


def _expert_rules(spec: ModelSpecDocument) -> list[FieldProblem]:
    if spec.moe is None:
        return []
    problems = []
    if spec.moe.experts_per_token > spec.moe.experts:
        remedy = f"must be at most experts ({spec.moe.experts})"
        problems.append(FieldProblem("moe.experts_per_token", str(spec.moe.experts_per_token), remedy))
    if spec.moe.dense_layers >= spec.layers:
        remedy = f"must be below layers ({spec.layers}); leave moe out if every layer is dense"
        problems.append(FieldProblem("moe.dense_layers", str(spec.moe.dense_layers), remedy))
    return problems


def _parameter_rules(spec: ModelSpecDocument) -> list[FieldProblem]:
    if spec.total_params is None or spec.active_params is None or spec.active_params <= spec.total_params:
        return []
    remedy = f"must be at most total_params ({spec.total_params:g})"
    return [FieldProblem("active_params", f"{spec.active_params:g}", remedy)]
