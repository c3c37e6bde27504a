"""Observations as callers send them."""

from typing import Any, Final

import pytest

from sutler.service.deployments.traffic.schemas import ObservationDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate

QUESTION: Final = {"input_tokens": 480, "output_tokens": 210}
WINDOW: Final[dict[str, Any]] = {
    "model": "chat",
    "observed_at": "2026-11-20T12:00:00Z",
    "window_s": 60,
    "buckets": [{**QUESTION, "requests": 640}],
}
REQUESTS: Final[dict[str, Any]] = {"model": "chat", "requests": [{**QUESTION, "at": "2026-11-20T12:00:00.25Z"}]}


def remedies(document: dict[str, Any]) -> dict[str, str]:
    """By field."""
    with pytest.raises(DocumentError) as refused:
        validate(ObservationDocument, document)
    return {problem.field: problem.remedy for problem in refused.value.problems}


@pytest.mark.parametrize("document", [WINDOW, {**WINDOW, "buckets": []}, {**WINDOW, "source": "a"}, REQUESTS])
def test_what_can_be_meant_is_taken(document: dict[str, Any]) -> None:
    assert validate(ObservationDocument, document).model == "chat"


@pytest.mark.parametrize(
    ("wrong", "field", "remedy"),
    [
        ({"buckets": None}, "buckets", "give either buckets with observed_at and window_s, or requests"),
        ({"requests": []}, "buckets", "give either buckets with observed_at and window_s, or requests"),
        ({"observed_at": None}, "observed_at", "is needed with buckets"),
        ({"window_s": None}, "window_s", "is needed with buckets"),
        ({"window_s": 0}, "window_s", "must be above 0"),
        ({"window_s": 3601}, "window_s", "must be at most 3600"),
        ({"observed_at": "noon"}, "observed_at", "must be a time such as 2026-11-20T12:00:00Z"),
        ({"observed_at": 1763589300}, "observed_at", "must be a time such as 2026-11-20T12:00:00Z"),
        ({"observed_at": "2026-11-20T12:00:00"}, "observed_at", "needs a time zone"),
        ({"model": ""}, "model", "must not be empty"),
        ({"source": "x" * 201}, "source", "is too long"),
        ({"sorce": "a"}, "sorce", "did you mean source?"),
        ({"buckets": {}}, "buckets", "must be a list"),
        ({"buckets": [{**QUESTION, "requests": -1}]}, "buckets[0].requests", "must be at least 0"),
        ({"buckets": [{**QUESTION, "requests": 2e9}]}, "buckets[0].requests", "must be at most 1e+09"),
        ({"buckets": [{**QUESTION, "requests": "12"}]}, "buckets[0].requests", "must be a number, not text"),
        ({"buckets": [{**QUESTION}]}, "buckets[0].requests", "is missing"),
        (
            {"buckets": [{**QUESTION, "input_tokens": -1, "requests": 1}]},
            "buckets[0].input_tokens",
            "must be at least 0",
        ),
        (
            {"buckets": [{**QUESTION, "output_tokens": 1e8, "requests": 1}]},
            "buckets[0].output_tokens",
            "must be at most 1e+07",
        ),
        ({"buckets": [{**QUESTION, "requests": 1}] * 1_001}, "buckets", "is too long: at most 1000"),
    ],
)
def test_what_is_wrong_with_a_window_is_named_with_a_remedy(wrong: dict[str, Any], field: str, remedy: str) -> None:
    found = remedies({**WINDOW, **wrong})
    assert list(found) == [field]
    assert remedy in found[field]


@pytest.mark.parametrize(
    ("wrong", "field", "remedy"),
    [
        ({"requests": []}, "requests", "is empty: to say that nothing came, send empty buckets"),
        ({"window_s": 60}, "window_s", "belongs to buckets"),
        ({"observed_at": "2026-11-20T12:00:00Z"}, "observed_at", "belongs to buckets"),
        ({"requests": [{**QUESTION}]}, "requests[0].at", "is missing"),
        ({"requests": [{**QUESTION, "at": "noon"}]}, "requests[0].at", "must be a time"),
    ],
)
def test_what_is_wrong_with_requests_is_named_with_a_remedy(wrong: dict[str, Any], field: str, remedy: str) -> None:
    found = remedies({**REQUESTS, **wrong})
    assert list(found) == [field]
    assert remedy in found[field]
