"""From settings to an engine, and connections whose errors are ours."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, IsolationLevel
from sqlalchemy.exc import ArgumentError, DBAPIError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from sutler.service.db import embedded
from sutler.service.db.errors import DatabaseUnreachableError, unreachable
from sutler.service.db.queue_schema import SEARCH_PATH
from sutler.service.settings import SettingsError, StoreSettings

CONNECT_TIMEOUT_S = 10


def open_engine(settings: StoreSettings) -> Engine:
    """An engine on the operator's server or the private one, with whatever tables it has (store.py sees to those).

    Raises DatabaseError, SettingsError.
    """
    engine = _engine(settings.database_url or embedded.start(settings.data_dir))
    if settings.database_url is None:
        event.listen(engine, "do_connect", partial(_connect_and_revive, settings.data_dir))
    return engine


def _engine(url: str) -> Engine:
    engine = create_engine(
        _parsed(url),
        pool_pre_ping=True,
        pool_size=5,
        max_overflow=20,
        hide_parameters=True,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "sutler"},
    )
    event.listen(engine, "connect", prepare)
    return engine


def _connect_and_revive(
    data_dir: Path, dialect: Dialect, _: object, args: list[Any], options: dict[str, Any]
) -> DBAPIConnection:
    """Starts the private server again where it was killed: nobody else would."""
    try:
        return dialect.connect(*args, **options)
    except psycopg.OperationalError:
        embedded.start(data_dir)
        return dialect.connect(*args, **options)


def _parsed(url: str) -> URL:
    """Raises SettingsError, which shows nothing of the URL: any part of a wrong one may be a password."""
    try:
        parsed = make_url(url)
        parsed.get_dialect()().create_connect_args(parsed)
    except (ArgumentError, ValueError):
        remedy = "must be postgresql://user:password@host:port/database"
        raise SettingsError(f"SUTLER_DATABASE_URL: cannot be read; it {remedy}") from None
    if "@" in f"{parsed.host}{parsed.database}":
        raise SettingsError("SUTLER_DATABASE_URL: has several @: write one that is in the password as %40")
    return parsed


def prepare(connection: DBAPIConnection, _: object) -> None:
    """Hours begin where UTC's do and times come back in UTC, whatever the server's time zone.

    Compiling the short queries here (jit) would take longer than they do. The queue's tables are found beside ours.
    """
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.execute("SET jit = off")
        cursor.execute(f"SET search_path TO {SEARCH_PATH}")
    connection.commit()


@contextmanager
def connected(engine: Engine, *, isolation_level: IsolationLevel = "READ COMMITTED") -> Iterator[Connection]:
    """A connection for reading; errors of the database come out as DatabaseError.

    With REPEATABLE READ all its questions see the store as of the first one.
    """
    with translated(), engine.connect() as connection:
        yield connection.execution_options(isolation_level=isolation_level)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction: all of it, or, on any error, nothing."""
    with translated(), engine.begin() as connection:
        yield connection


@contextmanager
def translated() -> Iterator[None]:
    """Turns what comes of a database that is away, full or refuses work into DatabaseUnreachableError."""
    try:
        yield
    except NoFreeConnectionError as error:
        reason = "all of this process's database connections are in use: try again, with fewer polls at once"
        raise DatabaseUnreachableError(reason) from error
    except (OperationalError, InternalError) as error:
        raise unreachable(error) from error
    except DBAPIError as error:
        if error.connection_invalidated or error.statement is None or _is_forbidden(error):
            raise unreachable(error) from error
        raise


def _is_forbidden(error: DBAPIError) -> bool:
    """The database's user may not do this."""
    return isinstance(error.orig, InsufficientPrivilege)
