"""The market as looks see it, on a real store: read once per change, with what of it has settled."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine

from sutler.adapters.base import Offer
from sutler.service.deployments.replanning.facts import OfferKey, Settled
from sutler.service.deployments.replanning.shared_market import FRESH_S, SharedMarket
from sutler.service.market.service import MarketService
from sutler.service.settings import MarketSettings
from tests.service.market.builders import SOUTH, Store, a_failure, an_answer, an_offer

SETTLE_S = 600.0
POLL_S = 60.0


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


def a_view(store: Store) -> SharedMarket:
    settings = MarketSettings((), {}, None)
    return SharedMarket(MarketService(store.engine, settings, store.poller, store.time.now))


def polls(store: Store, count: int, *offers: Offer) -> None:
    """So many minutes of these offers."""
    for _ in range(count):
        store.poll(an_answer(*offers), after_s=POLL_S)


def settled(store: Store, settle_s: float = SETTLE_S) -> Mapping[str, Settled]:
    """By the offer's id."""
    _, found = a_view(store).seen(version=1, settle_s=settle_s, now=store.time.now(), project="default")
    return {offer_id: each for (_, offer_id, _), each in found.items()}


def prices_seen(view: SharedMarket, version: int, now: datetime) -> list[float]:
    market, _ = view.seen(version=version, settle_s=SETTLE_S, now=now, project="default")
    return sorted(offer.price_usd_per_hour for offer in market.stored().offers)


def test_the_market_is_read_once_for_all_looks_until_it_changes(store: Store) -> None:
    polls(store, 1, an_offer("a", 2.0))
    view, now = a_view(store), store.time.now()
    assert prices_seen(view, 1, now) == [2.0]
    polls(store, 1, an_offer("a", 3.0))
    assert prices_seen(view, 1, now) == [2.0]
    assert prices_seen(view, 2, now) == [3.0]


@pytest.mark.parametrize("seconds", [FRESH_S + 1, -FRESH_S - 1])
def test_a_market_that_was_read_long_ago_or_at_a_later_time_is_read_again(store: Store, seconds: float) -> None:
    polls(store, 1, an_offer("a", 2.0))
    view, now = a_view(store), store.time.now()
    assert prices_seen(view, 1, now) == [2.0]
    polls(store, 1, an_offer("a", 3.0))
    assert prices_seen(view, 1, now + timedelta(seconds=seconds)) == [3.0]


def test_a_look_polls_nothing_whatever_the_problem_says(store: Store) -> None:
    polls(store, 1, an_offer("a", 2.0))
    asked = list(store.clouds.asked)
    market, _ = a_view(store).seen(version=1, settle_s=SETTLE_S, now=store.time.now(), project="default")
    assert market.polled(["north"]) == market.stored()
    assert store.clouds.asked == asked


def test_an_offer_that_has_held_for_the_time_has_settled(store: Store) -> None:
    polls(store, 12, an_offer("a", 2.0, available=3))
    assert settled(store) == {"a": Settled(2.0, 2.0, 3)}


def test_an_offer_that_is_new_has_not(store: Store) -> None:
    polls(store, 12, an_offer("a", 2.0))
    polls(store, 5, an_offer("a", 2.0), an_offer("new", 1.0))
    assert set(settled(store)) == {"a"}
    assert set(settled(store, 240.0)) == {"a", "new"}


def test_of_a_price_that_has_moved_the_highest_and_the_lowest_are_known_by_gpu(store: Store) -> None:
    for price in (8.0, 4.0, 6.0):
        polls(store, 4, an_offer("a", price, gpus=2))
    assert settled(store, 650.0) == {"a": Settled(4.0, 2.0, 1)}
    assert settled(store, 170.0) == {"a": Settled(3.0, 3.0, 1)}


def test_of_an_offer_that_was_scarce_the_least_is_known(store: Store) -> None:
    polls(store, 12, an_offer("a", available=9))
    polls(store, 1, an_offer("a", available=2))
    polls(store, 2, an_offer("a", available=9))
    assert settled(store)["a"].available == 2


def test_an_offer_that_went_and_came_back_has_not_settled(store: Store) -> None:
    polls(store, 12, an_offer("a"), an_offer("b"))
    polls(store, 1, an_offer("b"))
    polls(store, 3, an_offer("a"), an_offer("b"))
    assert set(settled(store)) == {"b"}


def test_an_offer_that_has_gone_has_not_settled_however_long_it_was_there(store: Store) -> None:
    polls(store, 20, an_offer("a"), an_offer("b"))
    polls(store, 1, an_offer("b"))
    assert set(settled(store)) == {"b"}


def test_polls_that_fail_unsettle_nothing(store: Store) -> None:
    polls(store, 12, an_offer("a"))
    for _ in range(3):
        store.poll(a_failure())
    polls(store, 1, an_offer("a"))
    assert set(settled(store)) == {"a"}


def test_where_nothing_has_to_settle_all_that_is_for_rent_counts(store: Store) -> None:
    polls(store, 2, an_offer("a", 2.0))
    polls(store, 1, an_offer("a", 2.0), an_offer("new", 1.0))
    store.time.pass_s(5)
    assert set(settled(store, 0.0)) == {"a", "new"}


def test_offers_of_two_clouds_with_one_id_are_two(store: Store) -> None:
    polls(store, 12, an_offer("a", 2.0))
    store.poll(an_answer(an_offer("a", 1.0)), cloud=SOUTH)
    _, found = a_view(store).seen(version=1, settle_s=SETTLE_S, now=store.time.now(), project="default")
    assert set(found) == {("north", "a", "on_demand")}


def test_each_time_to_settle_is_read_once_and_anew_after_a_change(store: Store) -> None:
    polls(store, 12, an_offer("a"))
    view, now = a_view(store), store.time.now()
    first = [view.seen(version=1, settle_s=60.0 * n, now=now, project="default")[1] for n in (5, 8)]
    again = [view.seen(version=1, settle_s=60.0 * n, now=now, project="default")[1] for n in (5, 8)]
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert view.seen(version=2, settle_s=300.0, now=now, project="default")[1] is not first[0]


def test_many_times_to_settle_do_not_pile_up(store: Store) -> None:
    polls(store, 12, an_offer("a"))
    view, now = a_view(store), store.time.now()
    first = view.seen(version=1, settle_s=60.0, now=now, project="default")[1]
    for number in range(10):
        assert set(view.seen(version=1, settle_s=100.0 + number, now=now, project="default")[1]) == {
            ("north", "a", "on_demand")
        }
    assert view.seen(version=1, settle_s=60.0, now=now, project="default")[1] is not first


def test_an_offer_that_has_left_is_known_as_it_was_last(store: Store) -> None:
    gone: OfferKey = ("north", "a", "on_demand")
    polls(store, 1, an_offer("a", 2.0))
    polls(store, 1, an_offer("a", 3.0, region="US-TX", gpus=2))
    polls(store, 1, an_offer("b"))
    known = a_view(store).known([gone, ("north", "never", "on_demand")])
    assert set(known) == {gone}
    assert (known[gone].price_usd_per_hour, known[gone].region, known[gone].gpus) == (3.0, "US-TX", 2)
    assert a_view(store).known([]) == {}
