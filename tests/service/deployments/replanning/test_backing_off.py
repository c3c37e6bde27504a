"""Plans do not go back to where machines were lost before the back-off ends, unless nothing else carries the load."""

from datetime import timedelta

import pytest

from sutler.service.deployments.replanning.verdict import Verdict
from sutler.service.documents.market import OfferDocument
from sutler.solver.outlook.interruptions import Rented, learnt
from tests.service.deployments.replanning.builders import a_problem, an_offer
from tests.service.deployments.replanning.worlds import POLL_S, World, a_world, machines

FIRST_S = 900.0
SPOT = an_offer("spot", contract="interruptible", region="oslo", price_usd_per_hour=0.5)
SLICE = an_offer("slice", contract="interruptible", region="oslo", price_usd_per_hour=0.6)
DEAR = an_offer("dear", provider="bolt", price_usd_per_hour=2.4)
BACK_OFF = {"avoid_lost_s": FIRST_S}
WITH_SPOT = a_problem(market={"filter": {"contracts": ["on_demand", "interruptible"]}})


def a_fleet_of_spot(*others: OfferDocument) -> World:
    world = a_world(SPOT, *(others or (DEAR,)), problem=WITH_SPOT, policy=BACK_OFF)
    assert machines(world) == {"acme/spot": 2}
    return world


def preempted(world: World) -> Verdict:
    """All interruptible machines are gone, and the market has them for rent again at once."""
    assert world.holdings is not None
    world.reports([one for one in world.holdings if one.contract != "interruptible"])
    world.passes(1)
    world.poll()
    return world.look()


def seconds_without_spot(world: World, *, at_most_s: float) -> float:
    """How long it takes until the plan goes back, with a look every minute."""
    began = world.now
    while machines(world).get("acme/spot", 0) == 0:
        assert (world.now - began).total_seconds() < at_most_s
        world.lives(1)
    return (world.now - began).total_seconds()


def test_after_each_of_three_mass_preemptions_the_plan_stays_away_for_twice_as_long() -> None:
    world = a_fleet_of_spot()
    for number in range(3):
        length_s = FIRST_S * 2**number
        found = preempted(world)
        assert machines(world) == {"bolt/dear": 2}
        (avoided,) = found.state.avoided
        assert (str(avoided.place), avoided.machines) == ("acme interruptible h100-sxm in oslo", 2)
        assert (avoided.until - world.losses[-1].at).total_seconds() == length_s
        away_s = seconds_without_spot(world, at_most_s=2 * length_s)
        assert length_s - 1 <= away_s <= length_s + 2 * POLL_S
        assert found.look_at <= avoided.until


def test_it_says_why_an_offer_does_not_count_and_until_when() -> None:
    world = a_fleet_of_spot(DEAR, SLICE)
    preempted(world)
    (note,) = [note for note in world.plan.notes if "lost" in note and "do not count" in note]
    until = world.losses[-1].at + timedelta(seconds=FIRST_S)
    assert note == (
        "2 offers do not count, since machines were lost there: "
        f"acme interruptible h100-sxm in oslo until {until:%Y-%m-%d %H:%M:%S} UTC."
    )


def test_a_reserve_is_not_kept_where_machines_were_just_lost() -> None:
    """Two providers: without the one that failed, what is to be survived cannot be, and the load is carried."""
    problem = a_problem(
        market={"filter": {"contracts": ["on_demand", "interruptible"]}},
        resilience={"survive": "provider", "load_fraction": 0.5},
    )
    world = a_world(SPOT, DEAR, problem=problem, policy=BACK_OFF)
    both = machines(world)
    assert both.keys() == {"acme/spot", "bolt/dear"}
    preempted(world)
    assert machines(world).keys() == {"bolt/dear"}
    assert (
        "No reserve for losses is kept until machines may be rented again where they were lost." in world.plan.notes
    )
    assert FIRST_S - 1 <= seconds_without_spot(world, at_most_s=2 * FIRST_S) <= FIRST_S + 2 * POLL_S
    world.lives(20)
    assert machines(world) == both


def test_where_nothing_else_carries_the_load_it_is_rented_there_again_and_says_so() -> None:
    world = a_fleet_of_spot(an_offer("dear", available=1, price_usd_per_hour=2.4))
    preempted(world)
    assert machines(world).get("acme/spot", 0) > 0
    assert any("in no other way than there again" in note for note in world.plan.notes)


def test_a_plan_that_is_asked_for_stays_away_too() -> None:
    world = a_fleet_of_spot()
    preempted(world)
    world.passes(60)
    world.look(is_asked=True)
    assert machines(world) == {"bolt/dear": 2}


def test_machines_that_stand_where_others_were_lost_stay() -> None:
    world = a_fleet_of_spot()
    assert world.holdings is not None
    (held,) = world.holdings
    world.reports([held.model_copy(update={"count": 1})])
    world.passes(1)
    world.poll()
    world.look()
    assert machines(world) == {"acme/spot": 1, "bolt/dear": 1}


def test_with_0_seconds_it_is_rented_there_again_at_once() -> None:
    world = a_world(SPOT, DEAR, problem=WITH_SPOT)
    found = preempted(world)
    assert (machines(world), found.state.avoided) == ({"acme/spot": 2}, ())


def test_what_is_given_back_as_planned_is_no_loss() -> None:
    world = a_fleet_of_spot()
    world.poll(SPOT, an_offer("bargain", provider="bolt", price_usd_per_hour=0.1))
    world.look(is_asked=True)
    assert (machines(world), world.losses) == ({"bolt/bargain": 2}, ())


@pytest.mark.slow
def test_machines_that_are_taken_away_too_often_are_left_where_interruptions_count() -> None:
    """At half an hour between interruptions and twelve minutes to start, 2.0 $/h are 2.8 on average: above 2.4."""
    often = learnt([Rented("acme", "interruptible", "h100-sxm", 500.0, 1000)], {"interruptible": [1] * 1000})
    spot = SPOT.model_copy(update={"price_usd_per_hour": 2.0})
    problem = a_problem(
        market={"filter": {"contracts": ["on_demand", "interruptible"]}},
        objective={"kind": "min_cost", "count_interruptions": True},
    )
    patient = {"horizon_s": 6 * 3600, "payback_s": 6 * 3600}
    policy = {"avoid_lost_s": 0, "startup_s": 720, "download_gb_per_s": 1000, **patient}
    world = a_world(spot, DEAR, problem=problem, policy=policy)
    assert machines(world) == {"acme/spot": 2}
    world.lives(60)
    assert machines(world) == {"acme/spot": 2}
    world.interruptions = often
    world.poll(spot, DEAR, an_offer("other", price_usd_per_hour=9.0))
    world.lives(60)
    assert machines(world) == {"bolt/dear": 2}
    assert world.plan.expected_cost_usd_per_hour is not None
    assert world.plan.objective.value == world.plan.expected_cost_usd_per_hour
