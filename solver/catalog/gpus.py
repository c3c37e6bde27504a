"""GPUs of a catalogue file as entries, with their provenance and what names they go by."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sutler.solver.catalog.entries import Gpu
from sutler.solver.catalog.tables import CatalogError, Fact, Table, read_toml, take_provenance
from sutler.solver.errors import UnknownNameError

CATALOG_FILES: Final = {"default": "gpus.toml", "paper_table1": "paper_table1.toml"}
REQUIRED_FIGURES: Final = ("memory_gb", "memory_bandwidth_gb_per_s", "peak_tflops_bf16_dense")
OPTIONAL_FIGURES: Final = ("peak_tflops_fp8_dense", "peak_tflops_fp4_dense")
MACHINE_FIGURES: Final = ("link_gb_per_s", "tdp_watts")


@dataclass(frozen=True, slots=True)
class GpuNames:
    """What the resolver knows of one GPU: its family (`a100`), the forms its names may state, fixed spellings,
    and what a name must state because cards outside the catalogue share it (`form`, `memory`)."""

    family: str
    forms: frozenset[str]
    aliases: tuple[str, ...]
    must_say: frozenset[str]


@dataclass(frozen=True, slots=True)
class CatalogGpu:
    """One GPU of a file, with the vendor's name of it."""

    gpu: Gpu
    title: str
    names: GpuNames
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class GpuCatalog:
    """One catalogue file, GPUs by slug. `families` orders the members of a family for names that leave something
    open; `ambiguous` lists the GPUs of names that several families share."""

    gpus: Mapping[str, CatalogGpu]
    families: Mapping[str, tuple[str, ...]]
    ambiguous: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=len(CATALOG_FILES))
def gpu_catalog(catalog: str = "default") -> GpuCatalog:
    """The catalogue of this name, checked and cached.

    Raises UnknownNameError for a catalogue that does not exist, CatalogError for a defect in our file.
    """
    if catalog not in CATALOG_FILES:
        raise UnknownNameError("catalog", catalog, f"use one of: {', '.join(CATALOG_FILES)}")
    return build_gpu_catalog(catalog, read_toml(CATALOG_FILES[catalog]))


def build_gpu_catalog(name: str, document: Table) -> GpuCatalog:
    """Reads the GPUs of a file; raises CatalogError where it breaks a rule of the file format."""
    as_of = document.month("as_of")
    defaults = document.table("basis").text_map()
    families = document.table("families").list_map()
    ambiguous = document.table("ambiguous").list_map()
    entries = document.table("gpus").tables()
    document.close()
    read = {slug: _read_gpu(slug, entry, defaults=defaults, as_of=as_of) for slug, entry in entries.items()}
    for group, members in {**families, **ambiguous}.items():
        if unknown := set(members) - set(read):
            raise CatalogError(f"{name}: {group}: names GPUs that are not in the file: {sorted(unknown)}")
    return GpuCatalog(MappingProxyType(read), MappingProxyType(families), MappingProxyType(ambiguous))


def _read_gpu(slug: str, entry: Table, *, defaults: Mapping[str, str], as_of: str) -> CatalogGpu:
    provenance = take_provenance(entry, defaults=defaults, as_of=as_of, source=None)
    title = entry.text("name")
    names = GpuNames(
        family=entry.text("family"),
        forms=frozenset(entry.texts("forms")),
        aliases=entry.texts("aliases"),
        must_say=frozenset(entry.texts("must_say")),
    )
    figures = _read_figures(entry)
    gpu = Gpu(
        slug=slug,
        architecture=entry.text("architecture"),
        supports_bf16=entry.boolean("supports_bf16", default=True),
        link=entry.text("link"),
        **figures,
    )
    price = entry.optional_number("price_usd_per_hour")
    entry.close()
    stated = {**figures, **({} if price is None else {"price_usd_per_hour": price})}
    facts = tuple(provenance.fact(slug, figure, value) for figure, value in stated.items())
    return CatalogGpu(gpu, title, names, facts)


def _read_figures(entry: Table) -> dict[str, float]:
    figures = {figure: entry.number(figure) for figure in REQUIRED_FIGURES + MACHINE_FIGURES}
    for figure in OPTIONAL_FIGURES:
        value = entry.optional_number(figure)
        if value is not None:
            figures[figure] = value
    return figures
