"""GuideLLM's benchmarks.json: one run for every benchmark in it, of which a sweep has several.

Format: https://github.com/vllm-project/guidellm, src/guidellm/benchmark/schemas/ (report.py, base.py, benchmark.py,
metrics.py) and src/guidellm/scheduler/strategies.py since 0.4: metadata.version 1 (0.5, 0.6) keeps the arguments in
`args`, version 2 (0.7) in `config`, each benchmark has its own `config`. Before (0.2, 0.3; benchmark/benchmark.py) a
benchmark has `args`, `worker` and its own `request_totals`. A distribution without observations has mean 0, count 0.

Inter-token latency is what others call TPOT; GuideLLM's time_per_output_token_ms contains the first token.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Name
from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.labels import labels_of
from sutler.service.profiles.readers.outcome import RunsRead, collected
from sutler.service.profiles.readers.values import (
    Counted,
    Epoch,
    Measured,
    Positive,
    Stated,
    WhereMapping,
    at_utc,
    named,
    seconds_of_ms,
)
from sutler.service.profiles.runs import BenchmarkRun

FORMAT: Final = "guidellm"


class _Distribution(Stated):
    mean: Measured | None = None
    count: Counted | None = None


class _ByStatus(Stated):
    successful: _Distribution | None = None


class _Totals(Stated):
    successful: Counted | None = None
    errored: Counted | None = None


class _Metrics(Stated):
    request_totals: _Totals | None = None
    requests_per_second: _ByStatus | None = None
    request_latency: _ByStatus | None = None
    prompt_token_count: _ByStatus | None = None
    output_token_count: _ByStatus | None = None
    time_to_first_token_ms: _ByStatus | None = None
    inter_token_latency_ms: _ByStatus | None = None


class _Strategy(Stated):
    kind: Name | None = named("type_", "kind")
    streams: Positive | None = None
    rate: Positive | None = None
    max_concurrency: Positive | None = None


class _Profile(Stated):
    max_concurrency: Positive | None = None


class _Backend(Stated):
    model: Name | None = named("model", "backend_model")


class _Config(Stated):
    strategy: _Strategy | None = None
    profile: Annotated[_Profile | None, WhereMapping] = None
    backend: Annotated[_Backend | None, WhereMapping] = None


class _Benchmark(Stated):
    config: _Config | None = named("config", "args")
    worker: _Backend | None = None
    extras: dict[str, object] | None = None
    request_totals: _Totals | None = None
    start_time: Epoch | None = None
    duration: Measured | None = None
    metrics: _Metrics
    """The benchmark's metrics."""


class _Arguments(Stated):
    model: Name | None = None
    backend_kwargs: Annotated[_Backend | None, WhereMapping] = None


class _Spec(Stated):
    backend: _Backend | None = None


class _ScenarioMetadata(Stated):
    labels: dict[str, object] | None = None


class _Scenario(Stated):
    spec: _Spec | None = None
    metadata: _ScenarioMetadata | None = None


class _Report(Stated):
    args: Annotated[_Arguments | None, WhereMapping] = None
    config: Annotated[_Scenario | None, WhereMapping] = None

    @property
    def model(self) -> str | None:
        kwargs = self.args.backend_kwargs if self.args else None
        spec = self.config.spec.backend if self.config and self.config.spec else None
        return (self.args.model if self.args else None) or (kwargs or spec or _Backend()).model

    @property
    def labels(self) -> Mapping[str, object]:
        return (self.config.metadata.labels if self.config and self.config.metadata else None) or {}


def recognises(values: Sequence[object]) -> bool:
    if len(values) != 1 or not isinstance(values[0], Mapping) or not isinstance(values[0].get("benchmarks"), list):
        return False
    metadata = values[0].get("metadata")
    said = isinstance(metadata, Mapping) and "guidellm_version" in metadata
    return said or any(isinstance(one, Mapping) and "metrics" in one for one in values[0]["benchmarks"])


def read(values: Sequence[Any], name: str) -> RunsRead:
    """The runs of a report. Raises DocumentError where all of it, or every benchmark in it, is unusable."""
    report = validate(_Report, values[0])
    numbered = [(f"benchmarks[{index}]", value) for index, value in enumerate(values[0]["benchmarks"])]
    return collected(name, FORMAT, numbered, lambda place, value: _run(place, value, report))


def _run(place: str, value: object, report: _Report) -> BenchmarkRun:
    benchmark = validate(_Benchmark, value)
    run = _stated(place, benchmark, report.model)
    return labels_of({**report.labels, **(benchmark.extras or {})}).put_on(run)


def _stated(place: str, benchmark: _Benchmark, reported_model: str | None) -> BenchmarkRun:
    config, metrics = benchmark.config or _Config(), benchmark.metrics
    totals = metrics.request_totals or benchmark.request_totals or _Totals()
    concurrency, rate_rps = _load(config)
    return BenchmarkRun(
        place=place,
        model=(config.backend or benchmark.worker or _Backend()).model or reported_model,
        input_tokens=_mean(metrics.prompt_token_count),
        output_tokens=_mean(metrics.output_token_count),
        concurrency=concurrency,
        request_rate_rps=rate_rps,
        req_per_s=_mean(metrics.requests_per_second),
        ttft_s=seconds_of_ms(_mean(metrics.time_to_first_token_ms)),
        tpot_s=seconds_of_ms(_mean(metrics.inter_token_latency_ms)),
        e2e_s=_mean(metrics.request_latency),
        completed=totals.successful,
        failed=totals.errored,
        duration_s=benchmark.duration,
        measured_at=at_utc(benchmark.start_time),
    )


def _mean(metric: _ByStatus | None) -> float | None:
    found = metric.successful if metric else None
    return found.mean if found and found.count != 0 else None


def _load(config: _Config) -> tuple[float | None, float | None]:
    """Concurrency and request rate. Raises DocumentError for a strategy that keeps to neither."""
    strategy = config.strategy or _Strategy()
    if strategy.kind == "synchronous":
        return 1, None
    if strategy.kind in ("concurrent", None):
        return strategy.streams or strategy.max_concurrency, None
    if strategy.kind == "throughput":
        return strategy.max_concurrency, None
    if strategy.kind in ("constant", "poisson"):
        # The strategy's own max_concurrency is overwritten at run time with GuideLLM's default limit.
        return (config.profile.max_concurrency if config.profile else None), strategy.rate
    remedy = "benchmark with synchronous, concurrent, throughput, constant or poisson: only their load is known"
    raise DocumentError.of("config.strategy", remedy, value=strategy.kind)
