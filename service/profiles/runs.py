"""One benchmark run as a result file states it, before anything about it is checked.

Flow: bytes -> readers/ -> BenchmarkRun (here) -> checks.py -> what is stored.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """None: the file does not say. Latencies are means over the completed requests, in seconds.

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
