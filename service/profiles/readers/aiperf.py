"""NVIDIA AIPerf's profile_export_aiperf.json and its predecessor's profile_export_genai_perf.json: one run a file.

Format: https://github.com/ai-dynamo/aiperf, docs/reference/json-export-schema.md (versions 1.0 to 1.5) and
src/aiperf/common/models/export_models.py; https://github.com/triton-inference-server/perf_analyzer,
genai-perf/genai_perf/export_data/json_exporter.py. Every metric is an object with `unit` and `avg`, and the unit is
to be believed; errors are counted only by AIPerf. How the load was set: aiperf_load.py. The CSV summaries beside
these files name neither model nor load, so they are no substitute.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Name
from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.aiperf_load import InputConfig, load_of
from sutler.service.profiles.readers.outcome import RunsRead, collected
from sutler.service.profiles.readers.values import Counted, Measured, Stated, Time, WhereMapping, only_one
from sutler.service.profiles.runs import BenchmarkRun
from sutler.solver.units import MICROSECONDS_PER_SECOND, MILLISECONDS_PER_SECOND, NANOSECONDS_PER_SECOND

AIPERF: Final = "aiperf"
GENAI_PERF: Final = "genai-perf"
_PLACE: Final = "profile export"
_METRICS: Final = ("request_throughput", "request_latency", "time_to_first_token")
_OF_AIPERF: Final = frozenset({"aiperf_version", "schema_version", "was_cancelled", "start_time"})
_PER_SECOND: Final[Mapping[str, float]] = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": MILLISECONDS_PER_SECOND,
    "us": MICROSECONDS_PER_SECOND,
    "ns": NANOSECONDS_PER_SECOND,
}


class _Metric(Stated):
    unit: Name | None = None
    avg: Measured | None = None


class _Count(Stated):
    avg: Counted | None = None


class _Gpu(Stated):
    gpu_name: Name | None = None


class _Endpoint(Stated):
    gpus: dict[str, _Gpu] | None = None


class _Telemetry(Stated):
    endpoints: dict[str, _Endpoint] | None = None

    @property
    def gpu_names(self) -> set[str]:
        gpus = [gpu for endpoint in (self.endpoints or {}).values() for gpu in (endpoint.gpus or {}).values()]
        return {gpu.gpu_name for gpu in gpus if gpu.gpu_name}


class _Export(Stated):
    input_config: Annotated[InputConfig | None, WhereMapping] = None
    telemetry_data: Annotated[_Telemetry | None, WhereMapping] = None
    was_cancelled: bool | None = None
    start_time: Time | None = None
    request_throughput: _Metric | None = None
    request_latency: _Metric | None = None
    time_to_first_token: _Metric | None = None
    inter_token_latency: _Metric | None = None
    input_sequence_length: _Metric | None = None
    output_sequence_length: _Metric | None = None
    benchmark_duration: _Metric | None = None
    request_count: _Count | None = None
    error_request_count: _Count | None = None


def recognises(values: Sequence[object]) -> bool:
    if len(values) != 1 or not isinstance(values[0], Mapping):
        return False
    return any(isinstance(values[0].get(metric), Mapping) for metric in _METRICS)


def read(values: Sequence[Any], name: str) -> RunsRead:
    """The run that the file states. Raises DocumentError where the run cannot be used."""
    format_name = AIPERF if _OF_AIPERF & values[0].keys() else GENAI_PERF
    return collected(name, format_name, [(_PLACE, values[0])], _run)


def _run(place: str, value: object) -> BenchmarkRun:
    export = validate(_Export, value)
    if export.was_cancelled:
        raise DocumentError.of("was_cancelled", "run the benchmark to its end", value=True)
    config = export.input_config or InputConfig()
    concurrency, rate_rps = load_of(config)
    gpus = export.telemetry_data.gpu_names if export.telemetry_data else set()
    return BenchmarkRun(
        place=place,
        model=only_one("input_config.models", config.model_names),
        gpu=next(iter(gpus)) if len(gpus) == 1 else None,
        input_tokens=_avg(export.input_sequence_length),
        output_tokens=_avg(export.output_sequence_length),
        concurrency=concurrency,
        request_rate_rps=rate_rps,
        req_per_s=_avg(export.request_throughput),
        ttft_s=_seconds("time_to_first_token", export.time_to_first_token),
        tpot_s=_seconds("inter_token_latency", export.inter_token_latency),
        e2e_s=_seconds("request_latency", export.request_latency),
        completed=export.request_count.avg if export.request_count else None,
        failed=export.error_request_count.avg if export.error_request_count else None,
        duration_s=_seconds("benchmark_duration", export.benchmark_duration),
        measured_at=export.start_time,
    )


def _avg(metric: _Metric | None) -> float | None:
    return metric.avg if metric else None


def _seconds(name: str, metric: _Metric | None) -> float | None:
    if metric is None or metric.avg is None:
        return None
    if metric.unit is None or metric.unit not in _PER_SECOND:
        raise DocumentError.of(f"{name}.unit", f"must be one of {', '.join(_PER_SECOND)}", value=metric.unit)
    return metric.avg / _PER_SECOND[metric.unit]
