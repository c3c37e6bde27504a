"""A PostgreSQL that hangs instead of dying, and rows that somebody holds: callers learn that soon."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import psutil
import psycopg
import pytest
import requests

from tests.postgres import Server, a_folder, a_server
from tests.service.builders import a_problem
from tests.service.running import Running, serving, settings, until

AT_ONCE: Final = 40  # more than there are connections
SOON_S: Final = 40.0  # many times as long as it takes; without an end of its own, a question takes for ever


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with a_server() as started:
        yield started


@pytest.fixture(scope="module")
def service(server: Server) -> Iterator[Running]:
    server.run("CREATE DATABASE hanging")
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=server.url("hanging"))
        with serving(folder, environment, "--role", "api") as running:
            made = running.post("/v1/deployments", {"name": "held", "problem": a_problem()})
            assert made.status_code == 201, made.text
            yield running


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """Stops all of the server's processes, which keep their connections."""
    postmaster = psutil.Process(server.postmaster)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()


def at_once(ask: Callable[[int], requests.Response]) -> list[requests.Response]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, range(AT_ONCE)))


def kinds(answers: list[requests.Response]) -> set[tuple[int, str]]:
    return {(answer.status_code, answer.json().get("type", "").rpartition(":")[2]) for answer in answers}


def asked(service: Running, method: str, path: str, **options: Any) -> requests.Response:
    """On a connection of its own."""
    return requests.request(method, f"{service.url}{path}", timeout=SOON_S, **options)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/deployments/held"),
        ("GET", "/v1/offers"),
        ("GET", "/v1/calibrations"),
        ("DELETE", "/v1/deployments/held"),
    ],
)
def test_while_the_database_hangs_callers_are_told_and_are_served_when_it_goes_on(
    server: Server, service: Running, method: str, path: str
) -> None:
    with hanging(server):
        answers = at_once(lambda _: asked(service, method, path))
        assert kinds(answers) == {(503, "database-away")}
        assert asked(service, "GET", "/healthz").status_code == 200
        assert asked(service, "GET", "/readyz").json()["status"] == "not_ready"
    until(lambda: asked(service, "GET", "/v1/deployments/held").status_code == 200)
    assert "a defect of sutler" not in service.said()


def test_a_row_that_is_held_keeps_nobody_else_waiting(server: Server, service: Running) -> None:
    url = server.url("hanging").replace("+psycopg", "")
    with psycopg.connect(url) as holder, ThreadPoolExecutor(1) as beside:
        holder.execute("SELECT FROM deployment WHERE name = 'held' FOR UPDATE")
        changes = beside.submit(at_once, lambda _: asked(service, "DELETE", "/v1/deployments/held"))
        reads = []
        while not changes.done():
            reads.append(asked(service, "GET", "/v1/deployments/held"))
        found = kinds(changes.result())
    assert {read.status_code for read in reads} == {200}
    assert (503, "database-busy") in found
    assert found <= {(503, "database-busy"), (503, "database-away")}
    assert all("another change holds" in each.text for each in changes.result() if "database-busy" in each.text)
