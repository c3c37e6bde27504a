"""Application documents for tests: a chain whose last outputs another model reads, on two pairs of GPUs."""

from pathlib import Path
from typing import Any

from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.files import checked_application
from sutler.service.offline.translate import OfflineTranslation, translate


def a_writer(name: str = "summary", **others: Any) -> dict[str, Any]:
    requests = {"count": 10, "input_tokens": 1000, "chain_length": {"uniform": {"low": 1, "high": 3}}}
    given = {"name": name, "model": "llama-2-13b", "precision": "fp16", "requests": requests, "output_tokens": 200}
    return {**given, "max_output_tokens": 900, **others}


def a_reader(name: str = "judge", **others: Any) -> dict[str, Any]:
    given = {"name": name, "model": "llama-2-70b", "precision": "fp16", "prompt_tokens": 300, "output_tokens": 180}
    return {**given, **others}


def an_asker(name: str = "one", count: int = 10, **others: Any) -> dict[str, Any]:
    """A model with requests of its own and no chains."""
    requests = {"count": count, "input_tokens": 100}
    return {"name": name, "model": "llama-2-7b", "requests": requests, "output_tokens": 50, **others}


def an_edge(source: str, target: str, **others: Any) -> dict[str, Any]:
    return {"from": source, "to": target, **others}


def an_application(**others: Any) -> dict[str, Any]:
    return {
        "name": "chain-summary",
        "models": [a_writer(), a_reader()],
        "edges": [an_edge("summary", "summary"), an_edge("summary", "judge", copies=4)],
        "hardware": {"gpu": "a100-sxm4-80gb", "gpus": 4, "island_gpus": 2},
        **others,
    }


def read_application(path: Path) -> ApplicationDocument:
    """The checked document of a file."""
    return checked_application(read_document(path, field="APPLICATION"))


def translated(**others: Any) -> OfflineTranslation:
    return translate(validate(ApplicationDocument, an_application(**others)), folder=None)
