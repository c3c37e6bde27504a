"""The day's market: the fake clouds read by the real adapters, without what is rented and what is down."""

import pytest

from benchmarks.day.market import DOWN_S, DayMarket, ForRent, Rented, fails_at, left_over
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


def test_both_marketplaces_tell_of_machines_on_demand_with_the_wanted_gpus() -> None:
    found = [each for seed in (1, 2, 3) for each in market(seed).offers(3600.0)]
    assert {each.provider for each in found} == {"vastai", "lium"}
    assert {each.offer.gpu for each in found} <= GPUS
    assert {each.offer.contract for each in found} == {"on_demand"}


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


def test_about_one_machine_in_seven_fails_within_the_day() -> None:
    moments = [fails_at(1, ("vastai", str(number))) for number in range(2000)]
    failing = [moment for moment in moments if moment is not None]
    assert 0.12 < len(failing) / len(moments) < 0.18
    assert 0 < min(failing) < 3600
    assert 82_800 < max(failing) < 86_400


def test_a_machine_that_failed_is_not_for_rent_for_an_hour() -> None:
    made = market(3)
    named = {each.machine for at in range(0, 86_400, 7200) for each in made.offers(float(at))}
    key, failed_s = next((key, at) for key in sorted(named) if (at := made.fails_at(key)) is not None)
    down = {each.machine for each in made.offers(failed_s + DOWN_S / 2)}
    assert key not in down
    assert made.is_down(key, failed_s)
    assert not made.is_down(key, failed_s - 1)
    assert not made.is_down(key, failed_s + DOWN_S)
