"""Problems as callers have them, a file, plain data or a document, ready to solve."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sutler.service.documents.changes import Changes, changed
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.main import StoreWhenNeeded
from sutler.service.translation.inlining import without_paths
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import Translation, to_problem

Given = str | Path | Mapping[str, Any] | ProblemDocument
"""A problem: the path of its file, its content, or the checked document."""


def problem_document(given: Given, changes: Changes | None = None) -> ProblemDocument:
    """The checked document, with other values at the paths of `changes` (service/documents/changes.py).

    Raises DocumentError naming every wrong field.
    """
    if isinstance(given, ProblemDocument):
        if not changes:
            return given
        given = given.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data = given if isinstance(given, Mapping) else read_document(Path(given), field="PROBLEM")
    if not isinstance(data, Mapping):
        remedy = "must hold a mapping of names to values (`sutler schema problem`)"
        raise DocumentError.of("PROBLEM", remedy, value=data)
    return validate(ProblemDocument, changed(data, changes or {}))


def inlined(given: Given, folder: str | Path | None = None, changes: Changes | None = None) -> dict[str, Any]:
    """A problem for a service, with what its paths lead to put into it. Raises DocumentError, InvalidProblemError."""
    document = problem_document(given, changes)
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return without_paths(plain, folder_of(given, folder))


def folder_of(given: Given, folder: str | Path | None = None) -> Path:
    """The folder that paths in a problem are relative to: that of its file, unless one is named."""
    if folder is not None:
        return Path(folder)
    return Path(given).parent if isinstance(given, str | Path) else Path()


class StoreReadOnce(StoreWhenNeeded):
    """The store, of which several problems see one market."""

    def __init__(self) -> None:
        self._stored, self._polled = cache(super().stored), cache(super().polled)

    def stored(self) -> StoredMarket:
        return self._stored()

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        return self._polled(tuple(providers))


def translated(document: ProblemDocument, folder: Path, store: StoreWhenNeeded | None = None) -> Translation:
    """The solver's problem, on the market that the document names, of the store if it names none.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    store = store or StoreWhenNeeded()
    if document.throughput.calibration is not None:  # else the database is not imported
        from sutler.service.profiles.references import with_calibration_of

        document = with_calibration_of(document, folder=folder, named=store.calibration)
    return to_problem(document, folder=folder, now=datetime.now(UTC), store=store)
