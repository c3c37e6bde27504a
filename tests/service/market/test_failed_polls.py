"""A poll without a usable answer changes nothing but its own row and the wait; an empty one has to be confirmed."""

from datetime import timedelta

import pytest

from sutler.adapters.base import Coverage
from sutler.adapters.errors import Outcome
from tests.service.market.builders import (
    FAILURES,
    NORTH,
    Store,
    a_failure,
    a_rejected_row,
    an_answer,
    an_empty_answer,
    an_offer,
)

MARKET = an_answer(an_offer("a"), an_offer("b", feed="other"), rejected=(a_rejected_row(),))
TABLES = ("SELECT * FROM offer ORDER BY id", "SELECT * FROM rejected_row ORDER BY id")


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failed_poll_changes_nothing_but_its_own_row_and_the_wait(store: Store, outcome: Outcome) -> None:
    good = store.poll(MARKET)
    before = [store.rows(table) for table in TABLES]
    report = store.poll(a_failure(outcome))
    assert [store.rows(table) for table in TABLES] == before
    assert (report.opened, report.closed) == (0, 0)
    assert store.rows("SELECT outcome, detail, http_status FROM poll ORDER BY at DESC LIMIT 1") == [
        (outcome, f"the cloud said {outcome}", 503)
    ]
    assert {offer.observed_at for offer in store.market().offers} == {good.at}
    assert store.market().last_seen == {"north": good.at}
    assert store.scalar("SELECT failures_in_a_row FROM provider") == 1


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_cloud_that_never_answered_has_no_offers_and_was_never_seen(store: Store, outcome: Outcome) -> None:
    store.poll(a_failure(outcome))
    assert store.market().offers == ()
    assert store.market().last_seen == {}


def test_an_answer_ends_the_failures_in_a_row(store: Store) -> None:
    store.poll_all(a_failure(), a_failure(), MARKET)
    assert store.scalar("SELECT failures_in_a_row FROM provider") == 0


def test_a_first_empty_answer_is_not_believed_and_a_second_is(store: Store) -> None:
    good, first, second = store.poll_all(MARKET, an_empty_answer(), an_empty_answer())
    assert first.flags == {"suspect_empty": 1}
    assert (first.opened, first.closed) == (0, 0)
    assert set(store.for_rent(first.at)) == {"a", "b"}
    assert {offer.observed_at for offer in store.market(first.at).offers} == {good.at}
    assert "suspect_empty" not in second.flags
    assert second.closed == 2
    assert store.for_rent() == {}


def test_an_answer_in_between_begins_the_suspicion_anew(store: Store) -> None:
    store.poll_all(MARKET, an_empty_answer(), MARKET, an_empty_answer())
    assert set(store.for_rent()) == {"a", "b"}
    store.poll(an_empty_answer())
    assert store.for_rent() == {}


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_in_between_neither_confirms_nor_clears_the_suspicion(store: Store, outcome: Outcome) -> None:
    store.poll_all(MARKET, an_empty_answer(), a_failure(outcome))
    assert set(store.for_rent()) == {"a", "b"}
    store.poll(an_empty_answer())
    assert store.for_rent() == {}


def test_an_answer_whose_rows_are_all_rented_is_believed_at_once(store: Store) -> None:
    store.poll(MARKET)
    report = store.poll(an_answer(kept=0, not_available={"rented": 40}, covered=(Coverage("", rows_read=40),)))
    assert report.closed == 2
    assert store.for_rent() == {}


def test_rows_of_which_none_can_be_read_never_become_an_empty_market(store: Store) -> None:
    unreadable = an_answer(rejected=(a_rejected_row(),), covered=(Coverage(""),))
    reports = store.poll_all(MARKET, unreadable, unreadable, unreadable)
    assert [report.flags for report in reports[1:]] == [{"suspect_empty": 1}] * 3
    assert set(store.for_rent()) == {"a", "b"}


def test_only_the_feed_that_came_empty_is_suspected(store: Store) -> None:
    store.poll(MARKET)
    half = an_answer(covered=(Coverage("main"), Coverage("other", rows_read=5)))
    report = store.poll(half)
    assert set(store.for_rent()) == {"a"}
    assert report.flags == {"suspect_empty": 1}


def test_a_feed_that_never_had_offers_may_be_empty(store: Store) -> None:
    report = store.poll(an_empty_answer("main"))
    assert report.flags == {}
    assert store.market().last_seen == {"north": report.at}


def test_an_empty_answer_does_not_end_rejected_rows_before_it_is_believed(store: Store) -> None:
    open_rows = "SELECT count(*) FROM rejected_row WHERE upper_inf(valid)"
    store.poll_all(MARKET, an_empty_answer())
    assert store.scalar(open_rows) == 1
    store.poll(an_empty_answer())
    assert store.scalar(open_rows) == 0


def test_offers_of_a_cloud_that_stops_answering_grow_older_and_stay(store: Store) -> None:
    good = store.poll(MARKET)
    for _ in range(5):
        store.poll(a_failure(), after_s=600)
    assert set(store.for_rent()) == {"a", "b"}
    ages = {store.market().taken_at - (offer.observed_at or good.at) for offer in store.market().offers}
    assert ages == {timedelta(seconds=3000)}


def test_a_failure_is_reported_with_when_to_try_again(store: Store) -> None:
    assert store.poll(a_failure("retry", wait_s=90)).retry_at == store.time.now() + timedelta(seconds=90)
    assert store.poll(a_failure("auth_error")).retry_at is None
    assert store.poller.next_poll_at(NORTH) == store.time.now() + timedelta(seconds=300)


def test_an_answer_that_says_next_to_nothing_does_not_empty_a_large_market(store: Store) -> None:
    store.poll(an_answer(*(an_offer(f"o{n}") for n in range(30))))
    hardly_anything = an_answer(not_available={"rented": 1})
    assert store.poll(hardly_anything).flags == {"suspect_empty": 1}
    assert len(store.for_rent()) == 30
    store.poll(hardly_anything)
    assert store.for_rent() == {}
