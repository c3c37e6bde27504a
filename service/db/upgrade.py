"""Brings the tables to a version, with Alembic; several processes may try at once, one does it.

A service of the version before goes on meanwhile. The tables are changed in one short transaction, for which it
waits, and their indexes are built afterwards beside its work (indexes.py).
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from psycopg.errors import QueryCanceled
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from sutler.service.db import api_tables, indexes, profile_tables, watch_tables  # noqa: F401 - they name indexes too
from sutler.service.db.engine import open_engine, translated
from sutler.service.db.errors import SchemaError
from sutler.service.settings import store_settings

logger = logging.getLogger("sutler.database")

MIGRATIONS = Path(__file__).parents[2] / "migrations"
OLDEST: Final = "0016"  # whose sutler works with the newest tables too: what only it needs goes with the next version
UPGRADE_LOCK = 0x5E71_0001  # any number: it keeps this advisory lock apart from others
TURN_MS: Final = 500  # below deadlock_timeout (1 s), after which PostgreSQL would end a transaction of the service's
PAUSE_S: Final = 0.5  # chosen: what has waited for a turn is done by then
LONG_TURNS: Final = 5  # chosen: after so many, some seconds, whoever waits is told for whom
_TABLES: Final = text("""
    SELECT string_agg(format('public.%I', tablename), ', ') FROM pg_tables
    WHERE schemaname = 'public' AND tablename <> 'alembic_version' AND pg_has_role(tableowner, 'USAGE')
""")

_HOLDERS: Final = text("""
    SELECT string_agg(
        DISTINCT format('%s (process %s)', coalesce(nullif(a.application_name, ''), a.usename), a.pid), ', ')
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.granted AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.pid <> pg_backend_pid()
      AND a.datname = current_database()
""")


def config() -> Config:
    """Alembic's configuration, for the migrations beside the packages."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


def configured_engine() -> Engine:
    """Opens, for Alembic's own command line, the store of this process's settings, as it is."""
    return open_engine(store_settings())


def upgrade(engine: Engine, to: str = "head", tell: Callable[[str], None] = logger.info) -> None:
    """Brings the tables up to date; `tell` is told in words how far it is.

    Raises SchemaError where the database is newer than the migrations, DatabaseUnreachableError.
    """
    _run(engine, "upgrade", to, tell)


def downgrade(engine: Engine, to: str) -> None:
    """Goes back to an older version ("base": no tables). What only the newer tables held is lost."""
    _run(engine, "downgrade", to, logger.info)


def _run(engine: Engine, direction: str, to: str, tell: Callable[[str], None]) -> None:
    with held_still(engine), engine.begin() as connection:
        unhurried(connection)
        before = _version(connection)
        if before not in (None, _newest()):
            _lock(connection)
        _go(connection, direction, to)
        if before is None:
            _build(connection, tell, at_once=True)
    finish(engine, tell)


def finish(engine: Engine, tell: Callable[[str], None] = logger.info) -> None:
    """Builds what an upgrade to the newest tables builds last, where it is missing.

    Raises DatabaseUnreachableError.
    """
    with held_still(engine) as connection:
        _build(connection, tell, at_once=False)


def _build(connection: Connection, tell: Callable[[str], None], *, at_once: bool) -> None:
    """What the newest tables need; those of versions before have what they had."""
    if _version(connection) == _newest():
        indexes.build(connection, tell, at_once=at_once)


def _newest() -> str | None:
    return ScriptDirectory.from_config(config()).get_current_head()


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def held_still(engine: Engine, *, shared: bool = False) -> Iterator[Connection]:
    """Until the end of this block nobody else changes the tables; it may take as long as it takes.

    `shared`: several may want that at once who change none themselves. Lends a connection that commits every
    statement by itself. Raises DatabaseUnreachableError.
    """
    lock = text(f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}(:key)")
    with translated(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.detach()  # what this session is told and holds ends with it
        unhurried(connection, "SET")
        connection.execute(text("SET application_name = 'one that changes sutler''s tables'"))  # it is none at work
        # Not by a statement or in a transaction that waits: whoever builds an index waits for those.
        while not connection.scalar(lock, {"key": UPGRADE_LOCK}):
            time.sleep(PAUSE_S)
        yield connection


def unhurried(connection: Connection, how: str = "SET LOCAL") -> None:
    """Without limits for this transaction: tables may be large."""
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"{how} {limit} = 0"))


def bring_to(connection: Connection, to: str) -> None:
    """Brings the tables to a newer version, in a transaction, while they are held still. Raises SchemaError."""
    _go(connection, "upgrade", to)
    _build(connection, logger.info, at_once=True)


def _go(connection: Connection, direction: str, to: str) -> None:
    settings = config()
    settings.attributes["connection"] = connection
    try:
        getattr(command, direction)(settings, to)
    except CommandError as error:
        detail = f"the tables cannot be brought to {to}: {error}; this sutler may be older than the database"
        raise SchemaError(detail) from error
    connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{OLDEST}'"))


def _lock(connection: Connection) -> None:
    """Takes all tables at once: taken one by one, as migrations come to them, they are a deadlock with whoever has a
    later one and waits for an earlier one."""
    tables = connection.scalar(_TABLES)
    for turn in count(1):
        try:
            with connection.begin_nested():
                connection.execute(text(f"SET LOCAL statement_timeout = {TURN_MS}"))
                connection.execute(text(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"))
                connection.execute(text("SET LOCAL statement_timeout = 0"))
            return
        except OperationalError as error:
            if not isinstance(error.orig, QueryCanceled):
                raise
            if turn == LONG_TURNS:
                holders = connection.scalar(_HOLDERS) or "sessions that come and go"
                logger.warning("the upgrade waits for tables that others use: %s; end them, or wait", holders)
            time.sleep(PAUSE_S)
