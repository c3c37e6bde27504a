"""The shared examples of what RunPod sends, replayed over HTTP: each must end as its manifest expects."""

import json
from pathlib import Path
from typing import Any

import pytest

from sutler.adapters import runpod
from sutler.adapters.base import Poll
from tests.adapters.builders import a_poll
from tests.adapters.server import Received, Reply, ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
PAYLOADS = ROOT.parent / "shared" / "data" / "provider-payloads"


def examples() -> list[dict[str, Any]]:
    manifest = PAYLOADS / "manifest.json"
    entries = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else []
    return [entry for entry in entries if entry["provider"] == "runpod"]


WITHOUT_PAYLOADS = "the shared provider payloads are not beside this checkout"
needs_payloads = pytest.mark.skipif(not examples(), reason=WITHOUT_PAYLOADS)


def replayed(example: dict[str, Any]) -> Poll:
    """A poll of a server that gives this answer to whatever is asked of it."""
    reply = Reply(example["status"], (PAYLOADS / example["file"]).read_bytes(), example["headers"])

    def answer(request: Received) -> Reply:
        is_expected = (request.method, request.path) == (example["method"], example["path"].partition("?")[0])
        return reply if is_expected else Reply(404)

    with ScriptedServer(answer) as server:
        return a_poll(server.base_url, runpod.PROVIDER, api=example["api"])


def told(found: Poll) -> dict[str, object]:
    """What a manifest may expect, by its name there."""
    return {
        "outcome": found.outcome,
        "kept": found.kept,
        "rejected": len(found.rejected),
        "not_available": sum(found.not_available.values()),
        "wait_s": found.wait_s,
        "rows": sum(offer.available for offer in found.offers),
    }


@needs_payloads
@pytest.mark.parametrize("example", examples(), ids=lambda example: str(example["file"]))
def test_an_example_ends_as_expected(example: dict[str, Any]) -> None:
    found = replayed(example)
    expected = {name: value for name, value in example["expect"].items() if name in told(found)}
    assert {name: told(found)[name] for name in expected} == expected
    if example["expect"].get("retry") is not None:
        assert (found.requests > 1) == example["expect"]["retry"]
    assert found.is_usable or (found.offers, found.covered) == ((), ())


@needs_payloads
def test_prices_on_demand_are_the_list_prices_times_the_gpus() -> None:
    priced = [example for example in examples() if example["expect"].get("kept")]
    assert priced
    for example in priced:
        rows = json.loads((PAYLOADS / example["file"]).read_text(encoding="utf-8"))
        types = rows["gpus"] if example["api"] == "v2" else rows["data"]["gpuTypes"]
        per_gpu = {
            " ".join(row["id"].split()): row["price"]["secure"] if example["api"] == "v2" else row["securePrice"]
            for row in types
        }
        for offer in replayed(example).offers:
            type_id = offer.offer_id.partition("/")[0]
            if offer.contract == "on_demand":
                assert offer.price_usd_per_hour == pytest.approx(per_gpu[type_id] * offer.gpus)
