"""From a store to a file while the service runs, and from a file to an empty store: each in one transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from sutler.service.backup import tables
from sutler.service.backup.errors import BackupError
from sutler.service.backup.file import MANIFEST, Manifest, Table, member_of, new_file, whole_file
from sutler.service.db.engine import connected, transaction
from sutler.service.db.store import HEAD, schema_version
from sutler.service.db.upgrade import bring_to, config, held_still, unhurried
from sutler.solver.version import VERSION

Tell = Callable[[str], None]
"""Is told in words how far it is."""
MOST_NAMED = 6  # chosen: of the tables that hold rows; an error is to be read


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, and at which version the tables are now."""

    manifest: Manifest
    tables_version: str


def back_up(engine: Engine, path: Path, tell: Tell) -> Manifest:
    """Writes all rows as of one instant, whoever changes some meanwhile. Raises BackupError, OutputError,
    DatabaseError."""
    with held_still(engine, shared=True), connected(engine, isolation_level="REPEATABLE READ") as connection:
        version = schema_version(engine)
        if version is None:
            raise BackupError("the database has no tables of sutler", "name the store that is to be backed up")
        _check_version("the database", version)
        tables.write_as_anywhere(connection)
        taken_at: datetime = connection.execute(text("SELECT now()")).scalar_one()
        there = tables.found(connection)
        with new_file(path) as archive:
            copied = tuple(_copied(connection, archive, table, tell) for table in there)
            manifest = Manifest(
                sutler_version=VERSION,
                tables_version=version,
                taken_at=taken_at.astimezone(UTC),
                tables=copied,
                sequences=tables.sequences(connection, there),
            )
            with member_of(archive, MANIFEST) as stream:
                stream.write(f"{manifest.model_dump_json(indent=2)}\n".encode())
    return manifest


def restore(engine: Engine, path: Path, *, is_forced: bool, tell: Tell) -> Restored:
    """Has the store hold what the file does, its tables brought up to date; or, on any error, what it held before.

    `is_forced`: in place of the rows that there are, and while others are at work. Raises BackupError,
    DatabaseError.
    """
    tell(f"checking {path}")
    with whole_file(path) as (manifest, archive):
        _check_version(path, manifest.tables_version, f", made by sutler {manifest.sutler_version}")
        with held_still(engine), transaction(engine) as connection:
            unhurried(connection)
            there = tables.found(connection)
            if not is_forced:
                _check_store(connection, there)
            tables.drop(connection, there)
            bring_to(connection, manifest.tables_version)
            made = tables.found(connection)
            _check_tables(path, manifest, archive, made)
            tables.empty(connection, made)
            for table in manifest.tables:
                _restore(connection, archive, table, tell)
            tables.set_sequences(connection, manifest.sequences)
            tell("bringing the tables up to date")
            bring_to(connection, "head")
        with transaction(engine) as connection:
            tables.cut_others(connection)
    return Restored(manifest, HEAD)


def _copied(connection: Connection, archive: ZipFile, found: tables.Found, tell: Tell) -> Table:
    table = Table(schema_name=found.schema_name, name=found.name, columns=found.columns, rows=0, bytes=0)
    with member_of(archive, table.member) as stream:
        rows, length = tables.copy_out(connection, found, stream, _progress(table, tell))
    return table.model_copy(update={"rows": rows, "bytes": length})


def _restore(connection: Connection, archive: ZipFile, table: Table, tell: Tell) -> None:
    with archive.open(table.member) as stream:
        tables.copy_in(connection, table.schema_name, table.name, table.columns, stream, told=_progress(table, tell))


def _progress(table: Table, tell: Tell) -> tables.Told:
    tell(table.name)
    return lambda length: tell(f"{table.name}: {length / 1e6:,.0f} MB")


def _check_version(holder: object, version: str, made: str = "") -> None:
    """What is newer has tables that are not known here."""
    try:
        ScriptDirectory.from_config(config()).get_revision(version)
    except CommandError:
        reason = f"{holder}: holds tables of version {version}{made}; this sutler knows them up to {HEAD}"
        raise BackupError(reason, "install the version of sutler that made them, or a newer one") from None


def _check_store(connection: Connection, there: Sequence[tables.Found]) -> None:
    if at_work := tables.others_at_work(connection):
        remedy = "stop all roles and commands, or restore with --force, which has them begin anew afterwards"
        raise BackupError(f"the store is in use by {', '.join(at_work)}", remedy)
    if rows := tables.rows_held(connection, there):
        most = sorted(rows, key=lambda name: -rows[name])
        named = ", ".join(f"{name} {rows[name]:,}" for name in most[:MOST_NAMED])
        more = f" and {len(most) - MOST_NAMED} more" if len(most) > MOST_NAMED else ""
        remedy = "back it up and restore with --force, which replaces all of them, or name an empty database"
        raise BackupError(f"the store is not empty: it holds rows ({named}{more})", remedy)


def _check_tables(path: Path, manifest: Manifest, archive: ZipFile, made: Sequence[tables.Found]) -> None:
    columns = {table.path: {*table.columns} for table in made}
    given = {table.path: {*table.columns} for table in manifest.tables}
    is_whole = {table.member for table in manifest.tables} <= {*archive.namelist()}
    if not is_whole or given.keys() != columns.keys() or any(given[name] - columns[name] for name in given):
        reason = f"{path}: its tables are not those of version {manifest.tables_version}"
        raise BackupError(reason, "restore it with the sutler that wrote it")
