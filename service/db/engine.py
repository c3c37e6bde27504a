"""From settings to an engine, and connections whose errors are ours."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg.errors import InsufficientPrivilege, LockNotAvailable, QueryCanceled
from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, IsolationLevel
from sqlalchemy.exc import ArgumentError, DBAPIError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from sutler.service.db import embedded, projects
from sutler.service.db.errors import DatabaseBusyError, DatabaseUnreachableError, unreachable
from sutler.service.db.queue_schema import SEARCH_PATH
from sutler.service.settings import SettingsError, StoreSettings

CONNECT_TIMEOUT_S: Final = 10  # chosen: longer than a busy server takes to answer, and people still wait for it

KEEPALIVES: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""A server behind a network that was cut is missed after half a minute, not after hours."""


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds a kind of work waits for the server at most; 0: for ever.

    `pool_s`: for a free connection; `connect_s`: to be let in; `statement_s`: for a statement; `lock_s`: for what
    another transaction holds; `idle_s`: the server for the next statement of a transaction, before it ends it.
    """

    pool_s: float = 30.0
    connect_s: int = CONNECT_TIMEOUT_S
    statement_s: int = 0
    lock_s: int = 0
    idle_s: int = 0

    @property
    def setting(self) -> str:
        """The statements that have a session keep to it."""
        limits = {
            "statement_timeout": self.statement_s,
            "lock_timeout": self.lock_s,
            "idle_in_transaction_session_timeout": self.idle_s,
        }
        return "; ".join(f"SET {name} = '{seconds}s'" for name, seconds in limits.items())


UNHURRIED: Final = Patience()
# Chosen: who calls is told soon, and asks again; no job that does not hang takes nearly as long.
CALLERS: Final = Patience(pool_s=4, connect_s=4, statement_s=15, lock_s=2, idle_s=15)
JOBS: Final = Patience(statement_s=300, lock_s=300, idle_s=1800)


def options(patience: Patience) -> dict[str, Any]:
    """What an engine is opened with."""
    connect = {"connect_timeout": patience.connect_s, "application_name": "sutler", **KEEPALIVES}
    pool = {"pool_pre_ping": True, "pool_timeout": patience.pool_s}
    return {**pool, "hide_parameters": True, "connect_args": connect}


def open_engine(settings: StoreSettings, patience: Patience = UNHURRIED) -> Engine:
    """An engine on the operator's server or the private one, with whatever tables it has (store.py sees to those).

    Raises DatabaseError, SettingsError.
    """
    url = _parsed(settings.database_url or embedded.start(settings.data_dir))
    engine = create_engine(url, pool_size=5, max_overflow=20, **options(patience))
    event.listen(engine, "connect", prepared(patience))
    event.listen(engine, "begin", projects.begin)
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


def prepared(patience: Patience) -> Callable[[DBAPIConnection, object], None]:
    """What a new connection begins with: hours begin where UTC's do and times come back in UTC, whatever the server's
    time zone; the queue's tables are found beside ours; and it waits no longer than this.

    Compiling the short queries here (jit) would take longer than they do.
    """
    session = f"SET TIME ZONE 'UTC'; SET jit = off; SET search_path TO {SEARCH_PATH}; {patience.setting}"

    def prepare(connection: DBAPIConnection, _: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(session)
        connection.commit()

    return prepare


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
        raise _busy(error) or unreachable(error) from error
    except DBAPIError as error:
        if error.connection_invalidated or error.statement is None or _is_forbidden(error):
            raise unreachable(error) from error
        raise


def _busy(error: DBAPIError) -> DatabaseBusyError | None:
    """Where it answers, but not in time."""
    if isinstance(error.orig, LockNotAvailable):
        return DatabaseBusyError("another change holds what this one needs: ask again")
    if isinstance(error.orig, QueryCanceled):
        return DatabaseBusyError("the database took too long for this: ask again, for less if it happens often")
    return None


def _is_forbidden(error: DBAPIError) -> bool:
    """Whether the database's user may not do this."""
    return isinstance(error.orig, InsufficientPrivilege)
