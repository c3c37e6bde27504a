"""From settings to an engine whose tables are up to date."""

import logging

from sqlalchemy import Engine, text

from sutler.service.db import indexes
from sutler.service.db.engine import UNHURRIED, Patience, connected, open_engine
from sutler.service.db.errors import SchemaError
from sutler.service.settings import StoreSettings

logger = logging.getLogger("sutler.database")

HEAD = "0019"  # of the tables that this sutler works with: the newest file in migrations/versions


def open_store(settings: StoreSettings, patience: Patience = UNHURRIED) -> Engine:
    """An engine on the operator's server or the private one, whose tables are those of this sutler.

    The private database is brought up to date without asking; a server that others may use too gets its first tables
    so, but newer ones only by `sutler db upgrade`. Tables of the version after are taken as they are. Raises
    DatabaseError, SettingsError.
    """
    engine = open_engine(settings, patience)
    try:
        _ensure_tables(engine, may_upgrade=settings.database_url is None)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _ensure_tables(engine: Engine, *, may_upgrade: bool) -> None:
    found = schema_version(engine)
    if found == HEAD:
        _tell_of_missing_indexes(engine)
    if found == HEAD or (found is not None and found > HEAD and _serves_this(engine)):
        return
    if found is not None and not may_upgrade:
        raise SchemaError(f"the database is at version {found}, sutler at {HEAD}: run `sutler db upgrade`")
    from sutler.service.db.upgrade import upgrade  # Alembic is imported only where it has something to do

    upgrade(engine)


def _tell_of_missing_indexes(engine: Engine) -> None:
    """An upgrade builds them after all else, and may have been broken off."""
    with connected(engine) as connection:
        if missing := indexes.missing(connection):
            first = missing[0].name
            remedy = "everything works, but lists may be slow until `sutler db upgrade` has ended"
            logger.warning("%d indexes (%s, ...) are not built yet: %s", len(missing), first, remedy)


def _serves_this(engine: Engine) -> bool:
    """Whether newer tables say that this sutler works with them too (upgrade.py): it is about to be replaced."""
    with connected(engine) as connection:
        oldest = connection.scalar(text("SELECT obj_description('alembic_version'::regclass, 'pg_class')"))
        return oldest is not None and oldest <= HEAD


def schema_version(engine: Engine) -> str | None:
    """Returns the version of the tables; None where there are none. Raises DatabaseUnreachableError."""
    with connected(engine) as connection:
        if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found
