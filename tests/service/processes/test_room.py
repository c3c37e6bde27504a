"""`/readyz` tells of a private database that is about to be without room, and of no other."""

from pathlib import Path

import pytest

from sutler.service.operation import health
from sutler.service.operation.health import room


@pytest.mark.parametrize(("least_bytes", "is_enough"), [(1, True), (10**30, False)])
def test_room_is_looked_for_in_the_private_database_s_folder(
    least_bytes: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SUTLER_DATABASE_URL", raising=False)
    monkeypatch.setenv("SUTLER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(health, "LEAST_ROOM_BYTES", least_bytes)
    [check] = room()
    assert (check.name, check.ok) == ("room", is_enough)
    assert is_enough or "make room, or `sutler db prune`" in check.detail


def test_the_room_of_another_server_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUTLER_DATABASE_URL", "postgresql://sutler@db.example/sutler")
    assert list(room()) == []
