"""Costs and traffic over time, asked of the service as callers do."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.service.running import LONGEST_WAIT_S, Running

PROBLEM: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost"},
    "models": [
        {
            "name": "chat",
            "model": "llama-3.1-8b",
            "workloads": [{"name": "question", "input_tokens": 400, "output_tokens": 200, "rate_rps": 2.0}],
        }
    ],
}


def a_deployment(service: Running, name: str) -> dict[str, Any]:
    """With its first plan."""
    assert service.put(f"/v1/deployments/{name}", {"problem": PROBLEM}).status_code == 201
    plan: dict[str, Any] = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": LONGEST_WAIT_S}).json()
    return plan


def test_what_a_deployment_costs_is_what_its_plans_and_reports_say(service: Running) -> None:
    usd = a_deployment(service, "dear")["cost_usd_per_hour"]
    costs = service.get("/v1/deployments/dear/costs", params={"since": "1h", "points": 3}).json()
    [step] = costs["steps"]
    assert (step["deployment"], step["revision"], step["usd_per_hour"]) == ("dear", 1, usd)
    first, _, last = costs["items"]
    assert (first["planned_usd_per_hour"], first["held_usd_per_hour"], first["deployments"]) == (0.0, None, 0)
    assert (last["planned_usd_per_hour"], last["held_usd_per_hour"], last["deployments"]) == (usd, None, 1)
    assert 0 < costs["planned_usd"] < usd
    assert costs["held_usd"] is None
    service.post("/v1/deployments/dear/holdings/ack")
    held = service.get("/v1/deployments/dear/costs", params={"since": "1h"}).json()
    assert held["items"][-1]["held_usd_per_hour"] == pytest.approx(usd)


def test_what_was_deleted_costs_no_more_and_still_did(service: Running) -> None:
    usd = a_deployment(service, "short-lived")["cost_usd_per_hour"]
    service.post("/v1/deployments/short-lived/holdings/ack")
    before = service.get("/v1/costs", params={"since": "1h"}).json()
    assert service.delete("/v1/deployments/short-lived").status_code == 204
    after = service.get("/v1/costs", params={"since": "1h"}).json()
    lost = before["items"][-1]["planned_usd_per_hour"] - after["items"][-1]["planned_usd_per_hour"]
    assert lost == pytest.approx(usd)
    assert after["items"][-1]["deployments"] == before["items"][-1]["deployments"] - 1
    assert after["planned_usd"] >= before["planned_usd"]
    assert any(step["deployment"] == "short-lived" for step in after["steps"])
    assert service.get("/v1/deployments/short-lived/costs").status_code == 404


def test_traffic_that_nobody_told_of_is_a_gap_and_not_nothing(service: Running) -> None:
    a_deployment(service, "seen")
    now = datetime.now(UTC)
    told = {
        "model": "chat",
        "observed_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "window_s": 60,
        "buckets": [{"input_tokens": 400, "output_tokens": 200, "requests": 600}],
    }
    assert service.post("/v1/deployments/seen/observations", told).status_code == 202
    found = service.get("/v1/deployments/seen/traffic/history", params={"since": "6h", "points": 1000}).json()
    assert found["step_s"] == 900
    [model] = found["models"]
    known = [point for point in model["items"] if point["seen_rps"] is not None]
    assert 1 <= len(known) <= 2  # the minute may lie in two quarters
    assert model["items"][0]["seen_rps"] is None
    assert 0 < known[-1]["seen_rps"] <= 600 / 30
    begins = [datetime.fromisoformat(point["at"]) for point in model["items"]]
    assert {b - a for a, b in pairwise(begins)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("path", ["/v1/costs", "/v1/deployments/seen/costs", "/v1/deployments/seen/traffic/history"])
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"since": "1h", "until": "2h"}, "until"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2099-01-01T00:00:00Z"}, "since"),
        ({"points": 1}, "points"),
        ({"points": 1001}, "points"),
    ],
)
def test_a_stretch_that_cannot_be_meant_is_refused(
    service: Running, path: str, params: dict[str, Any], field: str
) -> None:
    if "seen" in path and service.get("/v1/deployments/seen").status_code == 404:
        a_deployment(service, "seen")
    answer = service.get(path, params=params)
    assert answer.status_code == 422
    assert field in str(answer.json()["errors"])


@pytest.mark.parametrize("path", ["costs", "traffic/history"])
def test_what_is_no_deployment_has_no_history(service: Running, path: str) -> None:
    answer = service.get(f"/v1/deployments/nobody/{path}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found")
