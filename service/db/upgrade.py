"""Brings the tables to a version, with Alembic; several processes may try at once, one does it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from sutler.service.db.engine import open_engine, translated
from sutler.service.db.errors import SchemaError
from sutler.service.settings import store_settings

MIGRATIONS = Path(__file__).parents[2] / "migrations"
UPGRADE_LOCK = 0x5E71_0001  # any number: it keeps this advisory lock apart from others


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
