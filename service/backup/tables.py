"""The tables of the store as the database knows them, whatever their version, and their rows as COPY has them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import IO, Final

import psycopg
from psycopg import sql
from psycopg.errors import DependentObjectsStillExist
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sutler.service.backup.errors import BackupError
from sutler.service.backup.file import BLOCK_BYTES
from sutler.service.db import api_tables, profile_tables, watch_tables  # noqa: F401 - they add their tables to Base
from sutler.service.db.errors import DatabaseUnreachableError
from sutler.service.db.projects import drop_views
from sutler.service.db.queue_schema import QUEUE_SCHEMA
from sutler.service.db.tables import Base
from sutler.service.settings import DEFAULT_PROJECT

Told = Callable[[int], None]
"""Is told how many bytes there were so far."""
# Others may have tables of their own in the schema `public`: those are not ours to copy or to drop.
_TABLES: Final = text("""
    SELECT c.oid::bigint AS id, n.nspname AS schema_name, c.relname AS name,
           ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum) AS columns,
           ARRAY(SELECT f.confrelid::bigint FROM pg_constraint f WHERE f.conrelid = c.oid AND f.contype = 'f'
                 AND f.confrelid <> c.oid) AS refers_to
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND (n.nspname = :queue OR n.nspname = 'public' AND c.relname = ANY(:ours)) ORDER BY 2, 3
""")
_SEQUENCES: Final = text("""
    SELECT format('%I.%I', n.nspname, c.relname), pg_sequence_last_value(c.oid) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
     AND d.refclassid = 'pg_class'::regclass
    WHERE c.relkind = 'S' AND d.refobjid = ANY(CAST(:tables AS oid[]))
""")
_ARE_OTHERS: Final = "datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'sutler%'"
_OTHERS: Final = text(f"""
    SELECT format('%s%s (%s)', application_name, coalesce(' on ' || host(client_addr), ''), count(*))
    FROM pg_stat_activity WHERE {_ARE_OTHERS} GROUP BY application_name, client_addr ORDER BY 1
""")
_CUT: Final = text(f"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_ARE_OTHERS} AND usename = current_user
""")
_AS_ANYWHERE: Final = """
    SET LOCAL client_encoding = 'UTF8'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = 'postgres';
    SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; SET LOCAL TimeZone = 'UTC'
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A table that there is."""

    id: int
    schema_name: str
    name: str
    columns: tuple[str, ...]
    refers_to: tuple[int, ...]

    @property
    def path(self) -> str:
        return f"{self.schema_name}.{self.name}"


def found(connection: Connection) -> list[Found]:
    """All of ours, each after those that it refers to."""
    rows = connection.execute(_TABLES, {"queue": QUEUE_SCHEMA, "ours": [*Base.metadata.tables]})
    by_id = {row.id: Found(row.id, row.schema_name, row.name, (*row.columns,), (*row.refers_to,)) for row in rows}
    order = TopologicalSorter({table.id: table.refers_to for table in by_id.values()}).static_order()
    return [by_id[table_id] for table_id in order if table_id in by_id]


def write_as_anywhere(connection: Connection) -> None:
    """What COPY writes in this transaction does not depend on the server's settings."""
    connection.execute(text(_AS_ANYWHERE))


def copy_out(connection: Connection, table: Found, stream: IO[bytes], told: Told) -> tuple[int, int]:
    """Writes a table's rows; returns how many, and of how many bytes."""
    length, waiting = 0, bytearray()
    statement = sql.SQL("COPY {} ({}) TO STDOUT").format(*_named(table.schema_name, table.name, table.columns))
    with _copying(table.path), _raw(connection).cursor() as cursor:
        with cursor.copy(statement) as copy:
            for block in copy:
                waiting += block
                if len(waiting) >= BLOCK_BYTES:
                    length += stream.write(waiting)
                    waiting.clear()
                    told(length)
        length += stream.write(waiting)
        return cursor.rowcount, length


def copy_in(
    connection: Connection, schema_name: str, name: str, columns: Sequence[str], stream: IO[bytes], told: Told
) -> int:
    """Reads a table's rows, none of its triggers noticing; returns how many. Raises BackupError."""
    path = sql.Identifier(schema_name, name)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(*_named(schema_name, name, columns))
    length = 0
    with _copying(f"{schema_name}.{name}"), _raw(connection).cursor() as cursor:
        cursor.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(path))
        with cursor.copy(statement) as copy:
            while block := stream.read(BLOCK_BYTES):
                copy.write(block)
                length += len(block)
                told(length)
        rows = cursor.rowcount
        cursor.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(path))
        cursor.execute(sql.SQL("ANALYZE {}").format(path))
        return rows


def sequences(connection: Connection, tables: Sequence[Found]) -> dict[str, int]:
    """The last value of each that has given one. They know no transactions: ask once the rows are copied."""
    rows = connection.execute(_SEQUENCES, {"tables": [table.id for table in tables]})
    return {name: value for name, value in rows if value is not None}


def set_sequences(connection: Connection, values: dict[str, int]) -> None:
    for name, value in values.items():
        connection.execute(text("SELECT setval(CAST(:name AS regclass), :value)"), {"name": name, "value": value})


def others_at_work(connection: Connection) -> list[str]:
    """Whoever else of sutler is connected, by what they call themselves."""
    return [*connection.scalars(_OTHERS)]


def cut_others(connection: Connection) -> None:
    """They connect again and begin anew: with the tables that there are now, and nothing remembered of others."""
    connection.execute(_CUT)


def rows_held(connection: Connection, tables: Sequence[Found]) -> dict[str, int]:
    """How many rows there are, by table, beside the project that there always is; none where there are none."""
    counts = {}
    for table in tables:
        is_usual = f" WHERE name <> '{DEFAULT_PROJECT}'" if table.name == "project" else ""
        if rows := connection.scalar(text(f"SELECT count(*) FROM {table.path}{is_usual}")):
            counts[table.name] = rows
    return counts


def drop(connection: Connection, tables: Sequence[Found]) -> None:
    """All tables with their rows. Raises BackupError where others have made what needs them: that is not dropped."""
    drop_views(connection)
    connection.execute(text(f"DROP SCHEMA IF EXISTS {QUEUE_SCHEMA} CASCADE"))
    paths = [table.path for table in tables if table.schema_name != QUEUE_SCHEMA]
    try:
        connection.execute(text(f"DROP TABLE IF EXISTS {', '.join([*paths, 'alembic_version'])}"))
    except DBAPIError as error:
        if not isinstance(error.orig, DependentObjectsStillExist):
            raise
        reason = f"the tables cannot be replaced: {(error.orig.diag.message_detail or '').replace(chr(10), ', ')}"
        raise BackupError(reason, "drop what depends on them, and make it again afterwards") from None


def empty(connection: Connection, tables: Sequence[Found]) -> None:
    """Removes what the migrations have put into them."""
    connection.execute(text(f"TRUNCATE {', '.join(table.path for table in tables)}"))


def _named(schema_name: str, name: str, columns: Sequence[str]) -> tuple[sql.Identifier, sql.Composed]:
    return sql.Identifier(schema_name, name), sql.SQL(", ").join(map(sql.Identifier, columns))


def _raw(connection: Connection) -> "psycopg.Connection[tuple[object, ...]]":
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


@contextmanager
def _copying(path: str) -> Iterator[None]:
    """Errors come out as ours, without the rows that PostgreSQL shows with them."""
    try:
        yield
    except psycopg.Error as error:
        said = error.diag.message_primary or type(error).__name__
        if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
            raise BackupError(f"{path}: cannot be restored: {said}", "nothing was changed: restore another") from None
        raise DatabaseUnreachableError(
            f"the database cannot be used now: {path}: {said}; check that it runs and has room, then run the same "
            "command again: nothing stored before is lost"
        ) from None
