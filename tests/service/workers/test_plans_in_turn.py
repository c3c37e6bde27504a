"""In which queue and in which order plans wait: by who asks for them, and how long they may take."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from sqlalchemy import Engine, text

from sutler.service.settings import StoreSettings
from tests.service.builders import CHAT
from tests.service.webhooks.api import Api
from tests.service.webhooks.office import Office

LONG: Final = {**CHAT, "solver": {"time_limit_s": 60}}
ASYNC: Final = {"Prefer": "respond-async"}


@pytest.fixture
def api(engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Without a worker, so that everything waits."""
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    with Office(engine) as office, Api(office) as made:
        yield made


def asked(api: Api, *problems: dict[str, Any]) -> None:
    for problem in problems:
        answer = api.ask_at("POST", "/plans", json=problem, headers=ASYNC)
        assert answer.status_code == 202, answer.text


def waiting(engine: Engine) -> list[tuple[str, int]]:
    wanted = text("SELECT queue_name, priority FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id")
    with engine.connect() as connection:
        return [(row.queue_name, row.priority) for row in connection.execute(wanted)]


def test_a_caller_s_first_plan_waits_for_no_long_one_and_the_others_in_turn(api: Api, engine: Engine) -> None:
    asked(api, CHAT, CHAT, LONG)
    assert waiting(engine) == [("quick solves", 0), ("solves", -1), ("solves", -2)]


def test_a_plan_that_may_take_long_waits_with_the_others(api: Api, engine: Engine) -> None:
    asked(api, LONG, CHAT)
    assert waiting(engine) == [("solves", 0), ("solves", -1)]
