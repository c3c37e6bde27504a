"""What is killed, restarted or doubled loses nothing and does nothing twice: real processes, a real PostgreSQL."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest
import requests

from sutler.service.documents.examples import CHAT, CHAT_ON_THE_STORE
from tests.postgres import Server, a_folder, a_server
from tests.service.api.conftest import made_key
from tests.service.builders import a_slow_problem, changed
from tests.service.running import Running, a_market, finished, serving, settings, until

_numbers = count(1)
SOLVE_S = 4.0


class Site:
    """A database, and a folder from which processes of the service are started on it."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack, **others: str) -> None:
        self.name = f"faults_{next(_numbers)}"
        server.run(f"CREATE DATABASE {self.name}")
        self.server, self.folder, self._stack = server, folder, stack
        self.environment = settings(folder, SUTLER_DATABASE_URL=server.url(self.name), **others)

    def start(self, *arguments: str) -> Running:
        answers = "--role" not in arguments or "api" in arguments
        return self._stack.enter_context(serving(self.folder, self.environment, *arguments, waits=answers))

    def asked(self, question: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.server.url(self.name).replace("+psycopg", "")) as connection:
            connection.execute("SET search_path TO public, queue")
            return connection.execute(question.encode(), values).fetchall()

    def attempts(self, plan_id: str) -> tuple[int, int]:
        """How often it was taken up, and how many workers died of it."""
        [found] = self.asked("SELECT attempt, deaths FROM plan WHERE id = %s", plan_id)
        return found[0], found[1]


@pytest.fixture
def site(postgres: Server) -> Iterator[Site]:
    with a_folder() as folder, ExitStack() as stack:
        yield Site(postgres, folder, stack)


def begun(service: Running, problem: dict[str, Any]) -> dict[str, Any]:
    """A plan that a worker is making now."""
    answer = service.post("/v1/plans", problem, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    until(lambda: service.get(job["url"]).json().get("progress"))
    return job


def solvers_of(worker: psutil.Process) -> list[psutil.Process]:
    return [child for child in worker.children() if "solver_main" in " ".join(child.cmdline())]


def test_a_plan_whose_worker_is_killed_is_made_once_by_another(site: Site) -> None:
    service = site.start()
    job = begun(service, a_slow_problem(time_limit_s=SOLVE_S))
    worker = service.child("worker")
    [solver] = solvers_of(worker)
    worker.kill()
    plan = finished(service, job["url"])
    assert plan["status"] in {"feasible", "optimal"}
    assert site.attempts(job["id"]) == (2, 1)
    assert not solver.is_running() or solver.status() == psutil.STATUS_ZOMBIE
    assert len(service.get("/v1/plans").json()["items"]) == 1


def test_a_plan_that_kills_two_workers_fails_and_says_so(site: Site) -> None:
    service = site.start()
    job = begun(service, a_slow_problem(time_limit_s=60))
    service.child("worker").kill()
    until(lambda: site.attempts(job["id"]) == (2, 1))
    until(lambda: service.get(job["url"]).json().get("progress"))
    service.child("worker").kill()
    failed = finished(service, job["url"])
    assert (failed["status"], failed["problem"]["type"]) == ("failed", "urn:sutler:problem:solver-lost")
    assert service.post("/v1/plans", CHAT).status_code == 201


def test_a_solver_that_is_killed_fails_its_plan_and_no_other(site: Site) -> None:
    service = site.start()
    job = begun(service, a_slow_problem(time_limit_s=60))
    [solver] = solvers_of(service.child("worker"))
    solver.kill()
    failed = finished(service, job["url"])
    assert failed["problem"]["type"] == "urn:sutler:problem:solver-lost"
    assert service.post("/v1/plans", CHAT).status_code == 201


def test_a_worker_that_is_told_to_end_leaves_its_plan_to_another_at_once(site: Site) -> None:
    api = site.start("--role", "api")
    first = site.start("--role", "worker")
    job = begun(api, a_slow_problem(time_limit_s=SOLVE_S))
    second = site.start("--role", "worker")
    assert first.stop() == 0
    assert finished(api, job["url"])["status"] in {"feasible", "optimal"}
    assert site.attempts(job["id"]) == (2, 0)
    assert second.process.poll() is None


def test_a_request_is_answered_once_though_the_api_is_killed_in_the_middle_of_it(site: Site) -> None:
    service = site.start()
    key = {"Idempotency-Key": str(uuid4())}
    problem = a_slow_problem(time_limit_s=SOLVE_S)

    def ask() -> requests.Response:
        return requests.post(f"{service.url}/v1/plans", json=problem, headers=key, timeout=60)

    with ThreadPoolExecutor(1) as pool:
        cut_off = pool.submit(ask)
        until(lambda: service.get("/v1/plans").json()["items"])
        service.child("api").kill()
        with pytest.raises(requests.ConnectionError):
            cut_off.result()
    answer = until(lambda: _unless_away(ask, {409}))
    assert answer.status_code == 201
    assert [plan["id"] for plan in service.get("/v1/plans").json()["items"]] == [answer.json()["id"]]


def _unless_away(ask: Callable[[], requests.Response], later: set[int]) -> requests.Response | None:
    try:
        answer = ask()
    except requests.RequestException:
        return None
    return None if answer.status_code in later else answer


def test_a_restart_of_the_database_under_load_loses_and_doubles_nothing() -> None:
    with a_server(is_quick=False) as server, a_folder() as folder, ExitStack() as stack:
        site = Site(server, folder, stack)
        service = site.start()
        until(lambda: service.get("/readyz").ok)
        assert service.post("/v1/deployments", {"name": "chat", "problem": CHAT}).status_code == 201
        assert service.get("/v1/deployments/chat/plan", params={"wait_s": 30}).json()["revision"] == 1
        load = Load(service)
        with load:
            until(lambda: load.made >= 3)
            server.stop_at_once()
            until(lambda: service.get("/readyz").status_code == 503)
            until(lambda: load.refused >= 3)
            server.start()
            until(lambda: service.get("/readyz").ok)
            made = load.made
            until(lambda: load.made >= made + 3)
        assert load.wrong == []
        for url in load.asked_for:
            assert finished(service, url)["status"] == "optimal"
        until(lambda: site.asked("SELECT count(*) FROM plan WHERE status IN ('queued', 'running')") == [(0,)])
        revisions = [row[0] for row in site.asked("SELECT revision FROM plan WHERE revision IS NOT NULL ORDER BY 1")]
        assert revisions == list(range(1, len(revisions) + 1))
        assert site.asked("SELECT count(*), count(DISTINCT key) FROM idempotency") == [(load.made, load.made)]


class Load:
    """Callers who ask for plans, change a deployment and read its plan, and note what is not as it should be."""

    def __init__(self, service: Running) -> None:
        self._url, self._stop = service.url, threading.Event()
        self.made = self.refused = 0
        self.asked_for: list[str] = []
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=work) for work in (self._ask, self._change, self._read)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        """Each request is sent again, with its key, until it is answered."""
        while not self._stop.is_set():
            key = {"Idempotency-Key": str(uuid4())}
            answer = self._sent("POST", "/v1/plans", CHAT, headers=key)
            again = self._sent("POST", "/v1/plans", CHAT, headers=key)
            if answer.headers["Location"] != again.headers["Location"]:
                self.wrong.append("a key made two plans")
            self.asked_for.append(answer.headers["Location"])
            self.made += 1

    def _change(self) -> None:
        for rate in count(10):
            if self._stop.wait(0.1):
                return
            self._sent("PUT", "/v1/deployments/chat", {"problem": changed(CHAT, _RATE, 10 + rate % 20)})

    def _read(self) -> None:
        newest = 0
        while not self._stop.is_set():
            answer = self._tried("GET", "/v1/deployments/chat/plan", None)
            if answer is not None and answer.status_code == 200:
                if answer.json()["revision"] < newest:
                    self.wrong.append(f"revision {answer.json()['revision']} after {newest}")
                newest = answer.json()["revision"]

    def _sent(self, method: str, path: str, body: Any, **options: Any) -> requests.Response:
        while True:
            answer = self._tried(method, path, body, **options)
            if answer is not None and answer.status_code not in {409, 503}:
                return answer
            time.sleep(0.1)

    def _tried(self, method: str, path: str, body: Any, **options: Any) -> requests.Response | None:
        answer = requests.request(method, f"{self._url}{path}", json=body, timeout=60, **options)
        if answer.status_code == 503:
            self.refused += 1
        elif answer.status_code not in {200, 201, 409}:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer


_RATE = ("models", 0, "workloads", 0, "rate_rps")


def test_two_of_everything_on_one_database_are_one(site: Site) -> None:
    site.environment["SUTLER_CHANGES_PER_MINUTE"] = "1000"
    key = made_key(site.environment, site.folder, "plan")
    apis = [site.start("--role", "api", "--require-key") for _ in range(2)]
    for role in ("worker", "worker", "scheduler", "scheduler"):
        site.start("--role", role)
    one, other = apis
    for api in apis:
        api.session.headers["Authorization"] = f"Bearer {key}"
    until(lambda: one.get("/readyz").ok)

    named = {"Idempotency-Key": str(uuid4())}
    with ThreadPoolExecutor(8) as pool:
        at_once = [pool.submit(api.post, "/v1/plans", CHAT_ON_THE_STORE, headers=named) for api in apis * 2]
        answers = [asked.result() for asked in at_once]
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    assert len(one.get("/v1/plans").json()["items"]) == 1

    assert one.put("/v1/deployments/chat", {"problem": CHAT}).status_code == 201
    first = other.get("/v1/deployments/chat/plan", params={"wait_s": 30})
    assert (first.json()["revision"], one.get("/v1/deployments/chat/plan").content) == (1, first.content)
    with ThreadPoolExecutor(8) as pool:
        waiting = [
            pool.submit(api.get, "/v1/deployments/chat/plan", params={"after": 1, "wait_s": 30}) for api in apis
        ]
        replans = [pool.submit(api.post, "/v1/deployments/chat/replan") for api in apis]
        made = {replan.result().json()["id"] for replan in replans}
        seen = [asked.result().json() for asked in waiting]
    assert [plan["revision"] for plan in seen] == [2, 2]
    assert {plan["id"] for plan in seen} <= made
    revisions = [item["revision"] for item in one.get("/v1/deployments/chat/plans").json()["items"]]
    assert sorted(revisions) == list(range(1, len(revisions) + 1))

    polls = site.asked("SELECT count(*) FROM poll")[0][0]
    assert polls == 1, "two schedulers have polled one cloud twice"

    revoked(site, key)
    assert [api.get("/v1/plans").status_code for api in apis] == [401, 401]


def revoked(site: Site, key: str) -> None:
    command = [sys.executable, "-m", "sutler", "keys", "revoke", key.split("_")[1]]
    subprocess.run(command, env=site.environment, cwd=site.folder, check=True, capture_output=True)


def test_a_job_that_was_lost_is_put_back(site: Site) -> None:
    api = site.start("--role", "api")
    job = api.post("/v1/plans", CHAT, headers={"Prefer": "respond-async"}).json()
    assert len(site.asked("DELETE FROM queue.procrastinate_jobs RETURNING id")) == 1
    site.start("--role", "worker")
    assert finished(api, job["url"])["status"] == "optimal"


def test_a_deployment_gets_its_first_plan_when_the_market_comes(site: Site) -> None:
    market = Path(site.environment["SUTLER_FILE_PATH"])
    market.rename(market.with_suffix(".later"))
    site.environment["SUTLER_POLL_INTERVAL_S"] = "1"
    service = site.start()
    made = service.post("/v1/deployments", {"name": "chat", "problem": CHAT_ON_THE_STORE})
    assert made.status_code == 201
    failed = until(lambda: service.get("/v1/deployments/chat").json()["last_failure"])
    assert failed["problem"]["type"] == "urn:sutler:problem:no-market-data"
    assert service.get("/readyz").status_code == 503
    market.write_text(json.dumps(a_market()), encoding="utf-8")
    plan = until(lambda: _found(service.get("/v1/deployments/chat/plan")), patience_s=90)
    assert (plan["revision"], plan["status"]) == (1, "optimal")


def _found(answer: requests.Response) -> dict[str, Any] | None:
    return answer.json() if answer.status_code == 200 else None


def test_all_processes_end_together_and_what_was_stored_is_there_again() -> None:
    with a_folder() as folder:
        environment = settings(folder)
        with serving(folder, environment) as service:
            plan = service.post("/v1/plans", CHAT).json()
            family = service.children()
            assert service.stop() == 0
        assert not [process for process in family if process.is_running() and process.name() != "postgres"]
        with serving(folder, environment) as service:
            assert service.get(f"/v1/plans/{plan['id']}").json() == plan
            children = service.children()
            service.process.send_signal(signal.SIGKILL)  # nobody is left to tell the children
            psutil.wait_procs(children, timeout=40)
            assert not [child for child in children if child.is_running() and "sutler" in " ".join(child.cmdline())]
        with serving(folder, environment) as service:
            assert service.get(f"/v1/plans/{plan['id']}").json() == plan
            assert service.post("/v1/plans", CHAT).status_code == 201


def test_who_waits_is_answered_when_the_service_ends(site: Site) -> None:
    service = site.start()
    assert service.post("/v1/deployments", {"name": "chat", "problem": CHAT}).status_code == 201
    assert service.get("/v1/deployments/chat/plan", params={"wait_s": 30}).status_code == 200
    with ThreadPoolExecutor(2) as pool:
        polled = pool.submit(requests.get, f"{service.url}/v1/deployments/chat/plan?after=1&wait_s=60", timeout=60)
        asked = pool.submit(
            requests.post, f"{service.url}/v1/plans", json=a_slow_problem(time_limit_s=60), timeout=90
        )
        until(lambda: service.get("/v1/plans", params={"status": "running"}).json()["items"])
        assert service.stop() == 0
        assert (polled.result().status_code, asked.result().status_code) == (304, 202)
    assert "Traceback" not in service.said()
