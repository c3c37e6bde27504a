"""Brings the tables to a version, with Alembic; several processes may try at once, one does it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, text

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
        for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(text(f"SET LOCAL {limit} = 0"))  # tables may be large
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        settings = config()
        settings.attributes["connection"] = connection
        try:
            getattr(command, direction)(settings, to)
        except CommandError as error:
            detail = f"the tables cannot be brought to {to}: {error}; this sutler may be older than the database"
            raise SchemaError(detail) from error
