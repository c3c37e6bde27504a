"""Puts the content of files in the place of their paths, so that an application stands by itself.

Flow: application file -> checked_application -> inlined (both here) -> translate.py; the plan carries the inlined
document. Over the API there is no folder, and paths are refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from sutler.service.documents.csv_tables import read_csv
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.model import ConfigDocument
from sutler.service.documents.reading import MOST_JSON_BYTES
from sutler.service.documents.traces import read_trace_file
from sutler.service.documents.validation import validate
from sutler.service.offline.application_schema import ApplicationDocument, NodeDocument
from sutler.service.offline.lengths_schema import (
    MOST_ENTRIES,
    MOST_TOKENS,
    EmpiricalCounts,
    EmpiricalLengths,
    FileLengths,
    LengthsColumn,
    LengthsDocument,
)
from sutler.service.offline.requests_schema import DrawnRequests, RecordedRequests, RequestList, TraceRequests
from sutler.service.translation.given_models import with_content
from sutler.service.translation.market_source import resolve_path
from sutler.solver.arrays import IntArray

NO_FILE: Final = "is no ordinary file: name a CSV file"


def checked_application(data: object) -> ApplicationDocument:
    """The checked document of an application file. Raises DocumentError naming every wrong field."""
    if not isinstance(data, dict):
        remedy = "must hold a mapping of names to values (`sutler schema application`)"
        raise DocumentError.of("APPLICATION", remedy, value=data)
    models = data.get("models")
    if isinstance(models, list) and any(isinstance(model, dict) and "workloads" in model for model in models):
        remedy = "is a problem (its models have workloads): `sutler plan` plans it; here models have requests"
        raise DocumentError.of("APPLICATION", remedy)
    return validate(ApplicationDocument, data)


def inlined(document: ApplicationDocument, *, folder: Path | None) -> ApplicationDocument:
    """The same application without traces, lengths and configs in files; paths are relative to `folder` (None:
    refused).

    Raises DocumentError and InvalidProblemError, naming the field, for paths and files that are wrong.
    """
    models = tuple(_inlined(f"models[{i}]", model, folder) for i, model in enumerate(document.models))
    return document.model_copy(update={"models": models})


def _inlined(at: str, model: NodeDocument, folder: Path | None) -> NodeDocument:
    changed: dict[str, Any] = {
        field: _without_file(f"{at}.{field}", getattr(model, field), folder)
        for field in ("prompt_tokens", "output_tokens")
    }
    if isinstance(model.model, ConfigDocument):
        changed["model"] = with_content(f"{at}.model", model.model, folder)
    if isinstance(model.requests, DrawnRequests):
        lengths = {
            field: _without_file(f"{at}.requests.{field}", getattr(model.requests, field), folder)
            for field in ("input_tokens", "chain_length")
        }
        changed["requests"] = model.requests.model_copy(update=lengths)
    elif isinstance(model.requests, TraceRequests):
        changed |= _recorded(f"{at}.requests.trace", model.requests, folder, changed)
    return model.model_copy(update=changed)


def _recorded(
    at: str, requests: TraceRequests, folder: Path | None, others: Mapping[str, object]
) -> dict[str, object]:
    path = _ordinary_file(f"{at}.file", requests.trace.file, folder)
    trace = read_trace_file(path, field=at)
    if len(trace.input_tokens) > MOST_ENTRIES:
        remedy = f"has {len(trace.input_tokens)} requests: at most {MOST_ENTRIES} are allowed"
        raise DocumentError.of(f"{at}.file", remedy, value=requests.trace.file)
    listed = RequestList(
        input_tokens=tuple(trace.input_tokens.tolist()),
        output_tokens=tuple(trace.output_tokens.tolist()) if requests.trace.known_output_tokens else None,
    )
    given = others["output_tokens"]
    answers = _seen(trace.output_tokens) if given is None else given
    return {"requests": RecordedRequests(recorded=listed), "output_tokens": answers}


def _without_file(at: str, lengths: LengthsDocument | None, folder: Path | None) -> LengthsDocument | None:
    if not isinstance(lengths, FileLengths):
        return lengths
    path = _ordinary_file(f"{at}.file.path", lengths.file.path, folder)
    return _seen(_column(f"{at}.file", path, lengths.file))


def _seen(tokens: IntArray) -> EmpiricalLengths:
    found, counts = np.unique(tokens, return_counts=True)
    counted = EmpiricalCounts(tokens=tuple(found.tolist()), weights=tuple(counts.astype(float).tolist()))
    return EmpiricalLengths(empirical=counted)


def _ordinary_file(field: str, text: str, folder: Path | None) -> Path:
    path = resolve_path(text, folder, field=field)
    if path.exists() and not path.is_file():
        raise DocumentError.of(field, NO_FILE, value=text)
    return path


def _column(at: str, path: Path, wanted: LengthsColumn) -> IntArray:
    field, name = f"{at}.path", wanted.path
    table = read_csv(_content(field, path, name), columns=[wanted.column], field=field, name=name)
    header = [cell.strip() for cell in table.header]
    if header.count(wanted.column) != 1:
        remedy = f"is not once among the columns of {path.name}: {', '.join(header)[:200]}"
        raise DocumentError.of(f"{at}.column", remedy, value=wanted.column)
    if not 1 <= len(table.rows) <= MOST_ENTRIES:
        remedy = f"has {len(table.rows)} rows below its header: give from 1 to {MOST_ENTRIES}"
        raise DocumentError.of(field, remedy, value=name)
    place = header.index(wanted.column)
    cells = zip(table.numbers, table.rows, strict=True)
    return np.array([_whole(field, row[place : place + 1], number) for number, row in cells], dtype=np.int64)


def _content(field: str, path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_JSON_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError.of(field, f"cannot be read ({reason}): name a readable CSV file", value=name) from None
    if len(content) > MOST_JSON_BYTES:
        raise DocumentError.of(field, f"is larger than {MOST_JSON_BYTES // 1_000_000} MB", value=name)
    return content


def _whole(field: str, cell: list[str], row: int) -> int:
    text = cell[0].strip() if cell else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_TOKENS)) and int(text) <= MOST_TOKENS):
        raise DocumentError.of(field, f"row {row}: must be a whole number from 0 to {MOST_TOKENS}", value=text)
    return int(text)
