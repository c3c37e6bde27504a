"""A market that swings moves nothing; one that has changed for good does, once."""

import pytest

from sutler.service.documents.market import OfferDocument
from tests.service.deployments.replanning.builders import START, a_market, an_offer
from tests.service.deployments.replanning.worlds import POLL_S, a_world, machines

pytestmark = pytest.mark.slow


def a_market_with(price_usd_per_hour: float, offer_id: str = "large", provider: str = "acme") -> list[OfferDocument]:
    """The usual one, with another price of one offer."""
    return [
        offer.model_copy(update={"price_usd_per_hour": price_usd_per_hour})
        if (offer.provider, offer.offer_id) == (provider, offer_id)
        else offer
        for offer in a_market()
    ]


@pytest.mark.parametrize("rented", [True, False])
def test_a_price_that_swings_by_a_tenth_at_every_poll_changes_nothing_in_a_hundred_polls(rented: bool) -> None:
    world = a_world(rented=rented)
    world.lives(100, a_market_with(1.8), a_market_with(2.2))
    assert world.revisions == []


@pytest.mark.parametrize("rented", [True, False])
def test_a_rival_that_swings_around_the_price_that_is_paid_changes_nothing(rented: bool) -> None:
    world = a_world(rented=rented)
    world.lives(100, a_market_with(1.8, provider="bolt"), a_market_with(2.2, provider="bolt"))
    assert world.revisions == []


@pytest.mark.parametrize("rented", [True, False])
def test_all_prices_that_swing_out_of_step_change_nothing(rented: bool) -> None:
    world = a_world(rented=rented)
    prices = [(1.8, 2.2), (2.2, 1.8), (1.9, 2.3), (2.1, 1.85), (2.0, 2.0)]
    markets = [
        (an_offer(price_usd_per_hour=mine), an_offer(provider="bolt", price_usd_per_hour=other))
        for mine, other in prices
    ]
    world.lives(100, *markets)
    assert world.revisions == []


@pytest.mark.parametrize("others_move", [True, False])
@pytest.mark.parametrize("rented", [True, False])
def test_an_offer_that_is_a_fifth_cheaper_and_lasts_is_taken_once_as_soon_as_it_has_settled(
    rented: bool, others_move: bool
) -> None:
    """Also where nothing else on the market moves that would bring a look."""
    world = a_world(rented=rented)
    cheaper_since = world.now
    markets = [
        (*a_market_with(1.6, provider="bolt"), an_offer("far", provider="cory", price_usd_per_hour=price))
        for price in ((9.0, 9.1) if others_move else (9.0,))
    ]
    world.lives(60, *markets)
    assert len(world.revisions) == 1
    waited_s = (world.revisions[0] - cheaper_since).total_seconds()
    assert world.policy.settle_s <= waited_s <= world.policy.settle_s + 2 * POLL_S
    assert machines(world) == {"bolt/large": 2}


@pytest.mark.parametrize("rented", [True, False])
def test_an_offer_that_is_a_fifth_cheaper_now_and_then_is_never_taken(rented: bool) -> None:
    world = a_world(rented=rented)
    flickering = [*[a_market_with(1.6, provider="bolt")] * 5, a_market()]
    world.lives(100, *flickering)
    assert world.revisions == []


def test_an_offer_that_comes_and_goes_is_never_taken() -> None:
    world = a_world()
    with_it = (*a_market(), an_offer("bargain", price_usd_per_hour=1.0))
    world.lives(100, *[with_it] * 7, a_market())
    assert world.revisions == []


def test_what_saves_less_than_the_least_that_is_worth_it_is_not_taken() -> None:
    world = a_world(policy={"least_gain_fraction": 0.25})
    world.lives(30, a_market_with(1.6, provider="bolt"))
    assert world.revisions == []
    assert world.verdicts[-1].state.status == "calm"


def test_a_fleet_that_is_wished_for_follows_its_price_upwards_once() -> None:
    world = a_world(rented=False)
    world.lives(60, a_market_with(3.0))
    assert len(world.revisions) == 1
    assert "acme/large" not in machines(world)


def test_a_fleet_that_is_rented_does_not_care_what_it_would_cost_now() -> None:
    world = a_world()
    world.lives(30, a_market_with(3.0))
    assert world.revisions == []


def test_a_market_that_does_not_move_is_searched_at_most_once_in_a_calm() -> None:
    world = a_world(policy={"refine_s": 1800.0})
    world.lives(90)
    searches = [v for v in world.verdicts if v.considered is not None and v.considered.searched]
    assert 1 <= len(searches) <= 4
    assert world.revisions == []


def test_a_price_that_falls_poll_by_poll_is_followed_a_few_times_at_most() -> None:
    """By half within an hour."""
    world = a_world()
    for step in range(30):
        world.lives(1, a_market_with(2.0 * (1 - 0.5 * (step + 1) / 30), provider="bolt"), poll_s=120.0)
    world.lives(20)
    assert 1 <= len(world.revisions) <= 4
    assert machines(world) == {"bolt/large": 2}


def test_what_is_cheaper_within_the_cool_down_is_taken_when_it_is_over() -> None:
    """Nothing else moves meanwhile."""
    world = a_world(policy={"cooldown_s": 1200.0, "settle_s": 300.0}, settled_in=False)
    world.lives(40, a_market_with(1.4, provider="bolt"))
    assert len(world.revisions) == 1
    waited_s = (world.revisions[0] - START).total_seconds()
    assert world.policy.cooldown_s <= waited_s <= world.policy.cooldown_s + 2 * POLL_S
