"""A store goes into a file and comes out of it the same, or not at all."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from sutler.service.backup import tables
from sutler.service.backup.errors import BackupError
from sutler.service.backup.file import new_file
from sutler.service.backup.store import back_up, restore
from sutler.service.db.engine import connected, transaction
from sutler.service.db.projects import SCHEMA, of_project
from sutler.service.db.store import HEAD, schema_version
from sutler.service.db.upgrade import UPGRADE_LOCK, config, upgrade
from sutler.service.settings import StoreSettings
from tests.postgres import Server, opened
from tests.service.backup.stores import AWKWARD, held, nobody
from tests.service.db.test_projects import columns


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a backup goes: nothing else is in its folder."""
    return tmp_path / "sutler.backup"


@pytest.fixture
def whole(full: Engine, file: Path) -> Path:
    """A backup."""
    back_up(full, file, nobody)
    return file


def test_all_that_a_store_holds_is_the_same_in_another(full: Engine, other: Engine, file: Path) -> None:
    manifest = back_up(full, file, nobody)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*file.parent.iterdir()] == [file]
    before = held(full)
    assert manifest.rows == sum(len(rows) for name, rows in before.items() if name != "sequences")
    restore(other, file, is_forced=False, tell=nobody)
    assert schema_version(other) == HEAD
    assert held(other) == before


def test_what_follows_in_a_restored_store_gets_numbers_that_nothing_had(
    full: Engine, other: Engine, file: Path
) -> None:
    with transaction(full) as connection:
        connection.execute(text("DELETE FROM audit WHERE id > 10"))
    back_up(full, file, nobody)
    restore(other, file, is_forced=False, tell=nobody)
    with transaction(other) as connection:
        added = text("INSERT INTO audit (actor, action, target) VALUES ('me', 'new', 'x') RETURNING id")
        assert connection.scalar(added) > 500


def test_a_project_sees_its_rows_alone_after_a_restore(full: Engine, other: Engine, file: Path) -> None:
    back_up(full, file, nobody)
    restore(other, file, is_forced=False, tell=nobody)
    assert columns(other, SCHEMA) == columns(full, SCHEMA)
    for project, names in (("ours", ["chat"]), ("default", [])):
        with of_project(other, project).connect() as connection:
            assert [*connection.scalars(text("SELECT name FROM deployment"))] == names


def test_the_file_is_a_zip_that_other_programs_read(full: Engine, file: Path) -> None:
    back_up(full, file, nobody)
    with ZipFile(file) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("sutler-backup/manifest.json"))
        assert (manifest["format"], manifest["tables_version"]) == ("sutler/backup/v1", HEAD)
        lines = archive.read("sutler-backup/public.audit.copy").splitlines()
    assert len(lines) == 500
    content = file.read_bytes()
    assert content[-64:].decode() == hashlib.sha256(content[:-64]).hexdigest()


def test_a_file_that_was_there_is_replaced_by_one_that_only_its_owner_reads(full: Engine, file: Path) -> None:
    file.write_text("of before")
    file.chmod(0o644)
    back_up(full, file, nobody)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nobody_else_can_read_it_while_it_is_written(full: Engine, file: Path) -> None:
    modes: set[int] = set()
    back_up(full, file, lambda _: modes.update(stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()))
    assert modes == {0o600}


@pytest.mark.parametrize("twentieths", range(20))
def test_a_file_that_was_cut_short_is_refused(whole: Path, other: Engine, twentieths: int) -> None:
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) * twentieths // 20])
    with pytest.raises(BackupError, match=r"cut short|no backup of sutler"):
        restore(other, whole, is_forced=False, tell=nobody)
    assert schema_version(other) is None


def test_a_byte_that_has_changed_anywhere_is_noticed(whole: Path, other: Engine) -> None:
    content = whole.read_bytes()
    for at in [*range(0, len(content), len(content) // 40), *range(len(content) - 100, len(content))]:
        whole.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BackupError):
            restore(other, whole, is_forced=False, tell=nobody)
    whole.write_bytes(content + b"\n")
    with pytest.raises(BackupError):
        restore(other, whole, is_forced=False, tell=nobody)
    assert schema_version(other) is None


def rewritten(whole: Path, member: str, change: Callable[[bytes], bytes | None]) -> Path:
    """A file whose digest is right, as another program or version might make one."""
    file = whole.with_name("other.backup")
    with ZipFile(whole) as before, new_file(file) as archive:
        for info in before.infolist():
            content = before.read(info)
            changed = change(content) if info.filename.endswith(member) else content
            if changed is not None:
                archive.writestr(info.filename, changed)
    return file


@pytest.mark.parametrize(
    ("member", "change", "said"),
    [
        ("manifest.json", lambda _: None, "another format"),
        ("manifest.json", lambda found: found.replace(b"backup/v1", b"backup/v2"), "another format"),
        ("manifest.json", lambda found: found.replace(HEAD.encode(), b"9999"), "version 9999, made by sutler"),
        ("manifest.json", lambda found: found.replace(b'"audit"', b'"audits"'), "not those of version"),
        ("manifest.json", lambda found: found.replace(b'"actor"', b'"role"'), "not those of version"),
        ("audit.copy", lambda found: found[:-9], "audit: cannot be restored"),
        ("audit.copy", lambda found: found + found, "audit: cannot be restored: duplicate key"),
        ("api_key.copy", lambda _: b"", "cannot be restored: insert or update .* violates foreign key"),
        ("deployment.copy", lambda _: None, "not those of version"),
    ],
)
def test_a_file_that_is_none_of_this_sutler_s_leaves_the_store_as_it_was(
    whole: Path, full: Engine, member: str, change: Callable[[bytes], bytes | None], said: str
) -> None:
    before = held(full)
    with pytest.raises(BackupError, match=said) as refused:
        restore(full, rewritten(whole, member, change), is_forced=True, tell=nobody)
    assert AWKWARD not in str(refused.value)
    assert held(full) == before


def test_other_files_are_refused(other: Engine, file: Path) -> None:
    with pytest.raises(BackupError, match="cannot be read: no such file"):
        restore(other, file, is_forced=False, tell=nobody)
    os.mkfifo(file)
    with pytest.raises(BackupError, match="is a device or pipe"):
        restore(other, file, is_forced=False, tell=nobody)
    file.unlink()
    with ZipFile(file, "w") as archive:
        archive.writestr("photographs/1.jpeg", b"")
    with pytest.raises(BackupError, match="is no backup of sutler"):
        restore(other, file, is_forced=False, tell=nobody)


def test_a_store_that_holds_rows_is_kept_unless_it_is_to_be_replaced(whole: Path, full: Engine) -> None:
    before = held(full)
    with transaction(full) as connection:
        connection.execute(text("DELETE FROM deployment"))
    full.dispose()  # a connection that this process keeps is somebody at work
    with pytest.raises(BackupError, match=r"not empty: it holds rows \(audit 500, .* and 4 more\): .*--force"):
        restore(full, whole, is_forced=False, tell=nobody)
    with transaction(full) as connection:
        assert connection.scalar(text("SELECT count(*) FROM deployment")) == 0
    restore(full, whole, is_forced=True, tell=nobody)
    assert held(full) == before


def test_a_store_on_which_a_role_is_at_work_is_left_alone(
    whole: Path, other: Engine, new_database: StoreSettings
) -> None:
    upgrade(other)
    with opened(new_database) as role, role.connect() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(BackupError, match=r"in use by sutler \(1\): stop all roles"):
            restore(other, whole, is_forced=False, tell=nobody)
        connection.rollback()
        restore(other, whole, is_forced=True, tell=nobody)


def test_a_backup_of_an_older_version_is_brought_up_to_date(other: Engine, full: Engine, file: Path) -> None:
    """Its tables are made as they were, so that what the migrations do to rows is done to its rows."""
    upgrade(other, "0016")
    with transaction(other) as connection:
        connection.execute(
            text("INSERT INTO deployment (id, name, problem, policy) VALUES (gen_random_uuid(), 'old', '{}', '{}')")
        )
    assert back_up(other, file, nobody).tables_version == "0016"
    done = restore(full, file, is_forced=True, tell=nobody)
    assert (done.tables_version, schema_version(full)) == (HEAD, HEAD)
    with of_project(full, "default").connect() as connection:
        assert [*connection.scalars(text("SELECT name FROM deployment"))] == ["old"]


def test_no_version_has_had_tables_that_a_backup_would_leave_out(other: Engine) -> None:
    for script in reversed([*ScriptDirectory.from_config(config()).walk_revisions()]):
        upgrade(other, script.revision)
        with connected(other) as connection:
            mine = {table.name for table in tables.found(connection) if table.schema_name == "public"}
            there = text(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
            )
            assert mine == {*connection.scalars(there)}, script.revision


def test_tables_of_others_stay(full: Engine, other: Engine, file: Path) -> None:
    with transaction(other) as connection:
        connection.execute(text("CREATE TABLE notes AS SELECT 1 AS id"))
    back_up(full, file, nobody)
    restore(other, file, is_forced=False, tell=nobody)
    with transaction(other) as connection:
        assert connection.scalar(text("SELECT id FROM notes")) == 1
        connection.execute(text("CREATE VIEW wishes AS SELECT name FROM deployment"))
    before = held(other)
    with pytest.raises(BackupError, match="view wishes depends on table deployment: drop what depends on them"):
        restore(other, file, is_forced=True, tell=nobody)
    assert held(other) == before


def test_a_store_with_tables_that_are_not_known_here_is_not_backed_up(full: Engine, file: Path) -> None:
    """Some of them would be left out."""
    with full.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    try:
        with pytest.raises(BackupError, match="the database: holds tables of version 9999; this sutler knows"):
            back_up(full, file, nobody)
    finally:
        with full.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": HEAD})
    assert not file.exists()


def test_a_user_who_owns_a_database_and_nothing_else_restores_into_it(
    whole: Path, full: Engine, postgres: Server
) -> None:
    postgres.run("CREATE ROLE plain LOGIN", "CREATE DATABASE plainly OWNER plain")
    url = postgres.url("plainly", user="plain")
    with opened(StoreSettings(data_dir=Path("unused"), database_url=url)) as engine:
        for is_forced in (False, True):
            restore(engine, whole, is_forced=is_forced, tell=nobody)
        assert held(engine) == held(full)
        back_up(engine, whole, nobody)
    postgres.run("DROP DATABASE plainly WITH (FORCE)", "DROP ROLE plain")


def test_a_store_without_tables_is_not_backed_up(other: Engine, file: Path) -> None:
    with pytest.raises(BackupError, match="has no tables of sutler"):
        back_up(other, file, nobody)
    assert not file.exists()


def test_a_backup_sees_one_instant_whoever_writes_meanwhile(full: Engine, other: Engine, file: Path) -> None:
    """Rows that refer to each other are added while the tables are copied, one after the other."""

    def add(_: str) -> None:
        with transaction(full) as connection:
            connection.execute(text("INSERT INTO project (name) VALUES (gen_random_uuid()::text)"))
            connection.execute(
                text("INSERT INTO audit (actor, action, target, project) SELECT 'me', 'x', 'y', name FROM project")
            )

    before = held(full)
    back_up(full, file, add)
    restore(other, file, is_forced=False, tell=nobody)
    after = held(other)
    assert after.pop("sequences").keys() == before.pop("sequences").keys()
    assert after == before


def test_migrations_wait_for_a_backup(full: Engine, file: Path) -> None:
    """One under way would change tables that are not copied yet."""
    waited = []

    def look(_: str) -> None:
        with transaction(full) as connection:
            waited.append(connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK}))

    back_up(full, file, look)
    assert {*waited} == {False}
