"""The made-up month that the store is measured on is one that polls could have left behind."""

from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import numpy as np
import pytest
from sqlalchemy import Engine, text

from benchmarks.market_history import OPEN, History, history
from benchmarks.market_reads import read
from benchmarks.market_store import fill, sizes_mb
from sutler.adapters.base import Contract, Coverage, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.vastai import PROVIDER
from sutler.service.market.polling import Poller
from sutler.service.market.repository import offers_at

UNTIL = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTES = 240
CHANGES_PER_MINUTE = 40.0
CONTRACTS: Final[tuple[Contract, ...]] = ("on_demand", "interruptible")


def templates(count: int) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            offer_id=f"{1000 + i}",
            feed=CONTRACTS[i % 2],
            gpu="a40",
            gpus=2,
            available=1,
            price_usd_per_hour=0.5 + i / 100,
            contract=CONTRACTS[i % 2],
            machine_id=f"{i // 3}",
            gpu_ids=(2 * i, 2 * i + 1),
            reliability_fraction=0.99,
        )
        for i in range(count)
    )


@pytest.fixture(scope="module")
def month() -> History:
    return history(
        PROVIDER.name,
        templates(300),
        minutes=MINUTES,
        until=UNTIL,
        changes_per_minute=CHANGES_PER_MINUTE,
        seed=1,
    )


@pytest.fixture
def filled(engine: Engine, month: History) -> Engine:
    fill(engine, [month])
    return engine


def a_poll_of(month: History) -> Poll:
    offers = month.open_offers()
    covered = tuple(Coverage(feed, None, len(offers)) for feed in month.feeds)
    return Poll(outcome="ok", offers=offers, kept=len(offers), covered=covered)


def test_an_offer_has_one_price_at_a_time(month: History) -> None:
    rows = month.intervals
    by_slot = defaultdict(list)
    for slot, begin, end in zip(rows.slot.tolist(), rows.begins.tolist(), rows.ends.tolist(), strict=True):
        assert 0 <= begin < end
        by_slot[slot].append((begin, end))
    assert len(by_slot) == 300
    for intervals in by_slot.values():
        intervals.sort()
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(intervals))


def test_the_market_changes_as_often_as_asked(month: History) -> None:
    assert len(month.intervals) == pytest.approx(CHANGES_PER_MINUTE * MINUTES, rel=0.1)


def test_rows_are_in_the_order_in_which_they_ended(month: History) -> None:
    assert np.all(np.diff(month.intervals.ends) >= 0)
    assert month.intervals.ends[-1] == OPEN


def test_every_interval_begins_and_ends_with_a_poll(filled: Engine) -> None:
    strays = """
        SELECT count(*) FROM offer WHERE lower(valid) NOT IN (SELECT at FROM poll)
            OR upper(valid) NOT IN (SELECT at FROM poll)
    """
    miscounts = """
        SELECT count(*) FROM poll p WHERE opened <> (SELECT count(*) FROM offer WHERE lower(valid) = p.at)
            OR closed <> (SELECT count(*) FROM offer WHERE upper(valid) = p.at)
    """
    with filled.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM poll")) == MINUTES
        assert connection.scalar(text(strays)) == 0
        assert connection.scalar(text(miscounts)) == 0


def test_past_and_present_read_as_they_were_made(filled: Engine, month: History) -> None:
    with filled.connect() as connection:
        for number in (0, 1, 97, MINUTES - 1):
            assert len(offers_at(connection, month.instants[number])) == month.held[number]
        read_now = {(row.offer_id, row.contract, row.price_usd_per_hour) for row in offers_at(connection, None)}
    assert read_now == {(offer.offer_id, offer.contract, offer.price_usd_per_hour) for offer in month.open_offers()}


def test_a_poll_of_the_same_market_writes_no_offers(filled: Engine, month: History) -> None:
    poll = a_poll_of(month)
    poller = Poller(filled, {PROVIDER.name: ProviderConfig(PROVIDER.base_url)}, fetch=lambda *_: poll)
    report = poller.poll(PROVIDER)
    assert (report.opened, report.closed) == (0, 0)


def test_the_past_is_read_from_the_indexes_alone(filled: Engine, month: History) -> None:
    found = read(filled, "past", offers_at, [month.instants[100]])
    assert found["rows"] == month.held[100]
    assert set(found["nodes"]) >= {
        "Bitmap Index Scan ix_offer_brief",
        "Bitmap Index Scan ix_offer_lasting",
        "Bitmap Index Scan uq_offer_open",
    }
    assert "Seq Scan offer" not in found["nodes"]


def test_all_indexes_are_there_again_after_filling(filled: Engine) -> None:
    with filled.connect() as connection:
        names = connection.scalars(text("SELECT indexname FROM pg_indexes WHERE tablename = 'offer'")).all()
    assert set(names) == {"pk_offer", "ix_offer_brief", "ix_offer_lasting", "ix_offer_past", "uq_offer_open"}
    assert sizes_mb(filled)["offer"] > 1.0
