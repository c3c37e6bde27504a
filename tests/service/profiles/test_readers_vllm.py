"""Result files of vLLM, from bytes to runs."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import RunsRead, read_runs
from sutler.service.profiles.runs import BenchmarkRun
from tests.service.profiles.payloads import VLLM, as_bytes, changed, without


def read(*results: Any) -> RunsRead:
    return read_runs(as_bytes(*results), name="result.json")


def read_one(**changes: Any) -> BenchmarkRun:
    (run,) = read({**VLLM, **changes}).runs
    return run


def test_every_field_of_a_result_is_read() -> None:
    assert read(VLLM) == RunsRead(
        format="vllm",
        runs=(
            BenchmarkRun(
                place="result 1",
                model="meta-llama/Llama-3.1-70B-Instruct",
                gpu="h100-sxm",
                precision="fp8",
                kv_precision=None,
                engine="vllm",
                engine_version="0.11.0",
                tensor_parallel=4,
                pipeline_parallel=1,
                input_tokens=1024.0,
                output_tokens=256.0,
                concurrency=64,
                request_rate_rps=None,
                req_per_s=2.5,
                ttft_s=0.75,
                tpot_s=0.0955,
                e2e_s=25.1025,
                completed=400,
                failed=3,
                duration_s=160.0,
                measured_at=datetime(2026, 11, 2, 10, 15, 30, tzinfo=UTC),
            ),
        ),
        rejected=(),
    )


def test_an_old_result_without_labels_leaves_unknown_what_it_does_not_say() -> None:
    old = without(VLLM, "gpu", "tp", "pp", "version", "dtype", "quantization", "kv_cache_dtype", "failed")
    (run,) = read(without(old, "endpoint_type", "mean_e2el_ms", "max_concurrency")).runs
    assert (run.gpu, run.tensor_parallel, run.precision, run.engine_version) == (None, None, None, None)
    assert (run.failed, run.e2e_s, run.concurrency) == (None, None, None)
    assert run.ttft_s == 0.75


@pytest.mark.parametrize("separator", ["\n", "", "\r\n\r\n", " \t"])
def test_appended_results_are_one_run_each(separator: str) -> None:
    content = separator.join(json.dumps({**VLLM, "max_concurrency": cap}) for cap in (1, 8, 64)).encode()
    found = read_runs(content, name="appended.json")
    assert [(run.place, run.concurrency) for run in found.runs] == [
        ("result 1", 1),
        ("result 2", 8),
        ("result 3", 64),
    ]


def test_results_gathered_in_a_list_and_indented_are_read_too() -> None:
    content = json.dumps([VLLM, VLLM], indent=2).encode("utf-8-sig")
    assert len(read_runs(content, name="list.json").runs) == 2


def test_a_finite_request_rate_is_kept_with_and_without_a_cap() -> None:
    open_loop = read_one(request_rate=10.0, max_concurrency=None)
    assert (open_loop.request_rate_rps, open_loop.concurrency) == (10.0, None)
    capped = read_one(request_rate=10.0, max_concurrency=64)
    assert (capped.request_rate_rps, capped.concurrency) == (10.0, 64)


def test_an_infinite_rate_is_no_rate_in_either_spelling() -> None:
    assert read_one(request_rate="inf").request_rate_rps is None
    assert read_one(request_rate=math.inf).request_rate_rps is None


@pytest.mark.parametrize(
    ("backend", "engine"),
    [("openai-chat", None), ("openai", None), ("sglang-oai", "sglang"), ("tensorrt-llm", "tensorrt-llm")],
)
def test_only_a_backend_that_names_an_engine_does(backend: str, engine: str | None) -> None:
    assert read_one(backend=backend, endpoint_type=backend).engine == engine


def test_labels_have_many_usual_spellings_and_win_over_what_the_client_knew() -> None:
    labels = {"GPU-Type": "4090", "tensor-parallel-size": 2, "PP_SIZE": "3", "vllm_version": 0.9, "engine": "sglang"}
    bare = without(VLLM, "gpu", "tp", "pp", "version", "dtype", "quantization")
    (run,) = read({**bare, **labels, "precision": " bf16 ", "kv-cache-dtype": "fp8", "model": "my-llama"}).runs
    assert (run.gpu, run.tensor_parallel, run.pipeline_parallel) == ("4090", 2, 3)
    assert (run.engine, run.engine_version, run.model) == ("sglang", "0.9", "my-llama")
    assert (run.precision, run.kv_precision) == ("bf16", "fp8")


def test_a_label_that_says_nothing_leaves_room_for_the_next() -> None:
    assert read_one(quantization="None", dtype="bfloat16").precision == "bfloat16"
    assert read_one(quantization=None, dtype="auto").precision is None


def test_nothing_completed_means_no_token_counts() -> None:
    run = read_one(completed=0, failed=400, total_input_tokens=0, total_output_tokens=0)
    assert (run.input_tokens, run.output_tokens, run.completed, run.failed) == (None, None, 0, 400)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("mean_ttft_ms", "fast", "mean_ttft_ms: 'fast': must be a number, not text"),
        ("mean_ttft_ms", -1.0, "mean_ttft_ms: -1.0: must be at least 0"),
        ("mean_tpot_ms", math.nan, "mean_tpot_ms: nan: must be a finite number"),
        ("request_throughput", math.inf, "request_throughput: inf: must be a finite number"),
        ("duration", 10**400, "duration: 1000"),
        ("completed", 3.5, "completed: 3.5: must be a whole number"),
        ("completed", True, "completed: True: must be a whole number"),
        ("request_rate", "often", "request_rate: 'often': must be a number"),
        ("request_rate", -math.inf, "request_rate: -inf: must be"),
        ("max_concurrency", 0, "max_concurrency: 0: must be above 0"),
        ("date", "yesterday", "date: 'yesterday': must be a time such as 20261120-120000"),
        ("tp", "four", "tp: 'four': must be a number"),
        ("tp", "0", "tp: 0: must be at least 1"),
        ("pp", "1.5", "pp: 1.5: must be a whole number"),
        ("gpu", {"name": "h100"}, "gpu: {'name': 'h100'}: must be text"),
        ("model_id", "", "model_id: '': must not be empty"),
        ("ramp_up_strategy", "linear", "ramp_up_strategy: 'linear': measure at one request rate"),
    ],
)
def test_a_wrong_value_costs_its_run_and_no_other(field: str, value: Any, reason: str) -> None:
    found = read(VLLM, changed(VLLM, field, to=value), VLLM)
    assert [run.place for run in found.runs] == ["result 1", "result 3"]
    (rejected,) = found.rejected
    assert rejected.place == "result 2"
    assert rejected.reasons[0].startswith(reason)


def test_all_wrong_values_of_a_run_are_named() -> None:
    (rejected,) = read(VLLM, {**VLLM, "mean_ttft_ms": -1, "mean_tpot_ms": "x"}).rejected
    assert len(rejected.reasons) == 2


def test_a_value_that_is_not_read_may_be_anything() -> None:
    assert read_one(std_ttft_ms=math.nan, p99_tpot_ms="x").ttft_s == 0.75


def test_what_is_no_result_is_rejected_beside_results() -> None:
    found = read(VLLM, {"hello": 1}, 5)
    assert [rejected.place for rejected in found.rejected] == ["result 2", "result 3"]
    assert "is no result of `vllm bench serve`" in found.rejected[0].reasons[0]


def test_a_file_without_a_usable_run_is_an_error_with_every_reason() -> None:
    with pytest.raises(DocumentError) as caught:
        read({**VLLM, "mean_ttft_ms": math.nan}, {**VLLM, "duration": -1})
    assert str(caught.value).splitlines() == [
        "result 1: mean_ttft_ms: nan: must be a finite number",
        "result 2: duration: -1: must be at least 0",
    ]


def test_hundreds_of_bad_runs_do_not_make_hundreds_of_lines() -> None:
    with pytest.raises(DocumentError, match="holds 180 more problems") as caught:
        read(*[{**VLLM, "duration": -1}] * 200)
    assert len(caught.value.problems) == 21


@pytest.mark.parametrize(
    ("said", "spread"),
    [
        ({}, None),
        ({"input_lens": [90, 110] * 200, "output_lens": [50] * 400}, 0.1 * math.sqrt(3.0)),
        ({"input_lens": [], "output_lens": [0, 0]}, None),
        ({"random_range_ratio": 0.8}, 0.2 / 1.8),
        ({"random_range_ratio": 0.0}, 1.0),
    ],
)
def test_how_much_lengths_varied_is_read_where_it_is_said(said: dict[str, Any], spread: float | None) -> None:
    assert read_one(**said).length_spread_fraction == (None if spread is None else pytest.approx(spread))
