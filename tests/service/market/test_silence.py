"""Clouds that fall silent and answer again: each told once, however many look, whatever the clock does."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import Engine

from sutler.adapters.errors import Outcome
from sutler.service.db.asynchronous import begun
from sutler.service.market import silence
from sutler.service.translation.market_source import STORE_MAX_AGE_S
from tests.adapters.server import Reply, ScriptedServer
from tests.service.market.builders import FAILURES, SOUTH, Store, a_failure, an_answer, an_offer
from tests.service.webhooks.builders import is_signed
from tests.service.webhooks.office import Office

LATER_S: Final = STORE_MAX_AGE_S + 1
SOME_AT_ONCE: Final = 5


@pytest.fixture
def office(engine: Engine) -> Iterator[Office]:
    with Office(engine) as made:
        made.registered("https://receiver.example/", "market.stale", "market.fresh")
        yield made


class Watch:
    """Looks at a store, and reads what was told."""

    def __init__(self, store: Store, office: Office) -> None:
        self.store, self.office = store, office
        self.awake_since: datetime | None = None

    async def _look(self) -> int:
        async with begun(self.office.engine) as connection:
            return await silence.look(
                connection,
                self.office.queue,
                now=self.store.time.now(),
                stale_after_s=STORE_MAX_AGE_S,
                providers=["north", "south"],
                awake_since=self.awake_since,
            )

    def look(self, *, after_s: float = 0.0) -> int:
        self.store.time.pass_s(after_s)
        return self.office.run(self._look())

    def look_at_once(self) -> list[int]:
        async def all_at_once() -> list[int]:
            return await asyncio.gather(*(self._look() for _ in range(SOME_AT_ONCE)))

        return self.office.run(all_at_once())

    @property
    def told(self) -> list[dict[str, Any]]:
        """Events with their data, in order."""
        rows = self.store.rows("SELECT body FROM delivery ORDER BY created_at, id")
        return [{"type": event["type"], **event["data"]} for event in (json.loads(body) for (body,) in rows)]

    @property
    def stale(self) -> set[str]:
        """Providers that the store has as silent."""
        return {name for (name,) in self.store.rows("SELECT name FROM provider WHERE stale_since IS NOT NULL")}


@pytest.fixture
def watch(store: Store, office: Office) -> Watch:
    return Watch(store, office)


def shown(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


OK: Final = an_answer(an_offer())


def test_a_silent_cloud_is_told_of_once_and_an_answer_too(watch: Watch, store: Store) -> None:
    answered_at = store.poll(OK).at
    assert watch.look(after_s=STORE_MAX_AGE_S) == 0
    store.poll(a_failure("retry"), after_s=1)
    assert [watch.look(), watch.look(), watch.look(after_s=3600)] == [1, 0, 0]
    assert watch.stale == {"north"}
    again_at = store.poll(OK).at
    assert [watch.look(), watch.look(), watch.look(after_s=60)] == [1, 0, 0]
    assert watch.stale == set()
    assert watch.told == [
        {
            "type": "market.stale",
            "provider": "north",
            "last_usable_at": shown(answered_at),
            "stale_after_s": STORE_MAX_AGE_S,
            "last_outcome": "retry",
            "last_detail": "the cloud said retry",
        },
        {
            "type": "market.fresh",
            "provider": "north",
            "last_usable_at": shown(again_at),
            "stale_since": shown(answered_at),
        },
    ]


@pytest.mark.parametrize("outcome", ["ok", "partial", "prices_only"])
def test_any_usable_answer_keeps_a_cloud_fresh(watch: Watch, store: Store, outcome: Outcome) -> None:
    store.poll(OK)
    store.poll(an_answer(an_offer(), outcome=outcome), after_s=STORE_MAX_AGE_S)
    assert watch.look(after_s=STORE_MAX_AGE_S) == 0


@pytest.mark.parametrize("outcome", FAILURES)
def test_no_failure_keeps_a_cloud_fresh(watch: Watch, store: Store, outcome: Outcome) -> None:
    store.poll(OK)
    store.poll(a_failure(outcome), after_s=LATER_S)
    assert watch.look() == 1
    store.poll(a_failure(outcome))
    assert watch.look() == 0
    assert [(event["type"], event["last_outcome"]) for event in watch.told] == [("market.stale", outcome)]


def test_a_cloud_that_nobody_asks_is_stale_too(watch: Watch, store: Store) -> None:
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 1
    assert watch.told[0]["last_outcome"] == "ok"


def test_a_cloud_that_never_answered_is_silent_since_it_was_first_asked(watch: Watch, store: Store) -> None:
    for _ in range(3):
        store.poll(a_failure("auth_error"), after_s=400)
    assert watch.look() == 0
    assert watch.look(after_s=200) == 1
    assert watch.told[0].items() >= {"last_usable_at": None, "last_outcome": "auth_error"}.items()
    store.poll(OK)
    assert watch.look() == 1


def test_nothing_is_told_of_a_cloud_that_was_never_polled_or_is_not_set_up(watch: Watch, store: Store) -> None:
    watch.office.execute("INSERT INTO provider (name) VALUES ('south'), ('elsewhere')")
    watch.office.execute("UPDATE provider SET next_poll_at = now() - interval '1 day'")
    store.poll(OK)
    watch.office.execute("UPDATE poll SET provider_id = (SELECT id FROM provider WHERE name = 'elsewhere')")
    assert watch.look(after_s=LATER_S) == 0
    assert watch.stale == set()


def test_clouds_are_told_of_one_by_one(watch: Watch, store: Store) -> None:
    store.poll(OK)
    store.poll(OK, cloud=SOUTH, after_s=300)
    assert watch.look(after_s=LATER_S - 300) == 1
    assert watch.look(after_s=300) == 1
    store.poll(OK, cloud=SOUTH)
    assert watch.look() == 1
    assert [(event["type"], event["provider"]) for event in watch.told] == [
        ("market.stale", "north"),
        ("market.stale", "south"),
        ("market.fresh", "south"),
    ]
    assert watch.stale == {"north"}


def test_a_service_that_was_off_asks_before_it_says_that_a_cloud_is_silent(watch: Watch, store: Store) -> None:
    store.poll(OK)
    store.time.pass_s(8 * 3600)
    watch.awake_since = store.time.now()
    assert [watch.look(), watch.look(after_s=STORE_MAX_AGE_S)] == [0, 0]
    assert watch.look(after_s=1) == 1


def test_a_cloud_that_was_told_of_before_a_restart_is_not_told_of_again(watch: Watch, store: Store) -> None:
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 1
    watch.awake_since = store.time.now()
    assert [watch.look(), watch.look(after_s=LATER_S)] == [0, 0]
    store.poll(OK)
    assert watch.look() == 1


def test_several_who_look_at_once_tell_of_it_once(watch: Watch, store: Store) -> None:
    store.poll(OK)
    store.poll(OK, cloud=SOUTH, after_s=0)
    store.time.pass_s(LATER_S)
    assert sum(watch.look_at_once()) == 2
    store.poll(OK)
    assert sum(watch.look_at_once()) == 1
    told = sorted((event["type"], event["provider"]) for event in watch.told)
    assert told == [("market.fresh", "north"), ("market.stale", "north"), ("market.stale", "south")]


def test_a_provider_whose_row_is_held_is_left_for_the_next_look(watch: Watch, store: Store) -> None:
    store.poll(OK)
    store.time.pass_s(LATER_S)
    with store.engine.begin() as holding:
        holding.exec_driver_sql("SELECT 1 FROM provider FOR UPDATE")
        assert watch.look() == 0
    assert watch.look() == 1


def test_an_announcement_that_is_rolled_back_is_made_by_the_next_look(watch: Watch, store: Store) -> None:
    store.poll(OK)
    store.time.pass_s(LATER_S)

    async def look_and_fail() -> None:
        async with begun(watch.office.engine) as connection:
            await silence.look(
                connection, watch.office.queue, now=store.time.now(), stale_after_s=1, providers=["north"]
            )
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watch.office.run(look_and_fail())
    assert (watch.told, watch.stale) == ([], set())
    assert watch.look() == 1


@pytest.mark.parametrize("back_s", [1, 600, 7200])
def test_a_clock_that_is_set_back_makes_nothing_stale_and_nothing_fresh(
    watch: Watch, store: Store, back_s: float
) -> None:
    store.poll(OK)
    store.poll(OK, cloud=SOUTH, after_s=LATER_S)
    assert watch.look() == 1
    assert watch.look(after_s=-back_s) == 0
    assert watch.stale == {"north"}
    assert len(watch.told) == 1


@pytest.mark.parametrize("back_s", [600, 7200])
def test_an_answer_after_the_clock_was_set_back_is_an_answer(watch: Watch, store: Store, back_s: float) -> None:
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 1
    store.poll(OK, after_s=-back_s)
    assert [watch.look(), watch.look(after_s=STORE_MAX_AGE_S)] == [1, 0]
    assert watch.stale == set()
    assert watch.look(after_s=1) == 1
    assert [event["type"] for event in watch.told] == ["market.stale", "market.fresh", "market.stale"]


def test_a_start_that_a_clock_set_back_puts_into_the_future_silences_nothing(watch: Watch, store: Store) -> None:
    watch.awake_since = store.time.now() + timedelta(days=1)
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 1


def test_an_answer_that_is_old_itself_makes_nothing_fresh(watch: Watch, store: Store) -> None:
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 1
    store.poll(OK)
    assert watch.look(after_s=LATER_S) == 0
    assert watch.stale == {"north"}


def test_who_wants_to_know_is_sent_a_signed_event(store: Store, office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        webhook = office.registered(receiver.base_url, "market.stale")
        store.poll(OK)
        assert Watch(store, office).look(after_s=LATER_S) == 1
        (delivery,) = office.deliveries(webhook)
        office.delivered(delivery.id)
    (request,) = receiver.requests
    assert is_signed(request)
    assert request.data["type"] == "market.stale"


def test_whatever_is_polled_stale_and_fresh_take_turns(watch: Watch, store: Store) -> None:
    kinds = [OK, *(a_failure(outcome) for outcome in FAILURES)]
    for number in range(30):
        store.poll(kinds[number * 5 % len(kinds)], after_s=(number * 331) % 1300)
        watch.look(after_s=(number * 127) % 700)
    types = [event["type"] for event in watch.told]
    assert types == [("market.stale", "market.fresh")[turn % 2] for turn in range(len(types))]
    assert len(types) > 4
    assert watch.stale == ({"north"} if types[-1] == "market.stale" else set())
