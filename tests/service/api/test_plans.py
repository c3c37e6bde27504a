"""Plans over HTTP: asked for, waited for, followed, cancelled, deleted, listed, and asked for twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import yaml

from sutler.service.documents.examples import CHAT_ON_THE_STORE
from sutler.service.documents.plan import PlanDocument
from tests.postgres import Server
from tests.service.builders import CHAT, DELETE, a_problem, a_slow_problem, changed
from tests.service.running import Running, finished, until


@pytest.mark.parametrize("problem", [CHAT, CHAT_ON_THE_STORE], ids=["own market", "market of the store"])
def test_the_examples_of_the_openapi_document_are_planned(service: Running, problem: dict[str, Any]) -> None:
    until(lambda: service.get("/readyz").ok)
    answer = service.post("/v1/plans", problem)
    assert answer.status_code == 201, answer.text
    plan = PlanDocument.model_validate_json(answer.text)
    assert plan.status == "optimal"
    assert plan.rentals
    assert service.get(answer.headers["Location"]).json() == answer.json()


def test_an_infeasible_problem_is_a_plan(service: Running) -> None:
    answer = service.post("/v1/plans", {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}})
    assert answer.status_code == 201
    assert answer.json()["status"] == "infeasible"
    assert answer.json()["conflicts"]


def test_a_market_without_offers_is_503_with_the_remedy(service: Running) -> None:
    answer = service.post("/v1/plans", {**a_problem(), "market": {"filter": {"regions": ["MOON"]}}})
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (503, 503)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["type"] == "urn:sutler:problem:no-market-data"
    assert "filter" in problem["detail"]
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("budget_usd_per_hour",), -1, "budget_usd_per_hour"),
        (("models", 0, "workloads"), [], "models[0].workloads"),
        (("models", 0, "workloads", 0, "slo"), {"ttft_p90_s": -1}, "models[0].workloads[0].slo.ttft_p90_s"),
        (("models", 0, "max_utilisation_fraction"), 2, "models[0].max_utilisation_fraction"),
        (("nonsense",), 1, "nonsense"),
        (("market", "offers"), "market.json", "market.offers"),
        (("solver",), {"time_limit_s": 3600}, "solver.time_limit_s"),
        (("models", 0, "model"), "no-such-model", "models[0].model"),
        (("models", 0, "model"), {"config": {"hidden_size": 8}}, "models[0].model.config.num_hidden_layers"),
        (("models", 0, "model"), {"config_file": "config.json"}, "models[0].model.config_file"),
        (("objective",), DELETE, "objective"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_queued(
    service: Running, path: tuple[str | int, ...], value: object, field: str
) -> None:
    problem = changed({**a_problem(), "throughput": {}}, path, value)
    for headers in ({}, {"Prefer": "respond-async"}):
        answer = service.post("/v1/plans", problem, headers=headers)
        assert answer.status_code == 422, answer.text
        assert field in [error["field"] for error in answer.json()["errors"]]
        assert all(error["remedy"] for error in answer.json()["errors"])


def test_a_caller_who_does_not_wait_follows_the_location(service: Running) -> None:
    answer = service.post("/v1/plans", CHAT, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "respond-async"
    assert answer.json()["status"] in {"queued", "running"}
    plan = finished(service, answer.headers["Location"])
    assert (plan["status"], plan["id"]) == ("optimal", answer.json()["id"])


def test_a_caller_who_waits_for_a_moment_gets_the_plan_or_its_place(service: Running) -> None:
    answer = service.post("/v1/plans", a_slow_problem(), headers={"Prefer": "wait=0"})
    assert answer.status_code == 202
    assert service.post(f"{answer.headers['Location']}/cancel").status_code == 200


def test_progress_is_shown_while_it_runs_and_a_cancelled_plan_stays_cancelled(service: Running) -> None:
    asked = service.post("/v1/plans", a_slow_problem(), headers={"Prefer": "respond-async"})
    url = asked.headers["Location"]
    running = until(lambda: _with_progress(service.get(url).json()))
    assert running["status"] == "running"
    assert running["progress"]["candidates"] > 50
    assert running["progress"]["bound"] > 0
    cancelled = service.post(f"{url}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert service.post(f"{url}/cancel").status_code == 409
    after = service.post("/v1/plans", CHAT)  # the solver is free again at once
    assert after.status_code == 201
    assert service.get(url).json()["status"] == "cancelled"


def _with_progress(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if (job.get("progress") or {}).get("bound") else None


def test_who_waits_for_a_plan_that_is_cancelled_hears_so(service: Running) -> None:
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(service.post("/v1/plans", a_slow_problem())))
    waiting.start()
    until(lambda: _cancelled_one(service))  # a short plan of another test may be running, and end first
    waiting.join()
    assert answers[0].status_code == 409
    assert answers[0].json()["type"] == "urn:sutler:problem:cancelled"


def _cancelled_one(service: Running) -> bool:
    running = service.get("/v1/plans", params={"status": "running"}).json()["items"]
    return any(service.post(f"{plan['url']}/cancel").status_code == 200 for plan in running)


def test_the_same_request_with_a_key_is_carried_out_once(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = service.post("/v1/plans", CHAT, headers=key)
    again = service.post("/v1/plans", CHAT, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()


def test_a_key_with_another_body_or_another_call_is_refused(service: Running, name: str) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    assert service.post("/v1/plans", CHAT, headers=key).status_code == 201
    other = service.post("/v1/plans", {**CHAT, "limits": {"max_gpus": {"h100-sxm": 1}}}, headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:sutler:problem:idempotency-key-reused")
    elsewhere = service.post("/v1/deployments", {"name": name, "problem": CHAT}, headers=key)
    assert elsewhere.status_code == 422


@pytest.mark.slow
def test_a_request_that_is_still_running_is_409_and_then_the_plan(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    answers = []
    problem = a_slow_problem(time_limit_s=3)
    first = threading.Thread(target=lambda: answers.append(service.post("/v1/plans", problem, headers=key)))
    first.start()
    until(lambda: service.get("/v1/plans", params={"status": "running"}).json()["items"])
    again = service.post("/v1/plans", problem, headers=key)
    assert (again.status_code, again.json()["type"]) == (409, "urn:sutler:problem:still-running")
    first.join()
    assert answers[0].status_code == 201
    assert service.post("/v1/plans", problem, headers=key).json() == answers[0].json()


def test_a_request_that_failed_may_be_sent_again_with_its_key(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    problem = {**a_problem(), "market": {"filter": {"regions": ["MOON"]}}}
    first, again = (service.post("/v1/plans", problem, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (503, 503)
    assert first.headers["Location"] != again.headers["Location"]


@pytest.mark.parametrize("key", ["", "with space", "ä", "x" * 256])
def test_a_key_that_is_no_key_is_refused(service: Running, key: str) -> None:
    answer = service.post("/v1/plans", CHAT, headers={"Idempotency-Key": key.encode()})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


def test_a_problem_may_be_yaml(service: Running) -> None:
    body = yaml.safe_dump(CHAT)
    answer = service.ask("POST", "/v1/plans", data=body, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201, answer.text


def test_plans_are_listed_page_by_page(service: Running) -> None:
    """The newest first, each once, whatever else is planned meanwhile; before the last page there is a next one."""
    made = [service.post("/v1/plans", CHAT).json()["id"] for _ in range(4)]
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while made[1] not in [item["id"] for item in found]:
        params = {"limit": 1, **({"cursor": cursor} if cursor else {})}
        page = service.get("/v1/plans", params=params).json()
        assert len(page["items"]) == 1
        found += page["items"]
        cursor = page["next"]
        assert cursor
    listed = [item["id"] for item in found]
    assert [plan_id for plan_id in listed if plan_id in made] == made[:0:-1]
    assert len(set(listed)) == len(listed)
    created = [datetime.fromisoformat(item["created_at"]) for item in found]
    assert created == sorted(created, reverse=True)


@pytest.mark.parametrize("cursor", ["x", "bnVsbA", "W10", "WzEsMl0", "😀", "W1tdXQ", "A" * 499])
def test_a_cursor_of_nobodys_making_is_refused(service: Running, cursor: str) -> None:
    for path in ("/v1/plans", "/v1/deployments", "/v1/offers"):
        answer = service.get(path, params={"cursor": cursor})
        if path != "/v1/deployments" or answer.status_code != 200:
            assert answer.status_code == 422


def test_the_problem_of_a_plan_is_kept_as_it_was_given(service: Running) -> None:
    plan = service.post("/v1/plans", CHAT).json()
    assert service.get(f"/v1/plans/{plan['id']}/problem").json() == CHAT


def test_what_is_not_there_is_404(service: Running) -> None:
    for path in (f"/v1/plans/{uuid4()}", "/v1/deployments/nobody", "/v1/deployments/nobody/plan", "/v2/plans"):
        answer = service.get(path)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_plan_is_not_sent_again_to_who_has_it(service: Running) -> None:
    made = service.post("/v1/plans", CHAT)
    answer = service.get(made.headers["Location"], headers={"If-None-Match": made.headers["ETag"]})
    assert (answer.status_code, answer.content) == (304, b"")


def test_a_plan_is_exported_under_its_url(service: Running) -> None:
    plan = service.post("/v1/plans", CHAT).json()
    script = service.get(f"/v1/plans/{plan['id']}/export/vllm")
    assert script.status_code == 200
    assert "vllm serve" in script.text
    assert script.headers["Content-Type"].startswith("text/x-shellscript")
    assert service.get(f"/v1/plans/{plan['id']}/export/nonsense").status_code == 422


def test_a_plan_that_is_deleted_is_gone_and_asked_for_anew_under_its_key(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    url = service.post("/v1/plans", CHAT, headers=key).headers["Location"]
    assert (service.delete(url).status_code, service.get(url).status_code) == (204, 404)
    assert service.delete(url).status_code == 404
    again = service.post("/v1/plans", CHAT, headers=key)
    assert (again.status_code, again.headers["Location"] == url) == (201, False)
    noted = service.get("/v1/audit", params={"action": "plan.delete"}).json()["items"]
    assert f"plan/{url.rpartition('/')[2]}" in [each["target"] for each in noted]


def test_a_plan_that_is_deleted_twice_at_once_is_not_found_the_second_time(
    service: Running, postgres: Server
) -> None:
    url = service.post("/v1/plans", CHAT).headers["Location"]
    waits = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
    with psycopg.connect(postgres.url("service").replace("+psycopg", "")) as other, ThreadPoolExecutor(1) as pool:
        other.execute("DELETE FROM plan WHERE id = %s", [url.rpartition("/")[2]])
        answer = pool.submit(service.delete, url)
        until(lambda: other.execute(waits).fetchall() or answer.done())
        other.commit()
        assert answer.result().status_code == 404, answer.result().text


def test_a_plan_that_is_being_made_is_cancelled_before_it_is_deleted(service: Running) -> None:
    url = service.post("/v1/plans", a_slow_problem(), headers={"Prefer": "respond-async"}).headers["Location"]
    refused = service.delete(url)
    assert (refused.status_code, f"POST {url}/cancel" in refused.json()["detail"]) == (409, True)
    assert service.post(f"{url}/cancel").status_code == 200
    assert service.delete(url).status_code == 204


def test_a_plan_that_a_deployment_stands_on_is_deleted_after_it(service: Running, name: str) -> None:
    assert service.put(f"/v1/deployments/{name}", {"problem": CHAT}).status_code == 201
    current = until(lambda: plan.json() if (plan := service.get(f"/v1/deployments/{name}/plan")).ok else None)
    refused = service.delete(f"/v1/plans/{current['id']}")
    assert (refused.status_code, f"deployment {name} stands on it" in refused.json()["detail"]) == (409, True)
    assert service.delete(f"/v1/deployments/{name}").status_code == 204
    assert service.delete(f"/v1/plans/{current['id']}").status_code == 204


def test_a_plan_is_deleted_after_its_simulations(service: Running) -> None:
    url = service.post("/v1/plans", CHAT).headers["Location"]
    asked = {"plan_id": url.rpartition("/")[2], "duration_s": 5}
    simulation = service.post("/v1/simulations", asked).headers["Location"]
    refused = service.delete(url)
    assert (refused.status_code, "DELETE /v1/simulations/ID" in refused.json()["detail"]) == (409, True)
    assert service.delete(simulation).status_code == 204
    assert service.delete(url).status_code == 204
