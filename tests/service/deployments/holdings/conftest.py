"""Each test of holdings uses a deployment that no other has."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.service.builders import CHAT
from tests.service.running import Running

_numbers = count(1)


@pytest.fixture
def deployed(service: Running) -> Callable[..., str]:
    """Makes a deployment; with `planned`, its first plan is there."""

    def deploy(problem: dict[str, Any] = CHAT, *, planned: bool = True) -> str:
        name = f"held-{next(_numbers)}"
        made = service.post("/v1/deployments", {"name": name, "problem": problem})
        assert made.status_code == 201, made.text
        if planned:
            plan = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30})
            assert plan.status_code == 200, plan.text
        return name

    return deploy
