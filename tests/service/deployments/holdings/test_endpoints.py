"""`/v1/deployments/{name}/holdings`: reports of what is rented, and plans that are acknowledged."""

from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.service.builders import CHAT, a_slow_problem, changed
from tests.service.running import Running, until

Deployed = Callable[..., str]
SMALL: dict[str, Any] = {
    "provider": "acme",
    "offer_id": "small",
    "gpu": "rtx-4090",
    "gpus": 1,
    "count": 2,
    "price_usd_per_hour": 0.4,
    "contract": "on_demand",
}
LARGE: dict[str, Any] = {**SMALL, "offer_id": "large", "gpu": "h100-sxm", "count": 1, "price_usd_per_hour": 2.2}


def put(service: Running, name: str, body: Any) -> dict[str, Any]:
    answer = service.put(f"/v1/deployments/{name}/holdings", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def get(service: Running, name: str) -> dict[str, Any]:
    answer = service.get(f"/v1/deployments/{name}/holdings")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def remedies(answer: requests.Response) -> dict[str, str]:
    """By field."""
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["remedy"] for error in answer.json()["errors"]}


def essence(holdings: list[dict[str, Any]]) -> dict[str, int]:
    """Machines by offer."""
    return {holding["offer_id"]: holding["count"] for holding in holdings}


def audited(service: Running, name: str) -> list[dict[str, Any]]:
    """The newest first."""
    items = service.get("/v1/audit", params={"limit": 200}).json()["items"]
    return [item for item in items if item["target"] == f"deployment/{name}"]


def test_before_the_first_report_nothing_is_known_to_be_missing(service: Running, deployed: Deployed) -> None:
    found = get(service, deployed())
    assert (found["reported"], found["reported_at"], found["holdings"]) == (False, None, [])
    assert (found["lost"], found["missing"], found["unplanned"]) == ([], [], [])


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_report_is_stored_as_a_list_or_in_a_mapping(service: Running, deployed: Deployed, wrapped: bool) -> None:
    name = deployed(planned=False)
    found = put(service, name, {"holdings": [SMALL, LARGE]} if wrapped else [SMALL, LARGE])
    assert found["reported"] is True
    assert [{key: holding[key] for key in SMALL} for holding in found["holdings"]] == [SMALL, LARGE]
    assert found["usd_per_hour"] == pytest.approx(3.0)
    assert get(service, name)["holdings"] == found["holdings"]


def test_yaml_is_taken_too(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    text = "- {provider: acme, offer_id: small, gpu: rtx-4090, gpus: 1, price_usd_per_hour: 0}\n"
    headers = {"Content-Type": "application/yaml"}
    answer = service.ask("PUT", f"/v1/deployments/{name}/holdings", data=text, headers=headers)
    [holding] = answer.json()["holdings"]
    assert (holding["count"], holding["contract"], holding["price_usd_per_hour"]) == (1, "on_demand", 0)


def test_what_the_next_report_leaves_out_is_lost(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    put(service, name, [SMALL, LARGE])
    found = put(service, name, [{**SMALL, "count": 1}])
    assert essence(found["lost"]) == {"small": 1, "large": 1}
    assert get(service, name)["lost"] == []
    assert essence(put(service, name, [])["lost"]) == {"small": 1}
    assert get(service, name)["reported"] is True


def test_another_price_loses_no_machine(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    put(service, name, [SMALL])
    found = put(service, name, [{**SMALL, "price_usd_per_hour": 0.5}])
    assert (found["lost"], found["usd_per_hour"]) == ([], pytest.approx(1.0))


def test_the_plan_says_what_is_missing_and_what_is_too_much(service: Running, deployed: Deployed) -> None:
    name = deployed()
    plan = service.get(f"/v1/deployments/{name}/plan").json()
    planned = essence(plan["rentals"])
    found = put(service, name, [{**SMALL, "offer_id": "of another"}])
    assert found["revision"] == plan["revision"]
    assert essence(found["missing"]) == planned
    assert essence(found["unplanned"]) == {"of another": 2}


def test_the_same_report_again_is_fresh_and_changes_nothing(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    first, second = put(service, name, [SMALL]), put(service, name, [SMALL])
    assert {**first, "reported_at": None} == {**second, "reported_at": None}
    assert second["reported_at"] > first["reported_at"]
    assert [item["action"] for item in audited(service, name)] == ["deployment.holdings", "deployment.create"]


def test_the_audit_log_says_how_much_is_held_and_lost(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    put(service, name, [SMALL, LARGE])
    put(service, name, [LARGE])
    [newest, *_] = audited(service, name)
    assert newest["detail"] == {"machines": 1, "lost": 2, "usd_per_hour": 2.2}


def test_a_machine_listed_twice_is_refused_with_both_places(service: Running, deployed: Deployed) -> None:
    path = f"/v1/deployments/{deployed(planned=False)}/holdings"
    found = remedies(service.put(path, {"holdings": [SMALL, LARGE, {**SMALL, "count": 1}]}))
    assert "holdings[0]" in found["holdings[2].offer_id"]
    assert service.put(path, [SMALL, {**SMALL, "price_usd_per_hour": 0.5}]).status_code == 200


def test_an_unknown_gpu_is_refused_with_the_name_that_may_be_meant(service: Running, deployed: Deployed) -> None:
    path = f"/v1/deployments/{deployed(planned=False)}/holdings"
    wrong = [SMALL, {**LARGE, "gpu": "H100 SXM"}, {**LARGE, "offer_id": "3", "gpu": "tricorder"}]
    found = remedies(service.put(path, wrong))
    assert "did you mean h100-sxm?" in found["holdings[1].gpu"]
    assert "sutler catalog gpus" in found["holdings[2].gpu"]


def test_a_gpu_of_the_problems_own_is_known(service: Running, deployed: Deployed) -> None:
    own = {
        **CHAT,
        "gpus": {"mine": {"memory_gb": 80, "memory_bandwidth_gb_per_s": 2000, "peak_tflops_bf16_dense": 300}},
    }
    put(service, deployed(own, planned=False), [{**SMALL, "gpu": "mine"}])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"count": 0}, "holdings[0].count"),
        ({"price_usd_per_hour": -1}, "holdings[0].price_usd_per_hour"),
        ({"contract": "barter"}, "holdings[0].contract"),
        ({"expires_at": "tomorrow"}, "holdings[0].expires_at"),
        ({"started_at": "2026-01-02T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z"}, "holdings[0].expires_at"),
        ({"prise": 1}, "holdings[0].prise"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    service: Running, deployed: Deployed, wrong: dict[str, Any], field: str
) -> None:
    path = f"/v1/deployments/{deployed(planned=False)}/holdings"
    assert list(remedies(service.put(path, {"holdings": [{**SMALL, **wrong}]}))) == [field]


def test_a_deployment_that_is_not_there_holds_nothing(service: Running) -> None:
    assert service.put("/v1/deployments/nobody/holdings", []).status_code == 404
    assert service.get("/v1/deployments/nobody/holdings").status_code == 404
    assert service.post("/v1/deployments/nobody/holdings/ack").status_code == 404


@pytest.mark.parametrize("body", [None, {}, {"revision": 1}])
def test_an_acknowledged_plan_is_what_is_held(service: Running, deployed: Deployed, body: Any) -> None:
    name = deployed()
    rentals = service.get(f"/v1/deployments/{name}/plan").json()["rentals"]
    answer = service.post(f"/v1/deployments/{name}/holdings/ack", body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["lost"], found["missing"], found["unplanned"]) == ([], [], [])
    keys = ("provider", "offer_id", "gpu", "gpus", "count", "price_usd_per_hour", "contract")
    assert [[h[key] for key in keys] for h in found["holdings"]] == [[r[key] for key in keys] for r in rentals]
    assert audited(service, name)[0]["action"] == "deployment.ack"
    assert audited(service, name)[0]["detail"]["revision"] == 1


def test_an_acknowledged_plan_keeps_what_is_known_of_its_machines(service: Running, deployed: Deployed) -> None:
    name = deployed()
    [rental, *_] = service.get(f"/v1/deployments/{name}/plan").json()["rentals"]
    known = {key: rental[key] for key in SMALL} | {"expires_at": "2030-01-01T00:00:00Z"}
    put(service, name, [known])
    found = service.post(f"/v1/deployments/{name}/holdings/ack").json()
    assert found["holdings"][0]["expires_at"] == "2030-01-01T00:00:00Z"


def test_only_the_current_plan_can_be_acknowledged(service: Running, deployed: Deployed) -> None:
    name = deployed()
    answer = service.post(f"/v1/deployments/{name}/holdings/ack", {"revision": 2})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")
    assert "revision 1, not 2" in answer.json()["detail"]
    assert get(service, name)["reported"] is False


def test_a_plan_that_is_still_being_made_cannot_be_acknowledged(service: Running, deployed: Deployed) -> None:
    name = deployed(a_slow_problem(), planned=False)
    answer = service.post(f"/v1/deployments/{name}/holdings/ack")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:sutler:problem:not-yet")
    assert service.delete(f"/v1/deployments/{name}").status_code == 204


def test_a_plan_that_serves_nothing_calls_nothing_unplanned(service: Running, deployed: Deployed) -> None:
    impossible = {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}}
    name = deployed(impossible)
    until(lambda: service.get(f"/v1/deployments/{name}").json()["latest"])
    found = put(service, name, [SMALL])
    assert (found["revision"], found["missing"], found["unplanned"]) == (None, [], [])
    assert service.post(f"/v1/deployments/{name}/holdings/ack").status_code == 409


def test_holdings_go_with_their_deployment(service: Running, deployed: Deployed) -> None:
    name = deployed(planned=False)
    put(service, name, [SMALL])
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    service.post("/v1/deployments", {"name": name, "problem": changed(CHAT, ("budget_usd_per_hour",), 1)})
    assert get(service, name)["reported"] is False


def test_the_openapi_document_allows_both_bodies(service: Running) -> None:
    schemas = service.get("/openapi.json").json()["components"]["schemas"]
    assert [option["type"] for option in schemas["HoldingsDocument"]["anyOf"]] == ["object", "array"]


def test_who_loses_machines_of_its_plan_is_told_where_nothing_is_rented_meanwhile(
    service: Running, deployed: Deployed
) -> None:
    name = deployed()
    held = service.post(f"/v1/deployments/{name}/holdings/ack").json()["holdings"]
    [many] = [one for one in held if one["count"] > 1]
    put(service, name, [])

    def avoided() -> list[dict[str, Any]]:
        watch = service.get(f"/v1/deployments/{name}").json()["watch"]
        found: list[dict[str, Any]] = [] if watch is None else watch["avoided"]
        return found

    places = {one["place"]: one["machines"] for one in until(avoided)}
    assert places == {
        f"acme on_demand {many['gpu']}": many["count"],
        "acme on_demand": sum(one["count"] for one in held),
    }
    put(service, deployed(), [])
    assert len(avoided()) == 2, "a deployment on a market of its own tells nobody else"
