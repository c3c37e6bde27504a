"""Run by Alembic: on the connection that service/db/upgrade hands in, or, from `alembic`, on the configured store."""

from alembic import context
from sqlalchemy import Connection

from sutler.service.db import api_tables, profile_tables, watch_tables  # noqa: F401 - they add their tables to Base
from sutler.service.db.queue_schema import is_ours
from sutler.service.db.tables import Base
from sutler.service.db.upgrade import configured_engine, finish


def run(connection: Connection) -> None:
    """All pending versions in the caller's transaction."""
    context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True, include_name=is_ours)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    engine = configured_engine()
    with engine.begin() as own:
        run(own)
    finish(engine)
