"""PostgreSQL stops, dies or fills up under a poll: the poll lands after all or says what to do; nothing is lost."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event

from sutler.adapters.base import Poll
from sutler.service.db import embedded
from sutler.service.db.errors import DatabaseUnreachableError
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_folder, a_server
from tests.service.market.builders import CONFIG, NORTH, Store, an_answer, an_offer
from tests.service.market.test_killed_polls import assert_whole

FIRST: Final = an_answer(an_offer("a", 1.0), an_offer("b", 2.0))
SECOND: Final = an_answer(an_offer("a", 1.5), an_offer("c", 3.0))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """To be mistreated; loses nothing in a crash."""
    with a_server(is_quick=False) as started:
        yield started


@contextmanager
def a_store(settings: StoreSettings) -> Iterator[Store]:
    """With one good poll."""
    engine = open_store(settings)
    with engine.begin() as connection:
        for table in ("offer", "poll", "rejected_row", "provider"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    store = Store(engine)
    store.poll(FIRST)
    try:
        yield store
    finally:
        engine.dispose()


@pytest.fixture
def theirs(server: Server) -> Iterator[Store]:
    """On a server that sutler does not start."""
    server.start()
    with a_store(StoreSettings(data_dir=Path("unused"), database_url=server.url())) as store:
        yield store
        server.start()


@pytest.fixture
def private(server: Server) -> Iterator[Store]:
    """On a server of sutler's own."""
    server.start()
    with a_store(StoreSettings(data_dir=server.data_dir)) as store:
        yield store


def a_patient_poller(store: Store, sleep: Callable[[float], None], fetch: Callable[[], Poll]) -> Poller:
    return Poller(store.engine, {"north": CONFIG}, fetch=lambda *_: fetch(), now=store.time.now, sleep=sleep)


def once_after(engine: Engine, statement: str, do: Callable[[], object]) -> None:
    """Does it after the next such statement, in the middle of its transaction."""

    def watch(*arguments: Any) -> None:
        if arguments[2].startswith(statement) and not done:
            done.append(True)
            do()

    done: list[bool] = []
    event.listen(engine, "after_cursor_execute", watch)


def assert_second_poll_landed(store: Store) -> None:
    assert_whole(store)
    assert store.for_rent() == {"a": 1.5, "c": 3.0}
    assert store.for_rent(store.scalar("SELECT min(at) FROM poll")) == {"a": 1.0, "b": 2.0}
    assert store.rows("SELECT outcome, opened, closed FROM poll ORDER BY at") == [("ok", 2, 0), ("ok", 2, 2)]


def test_a_restart_between_fetching_and_recording_goes_unnoticed(theirs: Store, server: Server) -> None:
    def fetch() -> Poll:
        server.stop_at_once()
        server.start()
        return SECOND

    naps: list[float] = []
    theirs.time.pass_s(60)
    a_patient_poller(theirs, naps.append, fetch).poll(NORTH)
    assert naps == []
    assert_second_poll_landed(theirs)


def test_a_server_that_comes_back_in_time_gets_the_poll(theirs: Store, server: Server) -> None:
    def fetch() -> Poll:
        server.stop_at_once()
        return SECOND

    def sleep(_: float) -> None:
        naps.append(_)
        server.start()

    naps: list[float] = []
    theirs.time.pass_s(60)
    a_patient_poller(theirs, sleep, fetch).poll(NORTH)
    assert len(naps) == 1
    assert_second_poll_landed(theirs)


@pytest.mark.parametrize("statement", ["INSERT INTO offer", "UPDATE offer", "INSERT INTO poll"])
def test_a_restart_in_the_middle_of_recording_leaves_no_half_poll(
    theirs: Store, server: Server, statement: str
) -> None:
    once_after(theirs.engine, statement, server.stop_at_once)
    theirs.time.pass_s(60)
    a_patient_poller(theirs, lambda _: server.start(), lambda: SECOND).poll(NORTH)
    assert_second_poll_landed(theirs)


def test_a_server_that_stays_away_is_named_with_the_remedy_and_loses_nothing(theirs: Store, server: Server) -> None:
    def fetch() -> Poll:
        server.stop_at_once()
        return SECOND

    naps: list[float] = []
    theirs.time.pass_s(60)
    with pytest.raises(DatabaseUnreachableError, match="check that it runs"):
        a_patient_poller(theirs, naps.append, fetch).poll(NORTH)
    assert len(naps) == 3
    with pytest.raises(DatabaseUnreachableError, match="check that it runs"):
        theirs.market()
    server.start()
    assert theirs.for_rent() == {"a": 1.0, "b": 2.0}
    theirs.poll(SECOND)
    assert_second_poll_landed(theirs)


def test_a_private_server_that_was_killed_is_started_again(private: Store, server: Server) -> None:
    def fetch() -> Poll:
        server.kill()
        return SECOND

    private.time.pass_s(60)
    Poller(private.engine, {"north": CONFIG}, fetch=lambda *_: fetch(), now=private.time.now).poll(NORTH)
    assert_second_poll_landed(private)


@contextmanager
def a_small_disk(folder: Path, *, mebibytes: int) -> Iterator[None]:
    """Skips where this machine lets nobody make one."""
    if os.geteuid() != 0 or subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0777", "tmpfs", str(folder)],
        capture_output=True, check=False,
    ).returncode:  # fmt: skip
        pytest.skip("only root, where it may mount, can give a server a disk that is full")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """To the last byte."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65_536):
                pass
        except OSError:
            pass
    return path


BIG: Final = an_answer(*(an_offer(f"big-{i}", 1.0 + i / 100, site="s" * 190, region="r" * 190) for i in range(3000)))


def test_a_full_disk_for_tables_leaves_no_half_poll_and_room_heals_it(server: Server) -> None:
    server.start()
    with a_folder() as folder, a_small_disk(folder, mebibytes=24):
        os.chown(folder, server.folder.stat().st_uid, -1)
        server.run(f"CREATE TABLESPACE small LOCATION '{folder}'", "CREATE DATABASE small TABLESPACE small")
        with a_store(StoreSettings(data_dir=Path("unused"), database_url=server.url("small"))) as store:
            filler = fill(folder)
            with pytest.raises(DatabaseUnreachableError, match="No space left on device"):
                store.poll(BIG)
            assert_whole(store)
            assert store.for_rent() == {"a": 1.0, "b": 2.0}
            filler.unlink()
            store.poll(BIG)
            assert_whole(store)
            assert len(store.for_rent()) == 3000
        server.run("DROP DATABASE small", "DROP TABLESPACE small")


def test_a_full_disk_for_everything_leaves_no_half_poll_and_room_heals_it() -> None:
    with a_folder() as folder, a_small_disk(folder, mebibytes=160):
        with a_store(StoreSettings(data_dir=folder)) as store:
            filler = fill(folder)
            with pytest.raises(DatabaseUnreachableError, match="No space left on device"):
                store.poll(BIG)
            filler.unlink()
            assert_whole(store)
            assert store.for_rent() == {"a": 1.0, "b": 2.0}
            store.poll(SECOND)
            assert_second_poll_landed(store)
        embedded.stop(folder)


def test_a_private_server_without_room_to_begin_says_so_and_begins_once_there_is() -> None:
    with a_folder() as folder, a_small_disk(folder, mebibytes=160):
        filler = fill(folder)
        with pytest.raises(DatabaseUnreachableError, match="check room and permissions"):
            open_store(StoreSettings(data_dir=folder))
        filler.unlink()
        open_store(StoreSettings(data_dir=folder)).dispose()
        embedded.stop(folder)
