"""One running service for the tests of this folder; each test uses names of its own."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from requests import Response

from sutler.service.web.caller import SCOPES
from tests.postgres import Server, a_folder
from tests.service.running import Running, serving, settings

MOST_BODY_BYTES: Final = 16_000_000  # more than is generated: a 413 does not count as a rejection there
_numbers = count(1)


@pytest.fixture(scope="package")
def service(postgres: Server) -> Iterator[Running]:
    """All roles on a database of their own."""
    postgres.run("CREATE DATABASE service")
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("service"))
        with serving(folder, environment) as running:
            yield running


@dataclass(frozen=True)
class Guarded:
    """A service that asks for keys, and a key of each scope."""

    running: Running
    keys: Mapping[str, str]

    def ask(self, scope: str | None, method: str, path: str, **options: Any) -> Response:
        """With the key of this scope; None: without any."""
        mine = {} if scope is None else {"Authorization": f"Bearer {self.keys[scope]}"}
        return self.running.ask(method, path, **{**options, "headers": {**mine, **options.get("headers", {})}})


@contextmanager
def guarding(postgres: Server, database: str, **others: str) -> Iterator[Guarded]:
    """A service that asks for keys, on a database of its own; changes are unlimited."""
    postgres.run(f"CREATE DATABASE {database}")
    with a_folder() as folder:
        own = {"SUTLER_DATABASE_URL": postgres.url(database), "SUTLER_CHANGES_PER_MINUTE": "1000000"}
        environment = settings(folder, **own, **others)
        keys: dict[str, str] = {scope: made_key(environment, folder, scope) for scope in SCOPES}
        with serving(folder, environment, "--require-key") as running:
            yield Guarded(running, keys)


@pytest.fixture(scope="package")
def guarded(postgres: Server) -> Iterator[Guarded]:
    """Solves and waits are short, bodies small."""
    others = {
        "SUTLER_LONGEST_SOLVE_S": "1",
        "SUTLER_LONGEST_WAIT_S": "5",
        "SUTLER_MOST_BODY_BYTES": str(MOST_BODY_BYTES),
        "SUTLER_LOG_FORMAT": "json",
    }
    with guarding(postgres, "guarded", **others) as service:
        yield service


def made_key(environment: Mapping[str, str], folder: Path, scope: str) -> str:
    """As an operator makes one."""
    command = [sys.executable, "-m", "sutler", "keys", "create", f"test {scope}", "--scope", scope]
    made = subprocess.run(command, env=environment, cwd=folder, capture_output=True, encoding="utf-8", check=True)
    return made.stdout.strip()


@pytest.fixture
def name() -> str:
    """Of a deployment that no other test has."""
    return f"chat-{next(_numbers)}"
