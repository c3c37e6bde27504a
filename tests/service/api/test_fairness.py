"""One who asks for many plans keeps nobody else waiting for all of them."""

from typing import Any, Final

import pytest

from tests.service.api.conftest import Guarded
from tests.service.builders import CHAT, a_slow_problem
from tests.service.running import until

ASYNC: Final = {"Prefer": "respond-async"}


def if_done(plan: dict[str, Any]) -> dict[str, Any] | None:
    return None if plan["status"] in {"queued", "running"} else plan


@pytest.mark.slow
def test_a_plan_of_another_key_is_made_before_the_rest_of_many(guarded: Guarded) -> None:
    def asked(scope: str, problem: dict[str, Any]) -> str:
        answer = guarded.ask(scope, "POST", "/v1/plans", json=problem, headers=ASYNC)
        assert answer.status_code == 202, answer.text
        url: str = answer.headers["Location"]
        return url

    def made(url: str) -> dict[str, Any]:
        found: dict[str, Any] = until(lambda: if_done(guarded.ask("read", "GET", url).json()))
        return found

    many = [asked("plan", a_slow_problem(time_limit_s=1.0)) for _ in range(8)]
    other = made(asked("admin", {**CHAT, "solver": {"time_limit_s": 1}}))
    assert other["created_at"] < made(many[4])["created_at"]
