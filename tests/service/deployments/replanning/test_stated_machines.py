"""Deployments on machines that their problem states, which no poll ever shows: looks take them as stated."""

from typing import Any

from sutler.service.documents.market import OfferDocument
from tests.service.deployments.replanning.builders import a_problem, an_offer, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines

LISTED = an_offer("list", available=0, availability_basis="list")
DEARER = an_offer("dear", provider="bolt", price_usd_per_hour=2.4)


def stocked(*offers: OfferDocument, count: int = 4, rented: bool = True, **entry: Any) -> World:
    """A deployment that takes two of so many machines, which acme only has a price of."""
    stock = {"provider": "acme", "gpu": "h100-sxm", "gpus": 1, "machines": count, **entry}
    problem = a_problem(market={"stock": [stock]})
    return a_world(LISTED, DEARER, *offers, problem=problem, rented=rented)


def grow(world: World, factor: float) -> None:
    world.traffic = traffic(20.0 * factor, 2.0 * factor, at=world.now, policy=world.policy)
    world.look()


def test_what_is_rented_of_a_quota_is_not_gone_at_the_next_look() -> None:
    world = stocked()
    assert machines(world) == {"acme/stated/1xh100-sxm": 2}
    verdict = world.look()
    assert (verdict.drifts, verdict.state.status, verdict.state.detail) == ((), "calm", "nothing has moved")


def test_what_is_planned_is_still_for_rent_although_nobody_shows_it() -> None:
    world = stocked(rented=False)
    assert world.look().drifts == ()


def test_what_a_poll_shows_under_another_id_takes_nothing_from_the_plan() -> None:
    world = stocked(rented=False)
    world.poll(LISTED, DEARER, an_offer(available=4))
    assert world.look().drifts == ()


def test_a_fleet_grows_to_what_is_stated_and_no_further() -> None:
    world = stocked()
    grow(world, 2.0)
    assert machines(world) == {"acme/stated/1xh100-sxm": 4}
    world.passes(world.policy.cooldown_s + 1)
    world.poll()
    grow(world, 3.0)
    assert machines(world) == {"acme/stated/1xh100-sxm": 4, "bolt/dear": 2}


def test_machines_that_were_polled_when_they_were_rented_are_part_of_what_is_stated() -> None:
    world = stocked(an_offer(available=2), count=3)
    assert machines(world) == {"acme/large": 2}
    world.poll(LISTED, DEARER)
    grow(world, 2.0)
    assert machines(world) == {"acme/large": 2, "acme/stated/1xh100-sxm": 1, "bolt/dear": 1}


def test_a_stated_machine_that_was_lost_can_be_had_again() -> None:
    world = stocked(count=2)
    [holding] = world.holdings or ()
    world.reports([holding.model_copy(update={"count": 1})])
    world.look()
    assert machines(world) == {"acme/stated/1xh100-sxm": 2}
