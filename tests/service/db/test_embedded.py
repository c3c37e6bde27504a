"""The private server: shared by the processes of a data folder, gone with the last, and unharmed by the killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sutler.service.db import embedded
from sutler.service.db.errors import DatabaseUnreachableError
from sutler.service.db.store import open_store
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_folder

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 60.0
USER: Final = """
import sys
from pathlib import Path
from sqlalchemy import text
from sutler.service.db.engine import transaction
from sutler.service.db.store import open_store
from sutler.service.settings import StoreSettings
engine = open_store(StoreSettings(data_dir=Path(sys.argv[1])))
with transaction(engine) as connection:
    connection.execute(text("INSERT INTO provider (name) VALUES (:name)"), {"name": sys.argv[2]})
print("ready", flush=True)
sys.stdin.readline()
engine.dispose()
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A data folder in which nothing was started yet."""
    with a_folder() as folder:
        yield Server(folder)
        embedded.stop(folder)


@contextmanager
def a_user(server: Server, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the store until a line comes on its standard input."""
    command = [sys.executable, "-c", USER, str(server.data_dir), name]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def leave(process: "subprocess.Popen[str]") -> None:
    """By itself, as a command that is done."""
    process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0


def is_up(server: Server) -> bool:
    return (server.folder / "postmaster.pid").exists()


def stored_by(server: Server) -> list[str]:
    engine = open_store(StoreSettings(data_dir=server.data_dir))
    found = names(engine)
    engine.dispose()
    return found


def test_the_server_stops_with_its_last_user_and_keeps_what_was_stored(server: Server) -> None:
    with a_user(server, "first") as first, a_user(server, "second") as second:
        leave(first)
        assert is_up(server)
        leave(second)
        assert not is_up(server)
    assert stored_by(server) == ["first", "second"]


def test_who_leaves_and_comes_back_counts_again(server: Server) -> None:
    server.start()
    with a_user(server, "other") as other:
        embedded.stop(server.data_dir)
        assert is_up(server)
        server.start()
        leave(other)
    assert is_up(server)
    embedded.stop(server.data_dir)
    assert not is_up(server)


def test_a_user_that_was_killed_keeps_nobody_waiting_and_no_server_alive(server: Server) -> None:
    with a_user(server, "killed") as killed:
        killed.kill()
        killed.wait(PATIENCE_S)
    assert is_up(server)
    assert str(killed.pid) in (server.folder / ".handle_pids.json").read_text()
    with a_user(server, "next") as following:
        leave(following)
    assert not is_up(server)
    assert stored_by(server) == ["killed", "next"]


def test_a_list_of_users_that_was_cut_short_is_begun_anew(server: Server) -> None:
    users = server.folder / ".handle_pids.json"
    server.start()
    for left_behind in ("", "[1234", "[null]", '["one"]', "{}"):
        embedded.stop(server.data_dir)
        users.write_text(left_behind)
        server.start()
        assert users.read_text() == f"[{os.getpid()}]"


def test_a_server_that_died_with_the_machine_is_started_whoever_has_its_number_now(server: Server) -> None:
    server.start()
    noted = server.folder / "postmaster.pid"
    _, *others = noted.read_text().splitlines()
    ours, nobodys = os.getpid(), 2**22 - 1
    for left_behind in ("", "\n".join([str(ours), *others]), "\n".join([str(nobodys), *others])):
        embedded.stop(server.data_dir)
        noted.write_text(left_behind)
        server.start()
        assert server.postmaster not in {ours, nobodys}


def test_a_server_that_was_killed_is_started_again_by_the_process_that_used_it(server: Server) -> None:
    engine = open_store(StoreSettings(data_dir=server.data_dir))
    before = server.postmaster
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO provider (name) VALUES ('kept')"))
    server.kill()
    wait_until(lambda: names(engine) == ["kept"] and server.postmaster != before)
    engine.dispose()


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text("SELECT name FROM provider ORDER BY id")))


def wait_until(is_so: Callable[[], bool]) -> None:
    """Errors count as no: what a kill has left takes a moment to go away."""
    give_up_at = time.monotonic() + PATIENCE_S
    found = False
    while not found:
        assert time.monotonic() < give_up_at, "it never came to that"
        with suppress(DBAPIError, DatabaseUnreachableError, OSError, IndexError):
            found = is_so()
        time.sleep(0.05)


def test_a_server_that_cannot_start_says_where_to_look(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.start()
    embedded.stop(server.data_dir)
    with (server.folder / "postgresql.conf").open("a") as settings:
        settings.write("\nno_such_setting = on\n")
    with pytest.raises(DatabaseUnreachableError, match="does not start") as caught:
        open_store(StoreSettings(data_dir=server.data_dir))
    assert str(server.folder / "log") in str(caught.value)
    assert "SUTLER_DATABASE_URL" in str(caught.value)
    assert capfd.readouterr() == ("", "")
