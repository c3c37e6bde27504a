"""A plan that keeps itself true, on this machine alone: played clouds, a service, a surge of traffic, a lost machine.

Run by `make replanning-demo`. The clouds are played by `sutler dev fake-cloud`; the service keeps its store in a
temporary folder. Every step is a command that can be typed against a service of one's own.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

DEPLOYMENT = Path(__file__).parent / "standing.yaml"
SUTLER = (sys.executable, "-m", "sutler")
PATIENCE_S = 90.0
QUESTIONS, DOCUMENTS = (400, 200, 12.0), (3000, 300, 6.0)  # input tokens, output tokens, requests/s as planned
WINDOW_S = 60


@contextmanager
def played_clouds(folder: Path, *, speed: int = 600) -> Iterator[Mapping[str, str]]:
    """Plays the clouds; yields the settings that make sutler ask them, with a store in `folder`."""
    command = [*SUTLER, "dev", "fake-cloud", "--port", "0", "--speed", str(speed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            settings = {}
            for line in process.stdout:
                if found := re.fullmatch(r"export (SUTLER_\w+)=(\S+)\n", line):
                    settings[found[1]] = found[2]
                elif settings and not line.strip():
                    break
            yield {**settings, "SUTLER_DATA_DIR": str(folder)}
        finally:
            process.terminate()


@contextmanager
def serving(settings: Mapping[str, str], folder: Path) -> Iterator[Mapping[str, str]]:
    """A service on those clouds; yields the settings that make the command line ask it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = (folder / "service.log").open("w")
    command = [*SUTLER, "serve", "--port", port]
    with log, subprocess.Popen(command, env={**os.environ, **settings}, stderr=log, stdout=log) as process:
        try:
            yield {**settings, "SUTLER_URL": f"http://127.0.0.1:{port}"}
        finally:
            process.terminate()


class Terminal:
    """Types commands of `sutler deployments` and shows what they print."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **settings}

    def type(self, words: str, *, stdin: str | None = None) -> None:
        """Raises CalledProcessError where the command fails."""
        print(f"\n$ sutler deployments {words}", flush=True)
        self.ask(words, stdin=stdin, shows=True)

    def ask(self, words: str, *, stdin: str | None = None, shows: bool = False) -> str:
        command = [*SUTLER, "deployments", *words.split()]
        output = None if shows else subprocess.PIPE
        done = subprocess.run(
            command, env=self._environment, input=stdin, text=True, check=True, stdout=output, stderr=output
        )
        return done.stdout or ""

    def wait_for(self, revision: int) -> None:
        """Raises TimeoutError."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            try:
                if json.loads(self.ask("plan chat --json"))["revision"] >= revision:
                    return
            except subprocess.CalledProcessError:
                pass  # the service is starting, or the first plan is being made
            time.sleep(1.0)
        raise TimeoutError(f"revision {revision} did not come within {PATIENCE_S:.0f} s")

    def wait_until_it_serves(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            try:
                self.ask("list")
            except subprocess.CalledProcessError:
                time.sleep(1.0)
            else:
                return
        raise TimeoutError(f"the service did not start within {PATIENCE_S:.0f} s")


def traffic(multiple: float, *, ended: datetime) -> str:
    """One window of traffic, that many times the planned, as `observe` reads it."""
    buckets = [
        {"input_tokens": i, "output_tokens": o, "requests": round(multiple * rate * WINDOW_S)}
        for i, o, rate in (QUESTIONS, DOCUMENTS)
    ]
    return json.dumps({"model": "chat", "observed_at": ended.isoformat(), "window_s": WINDOW_S, "buckets": buckets})


def show(terminal: Terminal) -> None:
    """Plan, surge, loss."""
    terminal.wait_until_it_serves()
    terminal.type(f"apply {os.path.relpath(DEPLOYMENT)}")
    terminal.wait_for(1)
    terminal.type("plan chat")
    print("\nThe machines are rented, and the deployment is told so:")
    terminal.type("ack chat")
    print("\nFor two minutes, half as many requests again as planned:")
    now = datetime.now(UTC)
    for minutes_ago in (1, 0):
        terminal.type("observe chat -", stdin=traffic(1.5, ended=now - timedelta(minutes=minutes_ago)))
    terminal.wait_for(2)
    terminal.type("diff chat")
    terminal.type("ack chat")
    print("\nThe dearest machine is lost:")
    held = json.loads(terminal.ask("holdings chat --json"))["holdings"]
    held.remove(max(held, key=lambda holding: holding["price_usd_per_hour"]))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"holdings": held}, file)
        file.flush()
        terminal.ask(f"holdings chat {file.name}")
    terminal.wait_for(3)
    terminal.type("diff chat")
    terminal.type("show chat")


def main() -> int:
    """0 when every step went well."""
    with tempfile.TemporaryDirectory(prefix="sutler-") as name:
        folder = Path(name)
        with played_clouds(folder, speed=1) as clouds, serving(clouds, folder) as settings:
            show(Terminal(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
