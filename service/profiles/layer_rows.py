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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE
from sutler.solver.catalog import PRECISIONS, resolve_gpu, resolve_model
from sutler.solver.errors import UnknownNameError

Attention = Literal["included", "excluded"]
PHASES: Final = ("prefill", "decode", "all_reduce")
ATTENTIONS: Final = ("included", "excluded")
EARLIEST_YEAR: Final = 2000
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


def unknown_name(row: LayerRow) -> str | None:
    """Why nothing can be fitted to it; None where GPU and model are in the catalogue."""
    if row.gpu == "cpu":
        return "gpu: times of a processor test the tool, and say nothing of GPUs"
    try:
        resolve_gpu(row.gpu)
        resolve_model(row.model)
    except UnknownNameError as error:
        return f"{error.field}: {error.value!r} is not in the catalogue (`sutler catalog {error.field}s`)"
    return None


def row_of(columns: Mapping[str, Any]) -> LayerRow:
    """What `row_fields` made, as the store has it."""
    return LayerRow(**{**columns, "measured_at": datetime.fromisoformat(columns["measured_at"])})


def is_layer_file(content: bytes) -> bool:
    """By the columns that no table of benchmark runs has."""
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
    row = LayerRow(
        gpu=_text(cells, "gpu", place),
        model=_text(cells, "model", place),
        precision=_choice(cells, "precision", PRECISIONS, place),
        kv_precision=_choice(cells, "kv_precision", PRECISIONS, place),
        tp=_whole(cells, "tp", place, least=1),
        phase=_choice(cells, "phase", PHASES, place),
        new_tokens=_whole(cells, "new_tokens", place, least=1),
        batch=_whole(cells, "batch", place, least=1),
        context_tokens=_whole(cells, "context_tokens", place),
        attention=_choice(cells, "attention", ATTENTIONS, place),
        seconds=_number(cells, "seconds", place),
        repetitions=_whole(cells, "repetitions", place, least=1),
        spread_fraction=_number(cells, "spread_fraction", place),
        bytes=_whole(cells, "bytes", place) if cells["bytes"] else None,
        torch=_version(cells, "torch", place),
        cuda=_version(cells, "cuda", place),
        driver=_version(cells, "driver", place),
        measured_at=_moment(cells, "measured_at", place),
    )
    if row.seconds <= 0:
        raise _wrong(cells, "seconds", place, "must be above 0")
    return row


def _text(cells: Mapping[str, str | None], name: str, place: str) -> str:
    value = cells[name]
    if value and re.fullmatch(PRINTABLE, value) and len(value) <= 200:
        return value
    raise _wrong(cells, name, place, "must be a name of printable characters" if value else "must not be empty")


def _version(cells: Mapping[str, str | None], name: str, place: str) -> str:
    return _text(cells, name, place) if cells[name] else ""


def _choice(cells: Mapping[str, str | None], name: str, choices: tuple[str, ...], place: str) -> str:
    if (value := cells[name]) in choices and value is not None:
        return value
    raise _wrong(cells, name, place, f"must be one of {', '.join(choices)}")


def _whole(cells: Mapping[str, str | None], name: str, place: str, least: int = 0) -> int:
    text = cells[name] or ""
    if text.isdecimal() and len(text) < 19 and int(text) >= least:
        return int(text)
    raise _wrong(cells, name, place, f"must be a whole number from {least}")


def _number(cells: Mapping[str, str | None], name: str, place: str) -> float:
    try:
        value = float(cells[name] or "")
    except ValueError:
        value = -1.0
    if 0 <= value < float("inf"):
        return value
    raise _wrong(cells, name, place, "must be a finite number from 0")


def _moment(cells: Mapping[str, str | None], name: str, place: str) -> datetime:
    try:
        value = datetime.fromisoformat(cells[name] or "")
    except ValueError:
        value = datetime.min
    if value.tzinfo is not None and value.year >= EARLIEST_YEAR:
        return value
    raise _wrong(cells, name, place, "must be a time with its UTC offset, as 2026-11-21T12:00:00+00:00")


def _wrong(cells: Mapping[str, str | None], name: str, place: str, remedy: str) -> DocumentError:
    return DocumentError.of(f"{place}, {name}", remedy, value=cells[name])
