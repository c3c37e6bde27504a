"""The real `sutler serve` in processes of its own, for tests that ask it over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil
import requests
from typer.testing import CliRunner

from sutler.service.cli.app import app
from tests.service.builders import a_snapshot, an_offer
from tests.service.forks import Fork

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 120.0  # ends what hangs: a busy machine takes several times as long as a quiet one
LONGEST_WAIT_S: Final = 30
ANNOUNCED: Final = re.compile(r"sutler answers on (http://[\w.\[\]:]+)")
PYTHON: Final = (sys.executable, "-m", "sutler")
DEAD_SOON: Final = {"SUTLER_WORKER_SILENT_S": "2"}  # for tests that wait until a silent worker is given up
QUICK: Final = {"SUTLER_LONGEST_SOLVE_S": "60", "SUTLER_SOLVES_AT_ONCE": "1"}


@dataclass
class Running:
    """A service, or one role of it. `log` is what it said on stderr; `key` goes along with every request."""

    process: "subprocess.Popen[bytes] | Fork"
    log: Path
    session: requests.Session = field(default_factory=requests.Session)
    key: str = ""
    _url: str | None = None

    @property
    def url(self) -> str:
        """Where the API answers, as the service announced it."""
        if self._url is None:
            found = until(lambda: ANNOUNCED.search(self.said()) or self.process.poll() is not None)
            assert found is not True, self.said()
            self._url = str(found[1])
        return self._url

    def with_key(self, key: str) -> "Running":
        """Itself, asking with this key from now on."""
        self.key, self.session.headers["Authorization"] = key, f"Bearer {key}"
        return self

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        return self.session.request(method, f"{self.url}{path}", **{"timeout": PATIENCE_S, **options})

    def get(self, path: str, **options: Any) -> requests.Response:
        """Who waits as long as the API lets them wants the plan: a busy machine is asked again."""
        answer = self.ask("GET", path, **options)
        give_up_at = time.monotonic() + 3 * PATIENCE_S
        waits = (options.get("params") or {}).get("wait_s") == LONGEST_WAIT_S
        while waits and _is_not_yet(answer) and time.monotonic() < give_up_at:
            answer = self.ask("GET", path, **options)
        return answer

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.ask("POST", path, **({} if body is None else {"json": body}), **options)

    def put(self, path: str, body: Any, **options: Any) -> requests.Response:
        return self.ask("PUT", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.ask("DELETE", path, **options)

    def child(self, role: str) -> psutil.Process:
        """The process of a role, once it is there."""
        found: list[psutil.Process] = until(lambda: self.titled(f"--role {role}"))
        return found[0]

    def titled(self, title: str) -> list[psutil.Process]:
        """Its processes whose command line has this in it."""
        return [child for child in self.children() if title in _command(child)]

    def children(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def stop(self) -> int:
        """As an operator does; returns the exit status."""
        self.session.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def _command(process: psutil.Process) -> str:
    """Nothing of one that ends while it is looked at; a zombie has none either."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _is_not_yet(answer: requests.Response) -> bool:
    return answer.status_code == 304 or (answer.status_code == 503 and "not-yet" in answer.text)


def until(look: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    """What `look` finds, once it finds something."""
    give_up_at = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_at, f"nothing within {patience_s:g} s"
        time.sleep(0.05)


def settings(folder: Path, **others: str) -> dict[str, str]:
    """The environment of a service whose cloud is a file of offers; nothing of the caller's settings."""
    market = folder / "market.json"
    market.write_text(json.dumps(a_market()), encoding="utf-8")
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SUTLER_")}
    given = {"SUTLER_DATA_DIR": str(folder / "data"), "SUTLER_PROVIDERS": "file", "SUTLER_FILE_PATH": str(market)}
    return {
        **mine,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *mine.get("PYTHONPATH", "").split(os.pathsep)]),
        "PYTHONUTF8": "1",
        **QUICK,
        **given,
        **others,
    }


def made_key(environment: Mapping[str, str], scope: str, *options: str) -> str:
    """As an operator makes one; in a thread of its own, since a test may run within an event loop."""
    command = ["keys", "create", f"test {scope}", "--scope", scope, *options]
    with ThreadPoolExecutor(1) as alone:
        done = alone.submit(CliRunner().invoke, app, command, env=environment, catch_exceptions=False).result()
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def a_market() -> dict[str, Any]:
    """Two kinds of machine, for rent now."""
    offers = (
        an_offer(provider="acme", offer_id="small", gpu="rtx-4090", gpus=1, available=8, price_usd_per_hour=0.4),
        an_offer(provider="acme", offer_id="large", gpu="h100-sxm", gpus=1, available=4, price_usd_per_hour=2.2),
    )
    return {**a_snapshot(*offers), "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}


@contextmanager
def serving(
    folder: Path,
    environment: Mapping[str, str],
    *arguments: str,
    waits: bool = True,
    sutler: Sequence[str] | None = None,
) -> Iterator[Running]:
    """`sutler serve` with these arguments, on a free port unless they say otherwise; stopped at the end.

    `sutler`: the command that is started anew; None: it comes from a process that has loaded the code (forks.py).
    """
    log = folder / f"serve-{time.monotonic_ns()}.log"
    port: Sequence[str] = () if "--port" in arguments else ("--port", "0")
    words = ["serve", *port, *arguments]
    if sutler is None:
        log.touch()
        running = Running(Fork(words, environment, folder, log), log)
    else:
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*sutler, *words], cwd=folder, env=dict(environment), stderr=stderr, stdin=subprocess.DEVNULL
            )
        running = Running(process, log)
    try:
        if waits:
            until(lambda: running.process.poll() is not None or answers(running))
            assert running.process.poll() is None, running.said()
        yield running
    finally:
        family = [*running.children(), psutil.Process(running.process.pid)] if running.process.poll() is None else []
        try:
            running.stop()
        finally:
            for left in family:
                if left.is_running():
                    left.kill()
            running.process.wait()


def answers(running: Running) -> bool:
    try:
        return running.get("/healthz", timeout=2).status_code == 200
    except requests.RequestException:
        return False


def clear(ask: Callable[..., requests.Response]) -> None:
    """Deletes all deployments: one that no test needs any more would be looked at again after every poll."""
    while items := ask("GET", "/v1/deployments").json()["items"]:
        for listed in items:
            assert ask("DELETE", f"/v1/deployments/{listed['name']}").status_code == 204


def finished(running: Running, url: str) -> dict[str, Any]:
    """The plan at this URL, once it is there."""
    found: dict[str, Any] = until(lambda: _if_done(running.get(url, params={"wait_s": 5}).json()))
    return found


def _if_done(document: dict[str, Any]) -> dict[str, Any] | None:
    return None if document["status"] in {"queued", "running"} else document
