"""Where the expected texts are, and how they are made."""

from pathlib import Path
from typing import Final, cast

from service.export import ExportFormat, NothingToRunError, exported
from tests.service.export.plans import a_plan

GOLDEN: Final = Path(__file__).parent / "golden"
ENDINGS: Final = {
    "vllm": "sh",
    "compose": "compose.yaml",
    "kubernetes": "kubernetes.yaml",
    "skypilot": "skypilot.yaml",
    "router": "router.json",
}


def golden_path(name: str, format: str) -> Path:
    return GOLDEN / f"{name}.{ENDINGS[format]}"


def text_of(name: str, format: str) -> str:
    """The export; where there is nothing to run, the error's message."""
    try:
        return exported(a_plan(name), cast(ExportFormat, format)).content
    except NothingToRunError as error:
        return f"# {error}\n"
