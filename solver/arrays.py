"""The types of numpy's arrays, named once: what is in them, not their shape, which docstrings state.

Tables, dataclasses with arrays of one first axis, are cut and put together here.
"""

from collections.abc import Sequence
from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class IsDataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Table = TypeVar("Table", bound=IsDataclass)


def take_rows(table: Table, rows: IntArray | BoolArray | slice) -> Table:
    """Cuts every array of `table` to `rows`, in their order; what is no array stays."""
    columns = {name: column[rows] for name, column in _columns(table).items()}
    return replace(table, **columns)


def concatenated(tables: Sequence[Table]) -> Table:
    """Puts the arrays of all tables one after the other; what is no array is as in the first."""
    each = [_columns(table) for table in tables]
    return replace(tables[0], **{name: np.concatenate([columns[name] for columns in each]) for name in each[0]})


def _columns(table: IsDataclass) -> dict[str, NDArray[np.generic]]:
    named = ((field.name, getattr(table, field.name)) for field in fields(table))
    return {name: value for name, value in named if isinstance(value, np.ndarray)}
