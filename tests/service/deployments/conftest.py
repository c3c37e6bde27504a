"""The whole application on an empty store; no worker looks at what is asked of it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sutler.service.settings import StoreSettings
from tests.service.webhooks.api import Api
from tests.service.webhooks.office import Office


@pytest.fixture
def api(engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """As one who needs no key sees it."""
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    with Office(engine) as office, Api(office) as made:
        yield made
