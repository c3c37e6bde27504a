"""The router's file is written, tried and loaded, or stays as it was."""

import asyncio
from pathlib import Path

import pytest

from sutler.service.documents.errors import OutputError
from sutler.service.routers.configuration import CommandError, Configuration


def put(configuration: Configuration, content: bytes) -> bool:
    return asyncio.run(configuration.put(content))


def counting(folder: Path) -> list[str]:
    return ["sh", "-c", f"cat {folder}/router.conf >> {folder}/loaded; echo >> {folder}/loaded"]


def test_what_is_new_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "router.conf"
    file.write_bytes(b"as it was when we came")
    configuration = Configuration(file, ["true"], counting(tmp_path))
    assert [put(configuration, content) for content in (b"a", b"a", b"b")] == [True, False, True]
    assert (tmp_path / "loaded").read_text() == "a\nb\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_file_that_the_router_refuses_is_put_back(tmp_path: Path) -> None:
    file = tmp_path / "router.conf"
    check = ["sh", "-c", f"grep -q good {file} || {{ echo first; echo '[emerg] it is bad'; echo failed; exit 3; }}"]
    configuration = Configuration(file, check, counting(tmp_path))
    with pytest.raises(CommandError, match=r"ended with 3: \[emerg\] it is bad"):
        put(configuration, b"bad")
    assert not file.exists()
    assert put(configuration, b"good")
    with pytest.raises(CommandError):
        put(configuration, b"bad")
    assert file.read_bytes() == b"good"
    assert (tmp_path / "loaded").read_text() == "good\n"


def test_what_was_not_loaded_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "router.conf"
    configuration = Configuration(file, [], ["test", "-e", str(tmp_path / "router runs")])
    for _ in range(2):
        with pytest.raises(CommandError, match="ended with 1: it says nothing"):
            put(configuration, b"a")
    assert file.read_bytes() == b"a"  # so that a router which starts later has it
    (tmp_path / "router runs").touch()
    assert put(configuration, b"a")


def test_what_cannot_be_run_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"`no-such-router -t` cannot be run: no such file"):
        put(Configuration(tmp_path / "a", ["no-such-router", "-t"], []), b"a")
    with pytest.raises(OutputError, match="choose another path"):
        put(Configuration(tmp_path / "no folder" / "a", [], []), b"a")
