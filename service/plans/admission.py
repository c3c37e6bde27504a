"""What the service takes on: problems within its limits, without files, whose names are known.

All of it is said before a plan is queued, so that a caller who does not wait hears it too.
"""

from datetime import datetime

from sutler.service.documents.calibration import CalibrationFile
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.settings import ServiceSettings
from sutler.service.translation.to_problem import check_names, to_problem


def admit(document: ProblemDocument, settings: ServiceSettings, *, now: datetime) -> None:
    """Checks a problem. Raises DocumentError, UnknownNameError, NoMarketDataError for an empty market of its own."""
    problems = [*_over_limits(document, settings), *_files(document)]
    if problems:
        raise DocumentError(problems)
    if document.market.offers is None:
        check_names(document)
    else:
        to_problem(document, folder=None, now=now)


def _over_limits(document: ProblemDocument, settings: ServiceSettings) -> list[FieldProblem]:
    workloads = sum(len(model.workloads or ()) for model in document.models)
    return [
        *over_limit("models", len(document.models), settings.most_models, "SUTLER_MOST_MODELS"),
        *over_limit("models[].workloads", workloads, settings.most_workloads, "SUTLER_MOST_WORKLOADS"),
        *over_limit(
            "solver.time_limit_s", document.solver.time_limit_s, settings.longest_solve_s, "SUTLER_LONGEST_SOLVE_S"
        ),
    ]


def over_limit(field: str, value: float, most: float, variable: str) -> list[FieldProblem]:
    """What is wrong with a value above what this service takes, as the variable sets it; empty where nothing is."""
    if value <= most:
        return []
    return [FieldProblem(field, f"{value:g}", f"this service takes at most {most:g} ({variable})")]


def _files(document: ProblemDocument) -> list[FieldProblem]:
    remedy = "paths are for the command line only: give the content itself"
    paths = [(f"models[{i}].trace.file", m.trace.file) for i, m in enumerate(document.models) if m.trace is not None]
    if isinstance(document.market.offers, str):
        paths.append(("market.offers", document.market.offers))
    if isinstance(document.throughput.calibration, CalibrationFile):
        paths.append(("throughput.calibration.file", document.throughput.calibration.file))
    return [FieldProblem(field, short_repr(path), remedy) for field, path in paths]
