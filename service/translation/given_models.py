"""Models as callers give them: a name of the catalogue, a publisher's config.json, or an architecture of their own.

Flow: ModelReference of a document -> given_spec -> ModelSpec. to_problem.py and service/offline/translate.py ask.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.model import ConfigDocument, ModelSpecDocument
from sutler.service.documents.reading import read_document
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import resolve_path
from sutler.solver.catalog import load_models, resolve_model, spec_of_config, with_repository
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.catalog.parameters import count_parameters
from sutler.solver.units import PARAMETERS_PER_BILLION

UNLIMITED_CONTEXT_TOKENS: Final = 10_000_000  # as many as a workload may have (documents/fields.py, Tokens)


def given_spec(
    field: str, name: str, given: str | ConfigDocument | ModelSpecDocument, folder: Path | None, notes: list[str]
) -> ModelSpec:
    """Returns the model that is given; `name` is the caller's own, paths are relative to `folder` (None: refused).

    `notes` gets how it was read.

    Raises DocumentError, InvalidProblemError and UnknownNameError naming the field.
    """
    if isinstance(given, ModelSpecDocument):
        return inline_spec(name, given)
    if isinstance(given, ConfigDocument):
        return _config_spec(field, name, given, folder, notes)
    return named_spec(field, given, notes)


def named_spec(field: str, name: str, notes: list[str]) -> ModelSpec:
    """The model of the catalogue that a name means; `notes` gets what it was read as.

    Raises UnknownNameError naming the field.
    """
    spec = load_models().get(name) or resolve_model(name, field=field)
    if spec.id != name:
        notes.append(f"{field}: {name} is planned as {spec.id} of the catalogue.")
    return with_repository(spec, name) if "/" in name else spec


def config_in(path: Path, *, field: str) -> dict[str, Any]:
    """The content of a config.json. Raises DocumentError."""
    found = read_document(path, field=field)
    if not isinstance(found, dict):
        raise DocumentError.of(field, "holds no config.json: take that of the model's repository", value=path.name)
    return found


def with_content(field: str, given: ConfigDocument, folder: Path | None) -> ConfigDocument:
    """Returns it with what its path leads to. Raises DocumentError."""
    if given.config_file is None:
        return given
    at = f"{field}.config_file"
    return ConfigDocument(
        config=config_in(resolve_path(given.config_file, folder, field=at), field=at), hf_id=given.hf_id
    )


def _config_spec(field: str, name: str, given: ConfigDocument, folder: Path | None, notes: list[str]) -> ModelSpec:
    config = with_content(field, given, folder).config or {}
    spec = spec_of_config(config, name=name, hf_id=given.hf_id, field=f"{field}.config")
    notes.append(f"{field}: {how_read(spec)}")
    return spec


def how_read(spec: ModelSpec) -> str:
    """Says what a reader can compare with the model card."""
    active = f", {spec.active_params / PARAMETERS_PER_BILLION:.3g} active," if spec.moe else ""
    native = f", published at {spec.native_precision}" if spec.native_precision else ""
    return (
        f"config.json adds up to {spec.total_params / PARAMETERS_PER_BILLION:.4g} billion parameters{active}{native}."
    )


def inline_spec(name: str, given: ModelSpecDocument) -> ModelSpec:
    """An architecture that is described, with what it leaves out counted from the rest."""
    spec = mapped(
        ModelSpec,
        given,
        id=name,
        kv_heads=given.kv_heads or given.heads,
        head_dim=given.head_dim or given.hidden_size // given.heads,
        max_context_tokens=given.max_context_tokens or UNLIMITED_CONTEXT_TOKENS,
        total_params=0.0,
        active_params=0.0,
    )
    counted = count_parameters(spec)
    total = given.total_params or counted.total
    return replace(spec, total_params=total, active_params=given.active_params or min(total, counted.active))
