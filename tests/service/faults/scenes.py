"""A database and processes of sutler around it, which tests may stop, kill and look into."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, LiteralString

import psutil
import psycopg
from requests import RequestException, Response

from tests.postgres import Server, a_folder
from tests.service.running import DEAD_SOON, Running, serving, settings, until

AGES_S: Final = "3600"  # a silence that no test waits for
SOLVER: Final = "sutler solver"
_numbers = count(1)


@dataclass
class Scene:
    """A database of its own on an operator's server. `environment` is what every process gets."""

    server: Server
    database: str
    folder: Path
    environment: dict[str, str]
    stack: ExitStack = field(default_factory=ExitStack)

    def starts(self, *arguments: str, **others: str) -> Running:
        """`sutler serve` with these arguments; does not wait for it."""
        environment = {**self.environment, **others}
        return self.stack.enter_context(serving(self.folder, environment, *arguments, waits=False))

    def api(self, *arguments: str, **others: str) -> Running:
        return self.starts("--role", "api", *arguments, **others)

    def worker(self, **others: str) -> Running:
        return self.starts("--role", "worker", **others)

    def rows(self, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Committed at once."""
        url = self.server.url(self.database).replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True, options="-c search_path=public,queue") as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []

    def story(self, url: str) -> tuple[Any, ...]:
        """What became of a plan: status, how often it was taken up, how many workers died of it."""
        wanted: LiteralString = "SELECT status, attempt, deaths FROM plan WHERE id = %s"
        return self.rows(wanted, url.rpartition("/")[2])[0]


@contextmanager
def a_scene(server: Server, **others: str) -> Iterator[Scene]:
    """All processes are stopped at the end."""
    database = f"scene_{next(_numbers)}"
    server.create(database)
    with a_folder() as folder:
        environment = settings(folder, **{**DEAD_SOON, "SUTLER_DATABASE_URL": server.url(database), **others})
        scene = Scene(server, database, folder, environment)
        with scene.stack:
            yield scene


def asked(running: Running, problem: dict[str, Any]) -> str:
    """Where the plan will be."""
    answer = running.post("/v1/plans", problem, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def until_solving(running: Running, url: str, *, attempt: int = 1) -> None:
    """Until its solver has begun to search."""

    def is_solving() -> bool:
        job = running.get(url).json()
        assert job["status"] in {"queued", "running"}, job
        return bool(job["attempt"] == attempt and (job["progress"] or {}).get("bound"))

    until(is_solving)


def solvers(running: Running) -> list[psutil.Process]:
    """The solver processes of a worker that runs alone, or of a family."""
    return running.titled(SOLVER)


def has_gone(process: psutil.Process) -> bool:
    """A zombie uses nothing, and waits for a parent that tests may have killed."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until_gone(*processes: psutil.Process) -> None:
    until(lambda: all(has_gone(process) for process in processes))


def kill(process: psutil.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)


def of(running: Running) -> psutil.Process:
    return psutil.Process(running.process.pid)


def if_reached(ask: Callable[[], Response]) -> Response | None:
    """The answer; None where the connection was refused or lost."""
    try:
        return ask()
    except RequestException:
        return None


@dataclass
class Aside:
    """Work in a thread of its own; `result` waits for it, and raises what it raised."""

    work: Callable[[], Any]

    def __post_init__(self) -> None:
        self._found: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self.work())
        except BaseException as error:
            self._error.append(error)

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join()
        if self._error:
            raise self._error[0]
        return self._found[0]


def results(*works: Callable[[], Any]) -> Sequence[Any]:
    """Of all at the same time."""
    asides = [Aside(work) for work in works]
    return [aside.result() for aside in asides]
