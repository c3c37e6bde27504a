"""Webhooks on an empty store."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sutler.service.settings import StoreSettings
from tests.service.webhooks.api import Api
from tests.service.webhooks.office import Office


@pytest.fixture
def office(engine: Engine) -> Iterator[Office]:
    with Office(engine) as made:
        yield made


@pytest.fixture
def api(office: Office, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The whole application on the office's store, as one who needs no key sees it."""
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    monkeypatch.setenv("SUTLER_OUTGOING_NETWORKS", "127.0.0.0/8")
    with Api(office) as made:
        yield made
