"""Runs the script of a plan with a vllm that only plays one, and says what came of it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.running import schedule_of, script_of

FAKE = Path(__file__).with_name("fake_vllm.py")
LONGEST_S = 20.0
PORTS = 6  # of one host


class Run:
    """A script at work in `folder`; its run folder is `folder/run`."""

    def __init__(self, folder: Path, plan: OfflinePlanDocument, *, host: int | None = None, **settings: Any) -> None:
        self.folder, self.run_folder = folder, folder / "run"
        self.bin = folder / "bin"
        self.bin.mkdir(exist_ok=True)
        shutil.copy(FAKE, self.bin / "fake_vllm.py")
        self.settle(**settings)
        vllm = self.bin / "vllm"
        vllm.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {self.bin}/fake_vllm.py "$@"\n', encoding="utf-8")
        vllm.chmod(0o755)
        self.schedule = schedule_of(plan, first_port=free_ports(2 * PORTS) + PORTS * (host or 0))
        self.script = folder / f"run-{host or 0}.sh"
        self.script.write_text(script_of(self.schedule, host=host), encoding="utf-8")
        self.said = folder / f"said-{host or 0}.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def settle(self, **settings: Any) -> None:
        (self.bin / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def begin(self, *options: str) -> None:
        command = ["bash", str(self.script), "--poll", "0.05", "--grace", "3", *options, str(self.run_folder)]
        given = {"PATH": f"{self.bin}:{os.defpath}", "LC_ALL": "C"}
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(command, env=given, cwd=self.folder, stdout=said, stderr=said)

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=LONGEST_S)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def report_done(self, *models: str) -> None:
        for model in models:
            (self.run_folder / "done" / self.file(model)).touch()

    def report_finished(self, model: str, requests: int) -> None:
        (self.run_folder / "progress" / self.file(model)).write_text(f"{requests}\n")

    def file(self, model: str) -> str:
        found: str = json.loads((self.run_folder / "models.json").read_text("utf-8"))[model]["file"]
        return found

    @property
    def text(self) -> str:
        return self.said.read_text("utf-8") if self.said.exists() else ""

    @property
    def events(self) -> list[dict[str, Any]]:
        path = self.bin / "events.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def starts(self) -> list[tuple[str, str]]:
        """Model and GPUs of every start so far, in order."""
        return [(event["model"], event["gpus"]) for event in self.events if event["event"] == "start"]

    def running(self) -> set[tuple[str, str]]:
        """Model and GPUs of the servers that run now."""
        return {(one["model"], one["gpus"]) for one in self.events if one["event"] == "start" and alive(one["pid"])}

    def left_over(self) -> list[int]:
        """Servers, and children of servers, that still run."""
        pids = [pid for event in self.events for pid in (event["pid"], event["child"]) if pid]
        return [pid for pid in set(pids) if alive(pid)]

    def endpoints(self, name: str = "endpoints.json") -> dict[str, list[str]]:
        path = self.run_folder / name
        found: dict[str, list[str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return found

    def serving(self) -> dict[str, int]:
        """How many endpoints each model has."""
        return {model: len(urls) for model, urls in self.endpoints().items() if urls}

    def wait_for(self, condition: Callable[[], object]) -> None:
        limit_s = time.monotonic() + LONGEST_S
        while not condition():
            is_over = self.process is not None and self.process.poll() is not None and not condition()
            assert not is_over, f"it ended: {self.text}"
            assert time.monotonic() < limit_s, f"nothing came of it: {self.text}"
            time.sleep(0.02)

    def wait_for_step(self, number: int) -> None:
        """Until all replicas of a step are up, counted from 1."""
        self.wait_for(lambda: f"all replicas of step {number} are up" in self.text)

    def gpus_used_twice(self) -> list[str]:
        """Of the GPUs that a server was started on while another still ran there."""
        holders: dict[str, int] = {}
        found = []
        for event in self.events:
            for gpu in event["gpus"].split(","):
                if event["event"] == "start":
                    found += [gpu] if gpu in holders else []
                    holders[gpu] = event["pid"]
                elif holders.get(gpu) == event["pid"]:
                    del holders[gpu]
        return found


@contextmanager
def running(folder: Path, plan: OfflinePlanDocument, *options: str, **settings: Any) -> Iterator[Run]:
    """Nothing of it is left afterwards, whatever the test does."""
    run = Run(folder, plan, **settings)
    run.begin(*options)
    try:
        yield run
    finally:
        clean_up(run)


def clean_up(*runs: Run) -> None:
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        for pid in run.left_over():
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """A killed process that nobody has waited for yet does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for first in range(20_000 + os.getpid() % 1000 * 12, 32_700, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
