"""What an upgrade builds of large tables while everybody works on them: indexes, and proofs of constraints.

Migrations change what tables hold and state new constraints as NOT VALID, which takes no time however many rows there
are. Which indexes there are is what the tables say (tables.py and its neighbours), and nothing else; `build` makes
those that are missing. It may be broken off and begun again.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, Index, text
from sqlalchemy.schema import CreateIndex

from sutler.service.db.tables import Base

# Of versions before; those that the tables name now are in their place.
FORMER: Final = (
    *("ix_plan_created_at", "ix_offline_plan_created_at", "ix_study_created_at"),
    "ix_cost_deployment_name",
)
_BUILT: Final = text("""
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indisvalid AND c.relnamespace = 'public'::regnamespace
""")
_UNPROVEN: Final = text("""
    SELECT conrelid::regclass::text AS table, conname AS name FROM pg_constraint
    WHERE NOT convalidated AND connamespace = 'public'::regnamespace ORDER BY 1, 2
""")


def missing(connection: Connection) -> tuple[Index, ...]:
    """Those of the tables that this process knows which are not built, or not to the end."""
    built = {*connection.scalars(_BUILT)}
    named = (index for table in Base.metadata.sorted_tables for index in table.indexes)
    return tuple(sorted((index for index in named if index.name not in built), key=lambda index: f"{index.name}"))


def build(connection: Connection, tell: Callable[[str], None], *, at_once: bool) -> None:
    """Builds what is missing, then drops what it replaces, then proves constraints of rows that were there before.

    `at_once`: in this transaction, on tables that nobody else uses yet. Otherwise the connection commits every
    statement by itself, and nobody waits; it waits itself for transactions that began before.
    """
    how = "" if at_once else " CONCURRENTLY"
    for index in missing(connection):
        tell(f"building {index.name}")
        connection.execute(text(f"DROP INDEX{how} IF EXISTS {index.name}"))  # one whose building was broken off
        made = str(CreateIndex(index).compile(dialect=connection.dialect))
        connection.exec_driver_sql(made.replace(" INDEX ", f" INDEX{how} ", 1))
    for name in FORMER:
        connection.execute(text(f"DROP INDEX{how} IF EXISTS {name}"))
    for constraint in connection.execute(_UNPROVEN).all():
        tell(f"checking {constraint.name}")
        connection.execute(text(f"ALTER TABLE {constraint.table} VALIDATE CONSTRAINT {constraint.name}"))
