"""The example bodies that lie beside this checkout, replayed over HTTP: each gives what its manifest expects."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from sutler.adapters.base import Poll
from tests.adapters.builders import ToldTime, a_poll
from tests.adapters.server import Reply, ScriptedServer

PAYLOADS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "provider-payloads"
ABSENT = not (PAYLOADS / "manifest.json").is_file()
# The manifest's word where a deployment may also choose to rent such cards.
SAME_REASON = {"unknown_or_unsupported_gpu": "unknown_gpu"}

pytestmark = pytest.mark.skipif(ABSENT, reason="../shared/data/provider-payloads is not there")


@lru_cache
def entries() -> list[dict[str, Any]]:
    if ABSENT:
        return []
    found: list[dict[str, Any]] = json.loads((PAYLOADS / "manifest.json").read_text(encoding="utf-8"))
    return [entry for entry in found if entry["provider"] == "vastai"]


def replayed(entry: dict[str, Any]) -> tuple[Poll, ToldTime, ScriptedServer]:
    reply = Reply(entry["status"], (PAYLOADS / entry["file"]).read_bytes(), entry["headers"])
    time = ToldTime()
    with ScriptedServer([reply]) as server:
        return a_poll(server.base_url, time=time), time, server


def named(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def test_there_are_payloads_to_replay() -> None:
    assert len(entries()) > 10


@pytest.mark.parametrize("entry", entries(), ids=named)
def test_a_payload_has_its_outcome_and_counts(entry: dict[str, Any]) -> None:
    found, _, server = replayed(entry)
    expected = entry["expect"]
    assert found.outcome == expected["outcome"], found.detail
    assert found.kept == len(found.offers) == expected.get("kept", 0)
    assert len(found.rejected) == expected.get("rejected", 0)
    assert sum(found.not_available.values()) == expected.get("not_available", 0)
    assert found.http_status == entry["status"]
    assert {(request.method, request.target) for request in server.requests} == {(entry["method"], entry["path"])}


@pytest.mark.parametrize("entry", entries(), ids=named)
def test_a_payload_rejects_each_offer_for_its_reason(entry: dict[str, Any]) -> None:
    found, _, _ = replayed(entry)
    reasons = {row.offer_id: row.reason for row in found.rejected}
    expected = entry["expect"].get("reasons", {})
    assert reasons == {offer: SAME_REASON.get(reason, reason) for offer, reason in expected.items()}


@pytest.mark.parametrize("entry", entries(), ids=named)
def test_a_payload_is_tried_again_and_waited_for_as_it_says(entry: dict[str, Any]) -> None:
    found, time, server = replayed(entry)
    expected = entry["expect"]
    tries_again = expected.get("retry", expected["outcome"] == "retry")
    assert len(server.requests) == (3 if tries_again else 2 if found.is_usable else 1)
    if "wait_s" in expected:
        assert found.wait_s == expected["wait_s"]
        assert expected["wait_s"] in time.slept
    elif tries_again:
        assert found.wait_s == pytest.approx(12.0), "the client's own backoff"
    else:
        assert found.wait_s is None


@pytest.mark.parametrize("entry", entries(), ids=named)
def test_a_payload_keeps_its_kind(entry: dict[str, Any]) -> None:
    found, _, _ = replayed(entry)
    expected = entry["expect"].get("kind", "on_demand")
    assert {offer.contract for offer in found.offers} <= {expected}
    assert {offer.feed for offer in found.offers} <= {expected}
    assert bool(found.covered) == found.is_usable
