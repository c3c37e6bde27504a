"""CSV files from people: the rows of one, and the names under which the columns of a configuration may stand.

Used by `sutler estimate --csv` (estimate_table.py) and by benchmark tables (service/profiles/readers/table.py).
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sutler.service.documents.errors import DocumentError

# First come, first served.
COLUMN_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": ("gpu",),
    "model": ("model",),
    "precision": ("precision",),
    "tp": ("tp", "tensor_parallel"),
    "pp": ("pp", "pipeline_parallel"),
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "concurrency": ("concurrency", "batch_or_concurrency"),
    "kv_precision": ("kv_precision", "kv_cache_dtype"),
    "engine": ("engine", "backend"),
    "engine_version": ("engine_version", "backend_version"),
    "length_spread_fraction": ("length_spread_fraction",),
    "requests_per_client": ("requests_per_client",),
}


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A table without its empty rows; `numbers` are those of the rows in a spreadsheet, where the header is row 1."""

    header: list[str]
    rows: list[list[str]]
    numbers: list[int]

    @property
    def names(self) -> list[str]:
        """The columns in the spelling that names are compared in."""
        return [plain_column(name) for name in self.header]


def plain_column(name: str) -> str:
    return name.strip().lower()


def read_csv(content: bytes, *, columns: Sequence[str], field: str, name: str | None = None) -> CsvTable:
    """Reads a CSV file. `columns` are named where it is empty, `field` and `name` are what errors call it.

    Raises DocumentError where it is empty, no CSV or not UTF-8.
    """
    given = {} if name is None else {"value": name}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError.of(field, f"save the file as UTF-8 (byte {error.start} is not)", **given) from None
    try:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        numbered = [(number, row) for number, row in enumerate(rows, 1) if row]
    except csv.Error as error:
        raise DocumentError.of(field, f"is not a CSV file: {error}", **given) from None
    if not numbered:
        remedy = f"the file is empty; its first line names the columns {', '.join(columns)}"
        raise DocumentError.of(field, remedy, **given)
    (_, header), *rest = numbered
    return CsvTable(header, [row for _, row in rest], [n for n, _ in rest])


def too_many_cells(row: Sequence[str], width: int) -> str | None:
    """Says why a row that is wider than the header cannot be read; None where it is not."""
    return f"the row has {len(row)} cells, the header names {width}" if len(row) > width else None
