"""Commands under test see a data folder of their own and none of the caller's settings; one service answers all."""

from collections.abc import Iterator
from os import environ
from pathlib import Path

import pytest

from tests.postgres import Server, a_folder
from tests.service.running import Running, made_key, serving, settings


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in environ if name.startswith("SUTLER_")]:
        monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("data") / "sutler"
    monkeypatch.setenv("SUTLER_DATA_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.fixture(scope="session")
def service(postgres: Server) -> Iterator[Running]:
    """All roles, on a database of their own; asks for a key, which the session carries, and may read engines here.

    It takes seconds to start, so every test of this process that asks one asks this one, with names of its own.
    """
    postgres.run("CREATE DATABASE service")
    others = {"SUTLER_DATABASE_URL": postgres.url("service"), "SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8"}
    with a_folder() as folder:
        environment = settings(folder, **others)
        key = made_key(environment, folder, "admin")
        with serving(folder, environment, "--require-key") as running:
            yield running.with_key(key)
