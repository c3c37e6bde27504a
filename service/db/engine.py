"""From settings to an engine, and connections whose errors are ours."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

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

CONNECT_TIMEOUT_S: Final = 10  # chosen: longer than a busy server takes to answer, and people still wait for it

OPTIONS: Final[dict[str, Any]] = {
    "pool_pre_ping": True,
    "hide_parameters": True,
    "connect_args": {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "sutler"},
}
"""What every engine is opened with."""


def open_engine(settings: StoreSettings) -> Engine:
    """An engine on the operator's server or the private one, with whatever tables it has (store.py sees to those).

    Raises DatabaseError, SettingsError.
    """
    url = _parsed(settings.database_url or embedded.start(settings.data_dir))
    engine = create_engine(url, pool_size=5, max_overflow=20, **OPTIONS)
    event.listen(engine, "connect", prepare)
    if settings.database_url is None:
        revive(engine, partial(embedded.start, settings.data_dir))
    return engine


def revive(engine: Engine, start: Callable[[], object]) -> None:
    """Starts the private server again where it was killed: nobody else would."""

    def connect(dialect: Dialect, _: object, args: list[Any], options: dict[str, Any]) -> DBAPIConnection:
        try:
            return dialect.connect(*args, **options)
        except psycopg.OperationalError:
            start()
            return dialect.connect(*args, **options)

    event.listen(engine, "do_connect", connect)


def _parsed(url: str) -> URL:
    """Reads the URL. Raises SettingsError, which shows nothing of it: any part of a wrong one may be a password."""
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
    """Sees to it that hours begin where UTC's do and times come back in UTC, whatever the server's time zone.

    Compiling the short queries here (jit) would take longer than they do. The queue's tables are found beside ours.
    """
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.execute("SET jit = off")
        cursor.execute(f"SET search_path TO {SEARCH_PATH}")
    connection.commit()


@contextmanager
def connected(engine: Engine, *, isolation_level: IsolationLevel = "READ COMMITTED") -> Iterator[Connection]:
    """Lends a connection for reading; errors of the database come out as DatabaseError.

    With REPEATABLE READ all its questions see the store as of the first one.
    """
    with translated(), engine.connect() as connection:
        yield connection.execution_options(isolation_level=isolation_level)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Runs one transaction: all of it, or, on any error, nothing."""
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
    """Whether the database's user may not do this."""
    return isinstance(error.orig, InsufficientPrivilege)
