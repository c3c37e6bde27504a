"""A store with rows in every table, and one without tables."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sutler.service.settings import StoreSettings
from tests.postgres import opened
from tests.service.backup.stores import fill


@pytest.fixture
def full(engine: Engine) -> Engine:
    fill(engine)
    return engine


@pytest.fixture
def other(new_database: StoreSettings) -> Iterator[Engine]:
    with opened(new_database) as made:
        yield made
