"""What a Prometheus is asked, and what is made of its answers."""

import json
from collections.abc import Callable
from math import inf
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.exposition import MetricsError
from sutler.service.deployments.traffic.histograms import Histogram
from sutler.service.deployments.traffic.promql import counters_within, url_of
from tests.service.deployments.traffic.builders import SECONDS, a_histogram

Answers = dict[str, Any]
PROMPT = {"1": 0.0, "100": 4.0, "1000": 14.0, "+Inf": 16.0}
GENERATION = {"1": 1.0, "100": 5.0, "1000": 16.0, "+Inf": 16.0}


def vector(values: dict[str, float | str]) -> Answers:
    """By the bound of a bucket, or one sum under no label."""
    result = [{"metric": {"le": le} if le else {}, "value": [1763589300.1, f"{n}"]} for le, n in values.items()]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def an_answer(**others: Any) -> dict[str, Answers]:
    """By a part of the query."""
    usual: dict[str, Answers] = {
        "request_prompt_tokens_bucket": vector({**PROMPT}),
        "request_prompt_tokens_sum": vector({"": 7812.0}),
        "request_generation_tokens_bucket": vector({**GENERATION}),
        "request_generation_tokens_sum": vector({"": 2210.0}),
        "request_success_total": vector({"": 16.5}),
    }
    return {**usual, **others}


def asking(answers: dict[str, Answers], asked: list[str] | None = None) -> Callable[[str], bytes]:
    def ask(query: str) -> bytes:
        if asked is not None:
            asked.append(query)
        return json.dumps(next((a for part, a in answers.items() if part in query), vector({}))).encode()

    return ask


def objection_to(ask: Callable[[str], bytes]) -> str:
    with pytest.raises(MetricsError) as refused:
        counters_within(ask, {}, range_s=60)
    return str(refused.value)


def test_the_increase_of_each_bucket_is_asked_for_under_the_labels() -> None:
    asked: list[str] = []
    counters_within(asking(an_answer(), asked), {"namespace": "prod", "model_name": "chat"}, range_s=60)
    labels = '{model_name="chat",namespace="prod"}'
    assert f"sum by (le) (increase(vllm:request_prompt_tokens_bucket{labels}[60000ms]))" in asked
    assert f"sum (increase(vllm:request_prompt_tokens_sum{labels}[60000ms]))" in asked
    assert f"sum (increase(vllm:request_success_total{labels}[60000ms]))" in asked
    assert all(labels in query for query in asked)


def test_what_is_answered_is_counted() -> None:
    found = counters_within(asking(an_answer()), {}, range_s=60)
    assert found.prompt == Histogram((1, 100, 1000), (0, 4, 10, 2), 7812)
    assert found.generation == Histogram((1, 100, 1000), (1, 4, 11, 0), 2210)
    assert (found.finished, found.requests) == (16.5, 16.5)
    assert (found.ttft, found.tpot, found.began_s) == (None, None, None)


def test_latencies_are_asked_for_too() -> None:
    seconds = a_histogram([0.2] * 8, bounds=SECONDS)
    buckets = {**{f"{bound}": 8.0 * (bound >= 0.2) for bound in SECONDS}, "+Inf": 8.0}
    answers = an_answer(
        time_to_first_token_seconds_bucket=vector({**buckets}),
        time_to_first_token_seconds_sum=vector({"": 1.6}),
        inter_token_latency_seconds_bucket=vector({**buckets}),
        inter_token_latency_seconds_sum=vector({"": 1.6}),
    )
    found = counters_within(asking(answers), {}, range_s=60)
    assert found.ttft is not None
    assert found.tpot is not None
    assert found.ttft.counts == found.tpot.counts == seconds.counts
    assert set(found.latencies()) == {"ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "tpot_p90_s"}


def test_no_traffic_is_an_answer() -> None:
    answers = an_answer(
        request_prompt_tokens_bucket=vector(dict.fromkeys(PROMPT, 0.0)),
        request_generation_tokens_bucket=vector(dict.fromkeys(GENERATION, 0.0)),
        request_prompt_tokens_sum=vector({"": 0}),
        request_generation_tokens_sum=vector({"": 0}),
        request_success_total=vector({"": 0}),
    )
    assert counters_within(asking(answers), {}, range_s=60).requests == 0


def test_without_series_there_is_a_remedy() -> None:
    said = objection_to(asking({}))
    assert "no two samples of vllm:request_prompt_tokens in 60 s" in said
    assert "correct the selector, or raise every_s" in said
    assert "vllm:request_generation_tokens" in objection_to(
        asking(an_answer(request_generation_tokens_bucket=vector({})))
    )


def test_an_extrapolated_count_may_be_a_little_off() -> None:
    found = counters_within(
        asking(an_answer(request_prompt_tokens_bucket=vector({**PROMPT, "1000": 16.1}))), {}, range_s=60
    )
    assert found.prompt.counts == pytest.approx((0, 4, 12.1, 0))


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300"])
def test_counts_that_cannot_be_are_refused(value: str) -> None:
    for part in ("request_prompt_tokens_bucket", "request_prompt_tokens_sum", "request_success_total"):
        answer = vector({**PROMPT, "+Inf": value}) if part.endswith("bucket") else vector({"": value})
        assert objection_to(asking(an_answer(**{part: answer}))) == "Prometheus counts what cannot be"


@pytest.mark.parametrize("buckets", [{"1": 5.0, "100": 4.0, "+Inf": 9.0}, {"1": 5.0}, {"many": 1.0, "+Inf": 1.0}])
def test_buckets_that_are_no_histogram_are_refused(buckets: dict[str, float | str]) -> None:
    assert objection_to(asking(an_answer(request_prompt_tokens_bucket=vector(buckets))))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"3",
        b"null",
        b"<html></html>",
        b'{"status": "error", "errorType": "bad_data", "error": "parse error"}',
        b'{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}',
        b'{"data": {"resultType": "vector", "result": [{"metric": {"le": 1}, "value": [1, "2"]}]}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "2"]]}]}}',
        b"[" * 100_000,
        b'{"data": {"result": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_answer_of_a_prometheus_is_refused(content: bytes) -> None:
    assert objection_to(lambda query: content) == "this is no answer of Prometheus' API: give the URL of its root"


def test_too_many_series_are_refused() -> None:
    many: dict[str, float | str] = {f"{n}": 0.0 for n in range(1_001)}
    assert "no answer of Prometheus" in objection_to(asking(an_answer(request_prompt_tokens_bucket=vector(many))))


def test_nothing_of_the_answer_is_in_the_objection() -> None:
    secret = "sk-1234567890"
    for answer in (vector({secret: 1.0}), vector({"1": secret}), {"error": secret}):
        assert secret not in objection_to(asking(an_answer(request_prompt_tokens_bucket=answer)))


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("chat", "chat"),
        ('a"b', 'a\\"b'),
        ("a\\b", "a\\\\b"),
        ("a\nb", "a\\nb"),
        ('"} or vector(1) #', '\\"} or vector(1) #'),
    ],
)
def test_a_label_cannot_end_its_quotes(text: str, literal: str) -> None:
    asked: list[str] = []
    counters_within(asking(an_answer(), asked), {"model_name": text}, range_s=60)
    assert all(f'{{model_name="{literal}"}}[60000ms]' in query for query in asked)


@given(st.text(max_size=30))
def test_the_quotes_of_a_label_are_closed_once(text: str) -> None:
    asked: list[str] = []
    counters_within(asking(an_answer(), asked), {"a": text}, range_s=60)
    for query in asked:
        literal = query.split('{a="', 1)[1].rsplit('"}[60000ms]', 1)[0]
        unescaped = literal.replace("\\\\", "").replace('\\"', "").replace("\\n", "")
        assert not {'"', "\\", "\n"} & set(unescaped)


@pytest.mark.parametrize("root", ["http://prometheus:9090", "http://prometheus:9090/"])
def test_the_query_is_part_of_the_url(root: str) -> None:
    parts = urlsplit(url_of(root, 'sum (increase(a{b="c d"}[1ms]))'))
    assert (parts.netloc, parts.path) == ("prometheus:9090", "/api/v1/query")
    assert parse_qs(parts.query) == {"query": ['sum (increase(a{b="c d"}[1ms]))']}


def test_a_prometheus_may_be_below_a_path() -> None:
    assert url_of("https://host/prometheus/", "up") == "https://host/prometheus/api/v1/query?query=up"


@given(st.floats(0, 1e15), st.floats(0, 1e15))
def test_whatever_the_sum_is_it_is_taken(total: float, finished: float) -> None:
    answers = an_answer(request_prompt_tokens_sum=vector({"": total}), request_success_total=vector({"": finished}))
    found = counters_within(asking(answers), {}, range_s=60)
    assert (found.prompt.total, found.requests) == (total, finished)
    assert max(found.prompt.bounds) < inf
