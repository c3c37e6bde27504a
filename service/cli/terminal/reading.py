"""How commands read a problem: from a file or standard input, with what options win over, ready to solve."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document, read_stream
from sutler.service.documents.validation import validate
from sutler.service.errors import short_repr
from sutler.service.main import StoreWhenNeeded
from sutler.service.translation.to_problem import Translation, to_problem

STANDARD_INPUT: Final = Path("-")


def read_problem(
    path: Path, overrides: dict[str, Any], objective_overrides: dict[str, Any] | None = None
) -> ProblemDocument:
    """The checked document; `overrides` win over its solver settings, and over its objective's; None leaves them.

    Raises DocumentError naming every wrong field.
    """
    is_piped = path == STANDARD_INPUT
    data = read_stream(sys.stdin.buffer, field="PROBLEM") if is_piped else read_document(path, field="PROBLEM")
    if not isinstance(data, dict):
        remedy = "must hold a mapping of names to values (`sutler schema problem`)"
        raise DocumentError.of("PROBLEM", remedy, value=data)
    data = _overridden(data, "solver", overrides)
    return validate(ProblemDocument, _overridden(data, "objective", objective_overrides or {}))


def _overridden(data: dict[str, Any], section: str, overrides: dict[str, Any]) -> dict[str, Any]:
    given_options = {key: value for key, value in overrides.items() if value is not None}
    if not given_options:
        return data
    given = data.get(section, {})
    if not isinstance(given, dict):
        raise DocumentError.of(section, f"{short_repr(given)} must be a mapping of names to values")
    return {**data, section: {**given, **given_options}}


def folder_of(problem: Path) -> Path:
    """What the paths in a problem are relative to."""
    return Path() if problem == STANDARD_INPUT else problem.parent


def translated(document: ProblemDocument, folder: Path) -> Translation:
    """The solver's problem, on the market that the document names, of the store if it names none.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    store = StoreWhenNeeded()
    document = _calibrated(document, folder, store)
    return to_problem(document, folder=folder, now=datetime.now(UTC), store=store)


def _calibrated(document: ProblemDocument, folder: Path, store: StoreWhenNeeded) -> ProblemDocument:
    """Without importing the database where no calibration is asked for."""
    if document.throughput.calibration is None:
        return document
    from sutler.service.profiles.references import with_calibration_of

    return with_calibration_of(document, folder=folder, named=store.calibration)
