"""Models of the catalogue as entries, with their provenance and aliases."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

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
from sutler.solver.catalog.tables import CatalogError, Fact, Provenance, Table, read_toml, take_provenance

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
MAY_BE_ZERO: Final = {
    "shared_experts",
    "shared_expert_intermediate_size",
    "dense_layers",
    "global_layers",
    "full_layers",
}

Part = TypeVar("Part", MixtureOfExperts, LatentAttention, SlidingWindow, LinearAttention, SparseAttention)


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One model of the file. `counted` is what its architecture adds up to, beside the published totals of `spec`."""

    spec: ModelSpec
    aliases: tuple[str, ...]
    facts: tuple[Fact, ...]
    counted: ParameterCount


@lru_cache(maxsize=1)
def model_catalog() -> Mapping[str, CatalogModel]:
    """The models by id, checked and cached; raises CatalogError for a defect in our file."""
    return build_model_catalog(read_toml(MODEL_FILE))


def build_model_catalog(document: Table) -> Mapping[str, CatalogModel]:
    """Reads the models of a file; raises CatalogError where it breaks a rule of the file format."""
    as_of = document.month("as_of")
    source = document.text("source")
    defaults = document.table("basis").text_map()
    entries = document.table("models").tables()
    document.close()
    return MappingProxyType(
        {
            model: _read_model(model, entry, defaults=defaults, as_of=as_of, source=source)
            for model, entry in entries.items()
        }
    )


def _read_model(model: str, entry: Table, *, defaults: Mapping[str, str], as_of: str, source: str) -> CatalogModel:
    hf_id = entry.text("hf_id")
    own_source = source.format(hf_id=hf_id)
    provenance = take_provenance(entry, defaults=defaults, as_of=as_of, source=own_source)
    sizes = {figure: entry.integer(figure) for figure in SIZE_FIGURES}
    total = entry.number("total_params")
    kv_schemes = cast(dict[Precision, Precision], _read_by_precision(entry, "kv_schemes"))
    _check_precisions(entry, "kv_schemes", kv_schemes.values())
    spec = ModelSpec(
        id=model,
        **sizes,
        total_params=total,
        active_params=total,
        tied_embeddings=entry.boolean("tied_embeddings", default=False),
        moe=_read_part(entry, "moe", MixtureOfExperts),
        mla=_read_part(entry, "mla", LatentAttention),
        sliding_window=_read_part(entry, "sliding_window", SlidingWindow),
        precisions=_read_precisions(entry),
        hf_id=hf_id,
        linear_attention=_read_part(entry, "linear_attention", LinearAttention),
        sparse_attention=_read_part(entry, "sparse_attention", SparseAttention),
        gated_attention=entry.boolean("gated_attention", default=False),
        checkpoints=tuple(_read_by_precision(entry, "checkpoints").items()),
        kv_schemes=tuple(kv_schemes.items()),
    )
    matrices = entry.integer("feed_forward_matrices", default=GATED_FEED_FORWARD_MATRICES)
    counted = count_parameters(spec, feed_forward_matrices=matrices)
    active = entry.optional_number("active_params") or (counted.active if spec.moe else total)
    spec = replace(spec, active_params=active)
    aliases = entry.texts("aliases")
    entry.close()
    return CatalogModel(spec, aliases, _facts(spec, sizes, provenance), counted)


def _read_part(entry: Table, key: str, kind: type[Part]) -> Part | None:
    """A table of whole numbers, named as the fields of `kind`; those with a default may be left out."""
    table = entry.optional_table(key)
    if table is None:
        return None
    numbers: dict[str, Any] = {}
    for field in fields(kind):
        default = None if field.default is MISSING else field.default
        least = 0 if field.name in MAY_BE_ZERO else 1
        is_absent = field.name == "q_lora_rank" and field.name not in table  # queries that are not compressed
        numbers[field.name] = None if is_absent else table.integer(field.name, default=default, least=least)
    table.close()
    return kind(**numbers)


def _read_precisions(entry: Table) -> tuple[Precision, ...]:
    stated = entry.texts("precisions")
    _check_precisions(entry, "precisions", stated)
    return cast(tuple[Precision, ...], stated) or PRECISIONS


def _read_by_precision(entry: Table, key: str) -> dict[Precision, str]:
    table = entry.optional_table(key)
    stated = table.text_map() if table is not None else {}
    _check_precisions(entry, key, stated)
    return cast(dict[Precision, str], stated)


def _check_precisions(entry: Table, key: str, stated: Iterable[str]) -> None:
    if unknown := set(stated) - set(PRECISIONS):
        raise CatalogError(f"{entry.path}.{key}: {sorted(unknown)}: use {', '.join(PRECISIONS)}")


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
