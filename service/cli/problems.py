"""How commands read a problem: with what options win over, ready to solve."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sutler.service.cli.terminal.input import read_mapping
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.errors import short_repr
from sutler.service.main import StoreWhenNeeded
from sutler.service.translation.to_problem import Translation, to_problem


def read_problem(path: Path, **overrides: dict[str, Any]) -> ProblemDocument:
    """The checked document; `overrides`: by section, what wins over it; None leaves it as it is.

    Raises DocumentError naming every wrong field.
    """
    data = read_mapping(path, "PROBLEM", "must hold a mapping of names to values (`sutler schema problem`)")
    for section, options in overrides.items():
        given_options = {key: value for key, value in options.items() if value is not None}
        given = data.get(section, {})
        if given_options and not isinstance(given, dict):
            raise DocumentError.of(section, f"{short_repr(given)} must be a mapping of names to values")
        if given_options:
            data = {**data, section: {**given, **given_options}}
    return validate(ProblemDocument, data)


def translated(document: ProblemDocument, folder: Path) -> Translation:
    """The solver's problem, on the market that the document names, of the store if it names none.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    store = StoreWhenNeeded()
    if document.throughput.calibration is not None:  # else the database is not imported
        from sutler.service.profiles.references import with_calibration_of

        document = with_calibration_of(document, folder=folder, named=store.calibration)
    return to_problem(document, folder=folder, now=datetime.now(UTC), store=store)
