"""The file of addresses: what it may hold, and when it is read."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from sutler.service.documents.errors import DocumentError
from sutler.service.routers.addresses import read_addresses
from sutler.service.routers.watched import Watched


def written(folder: Path, data: Any) -> Path:
    path = folder / "addresses.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_hosts_are_names_or_addresses(tmp_path: Path) -> None:
    given = {"chat-0": "10.0.0.5:8000", "chat/aggregated/1xh100-sxm/ab/1": "gpu-7.example.org:80", "c": "[fd00::7]:1"}
    assert read_addresses(written(tmp_path, given)) == {
        "chat-0": ("10.0.0.5", 8000),
        "chat/aggregated/1xh100-sxm/ab/1": ("gpu-7.example.org", 80),
        "c": ("fd00::7", 1),
    }


@pytest.mark.parametrize(
    "text", ["10.0.0.5", ":80", "a:0", "a:65536", "a:1; } evil", "a b:1", "http://a:1", "a:1\n", "user@a:1", 80, None]
)
def test_anything_else_is_refused_by_name(text: Any, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"addresses\.chat-0: .*must be host:port"):
        read_addresses(written(tmp_path, {"chat-0": text}))


def test_a_list_is_no_mapping(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="must be a mapping of replicas"):
        read_addresses(written(tmp_path, ["10.0.0.5:8000"]))


def test_a_file_is_read_again_when_it_has_changed_and_a_fault_is_raised_once(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": "h:1"})
    file = Watched(path, read_addresses)
    assert file.news() == {"a": ("h", 1)}
    assert file.news() is None
    draft = tmp_path / "draft"
    draft.write_text("{a: 'h:2'}")
    os.replace(draft, path)
    assert file.news() == {"a": ("h", 2)}
    path.write_text("[")
    with pytest.raises(DocumentError):
        file.news()
    path.unlink()
    with pytest.raises(DocumentError, match="cannot be read: no such file"):
        file.news()
