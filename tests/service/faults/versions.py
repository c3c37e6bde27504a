"""The version before and this one, as services on one database, and what their callers are told.

The version before is the last whose tables are those of OLDEST (service/db/upgrade.py), from the history of git.
"""

import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import requests
from alembic.script import ScriptDirectory

from sutler.service.db.upgrade import OLDEST, config
from tests.postgres import a_folder
from tests.service.builders import CHAT
from tests.service.running import ROOT, Running, until

# Not what sutler's own tests are started with: these processes are of another folder.
SUTLER: Final = (sys.executable, "-X", "utf8", "-m", "sutler")


class NoHistoryError(Exception):
    """The version before is not to be had."""


def _git(*words: str) -> bytes:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoHistoryError(f"the version before is in git's history, which is not here: {error}") from error


@contextmanager
def the_version_before() -> Iterator[Path]:
    """Its files, in a folder that goes away. Raises NoHistoryError."""
    first = next(s for s in ScriptDirectory.from_config(config()).walk_revisions() if s.down_revision == OLDEST)
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(Path(first.path).relative_to(ROOT))).split()
    if not added:
        raise NoHistoryError("the version before is in git's history, which does not reach back so far")
    with a_folder() as folder:
        archive = _git("archive", f"{added[-1].decode()}^")
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield folder


@dataclass
class Versions:
    """The services of both, by the names of the versions; every answer that a caller would call an error; how many
    answers there were, and the slowest."""

    of: dict[str, Running] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    slowest_s: float = 0.0

    def ask(self, version: str, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        if body is not None:
            options["json"] = body
        answer = self.of[version].ask(method, path, **options)
        self.answers += 1
        self.slowest_s = max(self.slowest_s, answer.elapsed.total_seconds())
        if answer.status_code >= 400 and not answer.json()["type"].endswith(":not-yet"):
            self.errors.append(f"{version}: {method} {path}: {answer.status_code} {answer.text}")
        return answer

    def until_ok(self, version: str, path: str, **options: Any) -> Any:
        """What is there, once it is."""
        asked = partial(self.ask, version, "GET", path, **options)
        return until(lambda: found.json() if (found := asked()).status_code == 200 else None)  # 304: not yet

    @contextmanager
    def asked_all_the_time(self, version: str) -> Iterator[None]:
        """Changes and reads of this version, one after the other, while something else is done."""
        ended = threading.Event()

        def ask() -> None:
            while not ended.is_set():
                plan = self.ask(version, "POST", "/v1/plans", CHAT)
                self.ask(version, "GET", plan.headers.get("Location", "/v1/plans"))
                self.ask(version, "GET", "/v1/deployments")

        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(ask)
            try:
                yield
            finally:
                ended.set()
            asking.result()
