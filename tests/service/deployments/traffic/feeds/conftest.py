"""Each test of feeds has a deployment and engines of its own."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.service.builders import CHAT
from tests.service.deployments.traffic.feeds.engines import Engine, Site
from tests.service.running import Running

_numbers = count(1)


@pytest.fixture
def deployed(service: Running) -> Callable[..., str]:
    """Makes a deployment and waits for its first plan."""

    def deploy(problem: dict[str, Any] = CHAT) -> str:
        name = f"fed-{next(_numbers)}"
        made = service.post("/v1/deployments", {"name": name, "problem": problem})
        assert made.status_code == 201, made.text
        plan = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30})
        assert plan.status_code == 200, plan.text
        return name

    return deploy


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine that has served nothing."""
    with Site() as site:
        yield site.engine
