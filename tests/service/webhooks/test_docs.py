"""What docs/webhooks.md says is so."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sutler.service.webhooks.events import EVENTS, TEST_EVENT, body_of
from sutler.service.webhooks.sending import USUAL_LIMITS, Sender
from sutler.service.webhooks.service import MOST_ATTEMPTS, MOST_WEBHOOKS, WAITS_S
from tests.adapters.server import Received, Reply, ScriptedServer
from tests.service.webhooks.builders import LOOPBACK, SECRET, a_message

TEXT: Final = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def verify() -> Any:
    """The function that readers paste."""
    names: dict[str, Any] = {}
    exec(block("python"), names)
    return names["verify"]


@pytest.fixture
def request_of_ours() -> Received:
    with ScriptedServer([Reply(204)]) as receiver:
        assert Sender()(a_message(receiver.base_url, body='{"größe":1}'), allowed=LOOPBACK).ok
    return receiver.requests[0]


def test_the_snippet_takes_what_was_sent(verify: Any, request_of_ours: Received) -> None:
    assert verify(SECRET, dict(request_of_ours.headers), request_of_ours.body)


def test_the_snippet_takes_one_good_signature_among_others(verify: Any, request_of_ours: Received) -> None:
    headers = dict(request_of_ours.headers)
    headers["webhook-signature"] = f"v1a,AAAA v1,BBBB {headers['webhook-signature']}"
    assert verify(SECRET, headers, request_of_ours.body)


def test_the_snippet_refuses_what_was_changed_or_is_old(verify: Any, request_of_ours: Received) -> None:
    headers, body = dict(request_of_ours.headers), request_of_ours.body
    changes = ({"webhook-id": "other"}, {"webhook-timestamp": "1700000000"}, {"webhook-signature": "v1,AAAA"})
    assert [verify(SECRET, {**headers, **change}, body) for change in changes] == [False] * 3
    assert not verify(SECRET, headers, body + b" ")
    assert not verify("whsec_" + "A" * 32, headers, body)
    assert not verify(SECRET, headers, body, tolerance_s=-1.0)


def test_every_event_and_no_other_is_described() -> None:
    rows = re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", TEXT, re.MULTILINE)
    assert tuple(rows) == (*EVENTS, TEST_EVENT)


def test_the_example_is_a_body_as_it_is_made() -> None:
    example = json.loads(block("json"))
    at = datetime.fromisoformat(example["timestamp"])
    assert json.loads(body_of(example["type"], example["data"], at=at)) == example
    assert example["type"] in EVENTS


def test_the_schedule_is_the_one_that_is_kept() -> None:
    said = re.search(r"again after (.*?),\s+each", TEXT, re.DOTALL)
    assert said is not None
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    waits = [float(number) * units[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", said[1])]
    assert tuple(waits) == WAITS_S
    assert MOST_ATTEMPTS == 10
    assert f"answer within {USUAL_LIMITS.whole_s:g} s" in TEXT
    assert f"There may be {MOST_WEBHOOKS} webhooks" in TEXT
