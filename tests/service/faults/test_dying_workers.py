"""Workers and solvers die, or are told to end, in the middle of a solve: no plan is lost, none is made twice."""

import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.postgres import Server
from tests.service.builders import CHAT, a_slow_problem
from tests.service.faults.scenes import (
    AGES_S,
    Aside,
    Scene,
    a_scene,
    asked,
    has_gone,
    kill,
    of,
    solvers,
    until_gone,
    until_solving,
)
from tests.service.running import Running, finished, until

SLOW: Final = a_slow_problem(time_limit_s=5)
ENDLESS: Final = a_slow_problem(time_limit_s=60)


@pytest.fixture(scope="module")
def scene(postgres: Server) -> Iterator[Scene]:
    with a_scene(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def api(scene: Scene) -> Running:
    return scene.api()


def documents(scene: Scene, url: str) -> list[tuple[Any, ...]]:
    return scene.rows("SELECT document FROM plan WHERE id = %s AND document IS NOT NULL", url.rpartition("/")[2])


def test_the_plan_of_a_killed_worker_is_made_once_by_another_one(scene: Scene, api: Running) -> None:
    worker = scene.worker()
    url = asked(api, SLOW)
    until_solving(api, url)
    other, (solver,) = scene.worker(), solvers(worker)
    kill(of(worker))
    plan = finished(api, url)
    assert plan["status"] == "feasible"
    assert scene.story(url) == ("feasible", 2, 1)
    assert len(documents(scene, url)) == 1
    until_gone(solver)
    until(lambda: scene.rows("SELECT id FROM procrastinate_jobs") == [])
    assert other.stop() == 0


def test_a_plan_that_costs_two_workers_is_given_up_and_its_deployment_says_so(scene: Scene, api: Running) -> None:
    made = api.post("/v1/deployments", {"name": "deadly", "problem": ENDLESS}).json()
    url = made["pending"]["url"]
    for attempt in (1, 2):
        worker = scene.worker()
        until_solving(api, url, attempt=attempt)
        (solver,) = solvers(worker)
        kill(of(worker))
        until_gone(solver)
    last = scene.worker()
    job: dict[str, Any] = until(lambda: _if_failed(api.get(url).json()))
    assert job["problem"]["type"] == "urn:sutler:problem:solver-lost"
    assert "worker died 2 times" in job["problem"]["detail"]
    assert scene.story(url)[2] == 2
    shown = api.get("/v1/deployments/deadly").json()
    assert (shown["plan"], shown["pending"]) == (None, None)
    assert shown["last_failure"]["problem"]["detail"] == job["problem"]["detail"]
    assert api.get("/v1/deployments/deadly/plan").status_code == 503
    assert api.post("/v1/plans", CHAT).status_code == 201  # the worker that gave it up makes the next one
    assert last.stop() == 0


def _if_failed(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["status"] == "failed" else None


def test_a_worker_that_is_told_to_end_hands_its_plan_on_at_once(scene: Scene, api: Running) -> None:
    """Nobody would find out by its silence."""
    worker = scene.worker(SUTLER_WORKER_SILENT_S=AGES_S)
    url = asked(api, SLOW)
    until_solving(api, url)
    other, (solver,) = scene.worker(SUTLER_WORKER_SILENT_S=AGES_S), solvers(worker)
    worker.process.send_signal(signal.SIGTERM)
    assert finished(api, url)["status"] == "feasible"
    assert scene.story(url) == ("feasible", 2, 0)
    assert worker.process.wait() == 0
    assert has_gone(solver)
    assert other.stop() == 0


def test_a_solver_that_is_killed_fails_its_plan_and_its_worker_makes_the_next_one(scene: Scene, api: Running) -> None:
    worker = scene.worker()
    waiting = Aside(lambda: api.post("/v1/plans", ENDLESS))
    (running,) = until(lambda: api.get("/v1/plans", params={"status": "running"}).json()["items"])
    until_solving(api, running["url"])
    (solver,) = solvers(worker)
    kill(solver)
    answer = waiting.result()
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:sutler:problem:solver-lost")
    assert "out of memory" in answer.json()["detail"]
    assert api.post("/v1/plans", CHAT).status_code == 201
    (solver,) = solvers(worker)
    kill(solver)
    after = api.post("/v1/plans", CHAT)  # one that dies between two plans costs none of them
    assert after.status_code == 201, after.text
    assert scene.story(running["url"]) == ("failed", 1, 0)
    assert worker.stop() == 0
