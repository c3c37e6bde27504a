"""One benchmark run: as a result file states it, and as it is kept once it has been checked.

Flow: bytes -> readers/ -> BenchmarkRun -> checks.py -> ProfileRun -> repository.py.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog.entries import Precision
from sutler.solver.throughput.runs import ServingRun

PROTOCOL: Final = ("request_rate_rps", "length_spread_fraction")


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """A run as a file states it; None: it does not say. Latencies are means over the completed requests, in seconds.

    place: where in the file, for messages ("row 7", "benchmarks[2]"). input_tokens, output_tokens: means per request.
    concurrency: the fixed number of requests in flight that the benchmark kept up; None for open-loop runs, whose
    arrivals request_rate_rps gives (None where everything was sent at once). req_per_s: completed per second.
    """

    place: str
    model: str | None = None
    gpu: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    request_rate_rps: float | None = None
    req_per_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    measured_at: datetime | None = None
    length_spread_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What runs of one profile share: slug, catalogue ids, engine. engine_version "": not known."""

    gpu: str
    model: str
    precision: Precision
    kv_precision: Precision
    engine: str
    engine_version: str

    @property
    def id(self) -> str:
        """What people name the profile by."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        engine = f"{self.engine} {self.engine_version}".strip()
        return f"{self.model} at {self.precision} (KV cache {self.kv_precision}) on {self.gpu}, {engine}"


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """A run that may be fitted to. concurrency: requests in flight on average. tpot_s 0 where a request has one
    output token.

    How the benchmark went: request_rate_rps of arrivals at random, None where clients kept up a concurrency;
    length_spread_fraction s: lengths were even within 1 - s and 1 + s times their means, None where nobody says.
    """

    key: ProfileKey
    tensor_parallel: int
    pipeline_parallel: int
    input_tokens: float
    output_tokens: float
    concurrency: float
    req_per_s: float
    ttft_s: float
    tpot_s: float
    completed: int | None = None
    duration_s: float | None = None
    measured_at: datetime | None = None
    request_rate_rps: float | None = None
    length_spread_fraction: float | None = None

    @property
    def digest(self) -> bytes:
        """A digest that is the same for the same run, whatever file it came in, and however much that says of the
        benchmark."""
        names = (field.name for field in fields(self) if field.name not in PROTOCOL)
        values: Sequence[object] = [getattr(self, name) for name in names]
        return hashlib.sha256(repr(values).encode()).digest()


def serving_run(run: ProfileRun, names: Names = CATALOGUE) -> ServingRun:
    """The run as the solver fits it, its engine by the name of that version's factors.

    Raises UnknownNameError, DocumentError."""
    shared = ("tensor_parallel", "input_tokens", "output_tokens", "concurrency", "req_per_s", "ttft_s", "tpot_s")
    return ServingRun(
        gpu=names.gpu(run.key.gpu),
        spec=names.model(run.key.model),
        precision=run.key.precision,
        kv_precision=run.key.kv_precision,
        engine=shipped_calibration().version_of(run.key.engine, run.key.engine_version),
        **{name: getattr(run, name) for name in shared},
    )
