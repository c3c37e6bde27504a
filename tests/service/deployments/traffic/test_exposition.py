"""An engine's `/metrics`, as vLLM writes it and as nobody should."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.exposition import VLLM, MetricsError, counters_of
from sutler.service.deployments.traffic.histograms import MOST_COUNTED
from tests.service.deployments.traffic.builders import (
    LABELS,
    SECONDS,
    a_histogram,
    counted,
    histogram_lines,
    metrics_text,
)

SIZES = st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 900)), max_size=20)
FULL: Final = counted(
    (480, 210),
    (510, 190),
    (3000, 280),
    ttft=a_histogram([0.2, 0.3, 0.9], bounds=SECONDS),
    tpot=a_histogram([0.02, 0.02, 0.03], bounds=SECONDS),
    began_s=1763589241.22,
)
# Written out as vLLM 0.11 does, shortened to four bins.
AS_VLLM_WRITES: Final = b"""\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12",patchlevel="11",version="3.12.11"} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76358924122e+09
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="meta-llama/Llama-3.1-8B-Instruct"} 12.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.0
# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
vllm:request_prompt_tokens_bucket{engine="0",le="100.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4.0
vllm:request_prompt_tokens_bucket{engine="0",le="1000.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 14.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
vllm:request_prompt_tokens_count{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
vllm:request_prompt_tokens_sum{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 7812.0
# HELP vllm:request_prompt_tokens_created Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens_created gauge
vllm:request_prompt_tokens_created{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.763589254e+09
# HELP vllm:request_generation_tokens Number of generation tokens processed.
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{engine="0",le="1.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.0
vllm:request_generation_tokens_bucket{engine="0",le="100.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 5.0
vllm:request_generation_tokens_bucket{engine="0",le="1000.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
vllm:request_generation_tokens_count{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 16.0
vllm:request_generation_tokens_sum{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2210.0
"""


def objection_to(content: bytes) -> str:
    with pytest.raises(MetricsError) as refused:
        counters_of(content)
    return str(refused.value)


def without(*parts: str, content: bytes = AS_VLLM_WRITES) -> bytes:
    lines = content.decode().splitlines(keepends=True)
    return "".join(line for line in lines if not any(part in line for part in parts)).encode()


def test_what_vllm_writes_is_read() -> None:
    found = counters_of(AS_VLLM_WRITES)
    assert (found.requests, found.began_s) == (16, 1763589241.22)
    assert (found.prompt.bounds, found.prompt.counts, found.prompt.total) == ((1, 100, 1000), (0, 4, 10, 2), 7812)
    assert (found.generation.counts, found.generation.total) == ((1, 4, 11, 0), 2210)
    assert (found.ttft, found.tpot) == (None, None)


@given(SIZES)
def test_what_is_counted_is_read(sizes: list[tuple[int, int]]) -> None:
    assert counters_of(metrics_text(counted(*sizes))) == counted(*sizes)


def test_latencies_are_read_too() -> None:
    assert counters_of(metrics_text(FULL)) == FULL


@pytest.mark.parametrize("name", ["vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"])
def test_the_time_of_a_token_goes_by_several_names(name: str) -> None:
    content = metrics_text(FULL).replace(b"vllm:request_time_per_output_token_seconds", name.encode())
    assert counters_of(content).tpot == FULL.tpot


def test_of_two_names_the_requests_mean_is_meant() -> None:
    pauses = histogram_lines("vllm:inter_token_latency_seconds", a_histogram([2.0], bounds=SECONDS))
    assert counters_of("\n".join(pauses).encode() + b"\n" + metrics_text(FULL)).tpot == FULL.tpot


def test_the_engines_of_one_process_are_summed() -> None:
    second = metrics_text(counted((20, 30)), labels=LABELS.replace('engine="0"', 'engine="1"'))
    found = counters_of(metrics_text(FULL) + second)
    assert found.prompt == counted((480, 210), (510, 190), (3000, 280), (20, 30)).prompt
    assert (found.requests, found.began_s) == (4, FULL.began_s)


@pytest.mark.parametrize("part", ["vllm:request_prompt_tokens", "vllm:request_generation_tokens"])
def test_without_a_histogram_of_sizes_it_is_no_engine(part: str) -> None:
    assert objection_to(without(f"{part}_")) == f"there is no {part}: give the /metrics of a vLLM engine"


def test_without_the_rest_there_is_less_to_know() -> None:
    found = counters_of(without("process_start_time", "request_success"))
    assert (found.finished, found.requests, found.began_s) == (None, 16, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"<!doctype html><html><body>hello</body></html>",
        b'{"status": "success"}',
        b"# TYPE vllm:request_prompt_tokens histogram\n",
        b"vllm:request_prompt_tokens_count 3\n",
    ],
)
def test_what_is_no_metrics_says_what_is_missing(content: bytes) -> None:
    assert objection_to(content) == "there is no vllm:request_prompt_tokens: give the /metrics of a vLLM engine"


def test_what_is_no_text_is_refused() -> None:
    assert objection_to(b"\xff\xfe\x00vllm") == "this is not text: give the /metrics of a vLLM engine"


@pytest.mark.parametrize(
    "line",
    [
        'vllm:request_prompt_tokens_bucket{le="1.0"',
        "vllm:request_prompt_tokens_bucket{le=1.0} 3",
        'vllm:request_prompt_tokens_bucket{le="1.0"} ',
        'vllm:request_prompt_tokens_bucket{le="1.0"} three',
        'vllm:request_prompt_tokens_bucket{le="1.0",le="2.0"} 3',
        'vllm:request_prompt_tokens_bucket{="1.0"} 3',
        "vllm:request_prompt_tokens_sum",
    ],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    assert "not Prometheus' text format" in objection_to(AS_VLLM_WRITES + line.encode() + b"\n")


@pytest.mark.parametrize(
    ("old", "new", "objection"),
    [
        (b'tokens_bucket{engine="0",le="+Inf"', b'tokens_bucket{engine="0",le="9000"', "has no bucket with le=+Inf"),
        (b'le="100.0"', b'le="many"', "has buckets whose bounds are no numbers"),
        (b'le="100.0"', b'le="NaN"', "has"),
        (b'le="100.0"', b'le="-Inf"', "has buckets whose bounds are no numbers"),
        (b"} 4.0", b"} 15.0", "has buckets that count less than smaller ones"),
        (b"} 4.0", b"} -1.0", "has counts that cannot be"),
        (b"} 4.0", b"} NaN", "has counts that cannot be"),
        (b"} 16.0", b"} 1e300", "has counts that cannot be"),
        (b"} 7812.0", b"} -7812.0", "has counts that cannot be"),
        (b"} 7812.0", b"} +Inf", "has counts that cannot be"),
        (b"} 12.0", b"} NaN", "vllm:request_success_total cannot be"),
        (b"} 12.0", b"} -100", "vllm:request_success_total cannot be"),
        (b"} 12.0", b"} +Inf", "vllm:request_success_total cannot be"),
    ],
)
def test_counts_that_cannot_be_are_refused(old: bytes, new: bytes, objection: str) -> None:
    assert objection in objection_to(AS_VLLM_WRITES.replace(old, new))


def test_a_histogram_without_its_sum_is_refused() -> None:
    assert objection_to(without("request_prompt_tokens_sum")) == "a histogram has no sum"


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf"])
def test_a_beginning_that_is_no_instant_is_as_if_it_were_not_told(value: bytes) -> None:
    """An engine whose beginning never equals itself would seem to begin anew at every reading."""
    assert counters_of(AS_VLLM_WRITES.replace(b"1.76358924122e+09", value)).began_s is None


def test_nothing_of_the_answer_is_in_the_objection() -> None:
    secret = b"sk-1234567890"
    for content in (
        AS_VLLM_WRITES.replace(b'le="100.0"', b'le="' + secret + b'"'),
        AS_VLLM_WRITES + b"vllm:request_prompt_tokens_sum " + secret + b"\n",
        secret,
    ):
        assert secret.decode() not in objection_to(content)


def test_too_many_bins_are_refused() -> None:
    prompt = a_histogram([480.0], bounds=tuple(float(n) for n in range(1, 400)))
    assert objection_to(metrics_text(replace(FULL, prompt=prompt))) == "a histogram has more than 300 buckets"


def test_what_an_engine_tells_beside_is_not_looked_at() -> None:
    noise = b'other{a="\xc3\xa9"} nonsense\n}}}{{{\nvllm:request_prompt_tokens_bucketful 3\n' * 1000
    assert counters_of(noise + AS_VLLM_WRITES) == counters_of(AS_VLLM_WRITES)


def test_lines_may_end_as_on_windows_and_have_timestamps() -> None:
    stamped = AS_VLLM_WRITES.replace(b"} 16.0\n", b"} 16.0 1763589300000\n")
    assert counters_of(stamped) == counters_of(AS_VLLM_WRITES)
    assert counters_of(stamped.replace(b"\n", b"\r\n")) == counters_of(AS_VLLM_WRITES)


@given(st.sampled_from(sorted(VLLM.wanted)), st.text(max_size=40) | st.text('{}=",\\ \t#le01.+-', max_size=40))
def test_whatever_a_line_says_there_are_counters_or_an_objection(name: str, rest: str) -> None:
    content = AS_VLLM_WRITES + f"{name}{rest}\n".encode(errors="replace")
    try:
        found = counters_of(content)
    except MetricsError:
        assert len(objection_to(content)) < 200
    else:
        assert 0 <= found.requests <= MOST_COUNTED


@given(st.binary(max_size=200))
def test_whatever_bytes_come_there_is_an_objection(content: bytes) -> None:
    assert objection_to(content)
