"""PostgreSQL is killed under a solve, for longer than a worker may be silent: the plan is stored when it is back."""

import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.postgres import Server, a_server
from tests.service.builders import a_slow_problem
from tests.service.faults.scenes import Scene, a_scene, asked, until_solving
from tests.service.running import DEAD_SOON, Running, finished, until

SILENT_S: Final = float(DEAD_SOON["SUTLER_WORKER_SILENT_S"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """To be mistreated; loses nothing in a crash."""
    with a_server(is_quick=False) as started:
        yield started


@pytest.fixture(scope="module")
def scene(server: Server) -> Iterator[Scene]:
    with a_scene(server) as made:
        yield made


@pytest.fixture(scope="module")
def service(scene: Scene) -> Running:
    running = scene.starts()
    until(lambda: running.get("/readyz").ok)
    return running


def test_a_plan_that_is_ready_while_the_database_is_away_is_stored_when_it_is_back(
    scene: Scene, service: Running, server: Server
) -> None:
    """Nobody has died: it is not begun again."""
    url = asked(service, a_slow_problem(time_limit_s=5))
    until_solving(service, url)
    before = service.said().count("the plan has to wait")
    server.kill()
    until(lambda: service.said().count("the plan has to wait") > before)
    time.sleep(1.5 * SILENT_S)
    server.start()
    assert finished(service, url)["status"] == "feasible"
    assert scene.story(url) == ("feasible", 1, 0)
    assert "a defect of sutler" not in service.said()
