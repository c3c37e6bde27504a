"""Times of single layers as a CSV file: what `sutler profile` writes and what reads it back.

Flow: solver/profiling outcomes -> LayerRow -> CSV bytes, and back.

One row per timing. `new_tokens` are per sequence, of `batch` sequences. `attention` says whether it is included;
`context_tokens` is what the last token of each sequence attends to, itself included, and 0 where it is excluded.
`seconds` is one layer on one GPU of the group, without communication, or one all-reduce of `bytes` per GPU.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.catalog import PRECISIONS
from sutler.solver.errors import UnknownNameError

PHASES: Final = ("prefill", "decode", "all_reduce")
ATTENTIONS: Final = ("included", "excluded")
EARLIEST_YEAR: Final = 2000  # what is before comes of clocks that were never set
UTF8_WITH_MARK: Final = "utf-8-sig"  # as spreadsheets save it


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One timing; the fields are the columns of the file, in order.

    gpu: catalogue slug, or "cpu" for a test of the tool. tp: GPUs that share the layer. seconds: median of
    `repetitions`; spread_fraction: their interquartile range over the median. bytes: of an all-reduce, else None.
    torch, cuda, driver: versions, "" where there is none. measured_at: with its UTC offset.
    """

    gpu: str
    model: str
    precision: str
    kv_precision: str
    tp: int
    phase: str
    new_tokens: int
    batch: int
    context_tokens: int
    attention: str
    seconds: float
    repetitions: int
    spread_fraction: float
    bytes: int | None
    torch: str
    cuda: str
    driver: str
    measured_at: datetime


COLUMNS: Final = tuple(field.name for field in fields(LayerRow))


def row_fields(row: LayerRow) -> dict[str, Any]:
    """The row by column, as JSON has it."""
    found = {name: getattr(row, name) for name in COLUMNS}
    rounded = {name: float(f"{found[name]:.6g}") for name in ("seconds", "spread_fraction")}
    return {**found, **rounded, "measured_at": row.measured_at.isoformat(timespec="seconds")}


def digest_of(row: LayerRow) -> bytes:
    """The same for the same row, whatever file it came in."""
    return hashlib.sha256(repr(sorted(row_fields(row).items())).encode()).digest()


def unknown_name(row: LayerRow, names: Names = CATALOGUE) -> str | None:
    """Why nothing can be fitted to it; None where GPU and model are known."""
    if row.gpu == "cpu" and "cpu" not in names.gpus:
        return "gpu: times of a processor test the tool, and say nothing of GPUs"
    try:
        names.gpu(row.gpu)
        names.model(row.model)
    except UnknownNameError as error:
        return f"{error.field}: {error.value!r} is not in the catalogue (`sutler catalog {error.field}s`)"
    return None


def row_of(columns: Mapping[str, Any]) -> LayerRow:
    """What `row_fields` made, as the store has it."""
    return LayerRow(**{**columns, "measured_at": datetime.fromisoformat(columns["measured_at"])})


def is_layer_file(content: bytes) -> bool:
    """Whether a file holds layer times, by the columns that no table of benchmark runs has."""
    header = content.split(b"\n", 1)[0].decode(UTF8_WITH_MARK, errors="replace")
    return {"phase", "attention", "seconds", "new_tokens"} <= {name.strip() for name in header.split(",")}


def written(rows: Iterable[LayerRow]) -> bytes:
    """The CSV file; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row_fields(row) for row in rows)
    return text.getvalue().encode()


def read(content: bytes, *, field: str = "FILE") -> tuple[LayerRow, ...]:
    """The rows of such a file; further columns are ignored.

    Raises DocumentError, which names `field`, row and column.
    """
    try:
        table = csv.DictReader(io.StringIO(content.decode(UTF8_WITH_MARK)), strict=True)
        cells = list(table)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DocumentError.of(field, f"is no CSV file: {error}: give one that `sutler profile` wrote") from None
    if missing := [name for name in COLUMNS if name not in (table.fieldnames or ())]:
        raise DocumentError.of(field, f"lacks the columns {', '.join(missing)}: give one that `sutler profile` wrote")
    return tuple(_row(row, f"{field} row {number}") for number, row in enumerate(cells, start=1))


def _row(cells: Mapping[str, str | None], place: str) -> LayerRow:
    found: dict[str, Any] = {}
    for name, value_of in _VALUES.items():
        try:
            found[name] = value_of(cells[name] or "")
        except ValueError as error:
            raise DocumentError.of(f"{place}, {name}", str(error), value=cells[name]) from None
    return LayerRow(**found)


def _text(cell: str) -> str:
    if re.fullmatch(PRINTABLE, cell) and len(cell) <= 200:
        return cell
    raise ValueError("must be a name of printable characters" if cell else "must not be empty")


def _version(cell: str) -> str:
    return _text(cell) if cell else ""


def _choice(choices: Sequence[str], cell: str) -> str:
    if cell in choices:
        return cell
    raise ValueError(f"must be one of {', '.join(choices)}")


def _whole(least: int, cell: str) -> int:
    if cell.isdecimal() and len(cell) < 19 and int(cell) >= least:
        return int(cell)
    raise ValueError(f"must be a whole number from {least}")


def _number(cell: str, *, may_be_0: bool = True) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("must be a finite number from 0")
    if not (value or may_be_0):
        raise ValueError("must be above 0")
    return value


def _moment(cell: str) -> datetime:
    try:
        value = datetime.fromisoformat(cell)
    except ValueError:
        value = datetime.min
    if value.tzinfo is not None and value.year >= EARLIEST_YEAR:
        return value
    raise ValueError("must be a time with its UTC offset, as 2026-11-21T12:00:00+00:00")


_VALUES: Final[Mapping[str, Callable[[str], object]]] = {
    "gpu": _text,
    "model": _text,
    "precision": partial(_choice, PRECISIONS),
    "kv_precision": partial(_choice, PRECISIONS),
    "tp": partial(_whole, 1),
    "phase": partial(_choice, PHASES),
    "new_tokens": partial(_whole, 1),
    "batch": partial(_whole, 1),
    "context_tokens": partial(_whole, 0),
    "attention": partial(_choice, ATTENTIONS),
    "seconds": partial(_number, may_be_0=False),
    "repetitions": partial(_whole, 1),
    "spread_fraction": _number,
    "bytes": lambda cell: _whole(0, cell) if cell else None,
    "torch": _version,
    "cuda": _version,
    "driver": _version,
    "measured_at": _moment,
}
