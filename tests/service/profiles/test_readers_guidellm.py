"""Reports of GuideLLM, of all its schemas, from bytes to runs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import RunsRead, read_runs
from sutler.service.profiles.runs import BenchmarkRun
from tests.service.profiles.payloads import (
    GUIDELLM,
    GUIDELLM_OLD,
    as_bytes,
    changed,
    distribution,
    guidellm_benchmark,
    without,
)


def read(report: Any) -> RunsRead:
    return read_runs(as_bytes(report), name="benchmarks.json")


def read_one(strategy: dict[str, Any], **changes: Any) -> BenchmarkRun:
    (run,) = read({**GUIDELLM, "benchmarks": [guidellm_benchmark(strategy, **changes)]}).runs
    return run


def test_every_field_of_a_benchmark_is_read() -> None:
    found = read(GUIDELLM)
    assert (found.format, found.rejected) == ("guidellm", ())
    assert found.runs[1] == BenchmarkRun(
        place="benchmarks[1]",
        model="Qwen/Qwen3-32B",
        input_tokens=512.0,
        output_tokens=128.0,
        concurrency=16,
        request_rate_rps=None,
        req_per_s=5.0,
        ttft_s=0.15,
        tpot_s=0.024,
        e2e_s=3.2,
        completed=300,
        failed=2,
        duration_s=60.0,
        measured_at=datetime(2026, 11, 2, 10, 0, tzinfo=UTC),
    )


def test_a_sweep_is_one_run_per_strategy_with_the_load_of_each() -> None:
    loads = [(run.place, run.concurrency, run.request_rate_rps) for run in read(GUIDELLM).runs]
    assert loads == [
        ("benchmarks[0]", 1, None),
        ("benchmarks[1]", 16, None),
        ("benchmarks[2]", 512, None),
        ("benchmarks[3]", None, 4.5),
        ("benchmarks[4]", None, 2.25),
    ]


def test_a_cap_that_the_user_set_is_kept_beside_the_rate() -> None:
    benchmark = guidellm_benchmark({"type_": "constant", "rate": 4.5, "max_concurrency": 32})
    capped = changed(benchmark, "config", "profile", "max_concurrency", to=32)
    (run,) = read({**GUIDELLM, "benchmarks": [capped]}).runs
    assert (run.concurrency, run.request_rate_rps) == (32, 4.5)


def test_the_schema_before_reads_the_same() -> None:
    assert read(GUIDELLM_OLD).runs == (
        BenchmarkRun(
            place="benchmarks[0]",
            model="meta-llama/Llama-3.1-8B-Instruct",
            gpu="l40s",
            tensor_parallel=1,
            input_tokens=512.0,
            output_tokens=128.0,
            concurrency=8,
            req_per_s=5.0,
            ttft_s=0.15,
            tpot_s=0.024,
            e2e_s=3.2,
            completed=290,
            failed=1,
            duration_s=60.0,
            measured_at=datetime(2025, 4, 30, 8, 0, 0, 500_000, tzinfo=UTC),
        ),
    )


def test_version_2_keeps_the_model_and_labels_in_its_config() -> None:
    benchmark = guidellm_benchmark({"kind": "concurrent", "streams": 4})
    report = {
        "metadata": {"version": 2, "guidellm_version": "0.7.1"},
        "config": {
            "metadata": {"labels": {"gpu": "b200", "tensor_parallel_size": "2", "precision": "fp4"}},
            "spec": {"backend": {"kind": "openai_http", "model": "nvidia/some-model"}},
        },
        "benchmarks": [changed(benchmark, "config", "backend", to={"kind": "openai_http"})],
    }
    (run,) = read(report).runs
    assert (run.model, run.gpu, run.tensor_parallel, run.precision) == ("nvidia/some-model", "b200", 2, "fp4")
    assert run.concurrency == 4


def test_the_model_is_looked_for_in_the_arguments_last() -> None:
    benchmark = changed(guidellm_benchmark({"type_": "synchronous"}), "config", "backend", to=None)
    assert read({**GUIDELLM, "benchmarks": [benchmark]}).runs[0].model == "named/in-args"


def test_a_distribution_without_observations_is_unknown() -> None:
    metrics = {"time_to_first_token_ms": distribution(0.0, count=0), "inter_token_latency_ms": None}
    run = read_one({"type_": "synchronous"}, metrics=metrics)
    assert (run.ttft_s, run.tpot_s, run.req_per_s, run.completed) == (None, None, None, None)


def test_a_start_of_minus_one_is_unknown() -> None:
    assert read_one({"type_": "synchronous"}, start_time=-1.0).measured_at is None


def test_a_benchmark_without_a_strategy_has_no_load() -> None:
    benchmark = without(guidellm_benchmark({}), "config")
    (run,) = read({**GUIDELLM, "benchmarks": [benchmark]}).runs
    assert (run.concurrency, run.request_rate_rps) == (None, None)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("metrics", "request_latency", "successful", "mean"), "x", "metrics.request_latency.successful.mean: 'x'"),
        (("metrics", "request_totals", "errored"), -1, "metrics.request_totals.errored: -1: must be at least 0"),
        (("config", "strategy", "streams"), "16", "config.strategy.streams: '16': must be a number, not text"),
        (("config", "strategy", "type_"), "trace", "config.strategy: 'trace': benchmark with synchronous"),
        (("metrics",), None, "metrics: None: must be a mapping"),
        (("duration",), float("nan"), "duration: nan: must be a finite number"),
        (("start_time",), 1e300, "start_time: 1e+300: must be at most"),
        (("extras",), {"tp": "many"}, "tp: 'many': must be a number"),
    ],
)
def test_a_wrong_value_costs_its_benchmark_and_no_other(path: tuple[str, ...], value: Any, reason: str) -> None:
    found = read(changed(GUIDELLM, "benchmarks", 1, *path, to=value))
    assert [run.place for run in found.runs] == [f"benchmarks[{index}]" for index in (0, 2, 3, 4)]
    (rejected,) = found.rejected
    assert rejected.place == "benchmarks[1]"
    assert rejected.reasons[0].startswith(reason)


def test_a_benchmark_without_metrics_is_rejected() -> None:
    (rejected,) = read({**GUIDELLM, "benchmarks": [*GUIDELLM["benchmarks"], {"type_": "x"}, 7]}).rejected[:1]
    assert rejected.reasons == ("metrics: is missing: The benchmark's metrics",)


def test_a_report_without_benchmarks_is_an_error() -> None:
    with pytest.raises(DocumentError, match=r"'benchmarks.json': holds no guidellm run"):
        read({**GUIDELLM, "benchmarks": []})
