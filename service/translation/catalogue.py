"""The catalogue's entries as callers get them, with the source of every figure."""

from dataclasses import asdict
from typing import Any, Literal

from sutler.solver.catalog import (
    Fact,
    gpu_facts,
    gpu_title,
    load_gpus,
    load_models,
    model_aliases,
    model_facts,
    resolve_gpu,
    resolve_model,
)

Edition = Literal["default", "paper_table1"]


def gpu_entries(name: str | None, edition: Edition) -> list[dict[str, Any]]:
    """All GPUs of an edition, or the one of this name or spelling. Raises UnknownNameError."""
    gpus = load_gpus(edition).values() if name is None else [resolve_gpu(name, edition, field="NAME")]
    return [
        {
            **asdict(gpu),
            "name": gpu_title(gpu.slug, edition),
            "facts": _facts_by_figure(gpu_facts(gpu.slug, edition)),
        }
        for gpu in gpus
    ]


def model_entries(name: str | None) -> list[dict[str, Any]]:
    """All models, or the one of this name or spelling. Raises UnknownNameError."""
    models = load_models().values() if name is None else [resolve_model(name, field="NAME")]
    return [
        {
            **asdict(model),
            "checkpoints": dict(model.checkpoints),
            "aliases": list(model_aliases(model.id)),
            "facts": _facts_by_figure(model_facts(model.id)),
        }
        for model in models
    ]


def _facts_by_figure(facts: tuple[Fact, ...]) -> dict[str, dict[str, Any]]:
    kept = ("value", "source", "as_of", "basis", "confidence")
    return {fact.figure: {key: getattr(fact, key) for key in kept} for fact in facts}
