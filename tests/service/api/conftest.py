"""A service with short limits and a key of each scope, for the tests of this folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import pytest
from requests import Response

from sutler.service.web.caller import SCOPES
from tests.postgres import Server, a_folder
from tests.service.running import Running, clear, made_key, serving, settings

MOST_BODY_BYTES: Final = 16_000_000  # more than is generated: a 413 does not count as a rejection there
_numbers = count(1)


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
    postgres.create(database)
    with a_folder() as folder:
        own = {"SUTLER_DATABASE_URL": postgres.url(database), "SUTLER_CHANGES_PER_MINUTE": "1000000"}
        environment = settings(folder, **own, **others)
        keys: dict[str, str] = {scope: made_key(environment, scope) for scope in SCOPES}
        with serving(folder, environment, "--require-key") as running:
            yield Guarded(running, keys)


@pytest.fixture(scope="package")
def one_guarded(postgres: Server) -> Iterator[Guarded]:
    """Solves and waits are short, bodies small."""
    others = {
        "SUTLER_LONGEST_SOLVE_S": "1",
        "SUTLER_LONGEST_WAIT_S": "5",
        "SUTLER_MOST_BODY_BYTES": str(MOST_BODY_BYTES),
        "SUTLER_LOG_FORMAT": "json",
    }
    with guarding(postgres, "guarded", **others) as service:
        yield service


@pytest.fixture
def guarded(one_guarded: Guarded) -> Iterator[Guarded]:
    """Without deployments."""
    yield one_guarded
    clear(partial(one_guarded.ask, "admin"))


@pytest.fixture
def name() -> str:
    """Of a deployment that no other test has."""
    return f"chat-{next(_numbers)}"
