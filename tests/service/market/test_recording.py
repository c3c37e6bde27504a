"""What a poll writes: intervals of offers, and nothing where nothing that planning reads has changed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sutler.adapters.base import Coverage, Offer
from tests.service.market.builders import NOON, NORTH, SOUTH, Store, an_answer, an_offer

MINUTE = timedelta(minutes=1)
LISTED_UNTIL = NOON + timedelta(days=9)
MEASURED = an_offer(
    reliability_fraction=0.9923,
    intra_machine_gb_per_s=452.0,
    inter_machine_gb_per_s=12.4,
    disk_gb=645.0,
    inet_down_gb_per_s=0.21,
    cuda_max=12.8,
    open_ports=100,
    ram_gb=64.0,
    cpu_cores=16.0,
    listed_until=LISTED_UNTIL,
)


def test_the_first_poll_begins_every_offer(store: Store) -> None:
    report = store.poll(an_answer(an_offer("a"), an_offer("b", 3.0)))
    at = NOON + MINUTE
    assert (report.opened, report.closed, report.at) == (2, 0, at)
    assert store.offer_rows == [("a", 2.0, at, None), ("b", 3.0, at, None)]


def test_an_unchanged_market_writes_no_offer_row(store: Store) -> None:
    answer = an_answer(*(an_offer(f"o{i}", 1.0 + i) for i in range(50)))
    store.poll(answer)
    written = "SELECT last_value, (SELECT max(id) FROM offer), (SELECT count(*) FROM offer) FROM offer_id_seq"
    before = store.rows(written)
    reports = store.poll_all(answer, answer, answer)
    assert [(report.opened, report.closed) for report in reports] == [(0, 0)] * 3
    assert store.rows(written) == before
    assert store.scalar("SELECT count(*) FROM poll") == 4
    assert store.scalar("SELECT count(*) FROM offer WHERE xmax::text <> '0'") == 0


def test_a_change_of_price_ends_and_begins_at_the_same_instant(store: Store) -> None:
    first, second = store.poll_all(an_answer(an_offer("a", 2.0)), an_answer(an_offer("a", 2.5)))
    assert store.offer_rows == [("a", 2.0, first.at, second.at), ("a", 2.5, second.at, None)]
    assert (second.opened, second.closed) == (1, 1)
    assert store.for_rent(second.at) == {"a": 2.5}
    assert store.for_rent(second.at - timedelta(microseconds=1)) == {"a": 2.0}


@pytest.mark.parametrize(
    "noisy",
    [
        replace(MEASURED, reliability_fraction=0.9924),
        replace(MEASURED, disk_gb=645.0 * 1.001),
        replace(MEASURED, intra_machine_gb_per_s=455.0),
        replace(MEASURED, inter_machine_gb_per_s=12.2),
        replace(MEASURED, inet_down_gb_per_s=0.29, ram_gb=69.0),
        replace(MEASURED, open_ports=199),
        replace(MEASURED, listed_until=LISTED_UNTIL + timedelta(seconds=59)),
        replace(MEASURED, price_usd_per_hour=2.0000001),
    ],
)
def test_noise_below_the_step_writes_nothing(store: Store, noisy: Offer) -> None:
    first, again = store.poll_all(an_answer(MEASURED), an_answer(noisy))
    assert (again.opened, again.closed) == (0, 0)
    assert store.offer("a").observed_at == again.at
    assert store.offer_rows == [("a", 2.0, first.at, None)]


@pytest.mark.parametrize(
    "changed",
    [
        replace(MEASURED, reliability_fraction=0.9912),
        replace(MEASURED, disk_gb=600.0),
        replace(MEASURED, disk_gb=None),
        replace(MEASURED, intra_machine_gb_per_s=400.0),
        replace(MEASURED, inter_machine_gb_per_s=None),
        replace(MEASURED, price_usd_per_hour=2.001),
        replace(MEASURED, available=0, availability_basis="list"),
        replace(MEASURED, availability_basis="lower_bound"),
        replace(MEASURED, gpu="h200-sxm"),
        replace(MEASURED, gpus=2),
        replace(MEASURED, divisible=True),
        replace(MEASURED, machine_id="m1"),
        replace(MEASURED, machine_gpus=8),
        replace(MEASURED, gpu_ids=(7,)),
        replace(MEASURED, site="s"),
        replace(MEASURED, region="NO"),
        replace(MEASURED, feed="other"),
        replace(MEASURED, disk_included_gb=8.0),
        replace(MEASURED, disk_usd_per_gb_month=0.2),
        replace(MEASURED, inet_down_gb_per_s=0.9),
        replace(MEASURED, inet_up_usd_per_gb=0.1),
        replace(MEASURED, cuda_max=13.0),
        replace(MEASURED, open_ports=7),
        replace(MEASURED, ram_gb=8.0),
        replace(MEASURED, cpu_cores=2.0),
        replace(MEASURED, compute_capability=7.5),
        replace(MEASURED, is_verified=False),
        replace(MEASURED, host_id="h"),
        replace(MEASURED, listed_until=LISTED_UNTIL - timedelta(hours=2)),
    ],
)
def test_every_field_that_planning_reads_begins_a_new_row(store: Store, changed: Offer) -> None:
    reports = store.poll_all(an_answer(MEASURED), an_answer(changed))
    assert (reports[1].opened, reports[1].closed) == (1, 1)
    stored = store.offer("a")
    told = {name: getattr(changed, name) for name in ("price_usd_per_hour", "gpu", "gpus", "region", "disk_gb")}
    assert {name: getattr(stored, name) for name in told} == told


def test_offers_that_are_gone_end_only_where_the_poll_speaks_of_them(store: Store) -> None:
    store.poll(
        an_answer(
            an_offer("s1", feed="secure/a40"), an_offer("s2", feed="secure/l4"), an_offer("c", feed="community/a40")
        )
    )
    store.poll(an_answer(covered=(Coverage("secure/a40", rows_read=1),)))
    assert set(store.for_rent()) == {"s2", "c"}
    store.poll(an_answer(covered=(Coverage("secure/", rows_read=1),)))
    assert set(store.for_rent()) == {"c"}


def test_an_answer_cut_at_its_limit_speaks_only_of_prices_up_to_its_last(store: Store) -> None:
    store.poll(an_answer(an_offer("cheap", 1.0), an_offer("last", 4.0), an_offer("dear", 9.0)))
    report = store.poll(an_answer(an_offer("new", 3.0), covered=(Coverage("", 4.0, rows_read=1),)))
    assert store.for_rent() == {"new": 3.0, "dear": 9.0}
    assert (report.opened, report.closed) == (1, 2)


def test_an_offer_that_grew_dearer_than_the_limit_of_a_cut_answer_is_gone(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 3.0)))
    store.poll(an_answer(an_offer("b", 4.0), covered=(Coverage("", 4.0, rows_read=1),)))
    assert store.for_rent() == {"b": 4.0}


def test_a_partial_answer_keeps_what_it_does_not_speak_of(store: Store) -> None:
    store.poll(an_answer(an_offer("a", feed="x"), an_offer("b", feed="y")))
    then = store.poll(an_answer(outcome="partial", covered=(Coverage("x", rows_read=3),)))
    assert store.for_rent() == {"b": 2.0}
    assert store.offer("b").observed_at == then.at - MINUTE


def test_an_answer_that_speaks_of_nothing_still_begins_what_it_brings(store: Store) -> None:
    store.poll(an_answer(an_offer("a")))
    store.poll(an_answer(an_offer("b"), outcome="partial", covered=()))
    assert set(store.for_rent()) == {"a", "b"}


def test_list_prices_alone_are_an_answer(store: Store) -> None:
    listed = an_offer("list/a", available=0, availability_basis="list", feed="list/a")
    store.poll(an_answer(listed, outcome="prices_only", kept=0, covered=(Coverage("list/", rows_read=1),)))
    assert [(offer.available, offer.availability_basis) for offer in store.market().offers] == [(0, "list")]


def test_one_id_can_be_on_demand_and_interruptible_at_once(store: Store) -> None:
    both = (an_offer("a", 2.0), an_offer("a", 1.0, contract="interruptible"))
    store.poll_all(an_answer(*both), an_answer(both[0]))
    assert [(offer.contract, offer.price_usd_per_hour) for offer in store.market().offers] == [("on_demand", 2.0)]
    store.poll(an_answer(*both))
    assert len(store.market().offers) == 2


def test_providers_do_not_touch_each_other(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 2.0)))
    store.poll(an_answer(an_offer("a", 7.0)), cloud=SOUTH)
    store.poll(an_answer(), cloud=NORTH)
    assert [(offer.provider, offer.price_usd_per_hour) for offer in store.market().offers] == [("south", 7.0)]
    assert [offer.provider for offer in store.market(None, "north").offers] == []


def test_an_offer_that_comes_back_begins_anew(store: Store) -> None:
    first, gone, back = store.poll_all(an_answer(an_offer("a")), an_answer(), an_answer(an_offer("a")))
    assert store.offer_rows == [("a", 2.0, first.at, gone.at), ("a", 2.0, back.at, None)]
    assert store.for_rent(gone.at) == {}


def test_two_offers_with_one_key_are_one_offer(store: Store) -> None:
    report = store.poll(an_answer(an_offer("a", 2.0), an_offer("a", 3.0)))
    assert store.for_rent() == {"a": 2.0}
    assert report.opened == 1


def test_polls_follow_each_other_even_where_the_clock_runs_backwards(store: Store) -> None:
    first = store.poll(an_answer(an_offer("a", 2.0)))
    second = store.poll(an_answer(an_offer("a", 3.0)), after_s=-3600)
    third = store.poll(an_answer(), after_s=0)
    assert first.at < second.at < third.at
    assert store.for_rent(first.at) == {"a": 2.0}
    assert store.for_rent(second.at) == {"a": 3.0}
    assert store.for_rent() == {}


def test_after_the_clock_was_set_back_the_provider_is_polled_at_its_usual_interval(store: Store) -> None:
    store.time.pass_s(365 * 86_400)
    store.poll(an_answer(an_offer("a")))
    store.time.pass_s(-365 * 86_400)
    assert store.poller.is_due(NORTH)
    store.poll(an_answer(an_offer("a")))
    assert store.poller.next_poll_at(NORTH) == store.time.now() + timedelta(seconds=60)


def test_times_are_stored_to_the_microsecond(store: Store) -> None:
    store.time.at = NOON + timedelta(microseconds=123_456)
    report = store.poll(an_answer(an_offer()), after_s=0)
    assert store.scalar("SELECT at FROM poll") == report.at == NOON + timedelta(microseconds=123_456)


def test_the_poll_row_says_what_came(store: Store) -> None:
    answer = an_answer(
        an_offer(), not_available={"rented": 3}, flags={"duplicate_conflict": 1}, requests=2, http_status=200
    )
    store.poll(answer)
    columns = "outcome, kept, not_available, flags, requests, http_status, covered, opened, closed, retry_at"
    assert store.rows(f"SELECT {columns} FROM poll") == [
        ("ok", 1, {"rented": 3}, {"duplicate_conflict": 1}, 2, 200, [["", None]], 1, 0, None)
    ]
