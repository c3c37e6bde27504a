"""`sutler estimate --csv`: a table of configurations in, the same table with predictions out.

Every column of the input stays, in order and unchanged, and ADDED_COLUMNS follow. Where the input already has a
column of such a name the added one is called predicted_<name>; in a table that came out of here (it has
predicted_req_per_s) the old predictions are replaced. A row that cannot be predicted says why in `error`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sutler.service.documents.csv_tables import COLUMN_NAMES, read_csv, too_many_cells
from sutler.service.documents.errors import DocumentError
from sutler.service.translation.estimates import configuration, estimated
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.calibration.factors import Calibration
from sutler.solver.errors import InvalidProblemError
from sutler.solver.estimate import Estimate

ADDED_COLUMNS: Final = (
    "predicted_req_per_s",
    "predicted_ttft_s",
    "predicted_tpot_s",
    "low_req_per_s",
    "high_req_per_s",
    "source",
    "error",
)
_REQUIRED: Final = ("gpu", "model", "precision", "tp", "input_tokens", "output_tokens", "concurrency")
_DIGITS: Final = 6  # more than any estimate is worth: nothing is lost by rounding


@dataclass(frozen=True, slots=True)
class Predictions:
    """The table as CSV bytes (UTF-8), and how many of its rows were predicted."""

    content: bytes
    rows: int
    predicted: int


def predict_table(content: bytes, calibration: Calibration | None = None, names: Names = CATALOGUE) -> Predictions:
    """Predicts every row.

    Raises DocumentError where the file as a whole cannot be used: not a CSV file, or without a needed column.
    """
    table = read_csv(content, columns=_REQUIRED, field="csv")
    header, rows = table.header, table.rows
    places = _places(table.names)
    replaced, added = _added(header)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, *added])
    predicted = 0
    for row in rows:
        values = _predicted(row, len(header), places, calibration, names)
        predicted += not values["error"]
        cells = [*row[: len(header)], *[""] * (len(header) - len(row))]
        for name, column in replaced.items():
            cells[column] = values[name]
        appended = [values[name] for name in ADDED_COLUMNS if name not in replaced]
        writer.writerow([*cells, *appended, *row[len(header) :]])
    return Predictions(content=out.getvalue().encode(), rows=len(rows), predicted=predicted)


def _places(plain: list[str]) -> dict[str, int]:
    """The column of each value. Raises DocumentError for every one that is needed and missing."""
    places = {
        value: plain.index(next(name for name in names if name in plain))
        for value, names in COLUMN_NAMES.items()
        if any(name in plain for name in names)
    }
    missing = [value for value in _REQUIRED if value not in places]
    if missing:
        remedy = f"missing column {', '.join(missing)}; the first line has to name the columns"
        raise DocumentError.of("csv", remedy)
    return places


def _added(header: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Returns columns of an earlier prediction, which are overwritten, and the names of those that are appended."""
    if ADDED_COLUMNS[0] in header:
        replaced = {name: header.index(name) for name in ADDED_COLUMNS if name in header}
        return replaced, [name for name in ADDED_COLUMNS if name not in replaced]
    return {}, [f"predicted_{name}" if name in header else name for name in ADDED_COLUMNS]


def _predicted(
    row: list[str], width: int, places: Mapping[str, int], calibration: Calibration | None, names: Names
) -> dict[str, str]:
    blank = dict.fromkeys(ADDED_COLUMNS, "")
    if reason := too_many_cells(row, width):
        return {**blank, "error": reason}
    values = {name: row[column] if column < len(row) else "" for name, column in places.items()}
    try:
        asked = configuration(values, names=names)
        if asked.concurrency is None:
            raise DocumentError.of("concurrency", "is empty; give the number of requests in flight")
        found = estimated(asked, calibration)
    except (DocumentError, InvalidProblemError) as error:
        return {**blank, "error": " ".join(str(error).split())}
    return {**blank, "error": found.error} if found.error else _cells(found)


def _cells(found: Estimate) -> dict[str, str]:
    numbers = (found.req_per_s, found.ttft_s, found.tpot_s, found.low_req_per_s, found.high_req_per_s)
    texts = [f"{number:.{_DIGITS}g}" for number in numbers]
    return dict(zip(ADDED_COLUMNS, [*texts, found.source, ""], strict=True))
