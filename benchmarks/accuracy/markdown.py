"""The few pieces of Markdown that the report is made of."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from benchmarks.accuracy.errors import Errors, FloatArray, median, p90

WIDTH: Final = 118


def prose(text: str) -> str:
    """Joins one paragraph, however it was broken, with an empty line after it."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """The first `words` columns are text, the others numbers."""
    sides = ["---" if i < words else "---:" for i in range(len(header))]
    return "\n".join(_row(cells) for cells in (header, sides, *rows)) + "\n"


def both(errors: FloatArray) -> str:
    """Median / p90 in percent."""
    return f"{100 * median(errors):.1f} / {100 * p90(errors):.1f}" if len(errors) else "–"


def cells(errors: Errors) -> list[str]:
    """Rows, requests/s, TPOT, TTFT."""
    return [str(len(errors)), both(errors.req_per_s), both(errors.tpot_s), both(errors.ttft_s)]


def joined(parts: Iterable[FloatArray]) -> FloatArray:
    return np.concatenate([*parts, np.empty(0)])


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _row(values: Iterable[object]) -> str:
    return f"| {' | '.join(str(one) for one in values)} |"
