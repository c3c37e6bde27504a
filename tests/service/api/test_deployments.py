"""Deployments over HTTP: their first plan, changes, history, waiting for the next plan."""

import threading
from typing import Any

import pytest
import requests

from tests.service.builders import CHAT, a_slow_problem, changed
from tests.service.running import Running, until

BUSIER = changed(CHAT, ("models", 0, "workloads", 0, "rate_rps"), 45)


def created(service: Running, name: str, problem: dict[str, Any] = CHAT) -> dict[str, Any]:
    answer = service.post("/v1/deployments", {"name": name, "problem": problem})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def current(service: Running, name: str, **params: Any) -> dict[str, Any]:
    answer = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30, **params})
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def test_the_first_plan_comes_without_being_asked_for(service: Running, name: str) -> None:
    made = created(service, name)
    assert made["plan"] is None
    assert made["pending"]["status"] in {"queued", "running"}
    plan = current(service, name)
    assert (plan["revision"], plan["status"]) == (1, "optimal")
    shown = service.get(f"/v1/deployments/{name}").json()
    assert (shown["plan"]["id"], shown["pending"], shown["last_failure"]) == (plan["id"], None, None)


def test_a_changed_problem_brings_the_next_revision_and_the_same_again_does_not(service: Running, name: str) -> None:
    created(service, name)
    first = current(service, name)
    assert service.put(f"/v1/deployments/{name}", {"problem": BUSIER}).status_code == 200
    second = current(service, name, after=1)
    assert second["revision"] == 2
    assert second["cost_usd_per_hour"] > first["cost_usd_per_hour"]
    again = service.put(f"/v1/deployments/{name}", {"problem": BUSIER}).json()
    assert (again["version"], again["pending"]) == (2, None)
    history = service.get(f"/v1/deployments/{name}/plans").json()["items"]
    assert [plan["revision"] for plan in history] == [2, 1]
    assert service.get(f"/v1/deployments/{name}/plans/1").json() == first


@pytest.mark.parametrize(
    ("stood", "given", "version"),
    [
        ({"contracts": ["on_demand"], "fit": "off"}, {}, 1),
        ({"contracts": ["on_demand"], "fit": "off"}, {"contracts": ["on_demand", "reserved"]}, 2),
        ({"contracts": ["on_demand", "interruptible"], "fit": "off"}, {}, 2),
        ({"contracts": ["on_demand", "interruptible"]}, {"contracts": ["on_demand", "spot"]}, 1),
        ({"contracts": ["on_demand", "reserved"], "fit": "off"}, {"contracts": ["on_demand", "reserved"]}, 1),
        ({"fit": "off"}, {}, 1),
        ({"fit": "off"}, {"fit": "on"}, 2),
        ({"fit": "on"}, {}, 2),
        ({}, {}, 1),
        ({}, {"contracts": ["on_demand"]}, 2),
    ],
)
def test_a_document_that_does_not_say_leaves_the_filters_that_an_upgrade_wrote(
    service: Running, name: str, stood: dict[str, Any], given: dict[str, Any], version: int
) -> None:
    def chat(wanted: dict[str, Any]) -> dict[str, Any]:
        market = {"offers": CHAT["market"]["offers"]} if "offers" in CHAT["market"] else {}
        return {**CHAT, "market": {**market, "filter": wanted} if wanted else market}

    created(service, name, chat(stood))
    made = service.put(f"/v1/deployments/{name}", {"problem": chat(given)}).json()
    assert made["version"] == version


@pytest.mark.parametrize(("given", "version"), [({}, 1), ({"lead_quantile": 0.9}, 2), ({"window_s": 60}, 2)])
def test_a_policy_that_does_not_say_leaves_what_an_upgrade_wrote(
    service: Running, name: str, given: dict[str, Any], version: int
) -> None:
    stood = {"name": name, "problem": CHAT, "policy": {"lead_quantile": None}}
    assert service.post("/v1/deployments", stood).status_code == 201
    made = service.put(f"/v1/deployments/{name}", {"problem": CHAT, "policy": given}).json()
    assert made["version"] == version


def test_put_makes_what_is_not_there(service: Running, name: str) -> None:
    answer = service.put(f"/v1/deployments/{name}", {"problem": CHAT, "policy": {"window_s": 60}})
    assert answer.status_code == 201
    assert answer.json()["policy"]["window_s"] == 60
    assert current(service, name)["revision"] == 1


def test_a_name_is_taken_once(service: Running, name: str) -> None:
    created(service, name)
    answer = service.post("/v1/deployments", {"name": name, "problem": CHAT})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")


@pytest.mark.parametrize("wrong", ["", "-a", "a-", "A", "a" * 64, "a/b", "ä", "a b", "a\n"])
def test_a_name_that_is_none_is_refused(service: Running, wrong: str) -> None:
    answer = service.post("/v1/deployments", {"name": wrong, "problem": CHAT})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "name"


def test_only_an_unchanged_deployment_is_changed_with_if_match(service: Running, name: str) -> None:
    created(service, name)
    etag = service.get(f"/v1/deployments/{name}").headers["ETag"]
    assert service.put(f"/v1/deployments/{name}", {"problem": BUSIER}, headers={"If-Match": etag}).status_code == 200
    late = service.put(f"/v1/deployments/{name}", {"problem": CHAT}, headers={"If-Match": etag})
    assert (late.status_code, late.json()["type"]) == (412, "urn:sutler:problem:changed-meanwhile")
    assert service.delete(f"/v1/deployments/{name}", headers={"If-Match": etag}).status_code == 412


def test_a_deleted_deployment_is_gone_and_its_plans_stay(service: Running, name: str) -> None:
    created(service, name)
    plan = current(service, name)
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    assert service.get(f"/v1/deployments/{name}/plan").status_code == 404
    assert service.delete(f"/v1/deployments/{name}").status_code == 404
    assert service.get(f"/v1/plans/{plan['id']}").json() == plan
    assert created(service, name)["plan"] is None
    assert current(service, name)["revision"] == 1


def test_the_current_plan_is_not_sent_again_to_who_has_it(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    etag = service.get(f"/v1/deployments/{name}/plan").headers["ETag"]
    answer = service.get(f"/v1/deployments/{name}/plan", headers={"If-None-Match": f'"other", W/{etag}'})
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)


def test_who_waits_gets_the_next_plan_when_it_is_there(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    nothing_yet = service.get(f"/v1/deployments/{name}/plan", params={"after": 1, "wait_s": 0.2})
    assert nothing_yet.status_code == 304
    found: list[dict[str, Any]] = []
    waiting = [threading.Thread(target=lambda: found.append(current(service, name, after=1))) for _ in range(5)]
    for thread in waiting:
        thread.start()
    assert service.post(f"/v1/deployments/{name}/replan").status_code == 202
    for thread in waiting:
        thread.join()
    assert [plan["revision"] for plan in found] == [2] * 5


def test_a_replan_that_is_under_way_is_not_begun_again(service: Running, name: str) -> None:
    made = created(service, name, a_slow_problem())
    asked = [service.post(f"/v1/deployments/{name}/replan").json()["id"] for _ in range(3)]
    assert asked == [made["pending"]["id"]] * 3
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    job = service.get(f"/v1/plans/{made['pending']['id']}").json()
    assert (job["status"], "deleted" in job["problem"]["detail"]) == ("cancelled", True)


def test_an_infeasible_plan_never_replaces_one_that_serves(service: Running, name: str) -> None:
    created(service, name)
    first = current(service, name)
    impossible = {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}}
    service.put(f"/v1/deployments/{name}", {"problem": impossible})
    until(lambda: len(service.get(f"/v1/deployments/{name}/plans").json()["items"]) == 2)
    until(lambda: service.get(f"/v1/deployments/{name}").json()["pending"] is None)
    newest = service.get(f"/v1/deployments/{name}/plans/2").json()
    assert newest["status"] == "infeasible"
    assert current(service, name) == first


def test_a_deployment_without_a_market_says_so_until_there_is_one(service: Running, name: str) -> None:
    nowhere = {**CHAT, "market": {"filter": {"regions": ["MOON"]}}}
    created(service, name, nowhere)
    failed = until(lambda: service.get(f"/v1/deployments/{name}").json()["last_failure"])
    assert failed["problem"]["type"] == "urn:sutler:problem:no-market-data"
    answer = service.get(f"/v1/deployments/{name}/plan")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:sutler:problem:not-yet")
    assert "filter" in answer.json()["detail"]
    assert service.delete(f"/v1/deployments/{name}").status_code == 204  # lest its attempts go on in other tests


def test_deployments_are_listed_by_name(service: Running, name: str) -> None:
    for ending in ("b", "a"):
        created(service, f"{name}{ending}")
    names, cursor = [], None
    while True:
        page = service.get("/v1/deployments", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        names += [item["name"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert names == sorted(names)
    assert {f"{name}a", f"{name}b"} <= set(names)


def test_terraform_reads_the_current_plan(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    state = service.get(f"/v1/deployments/{name}/terraform/state")
    assert state.status_code == 200
    assert (state.json()["version"], state.json()["serial"]) == (4, 1)
    assert state.json()["outputs"]["rentals"]["value"]


def test_who_leaves_while_waiting_is_not_waited_for(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    before = long_polls(service)
    with pytest.raises(requests.Timeout):
        service.ask("GET", f"/v1/deployments/{name}/plan?after=1&wait_s=60", timeout=1)
    until(lambda: long_polls(service) <= before)


def long_polls(service: Running) -> float:
    """Held now, by the service's own count."""
    lines = service.get("/metrics").text.splitlines()
    [line] = [line for line in lines if line.startswith("sutler_long_polls_in_progress ")]
    return float(line.split()[1])


def test_a_plan_that_does_not_hold_is_named_all_the_same(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    impossible = {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}}
    service.put(f"/v1/deployments/{name}", {"problem": impossible})
    shown = until(lambda: _if_latest(service.get(f"/v1/deployments/{name}").json(), revision=2))
    assert (shown["plan"]["revision"], shown["latest"]["status"]) == (1, "infeasible")


def _if_latest(deployment: dict[str, Any], *, revision: int) -> dict[str, Any] | None:
    return deployment if (deployment["latest"] or {}).get("revision") == revision else None


def test_who_knows_the_plans_of_a_deployment_that_is_gone_gets_the_new_ones(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    created(service, name)
    assert current(service, name, after=7)["revision"] == 1


def test_put_makes_only_what_is_not_there_where_it_is_told_so(service: Running, name: str) -> None:
    new = {"If-None-Match": "*"}
    assert service.put(f"/v1/deployments/{name}", {"problem": CHAT}, headers=new).status_code == 201
    assert service.put(f"/v1/deployments/{name}", {"problem": BUSIER}, headers=new).status_code == 412


def test_what_can_be_read_can_be_asked_for_without_its_body(service: Running, name: str) -> None:
    created(service, name)
    current(service, name)
    for path in ("/healthz", "/v1/plans", f"/v1/deployments/{name}/plan"):
        answer = service.ask("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
    refused = service.ask("PATCH", f"/v1/deployments/{name}")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "DELETE, GET, PUT")
    assert service.ask("OPTIONS", f"/v1/deployments/{name}/wake").headers["Allow"] == "POST"
