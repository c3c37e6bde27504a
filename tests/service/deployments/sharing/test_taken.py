"""What deployments leave to each other: the market of one without what the plans and holdings of others take."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sutler.service.deployments.schemas import PolicyDocument, SharedBudgetDocument
from sutler.service.deployments.sharing.taken import (
    Claim,
    Purse,
    Rented,
    Taken,
    Tenant,
    purse_from,
    taken_from,
)
from sutler.service.documents.market import OfferDocument
from sutler.service.translation.stored_market import StoredMarket
from tests.service.deployments.diff.fleets import a_fleet, a_machine
from tests.service.deployments.replanning.builders import a_problem

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ME, OTHER, THIRD = (UUID(int=n) for n in (1, 2, 3))
KEY = ("vastai", "1", "on_demand")


def an_offer(offer_id: str = "1", **others: Any) -> OfferDocument:
    given: dict[str, Any] = {
        "provider": "vastai",
        "gpu": "h100-sxm",
        "gpus": 4,
        "available": 1,
        "price_usd_per_hour": 8.0,
        "contract": "on_demand",
        "observed_at": NOW - MINUTE,
    }
    return OfferDocument(offer_id=offer_id, **{**given, **others})


def a_tenant(
    deployment_id: UUID = OTHER, *, issued: timedelta = -2 * MINUTE, count: int = 1, gpus: int = 4, **others: Any
) -> Tenant:
    """Its plan rents machines of offer 1, on machine `host`, and is to be carried out within ten minutes."""
    rentals = (Rented(KEY, gpus, count, others.pop("machine_id", "host")),)
    return Tenant(deployment_id, NOW + issued, NOW + issued + 10 * MINUTE, rentals, **others)


def left(taken: Taken, *offers: OfferDocument) -> dict[str, tuple[int, int]]:
    """What is still for rent: machines and GPUs of each, by offer."""
    found = taken.less(StoredMarket(NOW, offers, {})).offers
    return {offer.offer_id: (offer.available, offer.gpus) for offer in found if offer.available}


def test_a_machine_of_anothers_plan_is_not_for_rent() -> None:
    taken = taken_from([a_tenant()], ME, NOW)
    offers = an_offer(machine_id="host"), an_offer("2", machine_id="other")
    assert left(taken, *offers) == {"2": (1, 4)}
    assert taken.less(StoredMarket(NOW, offers, {})).taken == 1
    assert left(taken_from([a_tenant()], OTHER, NOW), *offers) == {"1": (1, 4), "2": (1, 4)}


def test_of_many_machines_so_many_are_left() -> None:
    assert left(taken_from([a_tenant(count=3)], ME, NOW), an_offer(available=5)) == {"1": (2, 4)}
    assert left(taken_from([a_tenant(count=3), a_tenant(THIRD, count=4)], ME, NOW), an_offer(available=5)) == {}


def test_what_should_be_rented_by_now_is_for_rent_where_it_is_still_shown() -> None:
    for late, machines in ((NOW + 7 * MINUTE, 4), (NOW + 9 * MINUTE, 5)):
        assert left(taken_from([a_tenant()], ME, late), an_offer(available=5)) == {"1": (machines, 4)}


def test_slices_of_a_machine_have_what_its_other_gpus_leave() -> None:
    taken = taken_from([a_tenant()], ME, NOW)
    slices = [an_offer(str(gpus), gpus=gpus, machine_id="host") for gpus in (8, 2)]
    half = [an_offer("1", machine_id="host"), an_offer("other", machine_id="host"), *slices]
    assert left(taken, *half) == {"other": (1, 4), "2": (1, 2)}
    assert left(taken_from([a_tenant(), a_tenant(THIRD, gpus=3)], ME, NOW), *half) == {}


def test_of_a_machine_that_is_rented_by_the_gpu_the_other_gpus_are_left() -> None:
    taken = taken_from([a_tenant(gpus=3)], ME, NOW)
    assert left(taken, an_offer(gpus=8, divisible=True)) == {"1": (1, 5)}
    assert left(taken_from([a_tenant(gpus=8)], ME, NOW), an_offer(gpus=8, divisible=True)) == {}


def test_what_is_held_is_taken_from_markets_that_were_seen_before_alone() -> None:
    held = a_tenant(held={(KEY, 4): 1}, grown={(KEY, 4): [(NOW, 1)]})
    taken = taken_from([held], ME, NOW)
    assert left(taken, an_offer(available=5)) == {"1": (4, 4)}
    assert left(taken, an_offer(available=5, observed_at=NOW + MINUTE)) == {"1": (5, 4)}
    assert left(taken_from([replace(held, grown={})], ME, NOW), an_offer(available=5)) == {"1": (5, 4)}


def test_a_plan_that_is_half_carried_out_takes_the_other_half() -> None:
    half = a_tenant(count=4, held={(KEY, 4): 1})
    assert left(taken_from([half], ME, NOW), an_offer(available=5)) == {"1": (2, 4)}
    more = a_tenant(count=4, held={(KEY, 4): 6})
    assert left(taken_from([more], ME, NOW), an_offer(available=5)) == {"1": (5, 4)}


@pytest.mark.parametrize(("mine", "has_it"), [(-3 * MINUTE, True), (-MINUTE, False)])
def test_of_two_plans_with_the_same_machine_the_earlier_one_has_it(mine: timedelta, has_it: bool) -> None:
    both = [a_tenant(ME, issued=mine), a_tenant(OTHER)]
    offer = an_offer(machine_id="host")
    assert bool(left(taken_from(both, ME, NOW), offer)) == has_it
    assert bool(left(taken_from(both, OTHER, NOW), offer)) == (not has_it)


def test_an_earlier_plan_that_nobody_carried_out_in_time_leaves_the_machine_to_the_later_one() -> None:
    both = [a_tenant(ME, issued=-20 * MINUTE), a_tenant(OTHER)]
    assert left(taken_from(both, ME, NOW), an_offer(machine_id="host")) == {}
    assert left(taken_from(both, OTHER, NOW), an_offer(machine_id="host")) == {"1": (1, 4)}


def test_what_another_holds_it_has_whoever_planned_it_first() -> None:
    held = a_tenant(OTHER, held={(KEY, 4): 1}, grown={(KEY, 4): [(NOW, 1)]})
    assert left(taken_from([a_tenant(ME, issued=-5 * MINUTE), held], ME, NOW), an_offer(machine_id="host")) == {}


def test_a_plan_is_still_free_where_nothing_more_is_taken_of_what_it_newly_rents() -> None:
    plan = a_fleet(a_machine("1", machine_id="host"), a_machine("2", held=True))
    nothing = Taken()
    one = Claim(OTHER, ("vastai", "1", "on_demand"), 4, 1, NOW, NOW)
    slice_of_it = replace(one, key=("vastai", "9", "on_demand"), machine_id="host")
    kept = replace(one, key=("vastai", "2", "on_demand"))
    for more, is_free in ((one, False), (slice_of_it, False), (kept, True)):
        assert (Taken((more,)).of(plan) <= nothing.of(plan)) == is_free
        assert Taken((more,)).of(plan) <= Taken((more,)).of(plan)
        assert nothing.of(plan) <= Taken((more,)).of(plan)


def test_machines_without_a_name_are_counted_whoever_planned_first() -> None:
    """Four of a kind: both have two, and neither can have more, the earlier no more than the later one."""
    both = [a_tenant(ME, issued=-3 * MINUTE, count=2, machine_id=None), a_tenant(count=2, machine_id=None)]
    assert left(taken_from(both, ME, NOW), an_offer(available=4)) == {"1": (2, 4)}
    assert left(taken_from(both, OTHER, NOW), an_offer(available=4)) == {"1": (2, 4)}


def test_a_deployment_with_a_market_of_its_own_takes_nothing() -> None:
    taken = taken_from([a_tenant(is_shared=False, grown={(KEY, 4): [(NOW, 1)]})], ME, NOW)
    assert left(taken, an_offer(machine_id="host")) == {"1": (1, 4)}


OLD, YOUNG = {"created_at": NOW - timedelta(days=1)}, {"created_at": NOW - MINUTE}


@pytest.mark.parametrize(
    ("others", "is_open"),
    [
        ({**OLD, "held_usd_per_hour": 0.0}, True),
        ({**OLD, "held_usd_per_hour": 8.0, "held": {(KEY, 4): 1}}, False),
        ({**OLD, "held_usd_per_hour": 8.0, "held": {(KEY, 4): 1}, "lack_fraction": 0.5}, True),
        ({**OLD, "held_usd_per_hour": 8.0, "held": {(KEY, 4): 1}, "count": 2}, True),
        (OLD, False),
        (YOUNG, True),
        ({**YOUNG, "issued": -11 * MINUTE}, False),
        ({**YOUNG, "is_shared": False}, False),
        ({**YOUNG, "is_planned_anew": True}, False),
        ({**YOUNG, "policy": PolicyDocument(automatic=False)}, False),
    ],
)
def test_what_is_planned_and_not_held_may_go_to_others(others: dict[str, Any], is_open: bool) -> None:
    """Not where it may be running, because nobody ever says what is, or where nothing may be issued."""
    assert a_tenant(**others).is_open(NOW) == is_open


def a_member(deployment_id: UUID, usd: float, planned: float, held: float | None = None) -> Tenant:
    policy = PolicyDocument(budget=SharedBudgetDocument(name="team", usd_per_hour=usd))
    return a_tenant(deployment_id, policy=policy, planned_usd_per_hour=planned, held_usd_per_hour=held)


def a_purse(*members: Tenant, usd: float = 10.0) -> Purse:
    purse = purse_from(members, ME, SharedBudgetDocument(name="team", usd_per_hour=usd), project="default")
    assert purse is not None
    return purse


def test_a_shared_budget_is_what_the_others_leave() -> None:
    other_team = replace(
        a_member(THIRD, 10, 5), policy=PolicyDocument(budget=SharedBudgetDocument(name="others", usd_per_hour=1.0))
    )
    other_project = replace(a_member(THIRD, 1, 5), project="elsewhere")
    for members, limit in (
        ((), 10.0),
        ((other_project,), 10.0),  # a budget of the same name
        ((a_member(OTHER, 10, 4), other_team, a_tenant(UUID(int=4), planned_usd_per_hour=9.0)), 6.0),
        ((a_member(OTHER, 10, 4, held=7.0),), 3.0),  # what is held is dearer than planned
        ((a_member(OTHER, 8, 4),), 4.0),  # the lowest amount counts
        ((a_member(OTHER, 10, 14),), 0.0),
        ((a_member(OTHER, 10, 9), a_member(ME, 10, 4, held=0.0)), 1.0),  # nothing of the plan is held
        ((a_member(OTHER, 10, 9), a_member(ME, 10, 4, held=4.0)), 4.0),  # what stands, stands
        ((a_member(OTHER, 10, 9), a_member(ME, 10, 4)), 4.0),
    ):
        assert a_purse(*members).limit_usd_per_hour == pytest.approx(limit)
    assert purse_from([a_member(OTHER, 10, 4)], ME, None, project="default") is None


def test_a_budget_that_is_exceeded_is_told() -> None:
    assert not a_purse(a_member(OTHER, 10, 6), a_member(ME, 10, 4)).exceeded
    assert "budget team is exceeded: 10.00 $/h" in a_purse(a_member(OTHER, 10, 7), a_member(ME, 10, 4)).exceeded


def test_a_problem_keeps_its_own_budget_where_that_is_lower() -> None:
    for own, budget in ((None, 6.0), (20.0, 6.0), (5.0, 5.0)):
        problem = a_problem(budget_usd_per_hour=own)
        found = a_purse(a_member(OTHER, 10, 4)).of(problem).budget_usd_per_hour
        assert found == pytest.approx(budget, rel=1e-5)


def test_a_plan_is_paid_for_where_others_have_not_spent_more_meanwhile() -> None:
    plan = a_fleet(a_machine("1", price_usd_per_hour=6.0))
    assert plan.cost_usd_per_hour == 6.0
    known = a_purse(a_member(OTHER, 10, 4))
    assert known.pays(plan, known)
    assert not a_purse(a_member(OTHER, 10, 4.5)).pays(plan, known)
    assert a_purse(a_member(OTHER, 10, 9), a_member(ME, 10, 6)).pays(plan, None)
