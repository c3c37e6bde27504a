"""Runs that cannot be true are refused with the reason; what is left out can be said beside the file."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.service.profiles.checks import Given, checked
from sutler.service.profiles.readers import RejectedRun
from sutler.service.profiles.runs import BenchmarkRun, ProfileRun

# An 8B model on one H100 at 32 in flight: 2.0 x (0.2 + 255 x 0.0619) = 32.
RUN = BenchmarkRun(
    place="row 2",
    model="meta-llama/Llama-3.1-8B-Instruct",
    gpu="H100 SXM",
    precision="bfloat16",
    engine="vllm",
    engine_version="0.11.0",
    tensor_parallel=1,
    input_tokens=1024,
    output_tokens=256,
    concurrency=32,
    req_per_s=2.0,
    ttft_s=0.2,
    tpot_s=0.0619,
    completed=320,
    failed=0,
)


def kept(given: Given | None = None, **changes: Any) -> ProfileRun:
    found = checked(replace(RUN, **changes), given or Given())
    assert isinstance(found, ProfileRun), found
    return found


def reasons(given: Given | None = None, **changes: Any) -> str:
    found = checked(replace(RUN, **changes), given or Given())
    assert isinstance(found, RejectedRun)
    assert found.place == "row 2"
    return "\n".join(found.reasons)


def test_spellings_become_the_catalogues_names() -> None:
    key = kept().key
    assert (key.gpu, key.model, key.precision, key.kv_precision) == ("h100-sxm", "llama-3.1-8b", "bf16", "bf16")
    assert (key.engine, key.engine_version) == ("vllm", "0.11.0")


def test_what_the_caller_says_wins_over_the_file() -> None:
    given = Given(
        gpu="h200", model="qwen3-8b", precision="fp8", engine="sglang", engine_version="0.5", tensor_parallel=2
    )
    found = kept(given)
    assert (found.key.gpu, found.key.model, found.key.precision) == ("h200-sxm", "qwen3-8b", "fp8")
    assert (found.key.engine, found.key.engine_version, found.tensor_parallel) == ("sglang", "0.5", 2)


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("gpu", "--gpu"),
        ("model", "--model"),
        ("precision", "--precision"),
        ("engine", "--engine"),
        ("tensor_parallel", "--tensor-parallel"),
        ("req_per_s", "req_per_s: is not in the file"),
        ("ttft_s", "ttft_s: is not in the file"),
        ("tpot_s", "tpot_s: is not in the file"),
        ("input_tokens", "input_tokens: is not in the file"),
        ("concurrency", "--max-concurrency"),
    ],
)
def test_what_is_missing_is_named_with_where_to_say_it(missing: str, remedy: str) -> None:
    assert remedy in reasons(**{missing: None})


def test_all_that_is_missing_is_named_at_once() -> None:
    assert len(reasons(gpu=None, precision=None, ttft_s=None).splitlines()) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "h1000"}, "say which it is with --gpu"),
        ({"model": "/models/my-fine-tune"}, "say which it is with --model (`sutler catalog models`)"),
        ({"ttft_s": 200.0, "tpot_s": 61.9}, "are the times in seconds?"),
        ({"precision": "bf17"}, "bf17"),
        ({"ttft_s": 20.0, "e2e_s": 16.0}, "is above the 16 s"),
        ({"e2e_s": 160.0}, "far from ttft_s"),
        ({"concurrency": 16}, "contradicts the 31.97 requests in flight"),
        ({"concurrency": 100}, "only 31.97 of 100"),
        ({"failed": 40}, "failed: 40 of 360"),
        ({"req_per_s": 200.0, "concurrency": 3200}, "more than the 989 of 1 x h100-sxm"),
        ({"tpot_s": 0.002, "req_per_s": 45.0}, "can read the weights"),
        ({"model": "llama-3.1-70b", "tpot_s": 0.0619}, "exceed the memory of 1 x h100-sxm"),
        ({"gpu": "v100-sxm2-32gb", "precision": "bf16"}, "no bf16"),
        ({"concurrency": None, "request_rate_rps": 4.0}, "fall behind the 4 requests/s"),
        ({"input_tokens": 0.2}, "less than one token"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in reasons(**changes)


def test_an_open_loop_that_kept_up_has_the_concurrency_that_little_gives_it() -> None:
    found = kept(concurrency=None, request_rate_rps=2.05)
    assert found.concurrency == pytest.approx(2.0 * (0.2 + 255 * 0.0619))


def test_a_short_run_counts_with_what_was_really_in_flight() -> None:
    assert kept(concurrency=48).concurrency == pytest.approx(31.97, abs=0.01)


def test_a_single_token_needs_no_time_between_tokens() -> None:
    found = kept(output_tokens=1, tpot_s=None, ttft_s=0.4, req_per_s=4.0, concurrency=1.6)
    assert found.tpot_s == 0


def test_the_same_run_is_the_same_whatever_file_it_came_in() -> None:
    assert kept(place="row 2").digest == kept().digest
    assert kept(req_per_s=2.01).digest != kept().digest


# 70 GB of weights leave an H200 room for 19 requests of 8,192 + 512 tokens at 320 KiB each.
CROWDED: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h200-sxm",
    "precision": "fp8",
    "input_tokens": 8192,
    "output_tokens": 1024,
    "concurrency": 40,
    "req_per_s": 40 / (2.0 + 1023 * 0.05),
    "ttft_s": 2.0,
    "tpot_s": 0.05,
}


def test_a_cache_whose_precision_is_unknown_held_what_was_in_flight() -> None:
    assert kept(**CROWDED).key.kv_precision == "fp8"
    assert kept(**CROWDED, kv_precision="auto").key.kv_precision == "fp8"
    assert kept(Given(kv_precision="bf16"), **CROWDED).key.kv_precision == "bf16"


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 16, "req_per_s": 16 / (2.0 + 1023 * 0.05)},
        {"ttft_s": 30.0, "req_per_s": 40 / (30.0 + 1023 * 0.05)},  # most of them waited
        {"precision": "bf16", "tensor_parallel": 2},
    ],
)
def test_it_is_the_engines_own_where_that_explains_the_run(changes: dict[str, Any]) -> None:
    assert kept(**{**CROWDED, **changes}).key.kv_precision == "bf16"
