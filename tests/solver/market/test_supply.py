"""What can be rented together, against counting machines and cards one by one."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver import solve
from sutler.solver.market.supply import OfferClass, Supply, build_supply
from sutler.solver.problem import Limits, ObjectiveKind, Offer
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, a_gpu, a_problem, an_offer, measured, random_problem
from tests.looped import for_each
from tests.solver.planning_builders import least_value, replicas_by_layout

law = settings(derandomize=True, max_examples=60, database=None)


def supply_of(*offers: Offer, **others: Any) -> Supply:
    return build_supply(a_problem(offers=offers, gpus=[a_gpu("a", tdp_watts=400.0)], **others))


def counts(supply: Supply) -> list[tuple[int, float, int]]:
    """(GPUs, $/h, how many) of every class."""
    return [(one.gpus, one.price_usd_per_hour, one.count) for one in supply.classes]


def allows(supply: Supply, rented: Sequence[int]) -> bool:
    """Whether class counts keep within what is there and what ties classes together."""
    enough = all(count <= one.count for count, one in zip(rented, supply.classes, strict=True))
    return enough and all(
        sum(factor * rented[k] for k, factor in coupling.terms) <= coupling.limit for coupling in supply.couplings
    )


def all_counts(classes: Iterable[OfferClass]) -> Iterable[tuple[int, ...]]:
    return product(*(range(one.count + 1) for one in classes))


def slices_of_a_machine(*cards: tuple[int, ...], price_per_gpu: float = 1.0, **others: Any) -> list[Offer]:
    return [
        an_offer(
            "a", len(ids), price=price_per_gpu * len(ids), offer_id=str(ids), machine_id="m", gpu_ids=ids, **others
        )
        for ids in cards
    ]


def test_a_whole_offer_is_rented_whole() -> None:
    """Machines of 4 at 6 $/h: three of them, never a part of one."""
    supply = supply_of(an_offer("a", 4, price=6.0, available=3))
    assert counts(supply) == [(4, 6.0, 3)]
    assert supply.couplings == ()
    assert supply.gpu_price_usd_per_hour == {}


def test_a_whole_offer_has_room_for_pieces_of_its_own_size_and_smaller_ones() -> None:
    """Of 6 GPUs pieces of 4 can use 4, pieces of 2 or 1 all; pieces of 8 none."""
    supply = supply_of(an_offer("a", 6, price=6.0, available=2))
    assert [supply.most_gpus(0, size) for size in (1, 2, 4, 8)] == [12, 12, 8, 0]


def test_single_gpus_at_one_price_are_paid_by_the_gpu_without_rental_counts() -> None:
    supply = supply_of(an_offer("a", price=1.5, available=3), an_offer("a", price=1.5, available=2, offer_id="more"))
    assert supply.classes == ()
    assert supply.gpu_price_usd_per_hour == {0: 1.5}
    assert [supply.most_gpus(0, size) for size in (1, 2)] == [5, 0]


def test_two_prices_make_a_curve_of_two_classes() -> None:
    supply = supply_of(an_offer("a", price=2.0), an_offer("a", price=1.5, available=2, offer_id="cheap"))
    assert counts(supply) == [(1, 1.5, 2), (1, 2.0, 1)]
    assert supply.cheapest_gpu_usd_per_hour()[0] == 1.5


def test_offers_of_one_size_and_price_are_one_class() -> None:
    offers = [an_offer("a", 2, price=3.0, offer_id=str(number)) for number in range(40)]
    supply = supply_of(*offers)
    assert counts(supply) == [(2, 3.0, 40)]
    assert [index for index, _ in supply.classes[0].offers] == list(range(40))


def divisible_market(gpus: int, *, available: int = 1) -> Supply:
    """Divisible machines beside a whole one at another price, so that rental counts are needed."""
    cut = an_offer("a", gpus, price=1.0 * gpus, available=available, divisible=True)
    return supply_of(cut, an_offer("a", gpus, price=1.7 * gpus, offer_id="whole"))


def test_a_divisible_offer_is_cut_into_slices_of_1_2_4_and_8() -> None:
    supply = divisible_market(6, available=2)
    assert sorted(counts(supply)) == [(1, 1.0, 12), (2, 2.0, 6), (4, 4.0, 2), (6, 6 * 1.7, 1)]


def test_three_slices_of_four_do_not_come_out_of_two_machines_of_six() -> None:
    """12 GPUs are there, but each machine has room for one slice of 4; its last 2 GPUs go as a pair."""
    supply = divisible_market(6, available=2)
    position = {one.gpus: k for k, one in enumerate(supply.classes)}

    def cut(slices: dict[int, int]) -> bool:
        rented = [0] * len(supply.classes)
        for size, count in slices.items():
            rented[position[size]] = count
        return allows(supply, rented)

    assert cut({4: 2, 2: 2})
    assert cut({2: 6})
    assert cut({4: 1, 2: 3, 1: 2})
    assert not cut({4: 3})
    assert not cut({4: 2, 2: 1, 1: 3})


def cut_fits(slices: tuple[int, ...], machines: tuple[int, ...]) -> bool:
    """Whether the slices can be placed, trying every machine for each."""
    if not slices:
        return True
    return any(
        room >= slices[0] and cut_fits(slices[1:], (*machines[:m], room - slices[0], *machines[m + 1 :]))
        for m, room in enumerate(machines)
    )


@pytest.mark.parametrize(("gpus", "available"), [(3, 2), (5, 2), (6, 2), (7, 1), (8, 1), (3, 3)])
def test_slices_of_divisible_machines_are_exactly_those_that_can_be_cut(gpus: int, available: int) -> None:
    supply = divisible_market(gpus, available=available)
    cuts = [k for k, one in enumerate(supply.classes) if one.price_usd_per_hour == one.gpus]
    for rented in all_counts([supply.classes[k] for k in cuts]):
        vector = [0] * len(supply.classes)
        for k, count in zip(cuts, rented, strict=True):
            vector[k] = count
        slices = sorted(
            chain.from_iterable([supply.classes[k].gpus] * vector[k] for k in cuts if vector[k]), reverse=True
        )
        assert allows(supply, vector) == cut_fits(tuple(slices), (gpus,) * available), slices


def test_a_plan_cannot_run_three_replicas_of_four_gpus_on_two_machines_of_six() -> None:
    """Each machine runs one replica of 4 at 4 req/s and one of 2 at 1 req/s: 10 req/s, not 12."""
    problem = a_problem(
        offers=[an_offer("a", 6, price=6.0, available=2, divisible=True)],
        rows=[measured("a:4", {"w1": 4.0}), measured("a:2", {"w1": 1.0})],
    )
    plan = solve(problem)
    assert plan.value == pytest.approx(10.0)
    assert replicas_by_layout(plan) == {"a:4": 2, "a:2": 2}


def test_replicas_of_three_three_and_two_gpus_do_not_share_two_machines_of_four() -> None:
    """3 + 3 + 2 GPUs are 8, but the pair would need GPUs of both machines: two replicas of 3, each keeping 4."""
    problem = a_problem(
        offers=[an_offer("a", 4, price=4.0, available=2)],
        rows=[measured(["a", "a", "a"], {"w1": 3.0}), measured("a:2", {"w1": 1.4})],
    )
    plan = solve(problem)
    assert plan.value == pytest.approx(6.0)
    assert replicas_by_layout(plan) == {"a:1+a:1+a:1": 2}


def test_complete_aligned_slices_of_a_machine_become_one_class_per_size_and_one_row() -> None:
    cards = [tuple(range(8)), (0, 1, 2, 3), (4, 5, 6, 7), (0, 1), (2, 3), (4, 5), (6, 7), *((c,) for c in range(8))]
    supply = supply_of(*slices_of_a_machine(*cards))
    assert sorted((one.gpus, one.count) for one in supply.classes) == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert len(supply.couplings) == 1
    assert supply.couplings[0].limit == 8


@pytest.mark.parametrize(
    "cards",
    [
        [(0, 1), (1, 2), (2, 3)],
        [(0, 1, 2, 3), (0, 1), (1, 2)],
        [(0, 1, 2, 3), (0, 2), (1, 3), (0, 1), (2, 3)],
        [(0, 1, 2), (0,), (1,), (2,)],
        [tuple(range(8)), (0, 1, 2, 3), (4, 5, 6, 7), (0, 1), (2, 4), (3, 5), (6, 7)],
    ],
    ids=["overlapping", "incomplete", "crossing", "three cards", "straddling"],
)
def test_other_slices_of_a_machine_stay_apart(cards: list[tuple[int, ...]]) -> None:
    supply = supply_of(*slices_of_a_machine(*cards))
    assert [one.count for one in supply.classes] == [1] * len(cards)


def test_equal_slices_at_different_prices_stay_apart() -> None:
    supply = supply_of(*slices_of_a_machine((0, 1)), *slices_of_a_machine((2, 3), price_per_gpu=2.0))
    assert sorted(counts(supply)) == [(2, 2.0, 1), (2, 4.0, 1)]


def rentable_by_cards(offers: Sequence[Offer], supply: Supply, most_gpus: int) -> set[tuple[int, ...]]:
    """Class counts of every set of offers of one machine in which no card is rented twice."""
    class_of = {index: k for k, one in enumerate(supply.classes) for index, _ in one.offers}
    found = set()
    for size in range(len(offers) + 1):
        for chosen in combinations(range(len(offers)), size):
            cards = [card for index in chosen for card in offers[index].gpu_ids or ()]
            gpus = sum(offers[index].gpus for index in chosen)
            if len(set(cards)) == len(cards) and gpus <= most_gpus:
                found.add(tuple(sum(class_of[i] == k for i in chosen) for k in range(len(supply.classes))))
    return found


@given(st.lists(st.sets(st.integers(0, 3), min_size=1, max_size=4), min_size=2, max_size=7, unique_by=frozenset))
@law
def test_slices_can_be_rented_together_exactly_if_no_card_is_rented_twice(cards: list[set[int]]) -> None:
    offers = slices_of_a_machine(*(tuple(sorted(ids)) for ids in cards))
    supply = supply_of(*offers)
    possible = rentable_by_cards(offers, supply, 4)
    for rented in all_counts(supply.classes):
        assert allows(supply, rented) == (rented in possible), rented


def test_merged_slices_can_be_rented_together_exactly_if_no_card_is_rented_twice() -> None:
    cards = [(0, 1, 2, 3), (0, 1), (2, 3), (0,), (1,), (2,), (3,)]
    offers = slices_of_a_machine(*cards)
    supply = supply_of(*offers)
    assert len(supply.classes) == 3
    possible = rentable_by_cards(offers, supply, 4)
    assert {rented for rented in all_counts(supply.classes) if allows(supply, rented)} == possible


def test_an_on_demand_offer_and_a_bid_for_the_same_cards_exclude_each_other() -> None:
    """Two cards, once on demand at 2 $/h and once for bids at 1 $/h: one of the two, the cheaper."""
    both = [*slices_of_a_machine((0, 1)), *slices_of_a_machine((0, 1), price_per_gpu=0.5, contract="interruptible")]
    problem = a_problem(offers=both, rows=[measured("a:2", {"w1": 1.0})])
    plan = solve(problem)
    assert plan.value == pytest.approx(1.0)
    assert [(rental.contract, rental.price_usd_per_hour) for rental in plan.rentals] == [("interruptible", 1.0)]


def test_more_of_an_offer_than_its_machine_has_cannot_be_rented() -> None:
    """Three of one GPU each on a machine of one: whoever lists them so has one to rent."""
    offers = [an_offer("a", available=3, machine_id="m", machine_gpus=1)]
    problem = a_problem(offers=offers, rows=[measured("a", {"w1": 2.0})], budget_usd_per_hour=10.0)
    plan = solve(problem)
    assert plan.throughput_rps == pytest.approx(2.0)
    assert sum(rental.count for rental in plan.rentals) == 1


def test_slices_without_card_numbers_share_the_gpus_that_the_machine_has_left() -> None:
    """Four slices of 2 on a machine of which 6 GPUs can be rented: three of them."""
    slices = [an_offer("a", 2, offer_id=str(n), machine_id="m", machine_gpus=6) for n in range(4)]
    assert solve(a_problem(offers=slices, rows=[measured("a:2", {"w1": 1.0})])).value == pytest.approx(3.0)


def test_a_divisible_offer_and_a_whole_one_of_a_machine_share_its_gpus() -> None:
    """4 GPUs: the whole machine, or slices of it, but not both. Slices are cheaper here."""
    offers = [
        an_offer("a", 4, price=8.0, offer_id="whole", machine_id="m"),
        an_offer("a", 4, price=4.0, offer_id="cut", machine_id="m", divisible=True),
    ]
    plan = solve(a_problem(offers=offers, rows=[measured("a", {"w1": 1.0})]))
    assert plan.value == pytest.approx(4.0)
    assert plan.cost_usd_per_hour == pytest.approx(4.0)


def test_machine_names_of_two_providers_are_two_machines() -> None:
    offers = [an_offer("a", 2, provider=name, machine_id="m", gpu_ids=(0, 1)) for name in ("p", "q")]
    assert supply_of(*offers).couplings == ()


@pytest.mark.parametrize(
    ("others", "most"),
    [
        ({"budget_usd_per_hour": 13.9}, 2),
        ({"budget_usd_per_hour": 14.0}, 2),
        ({"budget_usd_per_hour": 18.0}, 3),
        ({"limits": Limits(max_gpus={"a": 11})}, 2),
        ({"limits": Limits(max_gpus_per_provider={"cloud": 7})}, 1),
        ({"limits": Limits(max_gpus_per_provider={"other": 7})}, 50),
        ({"limits": Limits(max_power_watts=4799.0)}, 2),
    ],
    ids=["budget", "budget", "budget is met", "gpus", "provider", "another provider", "watts"],
)
def test_no_more_machines_are_counted_than_money_and_limits_allow(others: dict[str, Any], most: int) -> None:
    """Machines of 4 GPUs at 6 $/h and 1600 W."""
    assert counts(supply_of(an_offer("a", 4, price=6.0, available=50), **others)) == [(4, 6.0, most)]


def test_a_machine_beyond_the_budget_is_not_there() -> None:
    assert supply_of(an_offer("a", 4, price=6.0, available=50), budget_usd_per_hour=5.0).classes == ()


def test_the_supply_curve_ends_where_its_sum_passes_the_budget() -> None:
    """3 at 1 $/h, then 100 at 2 $/h on 8 $/h: after the three cheap ones 5 $ are left, for two more."""
    cheap, dear = an_offer("a", 2, available=3), an_offer("a", 2, price=2.0, available=100, offer_id="dear")
    dearest = an_offer("a", 2, price=3.0, available=100, offer_id="dearest")
    supply = supply_of(dearest, dear, cheap, budget_usd_per_hour=8.0)
    assert counts(supply) == [(2, 1.0, 3), (2, 2.0, 2)]


def test_machines_of_another_size_do_not_use_up_the_curve() -> None:
    """Three pairs for 3 $/h do not stand in for a machine of 4: on 8 $/h both sizes may be worth renting."""
    offers = [an_offer("a", 2, available=3), an_offer("a", 4, price=4.0, available=9)]
    assert sorted(counts(supply_of(*offers, budget_usd_per_hour=8.0))) == [(2, 1.0, 3), (4, 4.0, 2)]


def test_the_curve_of_each_provider_is_its_own_where_providers_are_limited() -> None:
    """With one GPU allowed at p, the cheap ones there cannot stand in for those at q."""
    offers = [an_offer("a", available=5, provider="p"), an_offer("a", price=2.0, available=5, provider="q")]
    problem = a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 1.0})],
        budget_usd_per_hour=5.0,
        limits=Limits(max_gpus_per_provider={"p": 1}),
    )
    plan = solve(problem)
    assert plan.value == pytest.approx(3.0)
    assert plan.cost_usd_per_hour == pytest.approx(5.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 120, 5))
def test_clamping_the_supply_never_changes_the_optimum(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective, most_gpus=16)
    assert least_value(problem, clamped=True) == pytest.approx(least_value(problem, clamped=False), rel=1e-6)


@pytest.mark.slow
@for_each("seed", range(15))
def test_cutting_the_supply_curve_never_changes_the_optimum(seed: int) -> None:
    """Many price steps of two machine sizes and a budget for a few of them."""
    draw = Random(seed)
    offers = [
        an_offer(
            "a",
            gpus,
            price=round(gpus * draw.uniform(0.7, 2.0), 2),
            available=draw.randint(1, 3),
            offer_id=f"{gpus}-{step}",
            provider=draw.choice(["p", "q"]),
        )
        for gpus in (1, 2, 3)
        for step in range(4)
    ]
    problem = a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 1.0}), measured("a:2", {"w1": 2.3})],
        budget_usd_per_hour=draw.uniform(3.0, 9.0),
        limits=Limits(max_gpus_per_provider={"p": 3} if draw.random() < 0.5 else {}),
    )
    best = -least_value(problem, clamped=False)
    assert -least_value(problem, clamped=True) == pytest.approx(best, rel=1e-6)
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.value == pytest.approx(best, rel=problem.options.relative_gap)
