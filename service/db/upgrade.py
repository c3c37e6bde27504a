"""Brings the tables to a version, with Alembic; several processes may try at once, one does it.

A service of the version before may go on meanwhile: it waits for the tables, and finds all that it needs afterwards.
"""

import logging
import time
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


def upgrade(engine: Engine, to: str = "head") -> None:
    """Brings the tables up to date.

    Raises SchemaError where the database is newer than the migrations, DatabaseUnreachableError.
    """
    _run(engine, "upgrade", to)


def downgrade(engine: Engine, to: str) -> None:
    """Goes back to an older version ("base": no tables). What only the newer tables held is lost."""
    _run(engine, "downgrade", to)


def _run(engine: Engine, direction: str, to: str) -> None:
    with translated(), engine.begin() as connection:
        hold_still(connection)
        newest = ScriptDirectory.from_config(config()).get_current_head()
        if MigrationContext.configure(connection).get_current_revision() not in (None, newest):
            _lock(connection)
        _go(connection, direction, to)


def hold_still(connection: Connection, *, shared: bool = False) -> None:
    """From now until the end of this transaction nobody else changes the tables; it may take as long as it takes.

    `shared`: several may want that at once who change none themselves.
    """
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET LOCAL {limit} = 0"))  # tables may be large
    lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    connection.execute(text(f"SELECT {lock}(:key)"), {"key": UPGRADE_LOCK})


def bring_to(connection: Connection, to: str) -> None:
    """Brings the tables to a newer version, in a transaction that holds them still. Raises SchemaError."""
    _go(connection, "upgrade", to)


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
