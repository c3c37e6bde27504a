"""A running service for the tests of offline plans; each test uses names of its own."""

from collections.abc import Iterator

import pytest

from tests.postgres import Server, a_folder
from tests.service.running import Running, serving, settings


@pytest.fixture(scope="package")
def service(postgres: Server) -> Iterator[Running]:
    """All roles on a database of their own."""
    postgres.run("CREATE DATABASE offline")
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("offline"))
        with serving(folder, environment) as running:
            yield running
