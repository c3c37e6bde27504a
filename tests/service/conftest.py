"""Commands under test see a data folder of their own and none of the caller's settings; one service answers all."""

from collections.abc import Iterator
from os import environ
from pathlib import Path

import pytest

from sutler.service.db import embedded
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_folder
from tests.service.running import Running, clear, made_key, serving, settings


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in environ if name.startswith("SUTLER_")]:
        monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("data") / "sutler"
    monkeypatch.setenv("SUTLER_DATA_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.fixture
def shared_store(own_settings: Path, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's database without rows, in no time; returns the folder of the settings."""
    assert empty_store.database_url is not None
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url)
    return own_settings


@pytest.fixture
def private_store(own_settings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a new user has: no database yet, and a private one once something asks for it. Returns its folder."""
    monkeypatch.delenv("SUTLER_DATABASE_URL", raising=False)
    yield own_settings
    if (own_settings / embedded.FOLDER).exists():
        embedded.stop(own_settings)


@pytest.fixture(scope="session")
def one_service(postgres: Server) -> Iterator[Running]:
    """All roles, on a database of their own; asks for a key, which the session carries, and may read engines here."""
    postgres.create("service")
    others = {"SUTLER_DATABASE_URL": postgres.url("service"), "SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8"}
    with a_folder() as folder:
        environment = settings(folder, **others)
        key = made_key(environment, "admin")
        with serving(folder, environment, "--require-key") as running:
            yield running.with_key(key)


@pytest.fixture(scope="module")
def service(one_service: Running) -> Iterator[Running]:
    """It takes seconds to start, so every test of this process that asks one asks this one, with names of its own."""
    yield one_service
    clear(one_service.ask)
