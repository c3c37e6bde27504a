"""What is killed or restarted loses nothing and does nothing twice: real processes, a real PostgreSQL."""

import json
import signal
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

from sutler.service.documents.examples import CHAT_ON_THE_STORE
from tests.postgres import Server, a_folder, a_server
from tests.service.builders import CHAT, a_slow_problem, changed
from tests.service.running import DEAD_SOON, Running, a_market, finished, serving, settings, until

_numbers = count(1)
SOLVE_S = 4.0


class Site:
    """A database, and a folder from which processes of the service are started on it."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack, **others: str) -> None:
        self.name = f"faults_{next(_numbers)}"
        server.create(self.name)
        self.server, self.folder, self._stack = server, folder, stack
        self.environment = settings(folder, **{**DEAD_SOON, "SUTLER_DATABASE_URL": server.url(self.name), **others})

    def start(self, *arguments: str) -> Running:
        answers = "--role" not in arguments or "api" in arguments
        return self._stack.enter_context(serving(self.folder, self.environment, *arguments, waits=answers))

    def asked(self, question: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.server.url(self.name).replace("+psycopg", "")) as connection:
            connection.execute("SET search_path TO public, queue")
            return connection.execute(question.encode(), values).fetchall()


@pytest.fixture
def site(postgres: Server) -> Iterator[Site]:
    with a_folder() as folder, ExitStack() as stack:
        yield Site(postgres, folder, stack)


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
        environment = settings(folder, **DEAD_SOON)
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
