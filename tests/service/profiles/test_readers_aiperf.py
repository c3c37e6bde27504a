"""Exports of AIPerf and of GenAI-Perf, from bytes to runs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import RunsRead, read_runs
from sutler.service.profiles.runs import BenchmarkRun
from tests.service.profiles.payloads import AIPERF, GENAI_PERF, as_bytes, changed, without


def read(export: Any) -> RunsRead:
    return read_runs(as_bytes(export), name="profile_export_aiperf.json")


def read_config(**config: Any) -> BenchmarkRun:
    (run,) = read({**AIPERF, "input_config": config}).runs
    return run


def phase(**settings: Any) -> dict[str, Any]:
    return {"name": "profiling", "kind": "profiling", **settings}


def test_every_field_of_an_aiperf_export_is_read() -> None:
    assert read(AIPERF) == RunsRead(
        format="aiperf",
        runs=(
            BenchmarkRun(
                place="profile export",
                model="openai/gpt-oss-120b",
                gpu="NVIDIA H200",
                input_tokens=1000.5,
                output_tokens=256.0,
                concurrency=32,
                request_rate_rps=None,
                req_per_s=8.0,
                ttft_s=0.09,
                tpot_s=0.015,
                e2e_s=3.9,
                completed=480,
                failed=4,
                duration_s=60.0,
                measured_at=datetime(2026, 11, 2, 10, 0, 0, 250_000, tzinfo=UTC),
            ),
        ),
    )


def test_every_field_of_a_genai_perf_export_is_read() -> None:
    assert read(GENAI_PERF) == RunsRead(
        format="genai-perf",
        runs=(
            BenchmarkRun(
                place="profile export",
                model="meta-llama/Llama-3.1-8B-Instruct",
                input_tokens=1000.5,
                output_tokens=256.0,
                concurrency=16,
                req_per_s=8.0,
                ttft_s=0.09,
                tpot_s=0.015,
                e2e_s=3.9,
                completed=480,
            ),
        ),
    )


def test_older_versions_keep_the_load_elsewhere() -> None:
    endpoint = {"model_names": ["a/b"], "type": "chat"}
    loadgen = read_config(endpoint=endpoint, loadgen={"concurrency": 8, "request_rate": 2.5})
    assert (loadgen.model, loadgen.concurrency, loadgen.request_rate_rps) == ("a/b", 8, 2.5)
    stimulus = read_config(model="a/b", perf_analyzer={"stimulus": {"request_rate": 10}}, endpoint="v1/chat")
    assert (stimulus.model, stimulus.concurrency, stimulus.request_rate_rps) == ("a/b", None, 10)


def test_a_rate_phase_has_a_rate_and_perhaps_a_cap() -> None:
    free = read_config(phases=[phase(type="poisson", rate=3.5)])
    assert (free.concurrency, free.request_rate_rps) == (None, 3.5)
    capped = read_config(phases=[phase(type="gamma", rate=3.5, concurrency=64)])
    assert (capped.concurrency, capped.request_rate_rps) == (64, 3.5)


def test_a_concurrency_that_was_left_at_its_default_is_one() -> None:
    assert read_config(phases=[phase(type="concurrency")]).concurrency == 1


def test_what_the_export_leaves_out_is_unknown() -> None:
    (run,) = read({"request_throughput": {"unit": "requests/sec", "avg": 8.0}}).runs
    assert run == BenchmarkRun(place="profile export", req_per_s=8.0)
    (run,) = read({**AIPERF, "time_to_first_token": None, "inter_token_latency": {"unit": "ms"}}).runs
    assert (run.ttft_s, run.tpot_s) == (None, None)


def test_gpus_of_several_kinds_are_no_gpu() -> None:
    path = ("telemetry_data", "endpoints", "localhost:9400", "gpus", "gpu_1", "gpu_name")
    assert read(changed(AIPERF, *path, to="NVIDIA A100")).runs[0].gpu is None


@pytest.mark.parametrize(("unit", "ttft_s"), [("sec", 90.0), ("ms", 0.09), ("us", 9e-5), ("ns", 9e-8)])
def test_the_unit_is_believed(unit: str, ttft_s: float) -> None:
    (run,) = read(changed(AIPERF, "time_to_first_token", "unit", to=unit)).runs
    assert run.ttft_s == pytest.approx(ttft_s)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("time_to_first_token", "unit"), "fortnights", "time_to_first_token.unit: 'fortnights': must be one of s,"),
        (("time_to_first_token", "unit"), None, "time_to_first_token.unit: None: must be one of s,"),
        (("request_latency", "avg"), "x", "request_latency.avg: 'x': must be a number"),
        (("request_latency", "avg"), float("nan"), "request_latency.avg: nan: must be a finite number"),
        (("request_count", "avg"), 1.5, "request_count.avg: 1.5: must be a whole number"),
        (("inter_token_latency",), 15.0, "inter_token_latency: 15.0: must be a mapping"),
        (("start_time",), "soon", "start_time: 'soon': must be a time"),
        (("was_cancelled",), True, "was_cancelled: True: run the benchmark to its end"),
        (("input_config", "models"), ["a", "b"], "input_config.models: ('a', 'b'): benchmark one at a time"),
        (("input_config", "phases", 1, "concurrency"), 0, "input_config.phases[1].concurrency: 0: must be above 0"),
        (("input_config", "phases", 1, "type"), "fixed_schedule", "input_config.phases.type: 'fixed_schedule'"),
        (("input_config", "phases", 0, "kind"), "profiling", "input_config.phases: ['warmup', 'profiling']: give"),
        (("input_config", "input"), {"fixed_schedule": True}, "input_config.input.fixed_schedule: True: benchmark"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path: tuple[str | int, ...], value: Any, reason: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(changed(AIPERF, *path, to=value))
    assert str(caught.value).startswith(f"profile export: {reason}")


def test_an_export_of_embeddings_still_has_its_rate() -> None:
    export = without(AIPERF, "time_to_first_token", "inter_token_latency", "output_sequence_length")
    (run,) = read(export).runs
    assert (run.req_per_s, run.output_tokens) == (8.0, None)
