"""The service that the examples talk to."""

from collections.abc import Iterator

import pytest

from tests.examples.stand_in import StandIn, a_stand_in


@pytest.fixture
def service() -> Iterator[StandIn]:
    """Has `url`, `key` and `publish(name, plan)`; without any deployment."""
    with a_stand_in() as stand_in:
        yield stand_in
