"""Lives of machines as the store tells them, and what people are told of them."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from sutler.adapters.base import Coverage, Offer
from sutler.service.market import outlook
from sutler.service.market.kinds import KindFilter, outlook_page
from sutler.service.market.outlook import Outlook, OutlookCache, lives_of
from sutler.solver.outlook.lives import Lives, Slot
from tests.service.market.builders import Store, a_failure, an_answer, an_offer
from tests.service.running import until

MINUTE_H = 1 / 60


def a_slice(offer_id: str, gpus: int = 1, price_usd_per_hour: float = 2.0, **others: Any) -> Offer:
    return an_offer(offer_id, price_usd_per_hour, gpus=gpus, **{"machine_id": "m", **others})


def lives(store: Store) -> Lives:
    with store.engine.connect() as connection:
        return lives_of(connection, store.time.now())


def of_size(found: Lives, gpus: int = 1, machine: str = "m") -> tuple[Any, ...]:
    """Lives, ends and hours of a machine."""
    slot = next(i for i, s in enumerate(found.slots) if (s.machine, s.gpus) == (machine, gpus))
    own = found.atoms.slot == slot
    return int(found.counts[slot]), int(found.atoms.deaths[own].sum()), float(found.atoms.hours[own].sum())


def test_prices_and_ids_change_and_the_machine_lives_on(store: Store) -> None:
    store.poll_all(an_answer(an_offer("x")), an_answer(an_offer("x"), a_slice("a")))
    store.poll_all(an_answer(a_slice("a", 1, 2.5)), an_answer(a_slice("b")), an_answer(a_slice("b")))
    store.poll_all(an_answer(an_offer("x")))
    assert of_size(lives(store)) == (1, 1, pytest.approx(3.5 * MINUTE_H))


def test_a_larger_slice_is_room_for_a_smaller_one(store: Store) -> None:
    rest = an_offer("x")
    store.poll_all(an_answer(rest), an_answer(rest, a_slice("whole", 4), a_slice("half", 2)))
    store.poll_all(an_answer(rest, a_slice("whole", 4)), an_answer(rest, a_slice("other", 2)), an_answer(rest))
    found = lives(store)
    assert of_size(found, 4) == (1, 1, pytest.approx(1.5 * MINUTE_H))
    assert of_size(found, 2) == (1, 1, pytest.approx(2.5 * MINUTE_H))


def test_a_machine_that_one_answer_lacks_lives_twice(store: Store) -> None:
    rest = an_offer("x")
    store.poll_all(an_answer(rest), an_answer(rest, a_slice("a")), an_answer(rest), an_answer(rest, a_slice("a")))
    assert of_size(lives(store))[:2] == (2, 1)


def test_while_polls_fail_nobody_goes(store: Store) -> None:
    rest = an_offer("x")
    store.poll_all(*[an_answer(rest, a_slice("a"))] * 6, *[a_failure()] * 5, an_answer(rest))
    assert of_size(lives(store)) == (1, 0, pytest.approx(5 * MINUTE_H))
    store.poll_all(an_answer(rest, a_slice("a")))
    assert of_size(lives(store))[:2] == (2, 0)


def test_an_answer_that_was_cut_says_nothing_of_what_is_dearer(store: Store) -> None:
    cheap, dear = an_offer("x", 1.0), a_slice("a", 1, 9.0)
    store.poll_all(*[an_answer(cheap, dear)] * 3)
    cut = an_answer(cheap, covered=(Coverage("", up_to_usd_per_hour=5.0, rows_read=1),))
    store.poll_all(cut, cut)
    found = lives(store)
    assert of_size(found) == (1, 0, pytest.approx(2 * MINUTE_H))
    assert found.since_s.keys() == {Slot("north", "h100-sxm", "on_demand", 1, "m")}


def test_of_a_busy_market_the_last_offers_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sutler.service.market.outlook.MOST_ROWS", 2)
    for number in range(6):
        store.poll(an_answer(an_offer("x", 1.0 + number), a_slice("a", 1, 2.0 + number)))
    assert of_size(lives(store)) == (1, 0, pytest.approx(1 * MINUTE_H))


def test_words_prices_and_what_names_no_machine_have_no_lives(store: Store) -> None:
    store.poll_all(
        *[
            an_answer(
                an_offer("x"),
                a_slice("word", availability_basis="lower_bound"),
                a_slice("list", machine_id="n", availability_basis="list", available=0),
            )
        ]
        * 2
    )
    assert lives(store).slots == ()


def test_a_machine_that_we_hold_did_not_go(store: Store) -> None:
    rest = an_offer("x")
    store.poll_all(an_answer(rest), an_answer(rest, a_slice("a")), an_answer(rest, a_slice("a")), an_answer(rest))
    assert of_size(lives(store))[1] == 1
    with store.engine.begin() as connection:
        connection.execute(
            text("""
            INSERT INTO deployment (id, name, problem, policy) VALUES (gen_random_uuid(), 'chat', '{}', '{}')""")
        )
        connection.execute(
            text("""
            INSERT INTO watch (deployment_id, holdings, holdings_at)
            SELECT id, '[{"provider": "north", "offer_id": "a", "gpu": "h100-sxm", "gpus": 1}]', now()
            FROM deployment""")
        )
    assert of_size(lives(store)) == (1, 0, pytest.approx(1 * MINUTE_H))


def test_a_machine_that_a_plan_took_did_not_go(store: Store) -> None:
    rest = an_offer("x")
    store.poll_all(an_answer(rest), an_answer(rest, a_slice("a")), an_answer(rest))
    with store.engine.begin() as connection:
        connection.execute(
            text("""
            INSERT INTO deployment (id, name, problem, policy) VALUES (gen_random_uuid(), 'chat', '{}', '{}')""")
        )
        connection.execute(
            text("""
            INSERT INTO plan (id, status, objective, document, created_by, deployment_id, problem, created_at)
            SELECT gen_random_uuid(), 'optimal', 'min_cost',
                   '{"rentals": [{"provider": "north", "offer_id": "a"}]}', 'test', id, '{}', :at FROM deployment"""),
            {"at": store.time.now() - timedelta(minutes=2)},
        )
    assert of_size(lives(store))[1] == 0


def watched_for_a_while(store: Store) -> Outlook:
    rest = an_offer("x")
    store.poll_all(an_answer(rest), *[an_answer(rest, a_slice("a", 8), a_slice("b", 8, machine_id="n"))] * 4)
    store.poll_all(*[an_answer(rest, a_slice("b", 8, machine_id="n"))] * 2)
    return OutlookCache().get(store.engine, store.time.now())


def test_what_is_told_of_a_kind(store: Store) -> None:
    page = outlook_page(watched_for_a_while(store), KindFilter(gpus=["H100 SXM"]), within_s=600, for_s=86_400)
    (kind,) = page.items
    assert (kind.provider, kind.gpu, kind.gpus, kind.for_rent) == ("north", "h100-sxm", 8, 1)
    assert (kind.machines, kind.lives, kind.deaths) == (2, 2, 1)
    assert 0 < kind.lasting.fraction < kind.within.fraction < 1
    assert kind.within.low_fraction <= kind.within.fraction <= kind.within.high_fraction
    assert outlook_page(watched_for_a_while(store), KindFilter(contracts=["spot"]), within_s=1, for_s=1).items == []


def test_an_offer_that_was_seen_long_ago_is_less_likely_there(store: Store) -> None:
    learnt, now = watched_for_a_while(store), store.time.now()
    offer = store.offer("b")
    fresh = learnt.of_offer(offer, 8, now=now, within_s=600)
    stale = learnt.of_offer(offer, 8, now=now + timedelta(hours=1), within_s=600)
    assert fresh is not None
    assert stale is not None
    assert stale.is_there.fraction < fresh.is_there.fraction
    assert learnt.of_offer(store.offer("x"), 1, now=now, within_s=600) is None


def test_what_was_learnt_is_kept_for_a_while(store: Store) -> None:
    cache, now = OutlookCache(), store.time.now()
    assert cache.get(store.engine, now) is cache.get(store.engine, now + timedelta(seconds=1))


@pytest.fixture
def soon_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What was learnt is to be learnt anew whenever it is asked for; waits for who does at the end."""
    monkeypatch.setattr(outlook, "FRESH_S", 0.0)
    yield
    until(lambda: "outlook" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.usefixtures("soon_old")
def test_what_is_some_minutes_old_is_told_while_it_is_learnt_anew(store: Store) -> None:
    cache, now = OutlookCache(), store.time.now()
    first = cache.get(store.engine, now)
    later = now + timedelta(minutes=11)
    with store.engine.begin() as writer:
        writer.execute(text("LOCK TABLE offer IN ACCESS EXCLUSIVE MODE"))  # who reads the market waits
        assert cache.get(store.engine, later) is first
        assert cache.get(store.engine, later) is first
    until(lambda: cache.get(store.engine, later).at == later)


def test_what_is_older_than_that_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, now = OutlookCache(), store.time.now()
    first = cache.get(store.engine, now)
    monkeypatch.setattr(outlook, "KEPT_S", 0.0)
    assert cache.get(store.engine, now) is not first


@pytest.mark.usefixtures("soon_old")
def test_an_outlook_stays_while_the_store_cannot_be_read(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    cache, now = OutlookCache(), store.time.now()
    first = cache.get(store.engine, now)
    assert cache.get(create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing"), now) is first
    until(lambda: "the outlook stays as it was learnt before" in caplog.text)
    until(lambda: cache.get(store.engine, now) is not first)
