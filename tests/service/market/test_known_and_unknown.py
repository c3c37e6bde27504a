"""What is known of the past and what is not: silent providers, clocks that jump, history that was rolled up."""

from datetime import timedelta
from typing import Any

import pytest

from sutler.adapters.base import Coverage
from sutler.service.documents.errors import DocumentError
from sutler.service.market.history import HistoryPoint, price_history
from sutler.service.market.retention import prune
from tests.service.market.builders import NOON, NORTH, SOUTH, Store, an_answer, an_offer

HOUR = timedelta(hours=1)
DAY_S = 86_400.0


def points(store: Store, *hours_after_noon: float) -> list[HistoryPoint]:
    found = []
    for hours in hours_after_noon:
        at = NOON + hours * HOUR
        found += price_history(store.engine, "h100-sxm", contract="on_demand", since=at, until=at + HOUR, points=1)
    return found


def gpus(store: Store, *hours_after_noon: float) -> list[float | None]:
    return [point.gpus for point in points(store, *hours_after_noon)]


def test_a_provider_that_fell_silent_counts_no_more(store: Store) -> None:
    store.poll(an_answer(an_offer("s", gpus=8)), after_s=0, cloud=SOUTH)
    for _ in range(7):
        store.poll(an_answer(an_offer("n")), after_s=1800)
    assert gpus(store, 0.75, 3.25) == [9.0, 1.0]


def test_slow_polling_is_no_silence(store: Store) -> None:
    store.poll(an_answer(an_offer("n")), after_s=0)
    asked: dict[str, Any] = {"since": NOON + 2 * HOUR, "until": NOON + 3 * HOUR, "points": 1}
    one_hour = price_history(store.engine, "h100-sxm", contract="on_demand", **asked)
    six_hours = price_history(store.engine, "h100-sxm", contract="on_demand", **asked, silence=6 * HOUR)
    assert [one_hour[0].gpus, six_hours[0].gpus] == [None, 1.0]


def test_hours_that_were_unknown_stay_unknown_and_hours_without_any_stay_zero(store: Store) -> None:
    store.poll(an_answer(an_offer("n", gpus=4)), after_s=0)
    store.poll(an_answer(), after_s=6 * 3600)
    before = gpus(store, 0, 0.5, 3, 6)
    store.time.pass_s(3 * DAY_S)
    prune(store.engine, now=store.time.now(), history_days=1)
    assert before == [4.0, 4.0, None, 0.0]
    assert gpus(store, 0, 0.5, 3, 6) == [4.0, 4.0, None, 0.0]


def test_a_stale_provider_does_not_enter_the_rolled_up_hours(store: Store) -> None:
    store.poll(an_answer(an_offer("s", gpus=8)), after_s=0, cloud=SOUTH)
    for _ in range(8):
        store.poll(an_answer(an_offer("n")), after_s=1800)
    store.time.pass_s(3 * DAY_S)
    prune(store.engine, now=store.time.now(), history_days=1)
    assert gpus(store, 0, 3) == [9.0, 1.0]  # means over the samples at which each provider was known


def test_an_instant_whose_offers_were_rolled_up_is_refused(store: Store) -> None:
    at = store.poll(an_answer(an_offer("a"), an_offer("b"))).at
    store.poll(an_answer(an_offer("b")), after_s=3600)
    store.time.pass_s(3 * DAY_S)
    kept_since = prune(store.engine, now=store.time.now(), history_days=1).until
    with pytest.raises(DocumentError, match="sutler market history"):
        store.market(at)
    assert set(store.for_rent(kept_since)) == {"b"}


def test_a_poll_by_a_clock_that_ran_ahead_makes_nothing_look_fresh(store: Store) -> None:
    store.poll(an_answer(an_offer("a")), after_s=DAY_S)
    store.time.pass_s(-DAY_S)
    report = store.poll(an_answer(an_offer("a")))
    assert report.at > store.time.now()
    assert store.offer("a").observed_at == store.time.now()
    store.time.pass_s(6 * 3600)
    assert (store.time.now() - (store.offer("a").observed_at or NOON)) == 6 * HOUR


def test_a_clock_that_was_set_back_does_not_stop_polling(store: Store) -> None:
    store.poll(an_answer(an_offer("a")), after_s=DAY_S)
    store.time.pass_s(-DAY_S)
    assert store.poller.is_due(NORTH)


def test_a_feed_that_many_polls_did_not_speak_of_is_as_old_as_the_last_that_did(store: Store) -> None:
    both = an_answer(an_offer("a", feed="secure"), an_offer("b", feed="spot"))
    store.poll(both)
    last = store.poll(both, after_s=3600).at
    secure = an_answer(an_offer("a", feed="secure"), covered=(Coverage("secure", rows_read=1),), outcome="partial")
    for _ in range(25):
        store.poll(secure, after_s=10)
    assert store.offer("b").observed_at == last
    assert store.offer("a").observed_at == store.time.now()


def test_a_number_of_gpus_that_the_provider_states_holds_against_more_cards(store: Store) -> None:
    store.poll(an_answer(an_offer("a", gpus=4, gpu_ids=(0, 1, 2, 3), machine_id="m", machine_gpus=2)))
    assert store.offer("a").machine_gpus == 2
    assert gpus(store, 1 / 60) == [2.0]


def test_one_row_that_breaks_the_contract_does_not_cost_the_market(store: Store) -> None:
    store.poll(an_answer(an_offer("a"), an_offer("b")))
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE offer SET available = 20000 WHERE offer_id = 'a'")
    assert set(store.for_rent()) == {"b"}
