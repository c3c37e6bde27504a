"""GPUs and models as plain facts: strict files, cached loading, and the names that people and clouds use for them.

Every figure has a source, a date and a basis (`gpu_facts`, `model_facts`). Names resolve to canonical slugs and ids;
GPU conventions where a name leaves something open: `H100` and `H200` mean SXM, `A100` the 80 GB SXM card.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from sutler.solver.catalog.config_json import spec_of_config
from sutler.solver.catalog.entries import PRECISIONS, Gpu, ModelSpec, Precision
from sutler.solver.catalog.gpu_names import resolve_gpu
from sutler.solver.catalog.gpus import gpu_catalog
from sutler.solver.catalog.model_names import resolve_model, with_repository
from sutler.solver.catalog.models import model_catalog
from sutler.solver.catalog.tables import CatalogError, Fact

__all__ = [
    "PRECISIONS",
    "CatalogError",
    "Fact",
    "Gpu",
    "ModelSpec",
    "Precision",
    "gpu_facts",
    "gpu_title",
    "load_gpus",
    "load_models",
    "model_aliases",
    "model_facts",
    "resolve_gpu",
    "resolve_model",
    "spec_of_config",
    "with_repository",
]


@lru_cache
def load_gpus(catalog: str = "default") -> Mapping[str, Gpu]:
    """GPUs by slug, of the catalogue "default" or "paper_table1"; raises UnknownNameError for another name."""
    return MappingProxyType({slug: entry.gpu for slug, entry in gpu_catalog(catalog).gpus.items()})


@lru_cache
def load_models() -> Mapping[str, ModelSpec]:
    """Models by id."""
    return MappingProxyType({model: entry.spec for model, entry in model_catalog().items()})


def gpu_facts(slug: str, catalog: str = "default") -> tuple[Fact, ...]:
    """Every figure of one GPU with its provenance; raises UnknownNameError."""
    return gpu_catalog(catalog).gpus[resolve_gpu(slug, catalog).slug].facts


def gpu_title(slug: str, catalog: str = "default") -> str:
    """The vendor's name of one GPU; raises UnknownNameError."""
    return gpu_catalog(catalog).gpus[resolve_gpu(slug, catalog).slug].title


def model_facts(model: str) -> tuple[Fact, ...]:
    """Every figure of one model with its provenance; raises UnknownNameError."""
    return model_catalog()[resolve_model(model).id].facts


def model_aliases(model: str) -> tuple[str, ...]:
    """Further names of one model beside its id and repository; raises UnknownNameError."""
    return model_catalog()[resolve_model(model).id].aliases
