"""Problems name calibrations; planning needs what is in them. Here a name becomes the newest calibration it has.

Flow: a problem as it was asked for -> with_calibration -> translation/to_problem.py. What is stored keeps
the name, so that a deployment follows its calibration to the next revision.
"""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.documents.calibration import CalibrationDocument, CalibrationFile
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.errors import FieldProblem
from sutler.service.profiles import repository
from sutler.service.profiles.errors import NoSuchProfileError
from sutler.service.profiles.service import no_calibration
from sutler.service.translation.market_source import resolve_path

FIELD = "throughput.calibration"
CALIBRATION_SCHEMA = "sutler/calibration/v1"


async def with_calibration(connection: AsyncConnection, problem: ProblemDocument) -> ProblemDocument:
    """The problem with what its calibration's name stands for. Raises DocumentError for a name that none has."""
    name = problem.throughput.calibration
    if not isinstance(name, str):
        return problem
    found = (await connection.execute(repository.newest_calibration(name))).scalar_one_or_none()
    if found is None:
        known = [one["name"] for one in await connection.scalars(repository.calibrations())]
        raise unknown_name(name, no_calibration(name, known))
    return replaced(problem, validate(CalibrationDocument, found))


def with_calibration_of(
    problem: ProblemDocument, *, folder: Path, named: Callable[[str], CalibrationDocument]
) -> ProblemDocument:
    """The same for the command line: files are relative to `folder`; `named` asks the store. Raises DocumentError."""
    given = problem.throughput.calibration
    if isinstance(given, CalibrationFile):
        at = f"{FIELD}.file"
        return replaced(problem, calibration_in(resolve_path(given.file, folder, field=at), field=at))
    if not isinstance(given, str):
        return problem
    try:
        return replaced(problem, named(given))
    except NoSuchProfileError as error:
        raise unknown_name(given, error) from None


def replaced(problem: ProblemDocument, calibration: CalibrationDocument) -> ProblemDocument:
    """The problem with what its name stands for."""
    throughput = problem.throughput.model_copy(update={"calibration": calibration})
    return problem.model_copy(update={"throughput": throughput})


def unknown_name(name: str, error: NoSuchProfileError) -> DocumentError:
    return DocumentError.of(FIELD, f"is no calibration: {error.remedy}", value=name)


def calibration_in(path: Path, *, field: str = "--calibration") -> CalibrationDocument:
    """What `sutler calibrate --out` wrote. Raises DocumentError."""
    data = read_document(path, field=field)
    if not isinstance(data, dict) or data.get("schema") != CALIBRATION_SCHEMA:
        remedy = f"holds no calibration (schema: {CALIBRATION_SCHEMA}): write one with `sutler calibrate NAME --out`"
        raise DocumentError.of(field, remedy, value=str(path))
    try:
        return validate(CalibrationDocument, data)
    except DocumentError as error:
        raise DocumentError(
            FieldProblem(f"{path.name}: {p.field}", p.value, p.remedy) for p in error.problems
        ) from None
