"""Request traces, and as workloads: a CSV of single requests becomes a few buckets of similar ones.

The format is that of the Azure LLM inference traces (github.com/Azure/AzurePublicDataset): one row per request with
the columns TIMESTAMP, ContextTokens and GeneratedTokens. Used where a problem says `trace` instead of `workloads`,
and by simulations, which replay it.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from sutler.solver.errors import InvalidProblemError

TIMESTAMP: Final = "TIMESTAMP"
INPUT: Final = "ContextTokens"
OUTPUT: Final = "GeneratedTokens"
COLUMNS: Final = (TIMESTAMP, INPUT, OUTPUT)
MAX_TOKENS: Final = 10_000_000  # far beyond any context window: a slip, not a request
SHOWN_CHARACTERS: Final = 60  # chosen: a cell is recognised by it, and the error stays on one line

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class TraceBucket:
    """Similar requests of a trace. Tokens are means per request, so that requests x tokens is the trace's total."""

    name: str
    requests: int
    input_tokens: float
    output_tokens: float
    rate_rps: float


@dataclass(frozen=True, slots=True)
class BucketedTrace:
    """A trace as buckets; `description` says in one sentence how its requests were divided."""

    buckets: tuple[TraceBucket, ...]
    description: str


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Single requests in the order of their rows: arrays [num_requests]. `arrival_s` counts from the first."""

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray

    @property
    def duration_s(self) -> float:
        return float(self.arrival_s.max())


@dataclass(frozen=True, slots=True)
class _Division:
    """One axis of the grid: the part of every request, and the share of the requests each part covers."""

    part: IntArray
    labels: tuple[str, ...]


def bucket_trace_file(
    path: Path, *, buckets: int = 9, duration_s: float | None = None, field: str = "trace"
) -> BucketedTrace:
    """Does what `bucket_trace` does, with a UTF-8 file.

    Raises InvalidProblemError when the file cannot be read, or is not such a trace.
    """
    return _of_file(
        path, lambda lines: bucket_trace(lines, buckets=buckets, duration_s=duration_s, field=field), field
    )


def read_trace_file(path: Path, *, field: str = "trace") -> RequestTrace:
    """Reads the single requests. Raises as `bucket_trace_file` does."""
    return _of_file(path, lambda lines: _read(lines, f"{field}.file"), field)


def _of_file(path: Path, read: Callable[[Iterable[str]], Found], field: str) -> Found:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return read(lines)
    except OSError as error:
        remedy = f"cannot be read ({error.strerror or error}): name a readable CSV file"
        raise InvalidProblemError(f"{field}.file", str(path), remedy) from error
    except UnicodeDecodeError as error:
        raise InvalidProblemError(f"{field}.file", str(path), "is not text: save the trace as UTF-8 CSV") from error


def bucket_trace(
    lines: Iterable[str], *, buckets: int = 9, duration_s: float | None = None, field: str = "trace"
) -> BucketedTrace:
    """Divides the requests of a trace by quantiles of their input and of their output length.

    `buckets` is split into the most square grid (9: 3 by 3; 6: 3 by 2, more parts for the input); requests of equal
    length stay together and cells without requests are dropped, so there may be fewer. Rates are requests /
    `duration_s`, by default the time from the first to the last request; the order of the rows does not matter.
    Raises InvalidProblemError, with `field` as the path of the trace in the caller's document.
    """
    requests = _read(lines, f"{field}.file")
    duration_s = _spanned_s(requests, field) if duration_s is None else duration_s
    input_parts, output_parts = _grid(buckets)
    inputs = _divide(requests.input_tokens, input_parts, "in")
    outputs = _divide(requests.output_tokens, output_parts, "out")
    made = tuple(_buckets(requests, inputs, outputs, duration_s))
    total = len(requests.input_tokens)
    return BucketedTrace(made, _describe(made, (inputs, outputs), total, duration_s))


def _read(lines: Iterable[str], field: str) -> RequestTrace:
    inputs, outputs, times = [], [], []
    try:
        for time, input_tokens, output_tokens in _rows(lines, field):
            times.append(time)
            inputs.append(input_tokens)
            outputs.append(output_tokens)
    except csv.Error as error:
        raise InvalidProblemError(field, str(error), "is not CSV: give a comma-separated text file") from error
    if not times:
        raise InvalidProblemError(field, "no requests", "give a trace with at least one request below its header")
    first = min(times)
    arrival_s = np.array([(time - first).total_seconds() for time in times])
    return RequestTrace(arrival_s, np.array(inputs, dtype=np.int64), np.array(outputs, dtype=np.int64))


def _rows(lines: Iterable[str], field: str) -> Iterator[tuple[datetime, int, int]]:
    reader = csv.reader(lines)
    header = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]
    if sorted(name for name in header if name in COLUMNS) != sorted(COLUMNS):
        remedy = f"line 1: the header must hold the columns {', '.join(COLUMNS)}, once each, separated by commas"
        raise InvalidProblemError(field, _short(",".join(header)), remedy)
    at = [header.index(name) for name in COLUMNS]
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            remedy = f"line {reader.line_num}: has {len(row)} cells where the header has {len(header)}"
            raise InvalidProblemError(field, _short(",".join(row)), remedy)
        time, input_tokens, output_tokens = (row[index] for index in at)
        where = f"line {reader.line_num}"
        yield (
            _time(time, where, field),
            _tokens(input_tokens, f"{where}, {INPUT}", field),
            _tokens(output_tokens, f"{where}, {OUTPUT}", field),
        )


def _time(text: str, where: str, field: str) -> datetime:
    """Reads a time; digits beyond microseconds are cut; a time without a zone is taken as UTC."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        remedy = f"{where}, {TIMESTAMP}: must be a time such as 2023-11-16 18:15:46.6805900"
        raise InvalidProblemError(field, _short(text), remedy) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _tokens(text: str, where: str, field: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (1 <= number <= MAX_TOKENS and number.is_integer()):
        remedy = f"{where}: must be a whole number from 1 to {MAX_TOKENS}; leave out requests that failed"
        raise InvalidProblemError(field, _short(text), remedy)
    return int(number)


def _spanned_s(requests: RequestTrace, field: str) -> float:
    if requests.duration_s <= 0:
        remedy = "all requests have the same time stamp, so no rate follows: say how long the trace lasted"
        raise InvalidProblemError(f"{field}.duration_s", None, remedy)
    return requests.duration_s


def _grid(buckets: int) -> tuple[int, int]:
    """Returns the two factors of `buckets` that are closest to each other, the larger first."""
    smaller = next(factor for factor in range(math.isqrt(buckets), 0, -1) if buckets % factor == 0)
    return buckets // smaller, smaller


def _divide(tokens: IntArray, parts: int, axis: str) -> _Division:
    """Cuts at the quantiles 1/parts, 2/parts, ...; cuts that ties make equal become one."""
    shares = np.arange(1, parts) / parts
    cuts = np.quantile(tokens, shares, method="inverted_cdf") if parts > 1 else np.array([], dtype=np.int64)
    upper_share = {int(cut): share for cut, share in zip(cuts, shares, strict=True) if cut < tokens.max()}
    ends = [*upper_share.values(), 1.0]
    starts = [0.0, *upper_share.values()]
    labels = tuple(f"{axis}-p{100 * a:.0f}-{100 * b:.0f}" for a, b in zip(starts, ends, strict=True))
    part = np.searchsorted(np.array(list(upper_share), dtype=np.int64), tokens, side="left")
    return _Division(part.astype(np.int64), labels)


def _buckets(
    requests: RequestTrace, inputs: _Division, outputs: _Division, duration_s: float
) -> Iterator[TraceBucket]:
    cell = inputs.part * len(outputs.labels) + outputs.part
    cells = len(inputs.labels) * len(outputs.labels)
    counts = np.bincount(cell, minlength=cells)
    input_sums = np.bincount(cell, weights=requests.input_tokens, minlength=cells)
    output_sums = np.bincount(cell, weights=requests.output_tokens, minlength=cells)
    for index in np.flatnonzero(counts):
        count = int(counts[index])
        yield TraceBucket(
            name=f"{inputs.labels[index // len(outputs.labels)]}_{outputs.labels[index % len(outputs.labels)]}",
            requests=count,
            input_tokens=float(input_sums[index]) / count,
            output_tokens=float(output_sums[index]) / count,
            rate_rps=count / duration_s,
        )


def _describe(
    made: tuple[TraceBucket, ...], axes: tuple[_Division, _Division], requests: int, duration_s: float
) -> str:
    cut = " by ".join(str(len(axis.labels)) for axis in axes)
    return (
        f"{requests} requests over {duration_s:.6g} s ({requests / duration_s:.4g} requests/s) were put into "
        f"{len(made)} buckets by quantiles of input and output length ({cut} parts, empty ones dropped); "
        "each bucket has the mean lengths of its requests, which keeps the total of tokens"
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
