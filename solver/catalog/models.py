"""Models of the catalogue as entries, with their provenance and aliases."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, cast

from sutler.solver.catalog.entries import (
    PRECISIONS,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    ModelSpec,
    Precision,
    SlidingWindow,
    SparseAttention,
)
from sutler.solver.catalog.parameters import GATED_FEED_FORWARD_MATRICES, ParameterCount, count_parameters
from sutler.solver.catalog.tables import CatalogError, Fact, Provenance, Table, parse_toml, read_toml, take_provenance

MODEL_FILE: Final = "models.toml"
SIZE_FIGURES: Final = (
    "layers",
    "hidden_size",
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_context_tokens",
)


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The model file. `counted` is what the architecture adds up to, beside the published totals of the specs."""

    models: Mapping[str, ModelSpec]
    aliases: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, tuple[Fact, ...]]
    counted: Mapping[str, ParameterCount]


@lru_cache(maxsize=1)
def model_catalog() -> ModelCatalog:
    """The models, checked and cached; raises CatalogError for a defect in our file."""
    return build_model_catalog(read_toml(MODEL_FILE))


def parse_model_catalog(name: str, content: str) -> ModelCatalog:
    """Models from TOML text; raises CatalogError where the text breaks a rule of the file format."""
    return build_model_catalog(parse_toml(name, content))


def build_model_catalog(document: Table) -> ModelCatalog:
    as_of = document.month("as_of")
    source = document.text("source")
    defaults = document.table("basis").text_map()
    entries = document.table("models").tables()
    document.close()
    read = {
        model: _read_model(model, entry, defaults=defaults, as_of=as_of, source=source)
        for model, entry in entries.items()
    }
    return ModelCatalog(
        models=MappingProxyType({model: entry.spec for model, entry in read.items()}),
        aliases=MappingProxyType({model: entry.aliases for model, entry in read.items()}),
        facts=MappingProxyType({model: entry.facts for model, entry in read.items()}),
        counted=MappingProxyType({model: entry.counted for model, entry in read.items()}),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    spec: ModelSpec
    aliases: tuple[str, ...]
    facts: tuple[Fact, ...]
    counted: ParameterCount


def _read_model(model: str, entry: Table, *, defaults: Mapping[str, str], as_of: str, source: str) -> _Entry:
    hf_id = entry.text("hf_id")
    own_source = source.format(hf_id=hf_id)
    provenance = take_provenance(entry, defaults=defaults, as_of=as_of, source=own_source)
    sizes = {figure: entry.integer(figure) for figure in SIZE_FIGURES}
    total = entry.number("total_params")
    spec = ModelSpec(
        id=model,
        **sizes,
        total_params=total,
        active_params=total,
        tied_embeddings=entry.boolean("tied_embeddings", default=False),
        moe=_read_moe(entry),
        mla=_read_mla(entry),
        sliding_window=_read_window(entry),
        precisions=_read_precisions(entry),
        hf_id=hf_id,
        linear_attention=_read_linear(entry),
        sparse_attention=_read_sparse(entry),
        gated_attention=entry.boolean("gated_attention", default=False),
        checkpoints=_read_checkpoints(entry),
        kv_schemes=_read_kv_schemes(entry),
    )
    matrices = entry.integer("feed_forward_matrices", default=GATED_FEED_FORWARD_MATRICES)
    counted = count_parameters(spec, feed_forward_matrices=matrices)
    active = entry.optional_number("active_params") or (counted.active if spec.moe else total)
    spec = replace(spec, active_params=active)
    aliases = entry.texts("aliases")
    entry.close()
    return _Entry(spec, aliases, _facts(spec, sizes, provenance), counted)


def _read_moe(entry: Table) -> MixtureOfExperts | None:
    table = entry.optional_table("moe")
    if table is None:
        return None
    moe = MixtureOfExperts(
        experts=table.integer("experts"),
        experts_per_token=table.integer("experts_per_token"),
        expert_intermediate_size=table.integer("expert_intermediate_size"),
        shared_experts=table.integer("shared_experts", default=0, least=0),
        shared_expert_intermediate_size=table.integer("shared_expert_intermediate_size", default=0, least=0),
        dense_layers=table.integer("dense_layers", default=0, least=0),
    )
    table.close()
    return moe


def _read_mla(entry: Table) -> LatentAttention | None:
    table = entry.optional_table("mla")
    if table is None:
        return None
    mla = LatentAttention(
        kv_lora_rank=table.integer("kv_lora_rank"),
        q_lora_rank=table.integer("q_lora_rank") if "q_lora_rank" in table else None,
        qk_rope_head_dim=table.integer("qk_rope_head_dim"),
        qk_nope_head_dim=table.integer("qk_nope_head_dim"),
        v_head_dim=table.integer("v_head_dim"),
    )
    table.close()
    return mla


def _read_window(entry: Table) -> SlidingWindow | None:
    table = entry.optional_table("sliding_window")
    if table is None:
        return None
    window = SlidingWindow(
        window_tokens=table.integer("window_tokens"), global_layers=table.integer("global_layers", least=0)
    )
    table.close()
    return window


def _read_linear(entry: Table) -> LinearAttention | None:
    table = entry.optional_table("linear_attention")
    if table is None:
        return None
    linear = LinearAttention(
        full_layers=table.integer("full_layers", least=0),
        key_heads=table.integer("key_heads"),
        value_heads=table.integer("value_heads"),
        key_head_dim=table.integer("key_head_dim"),
        value_head_dim=table.integer("value_head_dim"),
        conv_kernel_tokens=table.integer("conv_kernel_tokens"),
        state_value_bytes=table.integer("state_value_bytes", default=2),
    )
    table.close()
    return linear


def _read_sparse(entry: Table) -> SparseAttention | None:
    table = entry.optional_table("sparse_attention")
    if table is None:
        return None
    sparse = SparseAttention(
        top_tokens=table.integer("top_tokens"),
        index_heads=table.integer("index_heads"),
        index_head_dim=table.integer("index_head_dim"),
    )
    table.close()
    return sparse


def _read_checkpoints(entry: Table) -> tuple[tuple[Precision, str], ...]:
    table = entry.optional_table("checkpoints")
    named = table.text_map() if table is not None else {}
    if unknown := set(named) - set(PRECISIONS):
        raise CatalogError(f"{entry.path}.checkpoints: {sorted(unknown)}: use {', '.join(PRECISIONS)}")
    return tuple(cast(Mapping[Precision, str], named).items())


def _read_kv_schemes(entry: Table) -> tuple[tuple[Precision, Precision], ...]:
    table = entry.optional_table("kv_schemes")
    stated = table.text_map() if table is not None else {}
    if unknown := {*stated, *stated.values()} - set(PRECISIONS):
        raise CatalogError(f"{entry.path}.kv_schemes: {sorted(unknown)}: use {', '.join(PRECISIONS)}")
    return tuple(cast(Mapping[Precision, Precision], stated).items())


def _read_precisions(entry: Table) -> tuple[Precision, ...]:
    stated = entry.texts("precisions")
    if unknown := set(stated) - set(PRECISIONS):
        raise CatalogError(f"{entry.path}.precisions: {sorted(unknown)}: use {', '.join(PRECISIONS)}")
    return cast(tuple[Precision, ...], stated) or PRECISIONS


def _facts(spec: ModelSpec, sizes: Mapping[str, int], provenance: Provenance) -> tuple[Fact, ...]:
    figures: dict[str, float | int | str] = {
        **sizes,
        "total_params": spec.total_params,
        "active_params": spec.active_params,
    }
    for part in ("moe", "mla", "sliding_window", "linear_attention", "sparse_attention"):
        value = getattr(spec, part)
        if value is not None:
            figures[part] = ", ".join(f"{name} {getattr(value, name)}" for name in value.__slots__)
    if spec.checkpoints:
        figures["checkpoints"] = ", ".join(f"{precision} {name}" for precision, name in spec.checkpoints)
    return tuple(provenance.fact(spec.id, figure, value) for figure, value in figures.items())
