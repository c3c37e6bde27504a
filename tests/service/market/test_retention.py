"""Old history becomes hours and goes; what is for rent, and what is younger, stays as it is."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from sutler.service.market.history import HistoryPoint, price_histories, price_history
from sutler.service.market.retention import Pruned, prune
from tests.postgres import Server
from tests.service.market.builders import NOON, NORTH, Store, a_rejected_row, an_answer, an_offer

HOUR = timedelta(hours=1)
DAY_S = 86_400.0


def a_store_with_history(store: Store) -> datetime:
    """At noon 4 GPUs at 2.00 each, from 12:20 on 2 at 3.00, from 12:40 on none; at 13:00 8 at 1.00, which stay."""
    store.poll(an_answer(an_offer("a", 8.0, gpus=4), rejected=(a_rejected_row(),)), after_s=0)
    store.poll(an_answer(an_offer("b", 6.0, gpus=2)), after_s=1200)
    store.poll(an_answer(), after_s=1200)
    store.poll(an_answer(an_offer("c", 8.0, gpus=8)), after_s=1200)
    return store.time.now()


def pruned(store: Store, *, days: float = 1.0) -> Pruned:
    return prune(store.engine, now=store.time.now(), history_days=days)


def points(store: Store, *hours_after_noon: float) -> list[HistoryPoint]:
    found = []
    for hours in hours_after_noon:
        at = NOON + hours * HOUR
        found += price_history(store.engine, "h100-sxm", contract="on_demand", since=at, until=at + HOUR, points=1)
    return found


def test_hours_are_rolled_up_by_hand(store: Store) -> None:
    # Sampled at :00, :15, :30, :45: 4, 4, 2, 0 GPUs, mean 2.5; per GPU-hour 2, 2, 3: median 2.
    a_store_with_history(store)
    store.time.pass_s(3 * DAY_S)
    assert pruned(store).until == NOON + timedelta(days=2) + HOUR
    columns = "gpu, contract, hour, gpus_mean, gpus_least, gpus_most, least_usd_per_gpu_hour, median_usd_per_gpu_hour"
    hours = store.rows(f"SELECT {columns} FROM market_hour ORDER BY hour LIMIT 2")
    assert hours == [
        ("h100-sxm", "on_demand", NOON, 2.5, 0, 4, 2.0, 2.0),
        ("h100-sxm", "on_demand", NOON + HOUR, 8.0, 8, 8, 1.0, 1.0),
    ]


def test_old_rows_go_and_what_is_for_rent_stays_however_old(store: Store) -> None:
    since = a_store_with_history(store)
    store.time.pass_s(400 * DAY_S)
    done = pruned(store, days=90)
    assert done.rows_deleted == 3
    assert store.offer_rows == [("c", 8.0, since, None)]
    assert store.offer("c").observed_at == since
    assert store.scalar("SELECT count(*) FROM rejected_row") == 0


def test_polls_that_say_when_offers_were_last_seen_stay(store: Store) -> None:
    answer = an_answer(an_offer("a"))
    for _ in range(30):
        store.poll(answer)
    last = store.time.now()
    store.time.pass_s(10 * DAY_S)
    pruned(store)
    assert store.scalar("SELECT count(*) FROM poll") == 20
    assert store.offer("a").observed_at == last
    assert store.market().last_seen == {"north": last}


def test_to_prune_again_changes_nothing(store: Store) -> None:
    a_store_with_history(store)
    store.time.pass_s(3 * DAY_S)
    first = pruned(store)
    hours = store.rows("SELECT * FROM market_hour ORDER BY hour")
    again = pruned(store)
    assert first.hours == 49
    assert (again.hours, again.rows_deleted) == (0, 0)
    assert store.rows("SELECT * FROM market_hour ORDER BY hour") == hours


def test_days_that_come_later_are_rolled_up_later(store: Store) -> None:
    a_store_with_history(store)
    store.time.pass_s(2 * DAY_S)
    assert pruned(store).hours == 25
    store.time.pass_s(DAY_S)
    assert pruned(store).hours == 24
    assert store.scalar("SELECT count(*) FROM polled_hour") == 49


def test_history_younger_than_the_cutoff_is_not_rolled_up(store: Store) -> None:
    a_store_with_history(store)
    assert (pruned(store).hours, pruned(store).rows_deleted) == (0, 0)
    assert store.scalar("SELECT count(*) FROM market_hour") == 0
    assert len(store.offer_rows) == 3


def test_an_empty_store_is_pruned_in_no_time(store: Store) -> None:
    assert (pruned(store).hours, pruned(store).rows_deleted) == (0, 0)


def test_history_reads_the_rolled_up_hours_where_the_offers_are_gone(store: Store) -> None:
    a_store_with_history(store)
    before = points(store, 0, 1 / 3, 1)
    store.time.pass_s(3 * DAY_S)
    pruned(store)
    at = [NOON, NOON + HOUR / 3, NOON + HOUR]
    assert [point.gpus for point in before] == [4.0, 2.0, 8.0]
    assert points(store, 0, 1 / 3) == [
        HistoryPoint(at[0], 2.5, None, 2.0, 2.0),
        HistoryPoint(at[1], 2.5, None, 2.0, 2.0),
    ]
    assert [point.gpus for point in points(store, 1, -5)] == [8.0, None]


def test_histories_of_several_gpus_read_the_hours_of_each(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 2.0), an_offer("b", 4.0, gpu="a40", gpus=2)), after_s=0)
    store.poll(an_answer(an_offer("a", 2.0)), after_s=3600)
    store.time.pass_s(2 * DAY_S)
    pruned(store, days=0.5)
    asked: dict[str, Any] = {"contract": "on_demand", "since": NOON, "until": NOON + HOUR, "points": 2}
    found = price_histories(store.engine, ["h100-sxm", "a40", "l40s"], **asked)
    assert {gpu: [point.gpus for point in points] for gpu, points in found.items()} == {
        "h100-sxm": [1.0, 1.0],
        "a40": [2.0, 0.0],
        "l40s": [0.0, 0.0],
    }
    for gpu, points in found.items():
        assert points == price_history(store.engine, gpu, **asked)
        assert all(point.offers is None for point in points)  # from hours, not from offers


def test_types_contracts_and_providers_are_rolled_up_apart(store: Store) -> None:
    offers = (
        an_offer("a", 2.0),
        an_offer("a", 1.0, contract="interruptible"),
        an_offer("b", 0.5, gpu="a40", gpus=2, gpu_ids=(1, 2), machine_id="m"),
        an_offer("c", 0.5, gpu="a40", gpus=1, gpu_ids=(2,), machine_id="m"),
    )
    store.poll(an_answer(*offers), after_s=0)
    store.poll(an_answer(), after_s=3600)
    store.time.pass_s(3 * DAY_S)
    pruned(store)
    assert store.rows("SELECT gpu, contract, gpus_most, median_usd_per_gpu_hour FROM market_hour ORDER BY 1, 2") == [
        ("a40", "on_demand", 2, 0.375),
        ("h100-sxm", "interruptible", 1, 1.0),
        ("h100-sxm", "on_demand", 1, 2.0),
    ]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns"])
def test_hours_begin_where_utc_s_do_whatever_the_server_s_time_zone(
    store: Store, postgres: Server, zone: str
) -> None:
    postgres.run(f"ALTER DATABASE market SET timezone = '{zone}'")
    try:
        store.engine.dispose()
        since = a_store_with_history(store)
        assert store.market().offers[0].observed_at == since
        store.time.pass_s(3 * DAY_S)
        pruned(store)
        assert store.rows("SELECT hour FROM market_hour ORDER BY hour LIMIT 1") == [(NOON,)]
        assert [point.gpus for point in points(store, 0, 1)] == [2.5, 8.0]
    finally:
        postgres.run("ALTER DATABASE market RESET timezone")


def test_polling_goes_on_after_all_polls_of_a_provider_grew_old(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 2.0)))
    store.time.pass_s(400 * DAY_S)
    pruned(store)
    store.poll(an_answer(an_offer("a", 3.0)))
    assert store.for_rent() == {"a": 3.0}
    assert store.poller.next_poll_at(NORTH) == store.time.now() + timedelta(seconds=60)
