"""A poller on an empty store."""

import pytest
from sqlalchemy import Engine

from tests.service.market.builders import Store


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)
