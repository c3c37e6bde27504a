"""Connections to the database break at the worst moment, or die without a word."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.postgres import Server
from tests.service.builders import CHAT
from tests.service.faults.scenes import Scene, a_scene
from tests.service.faults.wire import Wire
from tests.service.running import Running, answers, finished, until


@dataclass(frozen=True)
class Site:
    """An API and the only worker, each at the end of a wire; another API has none."""

    scene: Scene
    api: Running
    other: Running
    to_api: Wire
    to_worker: Wire


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Site]:
    with Wire(postgres) as to_api, Wire(postgres) as to_worker, a_scene(postgres) as scene:
        other = scene.api()
        until(lambda: answers(other))  # it has made the tables
        api = scene.api(SUTLER_DATABASE_URL=to_api.url(scene.database))
        scene.worker(SUTLER_DATABASE_URL=to_worker.url(scene.database))
        until(lambda: answers(api))
        until(lambda: other.get("/readyz").json()["checks"][2]["ok"])
        yield Site(scene, api, other, to_api, to_worker)


def a_deployment(site: Site, name: str) -> dict[str, Any]:
    """Its first plan."""
    assert site.api.post("/v1/deployments", {"name": name, "problem": CHAT}).status_code == 201
    plan: dict[str, Any] = site.api.get(f"/v1/deployments/{name}/plan", params={"wait_s": 60}).json()
    assert plan["revision"] == 1
    return plan


def test_notices_that_stop_without_a_word_are_missed_and_no_old_plan_is_kept(site: Site) -> None:
    a_deployment(site, "silent")
    assert site.to_api.silence("sutler notices")
    assert site.other.post("/v1/deployments/silent/replan").status_code == 202
    assert site.other.get("/v1/deployments/silent/plan", params={"after": 1, "wait_s": 60}).json()["revision"] == 2
    until(lambda: site.api.get("/v1/deployments/silent/plan").json()["revision"] == 2)


def test_a_worker_that_hears_of_no_new_jobs_finds_them(site: Site) -> None:
    assert site.to_worker.silence("sutler queue")
    assert site.api.post("/v1/plans", CHAT).status_code == 201


@pytest.mark.parametrize("is_stored", [True, False], ids=["after the commit", "before it"])
def test_a_request_whose_transaction_breaks_is_carried_out_once(site: Site, is_stored: bool) -> None:
    key, before = {"Idempotency-Key": str(uuid4())}, len(site.other.get("/v1/plans").json()["items"])
    (site.to_api.cut_after if is_stored else site.to_api.cut_at)(b"INSERT INTO audit")
    answer = site.api.post("/v1/plans", CHAT, headers=key)
    assert site.to_api.is_whole
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:sutler:problem:database-away")
    found = site.other.get("/v1/plans").json()["items"]
    assert len(found) - before == is_stored
    if is_stored:
        finished(site.other, found[0]["url"])
    again = site.api.post("/v1/plans", CHAT, headers=key)
    assert again.status_code == 201
    assert len(site.other.get("/v1/plans").json()["items"]) == before + 1


@pytest.mark.parametrize("statement", [b"INSERT INTO plan", b"procrastinate_defer_jobs"])
def test_a_plan_that_could_not_be_queued_is_not_stored(site: Site, statement: bytes) -> None:
    before = site.other.get("/v1/plans").json()
    site.to_api.cut_at(statement)
    answer = site.api.post("/v1/plans", CHAT)
    assert site.to_api.is_whole
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
    assert site.other.get("/v1/plans").json() == before
    assert site.api.post("/v1/plans", CHAT).status_code == 201


@pytest.mark.parametrize("is_stored", [True, False], ids=["after the commit", "before it"])
def test_a_plan_whose_storing_breaks_is_issued_once(site: Site, is_stored: bool) -> None:
    name = f"stored-{is_stored}".lower()
    a_deployment(site, name)
    (site.to_worker.cut_after if is_stored else site.to_worker.cut_at)(b"UPDATE deployment SET")
    assert site.api.post(f"/v1/deployments/{name}/replan").status_code == 202
    plan = site.api.get(f"/v1/deployments/{name}/plan", params={"after": 1, "wait_s": 60}).json()
    assert site.to_worker.is_whole
    assert plan["revision"] == 2
    until(lambda: site.scene.rows("SELECT id FROM procrastinate_jobs") == [])
    history = site.other.get(f"/v1/deployments/{name}/plans").json()["items"]
    assert [(plan["revision"], plan["status"]) for plan in history] == [(2, "optimal"), (1, "optimal")]
    assert site.scene.story(plan["id"]) == ("optimal", 1, 0)


@pytest.mark.parametrize(
    "statement", [b"procrastinate_fetch_job", b"UPDATE plan SET status", b"procrastinate_finish_job"]
)
@pytest.mark.parametrize("is_done", [True, False], ids=["after the commit", "before it"])
def test_a_worker_whose_connection_breaks_makes_the_plan_all_the_same(
    site: Site, statement: bytes, is_done: bool
) -> None:
    """It fetches the job, takes the plan up, stores it and ends the job; whatever of this is lost is made up for."""
    (site.to_worker.cut_after if is_done else site.to_worker.cut_at)(statement)
    answer = site.api.post("/v1/plans", CHAT)
    assert answer.status_code == 201
    until(lambda: site.to_worker.is_whole)
    until(lambda: site.scene.rows("SELECT id FROM procrastinate_jobs WHERE status IN ('todo', 'doing')") == [])
    assert site.scene.story(answer.json()["id"])[2] == 0
    assert site.api.post("/v1/plans", CHAT).status_code == 201
