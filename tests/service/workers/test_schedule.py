"""The schedule at work: a real scheduler, a real store, clouds with short intervals."""

import logging
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from apscheduler.schedulers.base import BaseScheduler
from sqlalchemy import Engine

from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.service.db.engine import open_engine
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.market.service import MarketService
from sutler.service.settings import MarketSettings, StoreSettings
from sutler.service.workers.schedule import log_poll, schedule
from tests.service.market.builders import (
    CONFIG,
    NORTH,
    Store,
    a_cloud,
    a_failure,
    a_rejected_row,
    an_answer,
    an_offer,
)

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 20.0


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


@dataclass(frozen=True)
class QuickMarket(MarketService):
    """Of clouds that bear to be asked often."""

    clouds: tuple[Provider, ...] = ()

    def providers(self, names: Sequence[str] = ()) -> list[Provider]:
        return list(self.clouds)


@dataclass
class BusyClouds:
    """Answers each after some time; remembers when each was asked, and how many at once."""

    seconds: float = 0.0
    broken: frozenset[str] = frozenset()
    asked_at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    under_way: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    most_at_once: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, provider: Provider, _: ProviderConfig) -> Poll:
        name = provider.name
        with self.lock:
            self.asked_at[name].append(time.monotonic())
            self.under_way[name] += 1
            self.most_at_once[name] = max(self.most_at_once[name], self.under_way[name])
        time.sleep(self.seconds)
        with self.lock:
            self.under_way[name] -= 1
        if name in self.broken:
            raise RuntimeError("a slip of ours")
        return an_answer(an_offer(name))

    def gaps_s(self, name: str) -> list[float]:
        times = self.asked_at[name]
        return [later - earlier for earlier, later in pairwise(times)]


def now() -> datetime:
    return datetime.now(UTC)


def a_market(engine: Engine, clouds: BusyClouds, *providers: Provider) -> QuickMarket:
    poller = Poller(engine, {provider.name: CONFIG for provider in providers}, fetch=clouds.fetch)
    return QuickMarket(engine, MarketSettings((), {}), poller, clouds=providers)


@contextmanager
def scheduled(*markets: MarketService) -> Iterator[list[BaseScheduler]]:
    """Started, and at the end left to finish and stopped."""
    schedulers = [schedule(market, history_days=90, now=now) for market in markets]
    for scheduler in schedulers:
        scheduler.start()
    try:
        yield schedulers
    finally:
        for scheduler in schedulers:
            scheduler.pause()
            wait_until(partial(is_idle, scheduler))
            scheduler.shutdown(wait=True)


def is_idle(scheduler: BaseScheduler) -> bool:
    return not any(scheduler._lookup_executor("default")._instances.values())


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_at, "it never came to that"
        time.sleep(0.02)


def test_every_cloud_is_polled_at_once_and_again_when_due(store: Store) -> None:
    north, south = (a_cloud(name, interval_s=0.5, least_interval_s=0.5) for name in ("north", "south"))
    clouds = BusyClouds()
    with scheduled(a_market(store.engine, clouds, north, south)):
        wait_until(lambda: all(len(clouds.asked_at[name]) >= 3 for name in ("north", "south")))
    assert min(clouds.gaps_s("north") + clouds.gaps_s("south")) >= 0.5
    assert store.rows("SELECT outcome FROM poll GROUP BY 1") == [("ok",)]
    assert {offer.offer_id for offer in store.market().offers} == {"north", "south"}


def test_the_polls_of_a_cloud_never_overlap_and_those_of_several_do(store: Store) -> None:
    north, south = (a_cloud(name, interval_s=0.1, least_interval_s=0.1) for name in ("north", "south"))
    clouds = BusyClouds(seconds=1.0)
    began = time.monotonic()
    with scheduled(a_market(store.engine, clouds, north, south)):
        wait_until(lambda: all(len(clouds.asked_at[name]) >= 2 for name in ("north", "south")))
    assert set(clouds.most_at_once.values()) == {1}
    firsts = [times[0] for times in clouds.asked_at.values()]
    assert max(firsts) - min(firsts) < clouds.seconds
    assert max(firsts) - began < PATIENCE_S


@pytest.mark.slow
def test_two_schedulers_on_one_database_poll_once_per_interval(store: Store, empty_store: StoreSettings) -> None:
    north = a_cloud(interval_s=1.0, least_interval_s=1.0)
    clouds = BusyClouds(seconds=0.05)
    other = open_store(empty_store)
    with scheduled(a_market(store.engine, clouds, north), a_market(other, clouds, north)):
        wait_until(lambda: len(clouds.asked_at["north"]) >= 3)
    other.dispose()
    assert min(clouds.gaps_s("north")) >= 1.0
    assert clouds.most_at_once == {"north": 1}
    assert store.scalar("SELECT count(*) FROM poll") == len(clouds.asked_at["north"])


def test_a_slip_of_ours_in_one_poll_stops_neither_the_others_nor_the_next(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    north, south = (a_cloud(name, interval_s=0.3, least_interval_s=0.3) for name in ("north", "south"))
    clouds = BusyClouds(broken=frozenset({"north"}))
    with scheduled(a_market(store.engine, clouds, north, south)):
        wait_until(lambda: all(len(clouds.asked_at[name]) >= 2 for name in ("north", "south")))
    assert "north: the poll failed by our fault" in caplog.text
    assert [offer.offer_id for offer in store.market().offers] == ["south"]
    assert min(clouds.gaps_s("north")) >= 0.3


def test_a_database_that_is_away_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = StoreSettings(data_dir=Path("unused"), database_url="postgresql+psycopg://sutler@127.0.0.1:1/market")
    engine = open_engine(nowhere)
    clouds = BusyClouds()
    with scheduled(a_market(engine, clouds, a_cloud(interval_s=0.2, least_interval_s=0.2))):
        wait_until(lambda: caplog.text.count("north: the database cannot be used now") >= 2)
    engine.dispose()
    assert clouds.asked_at == {}


def test_old_history_is_pruned_once_a_day_and_a_failure_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sutler.jobs")
    store.time.at = now() - timedelta(days=200)
    store.poll_all(an_answer(an_offer()), an_answer())
    scheduler = schedule(a_market(store.engine, BusyClouds()), history_days=90, now=now)
    job = scheduler.get_job("prune")
    job.func(*job.args)
    assert "rows deleted" in caplog.text
    assert store.offer_rows == []
    first = job.trigger.get_next_fire_time(None, datetime(2026, 11, 20, 12, tzinfo=UTC))
    assert job.trigger.get_next_fire_time(first, first + timedelta(seconds=1)) - first == timedelta(days=1)
    nowhere = StoreSettings(data_dir=Path("unused"), database_url="postgresql+psycopg://sutler@127.0.0.1:1/market")
    engine = open_engine(nowhere)
    job.func(a_market(engine, BusyClouds()), 90)
    engine.dispose()
    assert "prune: the database cannot be used now" in caplog.text


def test_one_line_is_logged_per_poll_and_a_failed_one_is_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sutler.jobs")
    log_poll(store.poll(an_answer(an_offer(), rejected=(a_rejected_row(),)), cloud=NORTH))
    log_poll(store.poll(a_failure("retry")))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "north: ok, kept 1, rejected 1, changed 1 in 0.0 s"),
        ("WARNING", "north: retry, kept 0, rejected 0, changed 0 in 0.0 s: the cloud said retry"),
    ]


SERVING: Final = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from sutler.service.db.store import open_store
from sutler.service.workers.schedule import schedule
from sutler.service.settings import StoreSettings
from tests.service.market.builders import a_cloud, an_answer, an_offer
from tests.service.workers.test_schedule import BusyClouds, a_market

def fetch(*_):
    print("polling", flush=True)
    time.sleep(0.5)
    return an_answer(an_offer())

engine = open_store(StoreSettings(data_dir=Path("unused"), database_url=sys.argv[1]))
clouds = BusyClouds()
clouds.fetch = fetch
scheduler = schedule(a_market(engine, clouds, a_cloud()), history_days=90, now=lambda: datetime.now(UTC))
scheduler.start()
sys.stdin.readline()
scheduler.shutdown(wait=True)
engine.dispose()
print("stopped", flush=True)
"""


@pytest.mark.slow
def test_a_poll_under_way_is_finished_before_the_end(store: Store, empty_store: StoreSettings) -> None:
    """In a process of its own: what hangs there can be ended."""
    command = [sys.executable, "-c", SERVING, str(empty_store.database_url)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "polling\n"
            output, _ = process.communicate("\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    assert output == "stopped\n"
    assert store.scalar("SELECT count(*) FROM poll") == 1
