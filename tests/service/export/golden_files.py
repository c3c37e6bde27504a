"""Where the expected texts are, and how they are made."""

import textwrap
from pathlib import Path
from typing import Final, cast

from sutler.service.documents.errors import DocumentError
from sutler.service.export import ExportFormat, exported
from tests.service.export.plans import a_plan

GOLDEN: Final = Path(__file__).parent / "golden"
ENDINGS: Final = {
    "vllm": "sh",
    "compose": "compose.yaml",
    "kubernetes": "kubernetes.yaml",
    "skypilot": "skypilot.yaml",
    "router": "router.json",
    "nginx": "nginx.conf",
    "envoy": "envoy.json",
}


def golden_path(name: str, format: str) -> Path:
    return GOLDEN / f"{name}.{ENDINGS[format]}"


def text_of(name: str, format: str) -> str:
    """The export; where a replica cannot be, the error's message as a comment."""
    try:
        return exported(a_plan(name), cast(ExportFormat, format)).content
    except DocumentError as error:
        return textwrap.indent(f"{error}\n", "# ")
