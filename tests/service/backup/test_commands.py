"""`sutler backup` and `sutler restore`: what they print, and how they end."""

import json
import os
import re
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.settings import StoreSettings
from tests.service.backup.stores import SECRET, fill


@pytest.fixture
def store(engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Engine:
    fill(engine)
    engine.dispose()
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    return engine


def sutler(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_tables_rows_bytes_and_seconds_are_told(store: Engine, tmp_path: Path) -> None:
    done = sutler("backup", str(tmp_path / "a.backup"))
    assert done.exit_code == 0, done.stderr
    assert re.search(r"^audit +500 +[\d,]+$", done.stdout, re.MULTILINE)
    assert "bytes in " in done.stdout
    assert "tables at version" in done.stdout
    assert SECRET not in done.output
    told = json.loads(sutler("backup", str(tmp_path / "b.backup"), "--json").stdout)
    assert told["tables"]["public.audit"]["rows"] == 500
    assert told["rows"] == sum(table["rows"] for table in told["tables"].values())


def test_a_store_with_rows_is_restored_into_by_force_alone(store: Engine, tmp_path: Path) -> None:
    file = str(tmp_path / "a.backup")
    sutler("backup", file)
    refused = sutler("restore", file)
    assert refused.exit_code == 2
    assert "error: the store is not empty" in refused.stderr
    done = sutler("restore", file, "--force")
    assert (done.exit_code, "docs/recovery.md" in done.stderr) == (0, True)


@pytest.mark.parametrize(("words", "said"), [(["backup", "."], "is a folder"), (["restore", "none"], "no such file")])
def test_what_cannot_be_is_said(store: Engine, words: list[str], said: str) -> None:
    done = sutler(*words)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_a_backup_takes_no_place_of_a_device_or_pipe(store: Engine, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = sutler("backup", str(pipe))
    assert (done.exit_code, "name a file" in done.stderr, pipe.is_fifo()) == (2, True, True)


def test_a_backup_makes_no_store_where_there_is_none(private_store: Path, tmp_path: Path) -> None:
    done = sutler("backup", str(tmp_path / "a.backup"))
    assert (done.exit_code, "there is no store in" in done.stderr, private_store.exists()) == (2, True, False)


@pytest.mark.slow
def test_a_backup_of_a_server_goes_into_a_private_store_and_back(
    store: Engine, tmp_path: Path, private_store: Path, monkeypatch: pytest.MonkeyPatch, empty_store: StoreSettings
) -> None:
    file = str(tmp_path / "a.backup")
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    before = json.loads(sutler("backup", file, "--json").stdout)
    monkeypatch.delenv("SUTLER_DATABASE_URL")
    assert sutler("restore", file).exit_code == 0
    there = json.loads(sutler("backup", file, "--json").stdout)
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    assert sutler("restore", file, "--force").exit_code == 0
    assert there["tables"] == before["tables"]
