"""Who is polled when: due times that outlive a restart, clouds that asked for patience, one poll at a time."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.service.db.engine import transaction
from sutler.service.db.errors import DatabaseUnreachableError
from sutler.service.db.store import open_store
from sutler.service.market import repository
from sutler.service.market.polling import Poller
from sutler.service.settings import StoreSettings
from tests.service.market.builders import (
    CONFIG,
    NORTH,
    SOUTH,
    Store,
    a_cloud,
    a_failure,
    an_answer,
    an_offer,
)

PATIENCE_S = 20.0


def due_in_s(store: Store, cloud: Provider = NORTH) -> float:
    due_at = store.poller.next_poll_at(cloud)
    assert due_at is not None
    return (due_at - store.time.now()).total_seconds()


def test_a_cloud_that_was_never_polled_is_due(store: Store) -> None:
    assert store.poller.is_due(NORTH)
    assert store.poller.next_poll_at(NORTH) is None


def test_a_cloud_is_polled_once_per_interval(store: Store) -> None:
    store.clouds.answers["north"] = an_answer(an_offer())
    asked = []
    for _ in range(12):
        asked.append(store.poller.poll_if_due(NORTH) is not None)
        store.time.pass_s(20)
    assert asked == [True, False, False] * 4


def test_waits_grow_with_each_failure_and_outlive_a_restart(store: Store) -> None:
    store.clouds.answers["north"] = a_failure("retry")
    waits = []
    for _ in range(7):
        assert store.poller.poll_if_due(NORTH) is not None
        waits.append(due_in_s(store))
        store.time.pass_s(waits[-1] - 1)
        assert store.poller.poll_if_due(NORTH) is None
        store.time.pass_s(1)
    assert waits == [60, 120, 240, 480, 960, 1800, 1800]


def test_a_wait_beyond_the_interval_is_kept(store: Store) -> None:
    store.poll(a_failure("quota", wait_s=7200))
    store.time.pass_s(7199)
    assert store.poller.poll_if_due(NORTH) is None
    store.time.pass_s(1)
    store.clouds.answers["north"] = an_answer()
    assert store.poller.poll_if_due(NORTH) is not None


def test_a_cloud_that_asked_for_patience_is_left_alone(store: Store) -> None:
    store.poll(a_failure("retry", wait_s=600))
    until = store.time.now() + timedelta(seconds=600)
    report = store.poller.poll(NORTH)
    assert (report.poll.outcome, report.retry_at, report.seconds) == ("retry", until, 0.0)
    assert "12:11:00 UTC" in report.poll.detail
    assert store.clouds.asked == ["north"]
    assert store.scalar("SELECT count(*) FROM poll") == 1


def test_who_insists_is_served_all_the_same(store: Store) -> None:
    store.poll(a_failure("retry", wait_s=600))
    store.clouds.answers["north"] = an_answer(an_offer())
    assert store.poller.poll(NORTH, insist=True).poll.outcome == "ok"
    assert store.poller.poll(NORTH).poll.outcome == "ok"


def test_our_own_backoff_does_not_keep_people_from_polling(store: Store) -> None:
    store.poll_all(a_failure(), a_failure(), a_failure())
    store.clouds.answers["north"] = an_answer()
    assert store.poller.poll(NORTH).poll.outcome == "ok"


def test_the_operators_interval_is_never_shorter_than_the_cloud_bears(store: Store) -> None:
    cloud = a_cloud(interval_s=120, least_interval_s=60)
    assert store.poller.interval_s(cloud) == 120
    assert replace(store, poll_interval_s=90.0).poller.interval_s(cloud) == 90
    assert replace(store, poll_interval_s=5.0).poller.interval_s(cloud) == 60
    assert replace(store, poll_interval_s=900.0).poller.interval_s(cloud) == 900


def test_a_second_instance_skips_a_cloud_that_is_being_polled(store: Store, engine: Engine) -> None:
    others: list[object] = []

    def meanwhile() -> Poll:
        others.append(store.poller.poll_if_due(NORTH))
        return an_answer(an_offer())

    store.clouds.answers["north"] = meanwhile
    assert store.poller.poll_if_due(NORTH) is not None
    assert others == [None]
    assert store.clouds.asked == ["north"]


def test_another_cloud_can_be_polled_meanwhile(store: Store) -> None:
    store.clouds.answers["south"] = an_answer()

    def meanwhile() -> Poll:
        assert store.poller.poll_if_due(SOUTH) is not None
        return an_answer()

    store.clouds.answers["north"] = meanwhile
    store.poller.poll_if_due(NORTH)
    assert store.clouds.asked == ["north", "south"]


def test_who_asks_while_a_poll_hangs_is_told_so_in_the_end(store: Store) -> None:
    problems: list[str] = []

    def meanwhile() -> Poll:
        with pytest.raises(DatabaseUnreachableError) as caught:
            store.poller.poll(NORTH)
        problems.append(str(caught.value))
        return an_answer()

    store.poll(meanwhile)
    (problem,) = problems
    assert "another instance has been polling north for 60 s" in problem
    assert sum(store.time.slept) == pytest.approx(60, abs=1)


def test_the_lock_is_free_after_an_adapter_that_raises(store: Store) -> None:
    def broken() -> Poll:
        raise RuntimeError("a slip of ours")

    with pytest.raises(RuntimeError):
        store.poll(broken)
    assert store.poll(an_answer(an_offer())).poll.outcome == "ok"
    assert store.scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_no_transaction_is_open_while_a_cloud_is_asked(store: Store) -> None:
    states: list[tuple[object, ...]] = []

    def meanwhile() -> Poll:
        states.extend(store.rows("SELECT state FROM pg_stat_activity WHERE datname = current_database() "
                                 "AND pid <> pg_backend_pid()"))  # fmt: skip
        return an_answer()

    store.poll(meanwhile)
    assert set(states) == {("idle",)}


@contextmanager
def several_engines(settings: StoreSettings, number: int) -> Iterator[list[Engine]]:
    """As several processes have them."""
    engines = [open_store(settings) for _ in range(number)]
    try:
        yield engines
    finally:
        for engine in engines:
            engine.dispose()


def side_by_side(*works: Callable[[], object]) -> None:
    """Begins them at the same moment, each in a thread of its own; re-raises what any of them raised."""
    start = threading.Barrier(len(works), timeout=PATIENCE_S)

    def run(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result(timeout=PATIENCE_S)


def test_two_instances_that_poll_at_once_take_turns(empty_store: StoreSettings, store: Store) -> None:
    under_way, most_at_once = 0, 0

    def fetch(_: Provider, __: ProviderConfig) -> Poll:
        nonlocal under_way, most_at_once
        under_way += 1
        most_at_once = max(most_at_once, under_way)
        time.sleep(0.01)
        under_way -= 1
        return an_answer(*(an_offer(f"o{i}", 1.0 + len(str(uuid4())) + i) for i in range(20)))

    def poll_often(engine: Engine) -> None:
        poller = Poller(engine, {"north": CONFIG}, fetch=fetch, sleep=lambda _: time.sleep(0.01))
        for _ in range(4):
            poller.poll(NORTH)

    with several_engines(empty_store, 3) as engines:
        side_by_side(*(partial(poll_often, engine) for engine in engines))
    assert most_at_once == 1
    assert store.scalar("SELECT count(*) FROM poll") == 12
    assert store.scalar("SELECT count(DISTINCT at) FROM poll") == 12
    assert store.scalar("SELECT count(*) FROM offer WHERE upper_inf(valid)") == 20


def test_polls_recorded_at_once_leave_one_open_row_per_offer(empty_store: StoreSettings, store: Store) -> None:
    """As after a server's restart, which frees the locks while polls are under way."""

    def record(engine: Engine, price: float) -> None:
        poller = Store(engine, store.time).poller
        for i in range(10):
            answer = an_answer(an_offer("a", price + i), an_offer(f"own-{price}"))
            poller._record(NORTH, answer, poll_id=uuid4(), at=store.time.now(), seconds=0.0)

    with several_engines(empty_store, 2) as engines:
        side_by_side(*(partial(record, engine, price) for engine, price in zip(engines, (1.0, 100.0), strict=True)))
    assert store.scalar("SELECT count(*) FROM poll") == 20
    assert (
        store.scalar("SELECT max(n) FROM (SELECT count(*) n FROM offer WHERE upper_inf(valid) GROUP BY offer_id) x")
        == 1
    )
    assert store.scalar("SELECT sum(opened) - sum(closed) FROM poll") == store.scalar(
        "SELECT count(*) FROM offer WHERE upper_inf(valid)"
    )


def test_recording_a_poll_again_after_a_lost_answer_is_harmless(store: Store) -> None:
    store.poll(an_answer(an_offer("gone"), an_offer("a", 1.0)))
    store.time.pass_s(60)
    answer, poll_id, at = an_answer(an_offer("a", 2.0), rejected=()), uuid4(), store.time.now()
    once, twice = (store.poller._record(NORTH, answer, poll_id=poll_id, at=at, seconds=1.5) for _ in range(2))
    assert once == twice
    assert (once.opened, once.closed) == (1, 2)
    assert len(store.offer_rows) == 3
    assert store.scalar("SELECT count(*) FROM poll") == 2


def test_many_new_providers_at_once_get_one_row_each(empty_store: StoreSettings, store: Store) -> None:
    def add(engine: Engine) -> None:
        for name in ("north", "south", "east"):
            with transaction(engine) as connection:
                repository.lock_provider(connection, name)

    with several_engines(empty_store, 4) as engines:
        side_by_side(*(partial(add, engine) for engine in engines))
    assert store.rows("SELECT name FROM provider ORDER BY name") == [("east",), ("north",), ("south",)]
