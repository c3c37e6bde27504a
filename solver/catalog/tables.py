"""Strict reading of the catalogue's TOML files: every key is known, every figure is positive and has a provenance.

First step of loading; gpus.py and models.py turn the tables into entries.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sutler.solver.errors import SolverError

_MONTH_LENGTH: Final = len("2026-11")


class CatalogError(SolverError):
    """A catalogue file is wrong: our defect, not the caller's."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of one entry and where it comes from. `as_of` is a month, YYYY-MM."""

    entry: str
    figure: str
    value: float | int | str | bool
    source: str
    as_of: str
    basis: str
    confidence: str | None = None


class Table:
    """A TOML table whose keys are taken one by one; what is left at the end is an error."""

    def __init__(self, path: str, content: object) -> None:
        if not isinstance(content, dict):
            raise CatalogError(f"{path}: {content!r}: must be a table")
        self.path = path
        self._left: dict[str, Any] = dict(content)

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def text(self, key: str) -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value.strip():
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be a text that is not empty")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._left else None

    def texts(self, key: str) -> tuple[str, ...]:
        """An optional list of texts; empty when the key is absent."""
        value = self._left.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be a list of texts")
        return tuple(value)

    def number(self, key: str) -> float:
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be a positive number")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if key in self._left else None

    def integer(self, key: str, *, default: int | None = None, least: int = 1) -> int:
        value = self._take(key) if default is None else self._left.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be a whole number of at least {least}")
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._left.pop(key, default)
        if not isinstance(value, bool):
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be true or false")
        return value

    def month(self, key: str) -> str:
        value = self.text(key)
        year, dash, month = value.partition("-")
        if len(value) != _MONTH_LENGTH or dash != "-" or not (year.isdigit() and month.isdigit()):
            raise CatalogError(f"{self.path}.{key}: {value!r}: must be a month, YYYY-MM")
        return value

    def table(self, key: str) -> "Table":
        return Table(f"{self.path}.{key}", self._take(key))

    def optional_table(self, key: str) -> "Table | None":
        return self.table(key) if key in self._left else None

    def tables(self) -> dict[str, "Table"]:
        """All remaining keys, each a table."""
        taken = {key: Table(f"{self.path}.{key}", value) for key, value in self._left.items()}
        self._left.clear()
        return taken

    def text_map(self) -> dict[str, str]:
        return {key: self.text(key) for key in tuple(self._left)}

    def list_map(self) -> dict[str, tuple[str, ...]]:
        return {key: self.texts(key) for key in tuple(self._left)}

    def close(self) -> None:
        if self._left:
            raise CatalogError(f"{self.path}: unknown keys {sorted(self._left)}: remove them or teach the loader")

    def _take(self, key: str) -> Any:
        if key not in self._left:
            raise CatalogError(f"{self.path}.{key}: missing")
        return self._left.pop(key)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the figures of one entry come from: defaults of the file, overridden by the entry."""

    path: str
    source: str
    as_of: str
    basis: Mapping[str, str]
    confidence: str | None

    def fact(self, entry: str, figure: str, value: float | int | str | bool) -> Fact:
        if figure not in self.basis:
            raise CatalogError(f"{self.path}.{figure}: no basis: add it to the entry or to the file's defaults")
        return Fact(entry, figure, value, self.source, self.as_of, self.basis[figure], self.confidence)


def read_toml(name: str) -> Table:
    """The file of this name beside this module, as a table.

    Raises CatalogError when it is not valid TOML.
    """
    return parse_toml(name, Path(__file__).with_name(name).read_text("utf-8"))


def parse_toml(name: str, content: str) -> Table:
    """Does what `read_toml` does, from the text itself."""
    try:
        return Table(name, tomllib.loads(content))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{name}: {error}") from error


def take_provenance(entry: Table, *, defaults: Mapping[str, str], as_of: str, source: str | None) -> Provenance:
    """Takes `source`, `as_of`, `basis` and `confidence` from an entry, falling back on the file's defaults."""
    own = entry.optional_table("basis")
    basis = {**defaults, **(own.text_map() if own else {})}
    return Provenance(
        path=entry.path,
        source=entry.text("source") if "source" in entry or source is None else source,
        as_of=entry.month("as_of") if "as_of" in entry else as_of,
        basis=basis,
        confidence=entry.optional_text("confidence"),
    )
