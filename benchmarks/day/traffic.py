"""A day of requests from the Azure traces: an hour of two services, made a day of another shape by every seed.

The traces (github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_{conv,code}.csv) cover the same hour: chats
swing between 4 and 8 requests/s and back, code completion jumps between nothing and 10. One model serves both, as a
small team with one fleet has it. A seed says where in its hour each service begins, whether it runs backwards, how
often its hour is in the day (one to three times, so that it swings as much faster), and which part of the requests is
code: load and mix change independently of each other. Every request of the trace becomes a Poisson number of
requests, each at a time of its own within `BLUR_S` of the stretched one: as it were the traffic of the minute of the
trace around it. Without that the bursts of single seconds would become bursts of minutes. All requests of a bucket
have its mean lengths.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

TRACES: Final = Path(__file__).parents[3] / "shared" / "data" / "traces"
FILES: Final = ("AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv")
DAY_S: Final = 12 * 3600.0
BLUR_S: Final = 720.0
MOST_REPEATS: Final = 3
CODE_FRACTIONS: Final = (0.1, 0.6)
_PARTS: Final = 2  # of the input lengths, and of the output lengths

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded requests in the order of their times, which run from 0 to `length_s`."""

    at_s: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray

    @property
    def length_s(self) -> float:
        return float(self.at_s[-1])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Similar requests: mean tokens over the whole trace, and the mean rate over the day."""

    name: str
    input_tokens: float
    output_tokens: float
    rate_rps: float


@dataclass(frozen=True, slots=True)
class Day:
    """Arrivals: `requests` [slices, buckets]."""

    slice_s: float
    buckets: tuple[Bucket, ...]
    requests: FloatArray

    def counts(self, begin_s: float, end_s: float) -> FloatArray:
        """[buckets] requests that arrive from `begin_s` to `end_s`, both at the ends of slices."""
        span = slice(round(begin_s / self.slice_s), round(end_s / self.slice_s))
        return np.asarray(self.requests[span].sum(axis=0))

    def rates_rps(self, begin_s: float, end_s: float) -> FloatArray:
        """[buckets] requests/s in that time."""
        return self.counts(begin_s, end_s) / (end_s - begin_s)


def are_there(folder: Path = TRACES) -> bool:
    """The traces are no part of the repository."""
    return all((folder / name).is_file() for name in FILES)


def read_traces(folder: Path = TRACES) -> tuple[Trace, Trace]:
    """The chats and the code. Raises FileNotFoundError where a trace is missing."""
    chats, code = (_trace(folder / name) for name in FILES)
    return chats, code


def shaped(chats: Trace, code: Trace, *, seed: int) -> Trace:
    """Both as one trace, as long as the longer of them."""
    draw = np.random.default_rng([seed, 1])
    length_s = max(chats.length_s, code.length_s)
    services = [_turned(service, length_s, draw) for service in (chats, code)]
    fraction = draw.uniform(*CODE_FRACTIONS)
    # Of the service of which there are too many, requests are left out at random.
    most = min(len(services[0].at_s) / (1 - fraction), len(services[1].at_s) / fraction)
    kept = [
        _thinned(service, part * most / len(service.at_s), draw)
        for service, part in zip(services, (1 - fraction, fraction), strict=True)
    ]
    at_s, inputs, outputs = (np.concatenate([getattr(service, name) for service in kept]) for name in Trace.__slots__)
    order = np.argsort(at_s, kind="stable")
    return Trace(at_s[order], inputs[order], outputs[order])


def _turned(trace: Trace, length_s: float, draw: np.random.Generator) -> Trace:
    repeats, backwards, first = int(draw.integers(1, MOST_REPEATS + 1)), draw.random() < 0.5, draw.random()
    at_s = trace.length_s - trace.at_s if backwards else trace.at_s
    at_s = (at_s / trace.length_s + first) % 1.0
    again = np.concatenate([at_s + number for number in range(repeats)]) / repeats
    return Trace(again * length_s, np.tile(trace.input_tokens, repeats), np.tile(trace.output_tokens, repeats))


def _thinned(trace: Trace, fraction: float, draw: np.random.Generator) -> Trace:
    kept = draw.random(len(trace.at_s)) < fraction
    return Trace(trace.at_s[kept], trace.input_tokens[kept], trace.output_tokens[kept])


def day_of(trace: Trace, *, mean_rps: float, seed: int, slice_s: float = 60.0) -> Day:
    """A day with `mean_rps` requests/s on average; the same seed gives the same day."""
    draw = np.random.default_rng(seed)
    copies = draw.poisson(mean_rps * DAY_S / len(trace.at_s), size=len(trace.at_s))
    origin = np.repeat(np.arange(len(trace.at_s)), copies)
    at = trace.at_s[origin] * (DAY_S / trace.length_s) + draw.uniform(-BLUR_S, BLUR_S, size=len(origin))
    at = np.abs(at)  # mirrored at both ends: else the day would begin and end with half its traffic
    at = np.minimum(np.where(at > DAY_S, 2 * DAY_S - at, at), np.nextafter(DAY_S, 0.0))
    buckets, bucket_of = bucketed(trace, mean_rps=mean_rps)
    slices = round(DAY_S / slice_s)
    cell = (at // slice_s).astype(np.int64) * len(buckets) + bucket_of[origin]
    counts = np.bincount(cell, minlength=slices * len(buckets)).astype(np.float64)
    return Day(slice_s, buckets, counts.reshape(slices, len(buckets)))


def bucketed(trace: Trace, *, mean_rps: float) -> tuple[tuple[Bucket, ...], IntArray]:
    """Four buckets, as service/documents/traces.py divides such a trace, and the one of each request."""
    inputs, outputs = _thirds(trace.input_tokens), _thirds(trace.output_tokens)
    cells, bucket_of = np.unique(inputs * _PARTS + outputs, return_inverse=True)
    buckets = tuple(
        Bucket(
            f"in-{cell // _PARTS}-out-{cell % _PARTS}",
            float(trace.input_tokens[bucket_of == number].mean()),
            float(trace.output_tokens[bucket_of == number].mean()),
            mean_rps * float((bucket_of == number).mean()),
        )
        for number, cell in enumerate(cells)
    )
    return buckets, bucket_of.astype(np.int64)


def _thirds(tokens: FloatArray) -> IntArray:
    cuts = np.quantile(tokens, np.arange(1, _PARTS) / _PARTS, method="inverted_cdf")
    return np.searchsorted(cuts, tokens, side="left").astype(np.int64)


def _trace(path: Path) -> Trace:
    rows = np.array(sorted(_rows(path)), dtype=np.float64)
    return Trace(rows[:, 0] - rows[0, 0], rows[:, 1], rows[:, 2])


def _rows(path: Path) -> Iterator[tuple[float, float, float]]:
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            yield at, float(row["ContextTokens"]), float(row["GeneratedTokens"])
