"""A publisher's config.json, as Hugging Face repositories hold it, as a ModelSpec.

The names are those of the transformers library. What is missing, or says that layers are of a kind that the rate
model does not know, is an InvalidProblemError that names the field: nothing is guessed. Layers: config_layers.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from sutler.solver.catalog.config_fields import Config
from sutler.solver.catalog.config_layers import (
    experts_of,
    latent_of,
    linear_of,
    refuse_unknown_layers,
    sparse_of,
    window_of,
)
from sutler.solver.catalog.entries import ModelSpec, Precision
from sutler.solver.catalog.parameters import GATED_FEED_FORWARD_MATRICES, count_parameters

# Where config.json says nothing, because it is what the class does anyway.
_TIED: Final = ("gemma", "cohere")
_GATED_ATTENTION: Final = ("qwen3_next", "qwen3_5")
_PLAIN_FEED_FORWARD: Final = (
    "gpt_neox",
    "gpt_bigcode",
    "phi",
    "starcoder2",
    "nemotron",
    "persimmon",
    "stablelm_epoch",
)
_METHODS: Final[Mapping[str, Precision]] = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4", "awq": "int4"}


def spec_of_config(
    config: Mapping[str, object], *, name: str, hf_id: str | None = None, field: str = "config"
) -> ModelSpec:
    """The architecture of a parsed config.json. `name` is its id, `hf_id` the repository that it is from.

    Raises InvalidProblemError; `field` is what the config is called there. Parameters are counted: the vision part of
    a multimodal model and layers for multi-token prediction are left out.
    """
    whole = Config(field, config)
    text = whole.language_part()
    refuse_unknown_layers(text)
    layers, hidden_size = text.integer("num_hidden_layers"), text.integer("hidden_size")
    heads = text.integer("num_attention_heads")
    mla = latent_of(text)
    kv_heads = heads if mla else text.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise text.wrong("num_key_value_heads", kv_heads, f"must divide num_attention_heads ({heads})")
    moe = experts_of(text, layers)
    has_dense = moe is None or moe.dense_layers > 0
    linear, sparse = linear_of(text, layers), sparse_of(text)
    max_context_tokens = text.integer("max_position_embeddings")
    is_gated = text.flag("attn_output_gate", default=text.kind.startswith(_GATED_ATTENTION))
    head_dim = mla.qk_nope_head_dim if mla else _head_dim(text, hidden_size, heads)
    intermediate_size = _dense_width(text, is_needed=has_dense, instead=moe.expert_intermediate_size if moe else 0)
    native = native_precision(whole)
    spec = ModelSpec(
        id=name,
        layers=layers,
        hidden_size=hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        vocab_size=text.integer("vocab_size"),
        max_context_tokens=max_context_tokens,
        total_params=0.0,
        active_params=0.0,
        tied_embeddings=text.flag("tie_word_embeddings", default=text.kind.startswith(_TIED)),
        moe=moe,
        mla=mla,
        sliding_window=window_of(text, layers, max_context_tokens),
        hf_id=hf_id,
        linear_attention=linear,
        sparse_attention=sparse,
        gated_attention=is_gated,
        checkpoints=() if native is None else ((native, hf_id or name),),
        kv_schemes=() if native is None or not _has_fp8_cache(whole) else ((native, "fp8"),),
    )
    matrices = 2 if text.kind in _PLAIN_FEED_FORWARD else GATED_FEED_FORWARD_MATRICES
    counted = count_parameters(spec, feed_forward_matrices=matrices)
    return replace(spec, total_params=counted.total, active_params=counted.active)


def native_precision(config: Config) -> Precision | None:
    """The precision of the weights beside this config.json, where they are quantised in a way that is known here."""
    table = config.part("quantization_config")
    if table is None:
        return None
    method = str(table.value("quant_method") or table.value("quant_algo") or "").lower()
    bits = table.value("bits")
    if method == "gptq":
        return "int8" if bits == 8 else "int4"
    if method == "bitsandbytes":
        return "int4" if table.value("load_in_4bit") is True else "int8"
    if method == "modelopt":
        method = str(table.value("quant_algo") or "").lower()
    if method == "compressed-tensors":
        return _of_groups(table)
    return _METHODS.get(method) or ("fp4" if "fp4" in method else "fp8" if "fp8" in method else None)


def _has_fp8_cache(config: Config) -> bool:
    """Whether the weights come with scales for an 8-bit KV cache (compressed-tensors, ModelOpt)."""
    table = config.part("quantization_config")
    scheme = table.part("kv_cache_scheme") if table is not None else None
    named = table.value("kv_cache_quant_algo") if table is not None else None
    return str(named).upper() == "FP8" or (scheme is not None and scheme.value("num_bits") == 8)


def _of_groups(table: Config) -> Precision | None:
    """compressed-tensors describes the weights of groups of layers; the first stands for all."""
    groups = table.part("config_groups")
    first = next(iter(groups.keys()), None) if groups is not None else None
    group = groups.part(first) if groups is not None and first is not None else None
    weights = group.part("weights") if group is not None else None
    if weights is None:
        return None
    kind, bits = weights.value("type"), weights.value("num_bits")
    known = {("float", 8): "fp8", ("float", 4): "fp4", ("int", 8): "int8", ("int", 4): "int4"}
    return cast(Precision | None, known.get((str(kind), bits if isinstance(bits, int) else 0)))


def _head_dim(text: Config, hidden_size: int, heads: int) -> int:
    if text.value("head_dim") is None and hidden_size % heads:
        raise text.missing("head_dim")
    return text.integer("head_dim", default=hidden_size // heads)


def _dense_width(text: Config, *, is_needed: bool, instead: int) -> int:
    """Llama 4 calls the width of its experts intermediate_size."""
    key = "intermediate_size_mlp" if text.value("intermediate_size_mlp") is not None else "intermediate_size"
    return text.integer(key) if is_needed else text.integer(key, default=instead)
