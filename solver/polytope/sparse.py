"""Sparse matrices made of blocks, put together entry by entry.

SciPy's own stacking of blocks takes as long as the linear programs that small problems make of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a block with `height` rows, as arrays [entries]; those of the same place add up."""

    values: FloatArray
    rows: IntArray
    columns: IntArray
    height: int

    def where(self, kept: BoolArray) -> "Entries":
        """The entries of those marked in `kept` [entries]."""
        return replace(self, values=self.values[kept], rows=self.rows[kept], columns=self.columns[kept])

    def transposed(self, height: int) -> "Entries":
        """Rows as columns, of which there are `height`."""
        return Entries(self.values, self.columns, self.rows, height)


def entries_of(matrix: csr_array) -> Entries:
    """All stored entries of a matrix."""
    height = matrix.shape[0]
    rows = np.repeat(np.arange(height), np.diff(matrix.indptr))
    return Entries(matrix.data, rows, matrix.indices.astype(np.int64), height)


def column_of(values: FloatArray) -> Entries:
    """A block of one column, from all of its values."""
    filled = np.flatnonzero(values)
    return Entries(values[filled], filled, np.zeros(len(filled), dtype=np.int64), len(values))


def ones(rows: IntArray, columns: IntArray, height: int) -> Entries:
    """A block with ones at these places."""
    return Entries(np.ones(len(rows)), rows, columns, height)


def diagonal(values: FloatArray) -> Entries:
    """A square block with these values on its diagonal."""
    places = np.arange(len(values))
    return Entries(values, places, places, len(values))


def stacked(widths: Sequence[int], rows: Sequence[Sequence[Entries | None]]) -> csr_array:
    """One matrix from rows of blocks that are as wide as `widths` says; None: nothing but zeros."""
    heights = [next(block.height for block in row if block is not None) for row in rows]
    below, right = [*accumulate(heights, initial=0)], [*accumulate(widths, initial=0)]
    blocks = [
        (block, below[i], right[j]) for i, row in enumerate(rows) for j, block in enumerate(row) if block is not None
    ]
    return csr_array(
        (
            np.concatenate([block.values for block, _, _ in blocks]),
            (
                np.concatenate([block.rows + first for block, first, _ in blocks]),
                np.concatenate([block.columns + first for block, _, first in blocks]),
            ),
        ),
        shape=(below[-1], right[-1]),
    )


def spread(first: IntArray, counts: IntArray) -> IntArray:
    """first[0], first[0] + 1, ... as many as counts[0], then those of the next."""
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
