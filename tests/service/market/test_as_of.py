"""Any past instant reads exactly as the planner would have seen it, whatever the polls: against a plain model."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from sutler.adapters.base import Coverage, Offer, Poll
from sutler.adapters.config import Provider
from sutler.service.documents.market import MarketDocument, OfferDocument
from sutler.service.market.retention import prune
from tests.service.market.builders import NOON, NORTH, SOUTH, Store, a_failure, an_answer, an_offer

TABLES: Final = ("offer", "poll", "rejected_row", "market_hour", "polled_hour", "provider")
STEP: Final = timedelta(minutes=20)
ALL: Final = ("", "secure/", "secure/a40", "community")
PARTS: Final = st.lists(st.sampled_from(ALL), min_size=1, max_size=2, unique=True)

Key = tuple[str, str]
Seen = dict[tuple[str, str, str], tuple[object, ...]]


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    """Few ids, machines and values, so that polls agree, conflict and repeat each other."""
    machine = draw(st.sampled_from([None, "m1", "m2"]))
    gpus = draw(st.integers(1, 2))
    cards = st.lists(st.integers(0, 4), min_size=gpus, max_size=gpus, unique=True).map(lambda ids: tuple(sorted(ids)))
    return an_offer(
        draw(st.sampled_from("abcd")),
        draw(st.sampled_from([1.0, 2.0, 3.0])),
        contract=draw(st.sampled_from(["on_demand", "interruptible"])),
        feed=draw(st.sampled_from(["secure/a40", "secure/l4", "community"])),
        gpu=draw(st.sampled_from(["a40", "l4"])),
        gpus=gpus,
        machine_id=machine,
        machine_gpus=draw(st.none() | st.integers(2, 6)),
        gpu_ids=draw(st.none() | cards),
        inet_down_gb_per_s=draw(st.sampled_from([None, 0.1])),
    )


@st.composite
def polls(draw: st.DrawFn) -> Poll:
    if draw(st.integers(0, 5)) == 0:
        return a_failure(draw(st.sampled_from(["retry", "bad_body", "auth_error"])))
    found = tuple({offer.key: offer for offer in draw(st.lists(offers(), max_size=5))}.values())
    up_to = draw(st.sampled_from([None, None, 2.0]))
    rows_read = max(len(found), draw(st.integers(0, 1)))
    prefixes = draw(st.just([""]) | PARTS)
    covered = tuple(Coverage(prefix, up_to, rows_read) for prefix in prefixes)
    return an_answer(*found, covered=covered, outcome="ok" if prefixes == [""] else "partial")


def covers(coverage: Coverage, offer: Offer) -> bool:
    dearest = coverage.up_to_usd_per_hour
    return offer.feed.startswith(coverage.feed_prefix) and (dearest is None or offer.price_usd_per_hour <= dearest)


def planned_with(offer: Offer) -> tuple[object, ...]:
    """What planning reads of a generated offer."""
    about_machine = (offer.machine_id, offer.machine_gpus, offer.gpu_ids, offer.inet_down_gb_per_s is None)
    return (offer.feed, offer.price_usd_per_hour, offer.gpu, offer.gpus, *about_machine)


@dataclass
class Market:
    """One provider's market as a dict, changed by each poll in the plainest way."""

    provider: str
    offers: dict[Key, Offer] = field(default_factory=dict)
    seen_at: dict[Key, datetime] = field(default_factory=dict)
    suspected: set[str] = field(default_factory=set)

    def hear(self, poll: Poll, at: datetime) -> None:
        if not poll.is_usable:
            return
        empty = {
            c.feed_prefix
            for c in poll.covered
            if c.rows_read == 0 and any(o.feed.startswith(c.feed_prefix) for o in self.offers.values())
        }
        believed = [c for c in poll.covered if c.feed_prefix not in empty - self.suspected]
        self.suspected = empty - self.suspected
        named = {offer.key for offer in poll.offers}
        for key, held in list(self.offers.items()):
            if any(covers(coverage, held) for coverage in believed):
                if key in named:
                    self.seen_at[key] = at
                else:
                    del self.offers[key]
        for offer in poll.offers:
            held_now = self.offers.get(offer.key)
            if held_now is None or planned_with(held_now) != planned_with(offer):
                self.offers[offer.key], self.seen_at[offer.key] = offer, at

    def seen(self) -> Seen:
        """What a reader is shown, by provider, id and contract."""
        return {(self.provider, *key): (*self._shown(offer), self.seen_at[key]) for key, offer in self.offers.items()}

    def _shown(self, offer: Offer) -> tuple[object, ...]:
        """Price, cards and machine; a machine with two types of cards counts as two."""
        on_machine = [o for o in self.offers.values() if o.machine_id == offer.machine_id]
        slices = [o for o in on_machine if o.gpu == offer.gpu]
        cards = {card for o in slices for card in o.gpu_ids or ()}
        named_all = all(o.gpu_ids for o in slices)
        stated = max(o.machine_gpus or o.gpus for o in slices)
        machine = offer.machine_id if len({o.gpu for o in on_machine}) == 1 else f"{offer.machine_id}/{offer.gpu}"
        least = min([len(cards), *(o.machine_gpus for o in slices if o.machine_gpus is not None)])
        free = least if named_all else max(stated, len(cards))
        about_machine = (None, offer.machine_gpus) if offer.machine_id is None else (machine, free)
        return (
            offer.price_usd_per_hour,
            offer.gpu,
            offer.gpus,
            offer.gpu_ids,
            offer.inet_down_gb_per_s,
            *about_machine,
        )


def shown(offer: OfferDocument) -> tuple[object, ...]:
    return (
        offer.price_usd_per_hour, offer.gpu, offer.gpus, offer.gpu_ids, offer.inet_down_gb_per_s,
        offer.machine_id, offer.machine_gpus, offer.observed_at,
    )  # fmt: skip


def read(store: Store, as_of: datetime | None) -> Seen:
    """What the store shows, which is a valid market snapshot."""
    found = store.market(as_of)
    if found.offers:
        MarketDocument(taken_at=found.taken_at, offers=found.offers)
    return {offer.key: shown(offer) for offer in found.offers}


def on_nothing(engine: Engine) -> Store:
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(text(f"DELETE FROM {table}"))
    return Store(engine)


def recorded(store: Store, history: list[tuple[Provider, Poll]]) -> list[tuple[datetime, Seen]]:
    """Polls them all; what the model showed after each."""
    markets = {cloud.name: Market(cloud.name) for cloud in (NORTH, SOUTH)}
    expected = []
    for cloud, answer in history:
        report = store.poll(answer, after_s=STEP.total_seconds(), cloud=cloud)
        markets[cloud.name].hear(answer, report.at)
        expected.append((report.at, {key: row for market in markets.values() for key, row in market.seen().items()}))
    return expected


HISTORIES: Final = st.lists(st.tuples(st.sampled_from([NORTH, NORTH, SOUTH]), polls()), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_every_past_instant_reads_as_the_market_was_then(
    engine: Engine, history: list[tuple[Provider, Poll]]
) -> None:
    store = on_nothing(engine)
    expected = recorded(store, history)
    for at, seen in expected:
        assert read(store, at) == seen
        assert read(store, at + STEP / 2) == seen
        assert read(store, at + STEP - timedelta(microseconds=1)) == seen
    assert read(store, NOON) == {}
    assert read(store, None) == expected[-1][1]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES, kept_hours=st.integers(0, 4))
def test_pruning_changes_nothing_that_is_younger_than_its_cutoff_nor_what_is_for_rent(
    engine: Engine, history: list[tuple[Provider, Poll]], kept_hours: int
) -> None:
    store = on_nothing(engine)
    expected = recorded(store, history)
    reports = store.rows("SELECT provider_id, max(at) FROM poll GROUP BY 1 ORDER BY 1")
    pruned = prune(engine, now=store.time.now(), history_days=kept_hours / 24)
    assert pruned.until <= store.time.now() - timedelta(hours=kept_hours)
    for at, seen in expected:
        for instant in (at, at + STEP / 2):
            if instant >= pruned.until:
                assert read(store, instant) == seen
    assert read(store, None) == expected[-1][1]
    assert store.scalar("SELECT count(*) FROM offer WHERE upper(valid) <= :until", until=pruned.until) == 0
    assert store.rows("SELECT provider_id, max(at) FROM poll GROUP BY 1 ORDER BY 1") == reports
    again = prune(engine, now=store.time.now(), history_days=kept_hours / 24)
    assert again.rows_deleted == 0
