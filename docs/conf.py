"""The documentation as a site: `make docs`. Pages are Markdown, the library is described by its docstrings."""

import re
from importlib import metadata
from typing import Any

project = "sutler"
release = metadata.version("sutler")
author = copyright = "the sutler authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"sutler {release}"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_preserve_defaults = True
exclude_patterns = ["requirements.txt"]

# What stands beside the documentation in the repository is named there, not linked: the site is built without it.
BESIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|benchmarks|CHANGELOG|SECURITY|CONTRIBUTING)[^)]*\)")


def setup(app: Any) -> None:
    """Sphinx calls this with its application."""
    app.connect("source-read", _name_what_is_beside)


def _name_what_is_beside(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = BESIDE.sub(r"`\1`", source[0])
