"""In which queue and in which order plans wait: by who asks for them, and how long they may take."""

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
from sqlalchemy import Engine, text

from sutler.service.settings import StoreSettings
from tests.service.builders import CHAT
from tests.service.running import made_key
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


def test_no_key_fills_the_queue_alone(
    engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    monkeypatch.setenv("SUTLER_MOST_WAITING_PLANS", "4")
    keys = [made_key(os.environ, "plan") for _ in range(2)]
    with Office(engine) as office, Api(office) as api:
        answers = [
            api.ask_at("POST", "/plans", json=CHAT, headers={**ASYNC, "Authorization": f"Bearer {key}"})
            for key in (*[keys[0]] * 3, keys[1])
        ]
    assert [answer.status_code for answer in answers] == [202, 202, 429, 202]
    assert "half of what the queue takes" in answers[2].text
    assert int(answers[2].headers["Retry-After"]) > 0


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


def test_a_key_that_weighs_more_has_as_many_more_in_each_turn(
    engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    key = made_key(os.environ, "plan", "--weight", "2")
    with Office(engine) as office, Api(office) as api:
        for _ in range(5):
            headers = {**ASYNC, "Authorization": f"Bearer {key}"}
            assert api.ask_at("POST", "/plans", json=LONG, headers=headers).status_code == 202
        assert [priority for _, priority in waiting(engine)] == [0, 0, -1, -1, -2]
