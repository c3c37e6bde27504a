"""Backups and restores that end before they are done: by Ctrl-C, a full disk, a server that dies."""

import os
import resource
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sutler.service.backup.store import back_up, restore
from sutler.service.db.engine import transaction
from sutler.service.db.errors import DatabaseUnreachableError
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_folder, a_server, opened
from tests.service.backup.stores import held, nobody
from tests.service.market.test_lost_database import a_small_disk
from tests.service.running import PYTHON

pytestmark = pytest.mark.slow
MUCH = (
    "INSERT INTO audit (actor, action, target) "
    "SELECT 'me', 'much', gen_random_uuid()::text FROM generate_series(1, 100000)"
)


@pytest.fixture
def whole(full: Engine, tmp_path: Path) -> Path:
    """A backup of more than a small disk has room for."""
    with transaction(full) as connection:
        connection.execute(text(MUCH))
    back_up(full, tmp_path / "sutler.backup", nobody)
    return tmp_path / "sutler.backup"


def interrupt(said: str) -> None:
    if said.startswith("plan"):
        raise KeyboardInterrupt


def test_an_interrupted_backup_leaves_the_file_of_before_and_nothing_else(full: Engine, whole: Path) -> None:
    before = whole.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        back_up(full, whole, interrupt)
    assert [*whole.parent.iterdir()] == [whole]
    assert whole.read_bytes() == before


def test_a_backup_that_finds_no_room_says_so_and_leaves_nothing(full: Engine, whole: Path) -> None:
    """A limit of a process stands for a full disk: PostgreSQL has room."""
    target = whole.with_name("another.backup")
    url = full.url.render_as_string(hide_password=False).replace("+psycopg", "")
    done = subprocess.run(
        [*PYTHON, "backup", str(target)],
        env={**os.environ, "SUTLER_DATABASE_URL": url},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "another.backup: file too large" in done.stderr) == (2, True), done.stderr
    assert [*whole.parent.iterdir()] == [whole]


def test_an_interrupted_restore_leaves_the_store_as_it_was(full: Engine, whole: Path) -> None:
    before = held(full)
    with pytest.raises(KeyboardInterrupt):
        restore(full, whole, is_forced=True, tell=interrupt)
    assert held(full) == before


def test_a_restore_that_fills_the_disk_leaves_the_store_as_it_was(whole: Path, postgres: Server) -> None:
    with a_folder() as folder, a_small_disk(folder, mebibytes=24):
        os.chown(folder, postgres.folder.stat().st_uid, -1)
        postgres.run(f"CREATE TABLESPACE narrow LOCATION '{folder}'", "CREATE DATABASE narrow TABLESPACE narrow")
        with opened(StoreSettings(data_dir=Path("unused"), database_url=postgres.url("narrow"))) as engine:
            with pytest.raises(DatabaseUnreachableError, match="No space left on device"):
                restore(engine, whole, is_forced=False, tell=nobody)
            assert held(engine) == {"sequences": {}}
        postgres.run("DROP DATABASE narrow", "DROP TABLESPACE narrow")


def test_a_server_that_dies_during_a_restore_has_what_it_held_before(whole: Path, tmp_path: Path) -> None:
    with a_server(is_quick=False) as server:
        server.run("CREATE DATABASE victim")
        with opened(StoreSettings(data_dir=server.data_dir, database_url=server.url("victim"))) as engine:
            restore(engine, whole, is_forced=False, tell=nobody)
            before = held(engine)
            with pytest.raises(DatabaseUnreachableError):
                restore(engine, whole, is_forced=True, tell=lambda said: server.kill() if said == "plan" else None)
            engine.dispose()
            server.start()
            assert held(engine) == before
