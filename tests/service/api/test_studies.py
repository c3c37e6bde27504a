"""What-ifs, comparisons, simulations, estimates and the catalogue over HTTP: the same answers as the commands'."""

from typing import Any

import pytest

import sutler
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.examples import CHAT
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.simulation.schemas import SimulationResource
from tests.service.running import Running, until

VARIANTS: list[dict[str, Any]] = [{"objective.headroom_fraction": 0.5}, {"market.filter.gpus": ["h200-sxm"]}]


def asked(service: Running, path: str, **question: Any) -> dict[str, Any]:
    answer = service.post(path, question)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.slow
def test_a_what_if_is_that_of_the_library_and_remembered(service: Running) -> None:
    question = {"problem": CHAT, "variants": VARIANTS}
    first = service.post("/v1/what-ifs", question)
    assert first.status_code == 201, first.text
    found, here = WhatIfDocument.model_validate_json(first.text), sutler.what_if(CHAT, VARIANTS)
    assert [one.objective for one in found.variants] == [one.objective for one in here.variants]
    assert found.base.objective == here.base.objective
    assert found.variants[1].status == "no_market_data"
    again = service.post("/v1/what-ifs", question)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.text == first.text
    other = service.post("/v1/what-ifs", {**question, "variants": VARIANTS[:1]})
    assert other.headers["Location"] != first.headers["Location"]
    listed = service.get("/v1/what-ifs").json()["items"]
    assert first.headers["Location"] in [one["url"] for one in listed]
    assert {one["kind"] for one in listed} == {"what-if"}
    assert service.get(first.headers["Location"]).text == first.text
    kept = service.get(f"{first.headers['Location']}/asked").json()
    assert kept["variants"] == VARIANTS


def test_none_of_them_is_a_plan(service: Running) -> None:
    before = {one["id"] for one in service.get("/v1/plans", params={"limit": 200}).json()["items"]}
    made = service.post("/v1/what-ifs", {"problem": CHAT, "variants": [{"objective.headroom_fraction": 0.3}]})
    found = made.headers["Location"].rpartition("/")[2]
    after = {one["id"] for one in service.get("/v1/plans", params={"limit": 200}).json()["items"]}
    assert found not in after
    assert before <= after
    assert service.get(f"/v1/plans/{found}").status_code == 404
    assert service.get(f"/v1/simulations/{found}").status_code == 404


@pytest.mark.slow
def test_a_deployment_and_a_plan_are_bases_too(service: Running) -> None:
    name = "studied"
    assert service.put(f"/v1/deployments/{name}", {"problem": CHAT}).status_code == 201
    current = f"/v1/deployments/{name}/plan"
    plan = until(lambda: answer.json() if (answer := service.get(current)).status_code == 200 else None)
    of_name = asked(service, "/v1/what-ifs", deployment=name, variants=VARIANTS[:1])
    of_plan = asked(service, "/v1/what-ifs", plan_id=plan["id"], variants=VARIANTS[:1])
    assert of_name["base"]["objective"] == of_plan["base"]["objective"] == plan["objective"]
    simulated = SimulationResource.model_validate(
        asked(service, "/v1/simulations", deployment=name, duration_s=30), strict=False
    )
    here = sutler.simulate(sutler.PlanDocument.model_validate(plan, strict=False), duration_s=30)
    assert (simulated.requests, simulated.meets_all_limits) == (here.requests, here.meets_all_limits)
    revisions = service.get(f"/v1/deployments/{name}/plans").json()["items"]
    assert [one["revision"] for one in revisions] == [1]
    service.delete(f"/v1/deployments/{name}")


def test_a_comparison_names_its_strategies(service: Running) -> None:
    found = ComparisonDocument.model_validate(
        asked(service, "/v1/comparisons", problem=CHAT, only=["homogeneous/*"]), strict=False
    )
    assert found.strategies[0].name == "sutler"
    assert {one.family for one in found.strategies[1:]} == {"homogeneous"}
    wrong = service.post("/v1/comparisons", {"problem": CHAT, "only": ["nonsense"]})
    assert wrong.status_code == 422
    assert "nonsense" in wrong.text


def test_recorded_requests_are_replayed(service: Running) -> None:
    plan = asked(service, "/v1/plans", **CHAT)
    columns = {"arrival_s": [0.0, 1.0, 2.5], "input_tokens": [500, 600, 3000], "output_tokens": [20, 30, 40]}
    found = asked(service, "/v1/simulations", plan=plan, traces={"chat": columns}, warm_up_s=0)
    assert found["requests"] == 3
    short = {**columns, "arrival_s": [0.0]}
    assert service.post("/v1/simulations", {"plan": plan, "traces": {"chat": short}}).status_code == 422
    other = service.post("/v1/simulations", {"plan": plan, "traces": {"nobody": columns}})
    assert other.status_code == 422
    assert "nobody" in other.text


@pytest.mark.parametrize(
    ("path", "question", "complaint"),
    [
        ("/v1/what-ifs", {"variants": VARIANTS}, "exactly one of problem, deployment, plan_id"),
        ("/v1/what-ifs", {"problem": CHAT, "deployment": "x", "variants": VARIANTS}, "exactly one of"),
        ("/v1/what-ifs", {"problem": CHAT, "variants": []}, "variants"),
        ("/v1/what-ifs", {"problem": CHAT, "variants": [{}] * 21}, "SUTLER_MOST_VARIANTS"),
        ("/v1/what-ifs", {"problem": CHAT, "variants": [{"models.*.precision": "fp9"}]}, "variants[0]: models"),
        ("/v1/what-ifs", {"problem": CHAT, "variants": [{"models.x.precision": "fp8"}]}, "known there are chat"),
        ("/v1/what-ifs", {"problem": CHAT, "variants": [{"solver.time_limit_s": 80000}]}, "SUTLER_LONGEST_SOLVE_S"),
        ("/v1/simulations", {"duration_s": 3}, "exactly one of plan, deployment, plan_id"),
        ("/v1/comparisons", {"problem": CHAT, "sweep": {"points": 3, "first": 9, "last": 2}}, "--from"),
        ("/v1/estimates", {"model": "llama-3.1-8b"}, "gpu"),
    ],
)
def test_what_is_wrong_is_named(service: Running, path: str, question: dict[str, Any], complaint: str) -> None:
    answer = service.post(path, question)
    assert answer.status_code == 422, answer.text
    assert complaint in answer.text


def test_who_is_unknown_is_not_found(service: Running) -> None:
    assert service.post("/v1/what-ifs", {"deployment": "nobody", "variants": VARIANTS}).status_code == 404
    nothing = "00000000-0000-0000-0000-000000000000"
    assert service.post("/v1/simulations", {"plan_id": nothing}).status_code == 404


def test_an_estimate_is_that_of_the_library(service: Running) -> None:
    question: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "gpu": "H100 SXM",
        "precision": "bf16",
        "input_tokens": 500,
        "output_tokens": 250,
    }
    answer = service.post("/v1/estimates", question)
    assert answer.status_code == 200, answer.text
    assert answer.json() == sutler.estimate(**question).model_dump(mode="json", by_alias=True)
    assert service.post("/v1/estimates", {**question, "calibration": "none-such"}).status_code == 404


def test_the_catalogue_is_that_of_the_command(service: Running) -> None:
    gpus = service.get("/v1/catalog/gpus").json()["items"]
    assert {"h100-sxm", "rtx-4090"} <= {gpu["slug"] for gpu in gpus}
    [one] = service.get("/v1/catalog/gpus", params={"name": "H100 SXM"}).json()["items"]
    assert one["facts"]["memory_gb"]["source"]
    [model] = service.get("/v1/catalog/models", params={"name": "llama-3.1-8b"}).json()["items"]
    assert model["layers"] == 32
    assert service.get("/v1/catalog/models", params={"name": "nonsense"}).status_code == 422
