"""What a plan says it costs: what the market asks today, though it was chosen at the highest price of late."""

from dataclasses import replace

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.replanning.pricing import as_issued
from sutler.service.deployments.replanning.standing_machines import Assessed
from sutler.service.documents.market import OfferDocument
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.problem import Offer, Problem
from tests.service.deployments.replanning.builders import (
    START,
    a_holding,
    a_market,
    a_problem,
    an_offer,
    holdings_as_planned,
    seen_at,
    traffic,
)
from tests.service.deployments.replanning.worlds import World, a_world, machines

MIX = {"kind": "max_throughput"}


def bolt_at(usd_per_hour: float) -> tuple[OfferDocument, ...]:
    offers = [offer for offer in a_market() if offer.provider != "bolt"]
    return (*offers, an_offer(provider="bolt", price_usd_per_hour=usd_per_hour))


def moved_to_bolt(world: World) -> World:
    """Bolt has become cheaper, and a little cheaper still just before it counts."""
    world.lives(5, bolt_at(1.2))
    world.lives(1, bolt_at(1.1))
    while machines(world).keys() != {"bolt/large"}:
        world.lives(1)
        assert len(world.verdicts) < 30
    return world


def solved() -> tuple[Plan, Problem]:
    problem = to_problem(a_problem(), folder=None, now=START, store=seen_at(a_market(), START)).problem
    return solve(problem), problem


def restated(plan: Plan, problem: Problem, today: tuple[Offer, ...]) -> Plan:
    """Where nothing is counted on that is not held."""
    return as_issued(plan, problem, Assessed((), {}, (), ()), today)


def with_acme_times(factor: float, problem: Problem) -> tuple[Offer, ...]:
    factors = {"acme": factor}
    return tuple(
        replace(offer, price_usd_per_hour=offer.price_usd_per_hour * factors.get(offer.provider, 1.0))
        for offer in problem.offers
    )


def test_a_fleet_that_was_chosen_at_the_highest_price_of_late_is_stated_at_todays() -> None:
    world = moved_to_bolt(a_world())
    verdict = world.verdicts[-1]
    assert verdict.considered is not None
    assert verdict.considered.options[-1].cost_usd_per_hour == pytest.approx(2.4)
    assert [rental.price_usd_per_hour for rental in world.plan.rentals] == pytest.approx([1.1])
    assert world.plan.cost_usd_per_hour == pytest.approx(2.2)
    assert world.plan.objective.value == pytest.approx(2.2)
    assert world.plan.objective.bound is not None
    assert world.plan.objective.bound <= 2.2


def test_a_bound_that_is_of_dearer_offers_says_so() -> None:
    world = moved_to_bolt(a_world(problem=a_problem(objective=MIX, budget_usd_per_hour=4.2)))
    assert any("cheaper now" in note for note in world.plan.notes)
    assert all("cheaper now" not in note for note in moved_to_bolt(a_world()).plan.notes)


@pytest.mark.parametrize("factor", [0.95, 0.8, 0.5])
def test_the_bound_of_a_cost_holds_at_todays_prices(factor: float) -> None:
    plan, problem = solved()
    today = with_acme_times(factor, problem)
    found, best = restated(plan, problem, today), solve(replace(problem, offers=today))
    assert found.bound is not None
    assert found.value is not None
    assert best.value is not None
    assert found.bound <= min(best.value, found.value) + 1e-9
    assert found.cost_usd_per_hour == pytest.approx(
        sum(rental.price_usd_per_hour * rental.count for rental in found.rentals)
    )


def test_what_is_held_costs_what_is_paid_for_it() -> None:
    plan, problem = solved()
    held = replace(plan, rentals=tuple(replace(rental, held=True) for rental in plan.rentals))
    found = restated(held, problem, with_acme_times(0.5, problem))
    assert found.cost_usd_per_hour == plan.cost_usd_per_hour
    assert found.rentals == held.rentals


def test_where_no_price_has_fallen_the_plan_is_as_it_was() -> None:
    plan, problem = solved()
    assert restated(plan, problem, with_acme_times(1.3, problem)) == plan
    assert restated(plan, problem, ()) == plan


def half_rented() -> World:
    """Of two machines that are wanted one is rented; the offer has become dearer since."""
    world = a_world(an_offer(price_usd_per_hour=1.1), an_offer(provider="bolt", price_usd_per_hour=2.4), rented=False)
    world.reports([a_holding(count=1, price_usd_per_hour=1.1)])
    world.lives(1, [an_offer(price_usd_per_hour=1.25), an_offer(provider="bolt", price_usd_per_hour=2.4)])
    world.traffic = traffic(30.0, 2.0, at=world.now, policy=world.policy)
    world.look()
    return world


def test_what_is_held_and_what_is_still_to_be_rented_of_one_offer_are_two_rentals() -> None:
    world = half_rented()
    found = [(rental.count, rental.price_usd_per_hour, rental.held) for rental in world.plan.rentals]
    assert sorted((count, round(usd_per_hour, 9), held) for count, usd_per_hour, held in found) == [
        (1, 1.1, True),
        (1, 1.25, False),
        (1, 1.25, False),
    ]
    assert world.plan.cost_usd_per_hour == pytest.approx(3.6)
    places = [(stage.rental, stage.machine) for replica in world.plan.replicas for stage in replica.stages]
    assert sorted(places) == [(0, 0), (1, 0), (2, 0)]
    [running] = [replica for replica in world.plan.replicas if world.plan.rentals[replica.stages[0].rental].held]
    assert running.id == "chat-0"


def test_machines_of_one_offer_at_two_prices_are_not_dearer_than_planned() -> None:
    world = half_rented()
    world.lives(15)
    assert all(drift.kind != "dearer" for verdict in world.verdicts[2:] for drift in verdict.drifts)


def test_what_to_do_about_a_plan_that_is_half_carried_out_is_the_other_half() -> None:
    world = a_world(rented=False)
    before = world.plan
    world.reports([a_holding(count=1)])
    world.traffic = traffic(30.0, 2.0, at=world.now, policy=world.policy)
    world.look()
    diff = difference(before, world.plan, reason="more", held=world.holdings, of_running=True)
    assert [(item.count, item.offer_id) for item in diff.keep] == [(1, "large")]
    assert sum(item.count for item in diff.start) == 2
    assert [item for item in diff.stop if item.held] == []


def test_an_own_machine_that_costs_nothing_leaves_the_bound_what_it_is() -> None:
    plan, problem = solved()
    [rental] = plan.rentals
    own = replace(rental, provider="own", price_usd_per_hour=0.0, held=True)
    with_own = replace(plan, rentals=(rental, own))
    found = restated(with_own, problem, with_acme_times(0.99, problem))
    assert found.bound == pytest.approx(0.99 * (plan.bound or 0.0))


def test_what_is_to_be_rented_keeps_its_storage_from_plan_to_plan() -> None:
    stored = [
        an_offer(disk_usd_per_gb_month=0.5),
        an_offer(provider="bolt", price_usd_per_hour=2.4, disk_usd_per_gb_month=0.5),
    ]
    world = a_world(*stored, rented=False)
    [first] = world.plan.rentals
    assert first.storage_gb > 0
    for _ in range(2):
        assert world.look(is_asked=True).plan is not None
        [rental] = world.plan.rentals
        assert (rental.storage_gb, rental.storage_usd_per_hour) == (first.storage_gb, first.storage_usd_per_hour)
        assert rental.price_usd_per_hour == pytest.approx(first.price_usd_per_hour)
    world.reports(holdings_as_planned(world.plan))
    assert world.look(is_asked=True).plan is not None
    assert [(r.held, r.storage_gb) for r in world.plan.rentals] == [(True, first.storage_gb)]
    assert world.plan.cost_usd_per_hour == pytest.approx(2 * first.price_usd_per_hour)


def test_a_plan_that_a_swing_has_made_too_dear_is_issued_only_if_it_is_asked_for_and_says_so() -> None:
    problem = a_problem(objective=MIX, budget_usd_per_hour=4.1)
    world = a_world(problem=problem, rented=False, policy={"max_age_s": 600.0, "settle_s": 600.0})
    dearer = [an_offer(price_usd_per_hour=2.2), an_offer(provider="bolt", price_usd_per_hour=2.6)]
    world.poll(*dearer)
    world.passes(300.0)
    world.poll()
    verdict = world.look()
    assert verdict.plan is None
    assert verdict.state.status in ("kept", "calm")
    assert world.look(is_asked=True).plan is not None
    assert any("more than the budget of 4.1 $/h" in note for note in world.plan.notes)
