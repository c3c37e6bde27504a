"""`/v1/deployments/{name}/decisions` and what the deployment says of its watch, of a running service."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sutler.service.documents.examples import CHAT as ESTIMATED_CHAT
from tests.postgres import Server
from tests.service.builders import CHAT
from tests.service.deployments.replanning.builders import STEADY
from tests.service.running import Running, until

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
_numbers = count(1)
EAGER = {**STEADY, "cooldown_s": 0.0, "window_s": 60.0, "shrink_after_s": 0.0}
Deploys = Callable[..., str]


@pytest.fixture
def deploy(service: Running) -> Deploys:
    """Makes a deployment, and waits for its first plan unless told otherwise."""

    def make(*, planned: bool = True, policy: dict[str, Any] | None = None, problem: dict[str, Any] = CHAT) -> str:
        name = f"decided-{next(_numbers)}"
        body = {"name": name, "problem": problem, "policy": {**EAGER, **(policy or {})}}
        made = service.post("/v1/deployments", body)
        assert made.status_code == 201, made.text
        if planned:
            assert service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30}).status_code == 200
        return name

    return make


def decisions(service: Running, name: str, **params: Any) -> dict[str, Any]:
    answer = service.get(f"/v1/deployments/{name}/decisions", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def watch(service: Running, name: str) -> Any:
    return service.get(f"/v1/deployments/{name}").json()["watch"]


def watched(service: Running, name: str) -> dict[str, Any]:
    """Once it was looked at."""
    found: dict[str, Any] = until(lambda: watch(service, name))
    return found


def tell(service: Running, name: str, factor: float) -> None:
    """A minute of so many times the planned traffic."""
    end = datetime.now(UTC)
    observation = {
        "model": "chat",
        "source": "gateway",
        "window_s": 60,
        "observed_at": end.isoformat(),
        "buckets": [
            {"input_tokens": 500, "output_tokens": 250, "requests": round(20 * 60 * factor)},
            {"input_tokens": 3000, "output_tokens": 300, "requests": round(2 * 60 * factor)},
        ],
    }
    answer = service.post(f"/v1/deployments/{name}/observations", observation)
    assert answer.status_code in (200, 202), answer.text


def logged(postgres: Server, name: str, at: datetime, reason: str) -> None:
    """A decision that nobody had to wait for."""
    conninfo = postgres.url("service").replace("postgresql+psycopg://", "postgresql://")
    drifts = [{"kind": "mix", "detail": "other requests", "value": 0.3, "threshold": 0.2}]
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            "INSERT INTO decision (id, deployment_id, at, basis_revision, revision, chosen, reason, drifts, options) "
            "SELECT %s, id, %s, 1, NULL, 'keep', %s, %s, '[]' FROM deployment WHERE name = %s",
            (uuid4(), at, reason, json.dumps(drifts), name),
        )


def test_a_deployment_without_a_plan_was_not_looked_at(service: Running, deploy: Deploys) -> None:
    name = deploy(planned=False)
    assert decisions(service, name)["items"] == []


def test_a_deployment_says_what_the_first_look_found(service: Running, deploy: Deploys) -> None:
    name = deploy()
    found = watched(service, name)
    assert (found["status"], found["feed"], found["holdings"]) == ("calm", "none", "never")
    assert (found["drifts"], found["holdings_reported_at"]) == ([], None)
    assert found["detail"]
    assert found["looked_at"] < found["next_look_at"]


def test_more_traffic_is_a_decision_with_its_reason_its_drift_and_its_options(
    service: Running, deploy: Deploys
) -> None:
    name = deploy()
    tell(service, name, 2.0)
    plan = service.get(f"/v1/deployments/{name}/plan", params={"after": 1, "wait_s": 30}).json()
    [decision] = decisions(service, name)["items"]
    assert (decision["basis_revision"], decision["revision"], decision["chosen"]) == (1, 2, "refleet")
    assert plan["revision"] == 2
    assert [drift["kind"] for drift in decision["drifts"]] == ["rate"]
    assert decision["drifts"][0]["value"] == pytest.approx(1.0, rel=0.01)
    kinds = [option["kind"] for option in decision["options"]]
    assert kinds[0] == "keep"
    assert kinds[-1] == "refleet"
    chosen = decision["options"][-1]
    assert chosen["machines_started"] > 0
    assert chosen["switching_usd"] > 0
    assert chosen["usd_per_hour"] == pytest.approx(plan["cost_usd_per_hour"])
    assert decision["reason"] == service.get(f"/v1/deployments/{name}/plans/2/diff").json()["reason"]
    seen = until(lambda: _if(watch(service, name), "feed", "live"))
    assert seen["status"] == "calm"


def _if(found: dict[str, Any] | None, field: str, value: object) -> dict[str, Any] | None:
    return found if found is not None and found[field] == value else None


def test_a_manual_policy_says_in_the_watch_what_it_would_do(service: Running, deploy: Deploys) -> None:
    name = deploy(policy={"automatic": False})
    watched(service, name)
    tell(service, name, 2.0)
    found = until(lambda: _if(watch(service, name), "feed", "live"))
    assert "POST /replan" in found["detail"]
    assert service.get(f"/v1/deployments/{name}/plan").json()["revision"] == 1
    assert [d["revision"] for d in decisions(service, name)["items"]] in ([], [None])


def rented(service: Running, name: str) -> list[dict[str, Any]]:
    """All that the plan rents, as holdings."""
    plan = service.get(f"/v1/deployments/{name}/plan").json()
    keys = ("provider", "offer_id", "gpu", "gpus", "count", "price_usd_per_hour")
    return [{key: rental[key] for key in keys} for rental in plan["rentals"]]


def test_holdings_that_were_reported_are_part_of_the_watch(service: Running, deploy: Deploys) -> None:
    name = deploy()
    watched(service, name)
    assert service.put(f"/v1/deployments/{name}/holdings", {"holdings": rented(service, name)}).status_code == 200
    found = watched(service, name)
    assert found["holdings"] == "reported"
    assert found["holdings_reported_at"] is not None


def test_what_is_held_when_a_plan_is_asked_for_can_be_lost_after_it(service: Running, deploy: Deploys) -> None:
    name = deploy(policy={"settle_s": 0.0})
    assert service.put(f"/v1/deployments/{name}/holdings", {"holdings": rented(service, name)}).status_code == 200
    assert service.post(f"/v1/deployments/{name}/replan").status_code == 202
    assert service.get(f"/v1/deployments/{name}/plan", params={"after": 1, "wait_s": 30}).status_code == 200
    assert service.put(f"/v1/deployments/{name}/holdings", {"holdings": []}).status_code == 200
    assert service.get(f"/v1/deployments/{name}/plan", params={"after": 2, "wait_s": 30}).status_code == 200
    newest = decisions(service, name)["items"][0]
    assert (newest["revision"], {drift["kind"] for drift in newest["drifts"]}) == (3, {"lost"})


def test_a_plan_that_was_asked_for_is_in_the_log_too(service: Running, deploy: Deploys) -> None:
    name = deploy()
    assert service.post(f"/v1/deployments/{name}/replan").status_code == 202
    assert service.get(f"/v1/deployments/{name}/plan", params={"after": 1, "wait_s": 30}).status_code == 200
    [decision] = until(lambda: decisions(service, name)["items"])
    assert "asked" in [drift["kind"] for drift in decision["drifts"]]
    assert decision["revision"] == 2


def test_decisions_come_the_newest_first_in_pages(service: Running, deploy: Deploys, postgres: Server) -> None:
    name = deploy()
    for minute in (0, 1, 1, 2, 3):
        logged(postgres, name, AT + timedelta(minutes=minute), f"minute {minute}")
    reasons: list[str] = []
    page = decisions(service, name, limit=2)
    reasons += [item["reason"] for item in page["items"]]
    while page["next"]:
        page = decisions(service, name, limit=2, cursor=page["next"])
        reasons += [item["reason"] for item in page["items"]]
    assert reasons == ["minute 3", "minute 2", "minute 1", "minute 1", "minute 0"]


def test_what_was_kept_says_what_had_moved(service: Running, deploy: Deploys, postgres: Server) -> None:
    name = deploy()
    logged(postgres, name, AT, "the best change nets too little")
    [decision] = decisions(service, name)["items"]
    assert (decision["chosen"], decision["revision"], decision["basis_revision"]) == ("keep", None, 1)
    assert decision["drifts"] == [{"kind": "mix", "detail": "other requests", "value": 0.3, "threshold": 0.2}]


def test_the_decisions_of_a_deployment_that_is_gone_are_gone(
    service: Running, deploy: Deploys, postgres: Server
) -> None:
    name = deploy()
    logged(postgres, name, AT, "whatever")
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    answer = service.get(f"/v1/deployments/{name}/decisions")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found")


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 100_000}, {"cursor": "nonsense"}])
def test_pages_that_are_none_are_refused(service: Running, deploy: Deploys, params: dict[str, Any]) -> None:
    name = deploy(planned=False)
    assert service.get(f"/v1/deployments/{name}/decisions", params=params).status_code == 422


@pytest.mark.slow
def test_every_plan_of_a_policy_that_validates_says_what_a_replay_of_it_found(
    service: Running, deploy: Deploys
) -> None:
    name = deploy(policy={"validate_plans": True}, problem=ESTIMATED_CHAT)
    path = f"/v1/deployments/{name}"
    tell(service, name, 2.0)
    moved = service.get(f"{path}/plan", params={"after": 1, "wait_s": 30}).json()
    assert service.post(f"{path}/replan").status_code == 202
    asked = service.get(f"{path}/plan", params={"after": 2, "wait_s": 30}).json()
    first = service.get(f"{path}/plans/1").json()
    assert [moved["revision"], asked["revision"]] == [2, 3]
    for plan in (first, moved, asked):
        found = plan["validation"]
        assert found["requests"] > 0
        assert len(found["limits"]) > 0
        assert found["meets_all_limits"] == all(limit["met"] for limit in found["limits"])
        assert any("replayed, this plan misses" in words for words in plan["warnings"]) != found["meets_all_limits"]
