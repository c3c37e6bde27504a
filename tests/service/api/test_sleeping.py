"""A deployment whose models may sleep, over HTTP: torn down as reports say so, there again when it is asked to."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.service.builders import CHAT, changed
from tests.service.running import Running

LOAD: Final = changed(CHAT, ("objective",), {"kind": "min_cost", "headroom_fraction": 0.1})
STEADY: Final = {"cooldown_s": 0, "carry_out_s": 0}


def standing(service: Running, name: str, policy: dict[str, Any]) -> dict[str, Any]:
    answer = service.post("/v1/deployments", {"name": name, "problem": LOAD, "policy": policy})
    assert answer.status_code == 201, answer.text
    return plan(service, name)


def may_sleep(service: Running, name: str) -> None:
    """Only now: a new deployment is served for as long as a model has to be without requests."""
    policy = {**STEADY, "sleep": {"after_s": 60}}
    assert service.put(f"/v1/deployments/{name}", {"problem": LOAD, "policy": policy}).status_code == 200


def plan(service: Running, name: str, **params: Any) -> dict[str, Any]:
    answer = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 60, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def nothing_came(service: Running, name: str) -> None:
    """For an hour."""
    told = {"model": "chat", "observed_at": datetime.now(UTC).isoformat(), "window_s": 3600.0, "buckets": []}
    assert service.post(f"/v1/deployments/{name}/observations", told).status_code < 300


@pytest.mark.slow
def test_a_deployment_sleeps_and_is_woken(service: Running, name: str) -> None:
    first = standing(service, name, STEADY)
    may_sleep(service, name)
    nothing_came(service, name)
    asleep = plan(service, name, after=1)
    assert (asleep["status"], asleep["rentals"], asleep["cost_usd_per_hour"]) == ("optimal", [], 0)
    assert [one["model"] for one in asleep["sleeping"]] == ["chat"]
    outputs = service.get(f"/v1/deployments/{name}/terraform/state").json()["outputs"]
    assert outputs["rentals"]["value"] == {}
    assert list(outputs["sleeping"]["value"]) == ["chat"]
    diff = service.get(f"/v1/deployments/{name}/plans/2/diff").json()
    assert (diff["keep"], diff["start"], [one["after"] for one in diff["reroute"]]) == ([], [], [{}, {}])
    assert sum(one["count"] for one in diff["stop"]) == sum(one["count"] for one in first["rentals"])
    assert "whose models all sleep" in service.post("/v1/simulations", {"plan": asleep}).text
    router = service.get(f"/v1/plans/{asleep['id']}/export/router").json()
    assert (router["weights"], router["sleeping"]["chat"]["retry_after_s"] > 0) == ({}, True)
    answer = service.post(f"/v1/deployments/{name}/wake", {})
    assert (answer.status_code, answer.json()["models"]) == (202, ["chat"])
    awake = plan(service, name, after=2)
    assert awake["rentals"] == first["rentals"]
    nothing_came(service, name)  # it was asked for within after_s
    assert service.get(f"/v1/deployments/{name}").json()["plan"]["revision"] == 3


def test_whoever_asks_for_a_plan_of_what_sleeps_has_it_served(service: Running, name: str) -> None:
    first = standing(service, name, STEADY)
    may_sleep(service, name)
    nothing_came(service, name)
    assert plan(service, name, after=1)["rentals"] == []
    assert service.post(f"/v1/deployments/{name}/replan").status_code == 202
    assert plan(service, name, after=2)["rentals"] == first["rentals"]


def test_nothing_is_woken_where_nothing_sleeps_and_nothing_that_is_not_there(service: Running, name: str) -> None:
    standing(service, name, {})
    assert service.post(f"/v1/deployments/{name}/wake", {}).status_code == 409
    assert service.put(f"/v1/deployments/{name}", {"problem": LOAD, "policy": {"sleep": {}}}).status_code == 200
    answer = service.post(f"/v1/deployments/{name}/wake", {"models": ["chad"]})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "models")
