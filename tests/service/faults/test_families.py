"""All roles under one parent with a private database: each may be killed, all end together, and begin again."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import psutil
import pytest
from requests import Response

from sutler.service.processes.family import PARDON_S
from sutler.service.processes.heart import SILENT_S
from sutler.service.settings import WITHHELD
from tests.adapters.server import Received, Reply, ScriptedServer
from tests.postgres import Server, a_folder
from tests.service.builders import CHAT, a_slow_problem
from tests.service.faults.scenes import Aside, asked, has_gone, if_reached, kill, solvers, until_solving
from tests.service.running import PYTHON, Running, finished, serving, settings, until

KEY: Final = "a-cloud-s-secret"
SLOW: Final = a_slow_problem(time_limit_s=5)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with a_folder() as made:
        yield made


@pytest.fixture(scope="module")
def family(folder: Path) -> Iterator[Running]:
    with serving(folder, settings(folder), sutler=PYTHON) as running:
        yield running


def postmaster(folder: Path) -> psutil.Process:
    return psutil.Process(Server(folder / "data").postmaster)


def replaced(family: Running, role: str, before: psutil.Process) -> psutil.Process:
    """The process that the parent has started in the place of this one."""
    now: psutil.Process = until(lambda: _if_other(family, role, before))
    return now


def _if_other(family: Running, role: str, before: psutil.Process) -> psutil.Process | None:
    found = family.titled(f"--role {role}")
    return found[0] if found and found[0].pid != before.pid else None


def test_a_killed_worker_is_started_again_and_takes_its_plan_up_once_more(family: Running) -> None:
    worker = family.child("worker")
    url = asked(family, SLOW)
    until_solving(family, url)
    (solver,) = solvers(family)
    kill(worker)
    until(lambda: has_gone(solver))
    until_solving(family, url, attempt=2)
    assert finished(family, url)["status"] == "feasible"
    assert replaced(family, "worker", worker).is_running()


def test_a_killed_api_costs_its_callers_nothing_but_asking_again(family: Running) -> None:
    """The request that was under way is sent again with its key; who waited for the next plan waits again."""
    assert family.post("/v1/deployments", {"name": "chat", "problem": CHAT}).status_code == 201
    until(lambda: family.get("/v1/deployments/chat/plan").ok)
    key = {"Idempotency-Key": str(uuid4())}
    ask = Aside(lambda: if_reached(lambda: family.post("/v1/plans", SLOW, headers=key)))
    wait = Aside(
        lambda: if_reached(lambda: family.get("/v1/deployments/chat/plan", params={"after": 1, "wait_s": 60}))
    )
    (running,) = until(lambda: family.get("/v1/plans", params={"status": "running"}).json()["items"])
    before = family.child("api")
    kill(before)
    assert (ask.result(), wait.result()) == (None, None)
    replaced(family, "api", before)
    again = until(lambda: if_reached(lambda: family.post("/v1/plans", SLOW, headers=key)))
    if again.status_code == 409:  # the plan was not ready before the API was
        assert again.json()["type"] == "urn:sutler:problem:still-running"
        assert finished(family, running["url"])["status"] == "feasible"
        again = family.post("/v1/plans", SLOW, headers=key)
    assert (again.status_code, again.json()["id"]) == (201, running["id"])
    waiting = Aside(lambda: next_plan(family))
    assert family.post("/v1/deployments/chat/replan").status_code == 202
    assert waiting.result().json()["revision"] == 2


def next_plan(family: Running) -> Response:
    return family.get("/v1/deployments/chat/plan", params={"after": 1, "wait_s": 60}, timeout=90)


def test_a_killed_scheduler_is_started_again(family: Running) -> None:
    before = family.child("scheduler")
    until(lambda: "polling file" in family.said())
    kill(before)
    replaced(family, "scheduler", before)
    until(lambda: family.said().count("polling file") == 2)


def test_a_killed_fork_server_takes_its_processes_along_and_all_are_started_again(family: Running) -> None:
    (server,) = family.titled("fork_server")
    before = {role: family.child(role) for role in ("api", "scheduler", "worker")}
    kill(server)
    for role, process in before.items():
        replaced(family, role, process)
    assert until(lambda: if_reached(lambda: family.post("/v1/plans", CHAT))).status_code == 201
    assert all(has_gone(process) for process in before.values())


def test_a_killed_private_database_is_started_again_and_has_everything(family: Running, folder: Path) -> None:
    url, plans = asked(family, SLOW), family.get("/v1/plans").json()["items"]
    until_solving(family, url)
    before = postmaster(folder)
    kill(before)
    until(lambda: family.get("/readyz").ok and postmaster(folder).pid != before.pid)
    assert finished(family, url)["status"] == "feasible"
    later = family.get("/v1/plans").json()["items"]
    assert [plan["id"] for plan in later] == [plan["id"] for plan in plans]
    assert family.post("/v1/plans", CHAT).status_code == 201


def test_a_private_database_that_was_started_again_ends_with_the_family() -> None:
    with a_folder() as folder, serving(folder, settings(folder), sutler=PYTHON) as family:
        before = postmaster(folder)
        kill(before)
        until(lambda: if_reached(lambda: family.get("/v1/plans")) and postmaster(folder).pid != before.pid)
        again = postmaster(folder)
        family.stop()
        until(lambda: has_gone(again))


@pytest.mark.parametrize("role", ["api", "scheduler", "worker"])
def test_a_role_that_hangs_is_replaced(family: Running, role: str) -> None:
    before = family.child(role)
    until(lambda: family.get("/readyz").ok)
    before.suspend()
    replaced(family, role, before)
    until(lambda: if_reached(lambda: family.get("/readyz", timeout=5)))
    assert "hangs: it is ended" in family.said()
    assert has_gone(before)


def test_a_fork_server_that_hangs_is_replaced_with_all_that_it_made(family: Running) -> None:
    (server,) = family.titled("fork_server")
    before = {role: family.child(role) for role in ("api", "scheduler", "worker")}
    server.suspend()
    for role, process in before.items():
        replaced(family, role, process)
    assert "the fork server hangs: it is ended" in family.said()
    assert until(lambda: if_reached(lambda: family.post("/v1/plans", CHAT))).status_code == 201


def test_the_keys_of_clouds_are_known_to_who_polls_alone() -> None:
    def answer(request: Received) -> Reply:
        return Reply(401, b"{}")

    with a_folder() as folder, ScriptedServer(answer) as cloud:
        given = {"SUTLER_PROVIDERS": "vastai", "SUTLER_VASTAI_BASE_URL": cloud.base_url}
        with serving(folder, settings(folder, SUTLER_VASTAI_API_KEY=KEY, **given), sutler=PYTHON) as family:
            assert until(lambda: list(cloud.requests))[0].headers["authorization"] == f"Bearer {KEY}"
            assert family.post("/v1/plans", CHAT).status_code == 201  # a solver process is there
            children = [child for child in family.children() if child.name() != "postgres"]
            assert len(children) >= 5
            assert [child for child in children if KEY in child.environ().values()] == []
            (server,) = family.titled("fork_server")  # whose environment all of its forks were given
            assert server.environ()["SUTLER_VASTAI_API_KEY"] == WITHHELD


def test_a_family_that_was_stopped_as_a_whole_goes_on_as_it_is(family: Running) -> None:
    """As by Ctrl-Z and fg, for longer than a role may be silent."""
    until(lambda: family.get("/readyz").ok)
    roles = {role: family.child(role).pid for role in ("api", "scheduler", "worker")}
    everybody = [psutil.Process(family.process.pid), *family.children()]
    for process in everybody:
        process.suspend()
    time.sleep(SILENT_S + 1.0)
    for process in everybody:
        process.resume()
    time.sleep(PARDON_S + 2.0)
    assert {role: family.child(role).pid for role in roles} == roles
    assert family.get("/readyz").ok


def test_a_port_in_use_is_said_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serving(tmp_path, settings(tmp_path), "--port", port, waits=False, sutler=PYTHON) as family:
            assert family.process.wait() == 2
            assert family.said().startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
            assert "choose another --host or --port" in family.said()
    assert not (tmp_path / "data").exists()
