"""How soon the service answers: from `sutler serve` in an empty folder to its first answers."""

import socket
import time
from pathlib import Path
from typing import Final, TypedDict

import requests

from benchmarks.service_running import environment_of
from tests.service.running import PYTHON, serving

LOOK_S: Final = 0.01
PATIENCE_S: Final = 60.0


class Starts(TypedDict):
    """The seconds of each start until /healthz, and until /readyz (market polled, worker at work), answered 200."""

    healthy_s: list[float]
    ready_s: list[float]


def measured_starts(folder: Path, times: int) -> Starts:
    """Each in a folder of its own, with a new database."""
    found = Starts(healthy_s=[], ready_s=[])
    for number in range(times):
        healthy_s, ready_s = _start(folder / f"start-{number}")
        found["healthy_s"].append(healthy_s)
        found["ready_s"].append(ready_s)
    return found


def _start(folder: Path) -> tuple[float, float]:
    folder.mkdir()
    environment, port = environment_of(folder), _free_port()
    began_s = time.perf_counter()
    starting = serving(folder, environment, "--port", f"{port}", waits=False, sutler=PYTHON)
    with starting, requests.Session() as session:
        healthy_s = _answers(session, f"http://127.0.0.1:{port}/healthz") - began_s
        ready_s = _answers(session, f"http://127.0.0.1:{port}/readyz") - began_s
    return healthy_s, ready_s


def _answers(session: requests.Session, url: str) -> float:
    """When it first says 200. The socket is there before the API is: who asks early waits in line."""
    give_up_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < give_up_s:
        try:
            if session.get(url, timeout=PATIENCE_S).status_code == 200:
                return time.perf_counter()
        except requests.ConnectionError:
            pass
        time.sleep(LOOK_S)
    raise TimeoutError(f"{url} did not answer 200 within {PATIENCE_S:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
