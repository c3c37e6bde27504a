"""A real PostgreSQL for every test process, made by the migrations; each test finds it empty."""

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from sqlalchemy import Engine
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from sutler.service.db import api_tables, profile_tables, watch_tables  # noqa: F401 - they add their tables to Base
from sutler.service.db.queue_schema import QUEUE_SCHEMA, SEARCH_PATH
from sutler.service.db.store import open_store
from sutler.service.db.tables import Base
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_server

_numbers = count(1)
ROOT: Final = Path(__file__).parent
MOST_WORKERS: Final = 8
# Second tier whole (`make test-all`): processes that die, connections that break, benchmarks that run.
SLOW_FOLDERS: Final = ("tests/service/faults/", "benchmarks/tests/")

# A test is not to fail because the machine is busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Tests start hundreds of processes, each of which would compile sutler anew where none may keep what it compiles; and
# every run would rewrite the assertions of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.disable()  # a third of a collection of all tests would be searches for garbage, of which there is hardly any


class ByService(LoadScopeScheduling):  # type: ignore[misc]
    """Sends the tests of a file, or of all files that ask the service, to one worker: the service is started once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "served" if _asks_the_service(file) else file


@cache
def _asks_the_service(file: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    return "service: Running" in text or "guarded: Guarded" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByService:
    """Divide tests among workers by what they share."""
    return ByService(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests that wait for processes leave theirs to others."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in the folders of the second tier."""
    for item in items:
        if item.nodeid.startswith(SLOW_FOLDERS):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """What was collected stays: no search for garbage looks at it again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Shared by the tests of this process: nobody stops it or changes its settings."""
    with a_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_database(postgres: Server) -> StoreSettings:
    """Made by the migrations, once."""
    postgres.run("CREATE DATABASE market")
    settings = StoreSettings(data_dir=postgres.data_dir, database_url=postgres.url("market"))
    open_store(settings).dispose()
    return settings


@pytest.fixture
def empty_store(migrated_database: StoreSettings, postgres: Server) -> StoreSettings:
    """All tables, no rows but the project that there always is."""
    tables = [table.name for table in reversed(Base.metadata.sorted_tables)]
    queue = ("procrastinate_jobs", "procrastinate_workers")
    rows = (*tables, *(f"{QUEUE_SCHEMA}.{table}" for table in queue))
    search_path = f"SET search_path TO {SEARCH_PATH}"
    deleted = (f"DELETE FROM {table}" for table in rows)
    postgres.run(search_path, *deleted, "INSERT INTO project (name) VALUES ('default')", database="market")
    return migrated_database


@pytest.fixture
def engine(empty_store: StoreSettings) -> Iterator[Engine]:
    """On an empty store."""
    made = open_store(empty_store)
    yield made
    made.dispose()


@pytest.fixture
def new_database(postgres: Server) -> Iterator[StoreSettings]:
    """A database without tables, as an operator makes one for sutler."""
    name = f"new_{next(_numbers)}"
    postgres.run(f"CREATE DATABASE {name}")
    yield StoreSettings(data_dir=postgres.data_dir, database_url=postgres.url(name))
    postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
