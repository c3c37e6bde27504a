"""What a wrong or refusing database says: what to do, and never a password."""

import logging
import traceback
from pathlib import Path

import pytest
from sqlalchemy import Connection, make_url, text

from sutler.service.db.engine import connected, open_engine, transaction, translated
from sutler.service.db.errors import DatabaseError, DatabaseUnreachableError
from sutler.service.db.store import open_store
from sutler.service.settings import SettingsError, StoreSettings, store_settings
from tests.postgres import Server

CANARY = "canary-7f3a"


def settings_of(url: str) -> StoreSettings:
    return store_settings({"SUTLER_DATABASE_URL": url, "SUTLER_DATA_DIR": "unused"})


def said_of(url: str) -> str:
    """The error of opening this store, with the whole traceback that SUTLER_DEBUG would show."""
    with pytest.raises((DatabaseError, SettingsError)) as caught:
        open_store(settings_of(url))
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (f"postgresql://sutler:{CANARY}@127.0.0.1:1/market", "check that it runs"),
        (f"postgresql://sutler:{CANARY}@no-such-host.invalid/market", "check that it runs"),
        (f"postgresql://sutler:{CANARY}@127.0.0.1:seven/market", "postgresql://user:password@host:port/database"),
        (f"postgresql://sutler:{CANARY}@[::1/market", "postgresql://user:password@host:port/database"),
        (f"postgresql://sutler:p@{CANARY}@127.0.0.1/market", "%40"),
        (f"postgresql://sutler:p@ss/{CANARY}@127.0.0.1/market", "%40"),
        (f"postgresql://sutler:{CANARY}@127.0.0.1:1/market?sslmod=require", "sslmod"),
        (f"postgresql://sutler:{CANARY}@127.0.0.1:1/market?port=seven", "postgresql://user:password@host:port"),
        (f"postgresql://127.0.0.1:1/market?user=sutler&password={CANARY}", "check that it runs"),
        (f"mysql://sutler:{CANARY}@127.0.0.1/market", "postgresql://user:password@host:port/database"),
        (f"sutler:{CANARY}@127.0.0.1/market", "postgresql://user:password@host:port/database"),
        (f"postgresql:/sutler:{CANARY}@127.0.0.1/market", "postgresql://user:password@host:port/database"),
        (CANARY, "postgresql://user:password@host:port/database"),
    ],
)
def test_a_url_that_leads_nowhere_is_named_with_the_remedy_and_no_password(
    url: str, remedy: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    said = said_of(url)
    assert "SUTLER_DATABASE_URL" in said
    assert remedy in said
    output = capfd.readouterr()
    assert CANARY not in said + caplog.text + output.out + output.err


def test_no_repr_shows_the_url(postgres: Server) -> None:
    settings = settings_of(f"postgresql://sutler:{CANARY}@127.0.0.1:1/market")
    engine = open_engine(settings)
    assert CANARY not in f"{settings!r} {settings} {engine!r} {engine.url} {engine.pool!r}"
    engine.dispose()


def test_a_refused_password_is_not_repeated(postgres: Server) -> None:
    """On the server's socket every user is let in, so the wrong thing here is the user."""
    said = said_of(postgres.url("market", user="nobody_here", password=CANARY))
    assert "nobody_here" in said
    assert CANARY not in said


def test_a_database_that_does_not_exist_is_named(postgres: Server) -> None:
    assert '"no_such_market" does not exist' in said_of(postgres.url("no_such_market"))


def test_a_user_who_may_not_make_tables_is_told_so(postgres: Server, new_database: StoreSettings) -> None:
    postgres.run("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    name = make_url(str(new_database.database_url)).database
    said = said_of(postgres.url(str(name), user="guest"))
    assert "permission denied for schema public" in said
    assert "DatabaseUnreachableError" in said


def test_a_read_only_server_is_told_apart_from_a_slip_of_ours(empty_store: StoreSettings) -> None:
    engine = open_store(empty_store)
    with transaction(engine) as connection:
        connection.execute(text("SET default_transaction_read_only = on"))
    with pytest.raises(DatabaseUnreachableError, match="read-only"), transaction(engine) as connection:
        connection.execute(text("DELETE FROM poll"))
    engine.dispose()


def test_a_session_that_was_ended_is_replaced_without_hands(empty_store: StoreSettings, postgres: Server) -> None:
    engine = open_store(empty_store)
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'market' AND pid <> pg_backend_pid()"
    )
    with connected(engine) as connection:
        postgres.run(others)
        with pytest.raises(DatabaseUnreachableError), translated():
            connection.scalar(text("SELECT 1"))
    with connected(engine) as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    postgres.run(others)
    with connected(engine) as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


def test_a_slip_of_ours_stays_one(empty_store: StoreSettings) -> None:
    engine = open_store(empty_store)
    with pytest.raises(Exception, match="no_such_table") as caught, connected(engine) as connection:
        connection.execute(text("SELECT * FROM no_such_table"))
    assert not isinstance(caught.value, DatabaseError)
    engine.dispose()


def test_an_error_in_a_transaction_undoes_all_of_it(empty_store: StoreSettings) -> None:
    engine = open_store(empty_store)
    with pytest.raises(RuntimeError, match="in the middle"), transaction(engine) as connection:
        _begin_and_fail(connection)
    with connected(engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM provider")) == 0
    engine.dispose()


def _begin_and_fail(connection: Connection) -> None:
    connection.execute(text("INSERT INTO provider (name) VALUES ('north')"))
    raise RuntimeError("in the middle")


def test_values_of_a_statement_are_in_no_error(empty_store: StoreSettings) -> None:
    engine = open_store(empty_store)
    with pytest.raises(Exception, match="smallint") as caught, connected(engine) as connection:
        connection.execute(text("SELECT CAST(:n AS smallint), :secret"), {"n": 1_000_000, "secret": CANARY})
    assert CANARY not in str(caught.value)
    engine.dispose()


def test_times_are_in_utc_whatever_the_server_prefers(new_database: StoreSettings, postgres: Server) -> None:
    name = make_url(str(new_database.database_url)).database
    postgres.run(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
    engine = open_store(new_database)
    with connected(engine) as connection:
        assert connection.scalar(text("SELECT date_trunc('day', timestamptz '2026-11-20T23:00Z')::text")) == (
            "2026-11-20 00:00:00+00"
        )
    engine.dispose()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DatabaseUnreachableError, match="SUTLER_DATABASE_URL") as caught:
        open_store(StoreSettings(data_dir=tmp_path / "file" / "sutler"))
    assert "NotADirectoryError" in str(caught.value)
