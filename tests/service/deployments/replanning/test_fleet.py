"""What of a plan stands: held, still for rent, lost, gone, scarce or dearer."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import OfferKey, Settled
from sutler.service.deployments.replanning.standing_machines import (
    Assessed,
    Missing,
    assess,
    reported,
    settled_offers,
    supply,
)
from sutler.service.documents.market import OfferDocument
from sutler.service.translation.to_plan import solver_plan
from sutler.solver.plan import Rental
from sutler.solver.problem import Offer
from sutler.solver.replanning import HoldingKey
from tests.service.builders import a_plan as a_solved_plan
from tests.service.deployments.replanning.builders import (
    a_holding,
    a_market,
    a_plan,
    a_rental,
    all_settled,
    an_offer,
    an_offer_of,
    offers_of,
)

LARGE: HoldingKey = ("acme", "large", "on_demand", 1)
SINGLE: OfferKey = ("acme", "single", "on_demand")


def assessed(
    *offers: OfferDocument,
    rentals: Sequence[Rental] | None = None,
    holdings: Sequence[HoldingDocument] | None = None,
    settled: Mapping[OfferKey, Settled] | None = None,
    silent: Sequence[str] = (),
    held_before: Mapping[HoldingKey, int] | None = None,
    doubted: Sequence[OfferKey] = (),
) -> Assessed:
    """Of a plan that rents two of acme's large machines at 2 $/h each, unless said otherwise."""
    return assess(
        a_solved_plan(rentals=tuple(rentals or (a_rental(),)), replicas=(), routing=()),
        offers_of(offers),
        holdings=holdings,
        settled=settled,
        silent_providers=silent,
        held_before=held_before or {},
        doubted=doubted,
    )


def counted(found: Assessed) -> dict[str, int]:
    return {holding.key[1]: holding.count for holding in found.standing}


def told(missing: Sequence[Missing]) -> list[tuple[str, int, int, int]]:
    """(kind, machines, of how many, how many can be rented again)."""
    return [(one.kind, one.count, one.of, one.again) for one in missing]


def a_single(**others: Any) -> OfferDocument:
    """One certain machine."""
    return an_offer("single", available=1, machine_id="host-7", machine_gpus=1, **others)


def rents_the_single() -> list[Rental]:
    return [a_rental("single", count=1)]


def test_a_plan_whose_machines_are_all_for_rent_stands() -> None:
    found = assessed(*a_market())
    assert (counted(found), told(found.missing), found.dearer) == ({"large": 2}, [], ())
    assert {key: holding.count for key, holding in found.wished.items()} == {LARGE: 2}


def test_what_is_held_stands_whatever_the_market_says() -> None:
    found = assessed(holdings=[a_holding()])
    assert (counted(found), dict(found.wished), told(found.missing)) == ({"large": 2}, {}, [])


def test_an_offer_that_left_the_market_is_gone() -> None:
    found = assessed(an_offer("other"))
    assert (counted(found), told(found.missing)) == ({}, [("gone", 2, 2, 0)])


def test_an_offer_of_which_too_few_are_left_is_scarce() -> None:
    found = assessed(an_offer(available=1))
    assert (counted(found), told(found.missing)) == ({"large": 1}, [("scarce", 1, 2, 0)])


def test_a_silent_provider_makes_nothing_gone() -> None:
    found = assessed(an_offer(provider="bolt"), silent=["acme"])
    assert (counted(found), told(found.missing)) == ({"large": 2}, [])


def test_another_contract_or_another_provider_of_the_same_name_is_another_offer() -> None:
    found = assessed(an_offer(provider="bolt"), an_offer(contract="interruptible"))
    assert told(found.missing) == [("gone", 2, 2, 0)]


def test_what_was_held_and_is_no_longer_is_lost_also_where_it_is_for_rent_again() -> None:
    found = assessed(an_offer(), holdings=[a_holding(count=1)], held_before={LARGE: 2})
    assert told(found.missing) == [("lost", 1, 2, 1)]
    assert counted(found) == {"large": 2}


def test_what_was_lost_and_is_not_for_rent_does_not_stand() -> None:
    found = assessed(an_offer("other"), holdings=[], held_before={LARGE: 2})
    assert (counted(found), told(found.missing)) == ({}, [("lost", 2, 2, 0)])


def test_what_was_reported_as_lost_is_not_for_rent_again_because_its_provider_is_silent() -> None:
    found = assessed(an_offer(provider="bolt"), holdings=[], held_before={LARGE: 2}, silent=["acme"])
    assert (counted(found), told(found.missing)) == ({}, [("lost", 2, 2, 0)])


def test_what_was_never_held_is_not_lost() -> None:
    """Only one of two was ever rented, and it still is."""
    found = assessed(an_offer("other"), holdings=[a_holding(count=1)], held_before={LARGE: 1})
    assert (counted(found), told(found.missing)) == ({"large": 1}, [("gone", 1, 2, 0)])


def test_without_a_report_nothing_is_ever_lost() -> None:
    assert [one.kind for one in assessed(an_offer("other"), holdings=None).missing] == ["gone"]


def test_nothing_held_is_no_loss_where_nothing_was_held_before() -> None:
    found = assessed(an_offer(), holdings=[])
    assert (counted(found), told(found.missing)) == ({"large": 2}, [])


def test_a_single_machine_that_was_lost_and_is_still_listed_is_not_believed() -> None:
    before: dict[HoldingKey, int] = {("acme", "single", "on_demand", 1): 1}
    found = assessed(a_single(), rentals=rents_the_single(), holdings=[], held_before=before, doubted=[SINGLE])
    assert (counted(found), told(found.missing)) == ({}, [("lost", 1, 1, 0)])
    assert found.ghosts == {SINGLE}
    assert supply(found, offers_of([a_single()]), known={}) == ()


def test_a_single_machine_that_a_later_poll_still_has_can_be_rented_again() -> None:
    before: dict[HoldingKey, int] = {("acme", "single", "on_demand", 1): 1}
    found = assessed(a_single(), rentals=rents_the_single(), holdings=[], held_before=before)
    assert (counted(found), told(found.missing)) == ({"single": 1}, [("lost", 1, 1, 1)])
    assert found.ghosts == frozenset()


def test_of_many_alike_those_that_are_left_are_believed_at_once() -> None:
    found = assessed(an_offer(), holdings=[], held_before={LARGE: 2}, doubted=[("acme", "large", "on_demand")])
    assert (counted(found), told(found.missing)) == ({"large": 2}, [("lost", 2, 2, 2)])


def test_a_single_machine_that_is_held_is_not_for_rent_besides() -> None:
    """A market does not know of a rental until the next poll."""
    found = assessed(a_single(), rentals=rents_the_single(), holdings=[a_holding("single", count=1)])
    [offer] = supply(found, offers_of([a_single()]), known={})
    assert (offer.offer_id, offer.held, offer.available) == ("single", True, 1)


def test_what_is_counted_on_is_not_for_rent_besides() -> None:
    found = assessed(an_offer(available=3))
    market = supply(found, offers_of([an_offer(available=3)]), known={})
    assert [(offer.held, offer.available) for offer in market] == [(True, 2), (False, 1)]


def test_what_is_held_of_many_alike_leaves_as_many_for_rent_as_before() -> None:
    """A cloud that counts what it has left has not counted what is rented."""
    found = assessed(an_offer(available=3), holdings=[a_holding()])
    market = supply(found, offers_of([an_offer(available=3)]), known={})
    assert [(offer.held, offer.available) for offer in market] == [(True, 2), (False, 3)]


def test_slices_that_share_cards_with_one_that_is_counted_on_are_not_for_rent() -> None:
    whole = an_offer("whole", gpus=2, available=1, machine_id="m", machine_gpus=2, gpu_ids=(0, 1))
    half = an_offer("half", available=1, machine_id="m", machine_gpus=2, gpu_ids=(0,))
    other = an_offer("other", available=1, machine_id="m", machine_gpus=2, gpu_ids=(1,))
    found = assessed(whole, half, other, rentals=[a_rental("half", count=1)])
    market = supply(found, offers_of([whole, half, other]), known={})
    assert [(offer.offer_id, offer.held) for offer in market] == [("half", True), ("other", False)]


@pytest.mark.parametrize(("gpus", "count"), [(2, 1), (4, 1), (4, 2), (4, 3), (1, 9)])
def test_any_part_of_a_divisible_machine_is_for_rent_as_long_as_there_is_room(gpus: int, count: int) -> None:
    """Two machines of four GPUs each."""
    divisible = an_offer("parts", gpus=4, available=2, divisible=True, price_usd_per_hour=8.0)
    found = assessed(divisible, rentals=[a_rental("parts", count=count, gpus=gpus, price_usd_per_hour=2.0 * gpus)])
    fits = min(count, 8 // gpus)
    assert counted(found) == {"parts": fits}
    for_rent = [offer for offer in supply(found, offers_of([divisible]), known={}) if not offer.held]
    assert sum(offer.available for offer in for_rent) == max(0, (8 - fits * gpus) // 4)


def test_a_machine_that_is_wished_for_and_costs_more_for_as_long_as_it_must_is_dearer() -> None:
    offers = (an_offer(price_usd_per_hour=2.6),)
    [dearer] = assessed(*offers, settled=all_settled(offers, large=(2.6, 2.5))).dearer
    assert (dearer.key, dearer.planned_usd_per_hour) == (LARGE, 2.0)
    assert dearer.now_usd_per_hour == 2.5


def test_a_machine_that_was_as_cheap_as_planned_of_late_is_not_dearer() -> None:
    offers = (an_offer(price_usd_per_hour=2.6),)
    found = assessed(*offers, settled=all_settled(offers, large=(2.6, 2.0)))
    assert found.dearer == ()
    assert [holding.price_usd_per_hour for holding in found.standing] == [2.0]


def test_where_there_is_no_history_the_price_of_now_counts() -> None:
    [dearer] = assessed(an_offer(price_usd_per_hour=2.6), settled=None).dearer
    assert dearer.now_usd_per_hour == 2.6


def test_what_is_held_is_never_dearer_and_stands_at_what_is_paid() -> None:
    offers = (an_offer(price_usd_per_hour=9.0),)
    found = assessed(*offers, holdings=[a_holding(price_usd_per_hour=2.2)], settled=all_settled(offers))
    assert found.dearer == ()
    assert [holding.price_usd_per_hour for holding in found.standing] == [2.2]


def test_a_lower_price_is_what_a_machine_that_is_wished_for_will_cost() -> None:
    offers = (an_offer(price_usd_per_hour=1.5),)
    found = assessed(*offers, settled=all_settled(offers))
    assert [holding.price_usd_per_hour for holding in found.standing] == [1.5]


def test_one_of_two_that_is_held_and_one_that_is_wished_for_stand_at_their_mean_price() -> None:
    offers = (an_offer(price_usd_per_hour=3.0),)
    found = assessed(*offers, holdings=[a_holding(count=1)], settled=all_settled(offers))
    assert [(h.count, h.price_usd_per_hour) for h in found.standing] == [(2, 2.5)]
    assert [(h.count, h.price_usd_per_hour) for h in found.wished.values()] == [(1, 3.0)]


def test_storage_is_part_of_what_was_planned_and_of_what_it_costs_now() -> None:
    rental = a_rental(price_usd_per_hour=2.1, storage_gb=40.0, storage_usd_per_hour=0.1)
    assert assessed(an_offer(), rentals=[rental]).dearer == ()


def test_more_machines_than_the_plan_has_stand_too() -> None:
    found = assessed(an_offer(), holdings=[a_holding(count=5), a_holding("extra", count=1)])
    assert counted(found) == {"large": 5, "extra": 1}


def test_what_is_held_and_no_longer_for_rent_is_known_by_what_it_was() -> None:
    found = assessed(holdings=[a_holding()])
    before = {("acme", "large", "on_demand"): an_offer_of(an_offer(region="US-TX", site="dal"))}
    [offer] = supply(found, (), known=before)
    assert (offer.held, offer.region, offer.site, offer.available) == (True, "US-TX", "dal", 2)
    [unknown] = supply(found, (), known={})
    assert (unknown.held, unknown.gpu, unknown.gpus, unknown.price_usd_per_hour) == (True, "h100-sxm", 1, 2.0)


def test_a_rental_of_an_unknown_size_of_an_offer_is_not_the_offers() -> None:
    """Eight GPUs of an offer of one are not for rent."""
    found = assessed(an_offer(), rentals=[a_rental(gpus=8)])
    assert told(found.missing) == [("gone", 2, 2, 0)]


def test_equal_machines_at_two_prices_are_one_kind_at_their_mean() -> None:
    [holding] = reported([a_holding(count=1), a_holding(count=3, price_usd_per_hour=4.0)])
    assert (holding.key, holding.count, holding.price_usd_per_hour) == (LARGE, 4, 3.5)


def test_an_offer_counts_at_its_highest_price_and_its_least_availability_of_late() -> None:
    offers = a_market()
    settled = {
        ("acme", "large", "on_demand"): Settled(2.5, 1.5, 3),
        ("acme", "small", "on_demand"): Settled(0.5, 0.5, 20),
    }
    found = {(o.provider, o.offer_id): o for o in settled_offers(offers_of(offers), settled)}
    assert set(found) == {("acme", "large"), ("acme", "small")}
    assert (found["acme", "large"].price_usd_per_hour, found["acme", "large"].available) == (2.5, 3)
    assert (found["acme", "small"].price_usd_per_hour, found["acme", "small"].available) == (0.7, 8)


def test_prices_have_settled_by_gpu_and_offers_cost_by_machine() -> None:
    eight = an_offer("eight", gpus=8, price_usd_per_hour=16.0)
    [offer] = settled_offers(offers_of([eight]), {eight.key: Settled(2.25, 2.0, 8)})
    assert offer.price_usd_per_hour == 18.0


def test_a_market_without_a_history_counts_as_it_is() -> None:
    offers: tuple[Offer, ...] = offers_of(a_market())
    assert settled_offers(offers, None) == offers


def test_a_stored_plan_says_what_runs_where_as_the_solver_does() -> None:
    document = a_plan()
    plan = solver_plan(document)
    assert [(r.offer_id, r.count, r.price_usd_per_hour) for r in plan.rentals] == [("large", 2, 2.0)]
    assert [replica.id for replica in plan.replicas] == [replica.id for replica in document.replicas]
    assert sum(share.fraction for route in plan.routing for share in route.shares) == pytest.approx(2.0)
    assert (plan.cost_usd_per_hour, plan.load_multiple) == (document.cost_usd_per_hour, document.load_multiple)
