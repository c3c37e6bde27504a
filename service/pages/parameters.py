"""Numbers that people type into a form or an address."""

import re
from collections.abc import Mapping
from typing import Final

from sutler.service.deployments.schemas import NAME_PATTERN
from sutler.service.documents.errors import DocumentError

MOST: Final = 1e7


def name_in(given: Mapping[str, str], field: str) -> str:
    """The name of a deployment. Raises DocumentError for what is none."""
    name = given.get(field, "")
    if not re.fullmatch(NAME_PATTERN, name):
        raise DocumentError.of(field, "is no name of a deployment: choose one", value=name[:60])
    return name


def number_of(given: Mapping[str, str], name: str, *, least: float | None = None) -> float | None:
    """The number of this name, None where nothing was given: at least `least`, or above 0. Raises DocumentError."""
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not (found > 0 if least is None else found >= least) or not found <= MOST:
        bound = "above 0" if least is None else f"of at least {least:g}"
        raise DocumentError.of(name, f"must be a number {bound}", value=text[:40])
    return found
