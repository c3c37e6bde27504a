"""Good answers made unusable, row by row: what careless hosts and careless clouds send among their offers."""

import copy
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Path, RowShape, at_path
from sutler.adapters.fake.wire import Reply, json_of, json_reply

Row = dict[str, Any]

LEAST_OWN_ID: Final = 5_000_000_000  # beyond the ids of good rows

UNUSABLE_FIGURES: Final = {
    "figure_nan": float("nan"),
    "figure_decimal_comma": "1,25",
    "figure_null": None,
    "figure_negative": -0.4,
    "figure_excessive": 80_000.0,
}


def garbled(good: Reply, shape: RowShape) -> Reply:
    """The same rows, and after them one of every unusable kind."""
    data = json_of(good.body)
    if data is None:  # a body that was played back may be none
        return good
    rows = at_path(data, shape.rows)
    if isinstance(rows, list):
        rows += [_renamed(row, kind, shape) for kind, row in _spoilt([row for row in rows if row], shape)]
    elif isinstance(rows, dict):
        rows.update(dict(_spoilt(list(rows.values()), shape)))
    return replace(json_reply(data), headers=good.headers)


def without_rows(good: Reply) -> Reply:
    """The same answer with its lists emptied, as deep as the outermost ones."""
    data = json_of(good.body)
    return good if data is None else replace(json_reply(_emptied(data)), headers=good.headers)


def _emptied(data: Any) -> Any:
    if isinstance(data, list):
        return []
    if isinstance(data, dict):
        of_rows = data and all(isinstance(value, dict) and "instance_type" in value for value in data.values())
        return {} if of_rows else {name: _emptied(value) for name, value in data.items()}
    return data


def _spoilt(rows: list[Any], shape: RowShape) -> Iterator[tuple[str, Any]]:
    """Makes each kind from a good row that has what is to be spoilt."""
    fit = [row for row in rows if isinstance(row, dict) and isinstance(at_path(row, shape.gpu), str)]
    if not fit:
        return
    template = next((row for row in reversed(fit) if shape.is_for_rent(row)), fit[-1])
    name = str(at_path(template, shape.gpu))
    for kind, figure in UNUSABLE_FIGURES.items():
        yield kind, _with(template, shape.figures, figure)
    yield "gpu_unknown", _with(template, (shape.gpu,), "Quantum 9000")
    yield "gpu_mig_slice", _with(template, (shape.gpu,), f"{name} MIG 1g.10gb")
    memory = at_path(template, shape.memory) if shape.memory else None
    if shape.memory and isinstance(memory, int):
        yield "memory_off", _with(template, (shape.memory,), memory * 2)
    if shape.id:
        yield "duplicate", _dearer(template, shape)
    yield "no_object", "not a row"


def _with(template: Row, paths: tuple[Path, ...], value: Any) -> Row:
    """Copies the row, with this value wherever the template has one."""
    row = copy.deepcopy(template)
    for path in paths:
        holder = at_path(row, path[:-1])
        if isinstance(holder, dict) and path[-1] in holder:
            holder[path[-1]] = value
    return row


def _dearer(template: Row, shape: RowShape) -> Row:
    """The same id with other figures, each in the type that it has."""
    row = copy.deepcopy(template)
    for path in shape.figures:
        holder, figure = at_path(row, path[:-1]), at_path(row, path)
        if isinstance(figure, str):
            holder[path[-1]] = f"{float(figure) * 1.5:.3f}"
        elif isinstance(figure, int | float):
            holder[path[-1]] = type(figure)(figure * 1.5)
    return row


def _renamed(row: Any, kind: str, shape: RowShape) -> Any:
    """Gives the row an id of its own, but for the duplicate; a number stays a number."""
    if kind == "duplicate" or shape.id is None or not isinstance(row, dict):
        return row
    own = row.get(shape.id)
    return {**row, shape.id: LEAST_OWN_ID + zlib.crc32(kind.encode()) if isinstance(own, int) else f"garbage-{kind}"}
