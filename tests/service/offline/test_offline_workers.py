"""Workers die, or are told to end, while they make an offline plan: it is not lost, and is not made twice."""

from collections.abc import Iterator

import pytest

from tests.postgres import Server
from tests.service.faults.scenes import Scene, a_scene, kill, of, solvers, until_gone
from tests.service.offline.builders import an_application, an_asker
from tests.service.running import Running, finished, until

pytestmark = pytest.mark.slow

LONG = an_application(models=[an_asker(count=150_000, output_tokens=300)], edges=[], search={"time_limit_s": 60})


@pytest.fixture(scope="module")
def scene(postgres: Server) -> Iterator[Scene]:
    with a_scene(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def api(scene: Scene) -> Running:
    return scene.api()


def story(scene: Scene, url: str) -> tuple[object, ...]:
    """Status, how often it was taken up, how many workers died of it."""
    wanted = scene.rows("SELECT status, attempt, deaths FROM offline_plan WHERE id = %s", url.rpartition("/")[2])
    return wanted[0]


def asked(api: Running) -> str:
    answer = api.post("/v1/offline-plans", LONG, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def test_the_plan_of_a_killed_worker_is_made_by_another_one(scene: Scene, api: Running) -> None:
    worker, url = scene.worker(), asked(api)
    until(lambda: api.get(url).json()["status"] == "running" and solvers(worker))
    other, (solver,) = scene.worker(), solvers(worker)
    kill(of(worker))
    made = finished(api, url)
    assert made["schema"] == "sutler/offline-plan/v1", str(made)
    assert story(scene, url)[1:] == (2, 1)
    until_gone(solver)
    assert other.stop() == 0


def test_a_worker_that_is_told_to_end_gives_its_plan_back(scene: Scene, api: Running) -> None:
    worker, url = scene.worker(), asked(api)
    until(lambda: api.get(url).json()["status"] == "running")
    assert worker.stop() == 0
    assert story(scene, url) == ("queued", 1, 0)
    assert api.post(f"{url}/cancel").status_code == 200
