"""Problems as callers have them, a file, plain data or a document, ready to solve."""

from collections.abc import Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import UUID

from sutler.service.documents.changes import Changes, changed
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.main import StoreWhenNeeded
from sutler.service.translation.inlining import without_paths
from sutler.service.translation.names import CATALOGUE, Names, names_of
from sutler.service.translation.stored_market import MarketStore
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
    if isinstance(given, str) and "\n" in given:
        raise DocumentError.of(
            "PROBLEM", "is text: give the path of a file, or its content as a mapping", value=given
        )
    if not isinstance(given, Mapping | str | PathLike):
        remedy = "must be the path of a file, its content as a mapping, or a ProblemDocument"
        raise DocumentError.of("PROBLEM", remedy, value=given)
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


def names_in(given: Given | None, folder: str | Path | None = None) -> Names:
    """What names of GPUs and models mean where a problem describes some of its own. Raises DocumentError,
    InvalidProblemError."""
    return CATALOGUE if given is None else names_of(problem_document(given), folder_of(given, folder))


def about_problem(
    problem: Given | None, folder: str | Path | None, deployment: str | None, plan_id: UUID | str | None
) -> dict[str, Any]:
    """What a question to a service is about: a problem, or what stands for one. Raises DocumentError."""
    named = {"deployment": deployment, "plan_id": None if plan_id is None else str(plan_id)}
    own = {} if problem is None else {"problem": inlined(problem, folder)}
    return {**own, **{name: value for name, value in named.items() if value is not None}}


def about_plan(plan: PlanDocument | None, deployment: str | None, plan_id: UUID | str | None) -> dict[str, Any]:
    """The same of a plan."""
    own = {} if plan is None else {"plan": plan.model_dump(mode="json", by_alias=True)}
    return {**own, **about_problem(None, None, deployment, plan_id)}


def folder_of(given: Given, folder: str | Path | None = None) -> Path:
    """The folder that paths in a problem are relative to: that of its file, unless one is named."""
    if folder is not None:
        return Path(folder)
    return Path(given).parent if isinstance(given, str | Path) else Path()


def translated(document: ProblemDocument, folder: Path, store: MarketStore | None = None) -> Translation:
    """The solver's problem, on the market that the document names, of the store if it names none.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    if document.throughput.calibration is not None:  # else the database is not imported
        from sutler.service.profiles.references import with_calibration_of

        document = with_calibration_of(document, folder=folder, named=StoreWhenNeeded().calibration)
    return to_problem(document, folder=folder, now=datetime.now(UTC), store=store or StoreWhenNeeded())
