"""Commands under test see a data folder of their own and none of the caller's settings."""

from os import environ
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in environ if name.startswith("SUTLER_")]:
        monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("data") / "sutler"
    monkeypatch.setenv("SUTLER_DATA_DIR", str(folder))
    return folder
