"""Feeds as callers give them."""

from typing import Any

import pytest

from sutler.service.deployments.traffic.feed_schema import MOST_FEEDS, MOST_URLS, FeedDocument, FeedsDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate

ENGINES: dict[str, Any] = {"model": "chat", "kind": "vllm", "urls": ["http://10.0.0.5:8000"]}
SERVER: dict[str, Any] = {"model": "chat", "kind": "prometheus", "url": "http://10.0.0.9:9090"}


def a_feed(given: dict[str, Any]) -> FeedDocument:
    return validate(FeedDocument, given)


def remedies(*feeds: dict[str, Any]) -> dict[str, str]:
    """By field."""
    with pytest.raises(DocumentError) as refused:
        validate(FeedsDocument, {"feeds": list(feeds)})
    return {problem.field: problem.remedy for problem in refused.value.problems}


def test_an_engine_is_read_every_quarter_of_a_minute() -> None:
    feed = a_feed(ENGINES)
    assert (feed.every_s, feed.sources) == (15.0, ("http://10.0.0.5:8000/metrics",))


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://a.example", "http://a.example/metrics"),
        ("http://a.example/", "http://a.example/metrics"),
        ("http://a.example?x=1", "http://a.example/metrics?x=1"),
        ("http://a.example/own/metrics", "http://a.example/own/metrics"),
        ("http://[nonsense", "http://[nonsense"),
    ],
)
def test_the_usual_path_is_added_where_there_is_none(url: str, read: str) -> None:
    assert a_feed({**ENGINES, "urls": [url]}).sources == (read,)


def test_an_engine_that_is_listed_twice_is_read_once() -> None:
    urls = ["http://a.example", "http://b.example", "http://a.example/metrics"]
    assert a_feed({**ENGINES, "urls": urls}).sources == ("http://a.example/metrics", "http://b.example/metrics")


def test_a_prometheus_is_asked_at_its_root() -> None:
    feed = a_feed({**SERVER, "selector": {"model_name": "llama", "namespace": "prod"}})
    assert feed.sources == ("http://10.0.0.9:9090",)
    assert feed.selector == {"model_name": "llama", "namespace": "prod"}


def test_no_feeds_are_a_list_too() -> None:
    assert validate(FeedsDocument, {"feeds": []}).feeds == ()


@pytest.mark.parametrize(
    ("feed", "expected"),
    [
        ({**ENGINES, "urls": None}, {"feeds[0].urls": "is needed with kind vllm"}),
        ({**SERVER, "url": None}, {"feeds[0].url": "is needed with kind prometheus"}),
        ({**ENGINES, "url": "http://x"}, {"feeds[0].url": "does not belong to kind vllm: remove it"}),
        ({**ENGINES, "selector": {}}, {"feeds[0].selector": "does not belong to kind vllm: remove it"}),
        ({**SERVER, "urls": ["http://x"]}, {"feeds[0].urls": "does not belong to kind prometheus: remove it"}),
        ({**ENGINES, "every_s": 4}, {"feeds[0].every_s": "must be at least 5"}),
        ({**ENGINES, "every_s": 601}, {"feeds[0].every_s": "must be at most 600"}),
        ({**ENGINES, "kind": "tgi"}, {"feeds[0].kind": "must be 'vllm', 'sglang' or 'prometheus'"}),
        ({**SERVER, "replica": "chat-1"}, {"feeds[0].replica": "does not belong to kind prometheus: remove it"}),
        ({**ENGINES, "urls": []}, {"feeds[0].urls": "must not be empty"}),
        ({**ENGINES, "urls": [""]}, {"feeds[0].urls[0]": "must not be empty"}),
        ({**ENGINES, "urls": "http://x"}, {"feeds[0].urls": "must be a list"}),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(feed: dict[str, Any], expected: dict[str, str]) -> None:
    assert remedies(feed) == expected


@pytest.mark.parametrize("missing", ["model", "kind"])
def test_what_is_missing_is_named(missing: str) -> None:
    feed = {name: value for name, value in ENGINES.items() if name != missing}
    assert remedies(feed)[f"feeds[0].{missing}"].startswith("is missing")


def test_a_misspelled_field_is_named_with_the_one_that_may_be_meant() -> None:
    assert "did you mean every_s?" in remedies({**ENGINES, "every": 15})["feeds[0].every"]


def test_there_is_a_limit_to_all_lists() -> None:
    assert list(remedies(*[ENGINES] * (MOST_FEEDS + 1))) == ["feeds"]
    assert list(remedies({**ENGINES, "urls": ["http://x"] * (MOST_URLS + 1)})) == ["feeds[0].urls"]
    labels = {f"label_{number}": "x" for number in range(11)}
    assert list(remedies({**SERVER, "selector": labels})) == ["feeds[0].selector"]


@pytest.mark.parametrize("name", ["model-name", "1st", "a b", 'a"} or {', ""])
def test_a_label_that_prometheus_cannot_have_is_refused_as_such(name: str) -> None:
    """Not for control characters, which it has none of."""
    [(field, remedy)] = remedies({**SERVER, "selector": {name: "x"}}).items()
    assert field.startswith("feeds[0].selector")
    assert "control characters" not in remedy
