"""The day's market: the fake clouds read by the real adapters, without what is rented and what is lost."""

import math

import pytest

from benchmarks.day.market import DayMarket, ForRent, Rented, left_over
from sutler.adapters.base import Offer

MIDNIGHT_S = 1_772_409_600.0
GPUS = frozenset({"h100-sxm", "rtx-4090", "a40"})


def market(seed: int = 1) -> DayMarket:
    return DayMarket(seed, starts_s=MIDNIGHT_S, gpus=GPUS, machines=100)


def sliced(name: str, *cards: int) -> ForRent:
    return ForRent(
        "vastai",
        Offer(
            offer_id=name,
            feed="on_demand",
            gpu="a40",
            gpus=len(cards),
            available=1,
            price_usd_per_hour=0.4 * len(cards),
            contract="on_demand",
            machine_id="m1",
            gpu_ids=cards,
        ),
    )


def node(gpus: int) -> ForRent:
    offer = Offer(
        offer_id="n1",
        feed="nodes",
        gpu="a40",
        gpus=gpus,
        available=1,
        price_usd_per_hour=0.5 * gpus,
        contract="on_demand",
        divisible=True,
        machine_id="n1",
        machine_gpus=gpus,
    )
    return ForRent("lium", offer)


def test_the_market_is_a_function_of_seed_and_time() -> None:
    assert market().offers(3600.0) == market().offers(3600.0)
    assert market(1).offers(3600.0) != market(2).offers(3600.0)
    assert market().offers(3600.0) != market().offers(14 * 3600.0)


def test_both_marketplaces_tell_of_machines_with_the_wanted_gpus_under_both_contracts() -> None:
    found = [each for seed in (1, 2, 3) for each in market(seed).offers(3600.0)]
    assert {each.provider for each in found} == {"vastai", "lium"}
    assert {each.offer.gpu for each in found} <= GPUS
    assert {each.offer.contract for each in found} == {"on_demand", "interruptible"}
    assert {each.provider for each in found if each.offer.contract == "interruptible"} == {"vastai", "lium"}


def test_slices_with_a_rented_card_are_gone_and_the_machine_says_what_is_left() -> None:
    offers = [sliced("all", 0, 1, 2, 3), sliced("low", 0, 1), sliced("high", 2, 3), sliced("one", 3)]
    left = left_over(offers, [Rented(("vastai", "m1"), 2, (0, 1))])
    assert [(each.offer.offer_id, each.offer.machine_gpus) for each in left] == [("high", 2), ("one", 2)]


def test_a_node_has_fewer_gpus_at_the_same_price_each() -> None:
    (left,) = left_over([node(8)], [Rented(("lium", "n1"), 2, None), Rented(("lium", "n1"), 1, None)])
    assert (left.offer.gpus, left.offer.machine_gpus) == (5, 5)
    assert left.offer.price_usd_per_hour == pytest.approx(2.5)


def test_a_node_that_is_rented_whole_is_gone() -> None:
    assert left_over([node(2)], [Rented(("lium", "n1"), 2, None)]) == ()


def test_what_others_rent_leaves_the_rest() -> None:
    offers = [sliced("low", 0, 1)]
    assert len(left_over(offers, [Rented(("vastai", "m2"), 2, (0, 1))])) == 1


def test_what_is_lost_is_not_for_rent_before_it_is_back() -> None:
    made = market(3)
    on_demand = [each for at in range(0, 43_200, 3600) for each in made.offers(float(at)) if is_sure(each)]
    lost = [(each, at) for each in on_demand if (at := made.lost_at(each, 0.0)) < math.inf]
    each, lost_s = min(lost, key=lambda pair: pair[1])
    assert made.lost_at(each, lost_s) > lost_s
    assert each.machine not in {other.machine for other in made.offers(lost_s) if is_sure(other)}


def is_sure(each: ForRent) -> bool:
    return each.offer.contract == "on_demand"
