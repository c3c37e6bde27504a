"""What goes on while the current plan is asked for: solves, and clients that wait for the next plan."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from subprocess import PIPE, Popen
from typing import Any, Final

import requests
from psutil import Process

from benchmarks.service_load import BEGIN, Order, Outcome
from benchmarks.service_polls import HELD, Told, Wish
from benchmarks.service_running import ROOT, Processes, busy_seconds, cpu_seconds, waited_seconds
from tests.service.builders import a_slow_problem
from tests.service.running import Running, until

WAITING: Final = 2  # one is solved, the next is there when it ends
LOOK_S: Final = 1.0
IDLE_LOOK_S: Final = 0.3
IDLE_FRACTION: Final = 0.1
PATIENCE_S: Final = 30.0
PENDING: Final = frozenset({"queued", "running"})
LONG_POLLS: Final = "sutler_long_polls_in_progress"


@contextmanager
def solving(running: Running) -> Iterator[None]:
    """Solves one after another without a pause; what is left at the end is cancelled, and the solver idle."""
    feeder = _Feeder(running.url)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        try:
            feeder.top_up()
            until(feeder.is_solving)
            feeding = pool.submit(feeder.run, stop)
            yield
        finally:
            stop.set()
        feeding.result()
        feeder.end()
    until(lambda: _are_idle(running.titled("sutler solver")))


class _Feeder:
    """Keeps the queue from running dry."""

    def __init__(self, url: str) -> None:
        self._url, self._session = url, requests.Session()
        self._plans: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_S):
            self.top_up()

    def top_up(self) -> None:
        self._plans = [plan for plan in self._plans if self._state(plan)["status"] in PENDING]
        while len(self._plans) < WAITING:
            answer = self._session.post(
                f"{self._url}/v1/plans",
                json=a_slow_problem(),
                headers={"Prefer": "respond-async"},
                timeout=PATIENCE_S,
            )
            assert answer.status_code == 202, answer.text
            self._plans.append(answer.headers["Location"])

    def is_solving(self) -> bool:
        state = self._state(self._plans[0])
        return state["status"] == "running" and state["progress"] is not None

    def end(self) -> None:
        """The one that waits first, lest it be begun."""
        for plan in reversed(self._plans):
            self._session.post(f"{self._url}{plan}/cancel", timeout=PATIENCE_S)
        until(lambda: all(self._state(plan)["status"] not in PENDING for plan in self._plans))
        self._session.close()

    def _state(self, plan: str) -> dict[str, Any]:
        found: dict[str, Any] = self._session.get(f"{self._url}{plan}", timeout=PATIENCE_S).json()
        return found


def _are_idle(solvers: list[Process]) -> bool:
    """A cancelled solve is stopped a moment after it is said to be."""
    before_s = cpu_seconds({"solver": solvers})["solver"]
    time.sleep(IDLE_LOOK_S)
    return abs(cpu_seconds({"solver": solvers})["solver"] - before_s) < IDLE_FRACTION * IDLE_LOOK_S


@dataclass
class Held:
    """Once the polls have ended: what they were told, how many were held until then, and how long after its clients
    had left the service held the last of them.
    """

    told: Told = field(default_factory=lambda: Told(news=[], in_vain=0, errors={}))
    until_then: int = 0
    let_go_s: float = 0.0


@contextmanager
def holding(running: Running, wish: Wish) -> Iterator[Held]:
    """Long polls in a process of their own, all of which the service has when this begins."""
    held = Held()
    with Popen(_command("service_polls"), cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(wish)}\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == HELD
        until(lambda: long_polls(running) == wish["clients"])
        yield held
        held.until_then = long_polls(running)
        process.stdin.write("\n")
        process.stdin.close()
        held.told = json.load(process.stdout)
    left_s = time.monotonic()
    until(lambda: long_polls(running) == 0, patience_s=wish["wait_s"] + PATIENCE_S)
    held.let_go_s = time.monotonic() - left_s


def long_polls(running: Running) -> int:
    """How many the service holds, as it says itself."""
    lines = running.get("/metrics").text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith(f"{LONG_POLLS} "))


@dataclass(frozen=True, slots=True)
class Used:
    """While the load was on: processor time by role, and how long the API was kept waiting for a processor."""

    cpu_seconds: dict[str, float]
    api_waited_s: float


def loaded(order: Order, processes: Processes) -> tuple[Outcome, Used]:
    """What the load generator found, and what was used meanwhile."""
    (api,) = processes["api"]
    with Popen(_command("service_load"), cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(order, process.stdin)
        process.stdin.close()
        assert process.stdout.readline().strip() == BEGIN
        before, busy_before_s, waited_before_s = cpu_seconds(processes), busy_seconds(), waited_seconds(api)
        outcome: Outcome = json.load(process.stdout)
        after, busy_after_s, waited_after_s = cpu_seconds(processes), busy_seconds(), waited_seconds(api)
    used = {role: after[role] - before[role] for role in after} | {"load generator": outcome["cpu_seconds"]}
    others_s = max(0.0, busy_after_s - busy_before_s - sum(used.values()))
    return outcome, Used({**used, "others": others_s}, waited_after_s - waited_before_s)


def _command(module: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{module}"]
