"""Offline plans over HTTP: asked for, waited for, followed, cancelled, deleted, listed, and adjusted as they run."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import yaml

from sutler.service.offline.examples import ENSEMBLE
from sutler.service.offline.plan_schema import OfflinePlanDocument
from tests.postgres import Server
from tests.service.builders import DELETE, a_snapshot, an_offer, changed
from tests.service.offline.builders import an_application, an_asker
from tests.service.running import Running, finished, until

URL = "/v1/offline-plans"


def small(**others: Any) -> dict[str, Any]:
    return {**an_application(models=[an_asker()], edges=[], search={"time_limit_s": 2}), **others}


def large() -> dict[str, Any]:
    """Takes its planner many seconds."""
    return small(models=[an_asker(count=300_000, output_tokens=900)], search={"time_limit_s": 60})


def test_the_example_of_the_openapi_document_is_planned(service: Running) -> None:
    answer = service.post(URL, ENSEMBLE)
    assert answer.status_code == 201, answer.text
    plan = OfflinePlanDocument.model_validate_json(answer.text)
    assert plan.status in {"optimal", "feasible"}
    assert (plan.revision, plan.adjustment) == (1, None)
    assert [model.requests for model in plan.models] == [400, 400, 400]
    assert service.get(answer.headers["Location"]).json() == answer.json()


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("nonsense",), 1, "nonsense"),
        (("models", 0, "requests"), {"trace": {"file": "day.csv"}}, "models[0].requests.trace.file"),
        (("models", 0, "output_tokens"), {"file": {"path": "a.csv", "column": "n"}}, "models[0].output_tokens.file"),
        (("models", 0, "model"), "no-such-model", "models[0].model"),
        (("models", 0, "requests"), {"count": 1, "input_tokens": 100_000}, "models[0]"),
        (("hardware", "gpu"), "no-such-gpu", "hardware.gpu"),
        (("hardware",), DELETE, "hardware"),
        (("search",), {"time_limit_s": 3600}, "search.time_limit_s"),
        (("models",), [an_asker(f"model-{i}") for i in range(51)], "models"),
        (("edges",), [{"from": "one", "to": "nobody"}], "edges[0]"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_queued(
    service: Running, path: tuple[str | int, ...], value: object, field: str
) -> None:
    application = changed(small(), path, value)
    for headers in ({}, {"Prefer": "respond-async"}):
        answer = service.post(URL, application, headers=headers)
        assert answer.status_code == 422, answer.text
        assert any(error["field"].startswith(field) for error in answer.json()["errors"]), answer.text
        assert all(error["remedy"] for error in answer.json()["errors"])


@pytest.mark.parametrize(
    ("market", "field"),
    [
        ({"offers": "market.json"}, "market.offers"),
        ({"filter": {"gpus": ["no-such-gpu"]}}, "market.filter.gpus[0]"),
        ({"offers": a_snapshot(an_offer(gpu="no-such-gpu"))}, "market.offers.offers[0].gpu"),
    ],
)
def test_a_market_that_cannot_be_used_is_named_before_anything_is_queued(
    service: Running, market: dict[str, Any], field: str
) -> None:
    application = changed({**small(), "market": market}, ("hardware",), DELETE)
    answer = service.post(URL, application, headers={"Prefer": "respond-async"})
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_market_without_offers_is_503_with_the_remedy(service: Running) -> None:
    until(lambda: service.get("/readyz").ok)
    application = changed({**small(), "market": {"filter": {"regions": ["MOON"]}}}, ("hardware",), DELETE)
    answer = service.post(URL, application)
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"] == "urn:sutler:problem:no-market-data"
    assert "filter" in answer.json()["detail"]
    assert int(answer.headers["Retry-After"]) >= 1


def test_an_application_whose_model_fits_nowhere_is_an_infeasible_plan(service: Running) -> None:
    models = [an_asker(model="llama-3.1-405b")]
    made = service.post(URL, small(models=models, hardware={"gpu": "rtx-4090", "gpus": 1}))
    assert made.status_code == 201, made.text
    assert made.json()["status"] == "infeasible"
    assert [conflict["constraint"] for conflict in made.json()["conflicts"]] == ["memory/one"]
    report = {"at_s": 1, "models": [{"model": "one", "finished_requests": 1}]}
    assert service.post(f"{made.headers['Location']}/adjust", report).status_code == 409


def test_a_caller_who_does_not_wait_follows_the_location(service: Running) -> None:
    answer = service.post(URL, small(), headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["Preference-Applied"] == "respond-async"
    job = answer.json()
    assert (job["schema"], job["revision"], job["parent_id"]) == ("sutler/offline-plan-job/v1", 1, None)
    plan = finished(service, answer.headers["Location"])
    assert (plan["schema"], plan["id"]) == ("sutler/offline-plan/v1", job["id"])


def test_a_plan_is_cancelled_while_its_planner_works_and_the_planner_is_free_again(service: Running) -> None:
    asked = service.post(URL, large(), headers={"Prefer": "wait=0"})
    assert asked.status_code == 202
    url = asked.headers["Location"]
    until(lambda: service.get(url).json()["status"] == "running")
    cancelled = service.post(f"{url}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert service.post(f"{url}/cancel").status_code == 409
    assert service.post(URL, small()).status_code == 201
    assert service.get(url).json()["status"] == "cancelled"


def test_who_waits_for_a_plan_that_is_cancelled_hears_so(service: Running) -> None:
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(service.post(URL, large())))
    waiting.start()
    until(lambda: _cancelled_one(service))
    waiting.join()
    assert answers[0].status_code == 409
    assert answers[0].json()["type"] == "urn:sutler:problem:cancelled"


def _cancelled_one(service: Running) -> bool:
    running = service.get(URL, params={"status": "running"}).json()["items"]
    return any(service.post(f"{plan['url']}/cancel").status_code == 200 for plan in running)


def test_the_same_request_with_a_key_is_carried_out_once(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first, again = (service.post(URL, small(), headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    other = service.post(URL, small(name="other"), headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:sutler:problem:idempotency-key-reused")


def test_a_request_that_is_still_running_is_409(service: Running) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = service.post(URL, large(), headers={**key, "Prefer": "respond-async"})
    again = service.post(URL, large(), headers=key)
    assert (again.status_code, again.json()["type"]) == (409, "urn:sutler:problem:still-running")
    assert service.post(f"{first.headers['Location']}/cancel").status_code == 200


def test_an_application_may_be_yaml(service: Running) -> None:
    headers = {"Content-Type": "application/yaml"}
    answer = service.ask("POST", URL, data=yaml.safe_dump(small()), headers=headers)
    assert answer.status_code == 201, answer.text


def test_plans_are_listed_by_name_page_by_page(service: Running) -> None:
    name = f"listed-{uuid4()}"
    made = [service.post(URL, small(name=name)).json()["id"] for _ in range(3)]
    found: list[str] = []
    cursor: str | None = None
    while len(found) < 3:
        params = {"limit": 1, "name": name, **({"cursor": cursor} if cursor else {})}
        page = service.get(URL, params=params).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
    assert (found, cursor) == (made[::-1], None)


def test_a_cursor_of_nobodys_making_is_refused(service: Running) -> None:
    made = service.post(URL, small())
    for path in (URL, f"{made.headers['Location']}/revisions"):
        assert service.get(path, params={"cursor": "W1tdXQ"}).status_code == 422


def test_the_application_of_a_plan_is_kept_as_it_was_given(service: Running) -> None:
    plan = service.post(URL, small()).json()
    assert service.get(f"{URL}/{plan['id']}/application").json() == small()


def test_what_is_not_there_is_404(service: Running) -> None:
    nowhere = f"{URL}/{uuid4()}"
    report = {"at_s": 1, "models": [{"model": "one", "finished_requests": 1}]}
    for answer in (
        *(service.get(f"{nowhere}{rest}") for rest in ("", "/application", "/revisions")),
        service.post(f"{nowhere}/cancel"),
        service.post(f"{nowhere}/adjust", report),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found")


def test_a_plan_is_not_sent_again_to_who_has_it(service: Running) -> None:
    made = service.post(URL, small())
    answer = service.get(made.headers["Location"], headers={"If-None-Match": made.headers["ETag"]})
    assert (answer.status_code, answer.content) == (304, b"")


def test_a_plan_that_is_not_there_cannot_be_adjusted(service: Running) -> None:
    asked = service.post(URL, large(), headers={"Prefer": "respond-async"})
    report = {"at_s": 1, "models": [{"model": "one", "finished_requests": 1}]}
    answer = service.post(f"{asked.headers['Location']}/adjust", report)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")
    assert service.post(f"{asked.headers['Location']}/cancel").status_code == 200


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ({"models": [{"model": "nobody", "finished_requests": 1}]}, "models[0].model"),
        ({"models": [{"model": "one", "finished_requests": 11}]}, "models[0].finished_requests"),
        ({"models": [{"model": "one", "finished_requests": -1}]}, "models[0].finished_requests"),
        ({"at_s": 0}, "at_s"),
        ({"replicas": [{"model": "two", "number": 0, "gpus": [{"host": 0, "gpu": 0}]}]}, "replicas[0].model"),
        ({"replicas": [{"model": "one", "number": 0, "gpus": [{"host": 0, "gpu": 9}]}]}, "replicas[0].gpus"),
    ],
)
def test_a_report_that_does_not_fit_its_plan_is_refused(service: Running, report: dict[str, Any], field: str) -> None:
    made = service.post(URL, small())
    right = {"at_s": 1, "models": [{"model": "one", "finished_requests": 1}]}
    answer = service.post(f"{made.headers['Location']}/adjust", {**right, **report})
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_an_adjusted_plan_is_linked_to_the_one_it_came_from(service: Running) -> None:
    made = service.post(URL, small())
    report = {"at_s": 1, "models": [{"model": "one", "finished_requests": 1}]}
    asked = service.post(f"{made.headers['Location']}/adjust", report, headers={"Prefer": "respond-async"})
    assert asked.status_code == 202, asked.text
    assert (asked.json()["revision"], asked.json()["parent_id"]) == (2, made.json()["id"])
    for url in (made.headers["Location"], asked.headers["Location"]):
        revisions = service.get(f"{url}/revisions").json()["items"]
        assert [item["revision"] for item in revisions] == [2, 1]


@pytest.mark.slow
def test_a_plan_is_adjusted_and_the_adjusted_plan_again(service: Running) -> None:
    models = [an_asker(count=1500, output_tokens={"uniform": {"low": 20, "high": 200}})]
    made = service.post(URL, small(models=models))
    at_s = made.json()["makespan_s"] - 5
    report = {"at_s": at_s, "models": [{"model": "one", "finished_requests": 600}]}
    first = service.post(f"{made.headers['Location']}/adjust", report)
    assert first.status_code == 201, first.text
    rest = OfflinePlanDocument.model_validate_json(first.text)
    assert rest.adjustment is not None
    assert (rest.revision, str(rest.adjustment.of)) == (2, made.json()["id"])
    assert rest.stages[0].start_s == at_s
    assert service.get(first.headers["Location"]).json() == first.json()
    later = {"at_s": at_s + 1, "models": [{"model": "one", "finished_requests": 650}]}
    second = service.post(f"{first.headers['Location']}/adjust", later)
    assert second.status_code == 201, second.text
    assert (second.json()["revision"], second.json()["adjustment"]["of"]) == (3, first.json()["id"])
    earlier = service.post(f"{first.headers['Location']}/adjust", report)
    assert (earlier.status_code, earlier.json()["errors"][0]["field"]) == (422, "at_s")


def test_where_all_is_done_there_is_nothing_to_adjust(service: Running) -> None:
    made = service.post(URL, small())
    report = {"at_s": 60, "models": [{"model": "one", "finished_requests": 10}]}
    answer = service.post(f"{made.headers['Location']}/adjust", report)
    assert answer.status_code == 422, answer.text
    assert "nothing left to be planned" in answer.text


def test_machines_are_rented_from_the_stored_market(service: Running) -> None:
    until(lambda: service.get("/readyz").ok)
    wanted = {"market": {}, "objective": {"kind": "min_cost", "deadline_s": 3600}, "limits": {"max_gpus": 2}}
    answer = service.post(URL, changed({**small(), **wanted}, ("hardware",), DELETE))
    assert answer.status_code == 201, answer.text
    plan = OfflinePlanDocument.model_validate_json(answer.text)
    assert plan.cost_usd == pytest.approx(sum(rental.usd for rental in plan.rentals))
    assert {rental.offer_id for rental in plan.rentals} <= {"acme/small", "acme/large"}
    assert plan.frontier
    (item,) = service.get(URL, params={"limit": 1}).json()["items"]
    assert (item["id"], item["cost_usd"]) == (str(plan.id), plan.cost_usd)
    late = {**wanted, "objective": {"kind": "min_cost", "deadline_s": 121}}
    answer = service.post(URL, changed({**small(), **late}, ("hardware",), DELETE))
    assert (answer.status_code, answer.json()["status"]) == (201, "infeasible")
    assert [conflict["constraint"] for conflict in answer.json()["conflicts"]] == ["deadline"]


@pytest.mark.slow
def test_a_rented_application_is_adjusted(service: Running) -> None:
    until(lambda: service.get("/readyz").ok)
    wanted = {"market": {}, "limits": {"max_gpus": 1}, "models": [an_asker(count=1500)]}
    made = service.post(URL, changed({**small(), **wanted}, ("hardware",), DELETE))
    assert made.status_code == 201, made.text
    report = {"at_s": made.json()["makespan_s"] - 2, "models": [{"model": "one", "finished_requests": 700}]}
    answer = service.post(f"{made.headers['Location']}/adjust", report)
    assert answer.status_code == 201, answer.text
    assert answer.json()["cost_usd"] > made.json()["cost_usd"]
    assert answer.json()["objective"]["value"] == pytest.approx(120 + answer.json()["makespan_s"])


@pytest.mark.slow
def test_an_adjusted_plan_is_deleted_before_the_one_that_it_adjusts(service: Running) -> None:
    first = service.post(URL, small()).headers["Location"]
    report = {"at_s": 1.0, "models": [{"model": "one", "finished_requests": 1}]}
    second = service.post(f"{first}/adjust", report).headers["Location"]
    refused = service.delete(first)
    assert (refused.status_code, f"GET {first}/revisions" in refused.json()["detail"]) == (409, True)
    assert [service.delete(url).status_code for url in (second, first, first)] == [204, 204, 404]


def test_a_plan_that_is_deleted_while_it_is_adjusted_is_not_there(service: Running, postgres: Server) -> None:
    url = service.post(URL, small()).headers["Location"]
    report = {"at_s": 1.0, "models": [{"model": "one", "finished_requests": 1}]}
    waits = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
    with psycopg.connect(postgres.url("service").replace("+psycopg", "")) as other, ThreadPoolExecutor(1) as pool:
        other.execute("DELETE FROM offline_plan WHERE id = %s", [url.rpartition("/")[2]])
        answer = pool.submit(service.post, f"{url}/adjust", report)
        until(lambda: other.execute(waits).fetchall() or answer.done())
        other.commit()
        assert answer.result().status_code == 404, answer.result().text
