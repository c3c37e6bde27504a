"""Machines that can be rented together, and their bill."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from sutler.solver.offline.hardware import Loading
from sutler.solver.offline.machine_sets import BillingTerms, Unit, billed, hardware_of, unit_sets
from sutler.solver.offline.stages import ExecutedStage, Execution, RunningReplica, ScheduleStage
from sutler.solver.problem import Offer
from sutler.solver.units import HOURS_PER_MONTH
from tests.looped import for_each
from tests.solver.offline.renting_builders import GPUS, an_a100, an_l40s


def sets_of(*offers: Offer, disk_gb: float = 0.0, **limits: int) -> list[tuple[Unit, ...]]:
    most = {"max_gpus": None, "max_machines": None, **limits}
    return list(unit_sets(offers, disk_gb=disk_gb, **most))


def sizes(sets: list[tuple[Unit, ...]]) -> list[tuple[int, ...]]:
    return sorted(tuple(unit.gpus for unit in units) for units in sets)


def execution(*stages: tuple[float, float, set[int]]) -> Execution:
    """Stages from, to, and on which hosts."""
    found = tuple(
        ExecutedStage(
            start_s,
            end_s,
            ScheduleStage({}),
            tuple(RunningReplica(0, host, ((host, 0),), start_s, is_loaded=True) for host in hosts),
            (0,),
            (0,),
            0.0,
            0.0,
        )
        for start_s, end_s, hosts in stages
    )
    nothing = np.zeros(0)
    return Execution(found, stages[-1][1], nothing, nothing, (0.0,))


def test_of_one_offer_there_are_as_many_machines_as_are_for_rent() -> None:
    assert sizes(sets_of(an_l40s(2, available=3))) == [(2,), (2, 2), (2, 2, 2)]
    assert sets_of(an_l40s(2, available=0)) == []


def test_of_a_divisible_offer_parts_are_powers_of_two_or_all() -> None:
    found = sets_of(an_l40s(6, price=6.0, divisible=True))
    assert sizes(found) == [(1,), (2,), (4,), (6,)]
    assert sorted(units[0].price_usd_per_hour for units in found) == [1.0, 2.0, 4.0, 6.0]
    assert sizes(sets_of(an_l40s(6))) == [(6,)]


def test_a_set_has_one_type_of_gpu() -> None:
    for units in sets_of(an_l40s(2, available=2), an_a100(2, available=2)):
        assert len({unit.offer.gpu for unit in units}) == 1


def test_machines_of_several_offers_come_together_cheapest_first() -> None:
    found = sets_of(an_l40s(1, price=1.0, offer_id="dear"), an_l40s(1, price=0.5, offer_id="cheap"))
    assert [tuple(unit.offer.offer_id for unit in units) for units in found] == [
        ("cheap",),
        ("dear",),
        ("cheap", "dear"),
    ]


def test_slices_that_share_a_gpu_are_not_rented_together() -> None:
    machine = {"machine_id": "m", "machine_gpus": 4}
    whole = an_l40s(4, price=3.0, offer_id="whole", gpu_ids=(0, 1, 2, 3), **machine)
    left = an_l40s(2, price=2.0, offer_id="left", gpu_ids=(0, 1), **machine)
    right = an_l40s(2, price=2.0, offer_id="right", gpu_ids=(2, 3), **machine)
    names = [{unit.offer.offer_id for unit in units} for units in sets_of(whole, left, right)]
    assert {"whole"} in names
    assert not any("whole" in together and len(together) > 1 for together in names)
    assert {"left", "right"} in [{unit.offer.offer_id for unit in units} for units in sets_of(left, right)]


def test_slices_of_one_machine_never_exceed_it() -> None:
    slices = an_l40s(2, available=4, machine_id="m", machine_gpus=4)
    assert sizes(sets_of(slices)) == [(2,), (2, 2)]
    other = an_l40s(4, price=1.0, available=1, offer_id="whole", machine_id="m", machine_gpus=4)
    assert sizes(sets_of(slices, other)) == [(2,), (2, 2), (4,)]
    parts = an_l40s(4, available=2, machine_id="m", machine_gpus=4, divisible=True)
    assert sizes(sets_of(parts)) == [(1,), (1, 1), (2,), (2, 2), (4,)]


def test_machines_of_other_providers_with_the_same_id_are_others() -> None:
    one, other = (an_l40s(4, machine_id="m", machine_gpus=4, provider=name) for name in ("a", "b"))
    assert (4, 4) in sizes(sets_of(one, other))


def test_on_demand_and_bid_of_one_id_are_not_rented_together() -> None:
    on_demand = an_l40s(2, offer_id="same")
    bid = replace(on_demand, contract="interruptible", price_usd_per_hour=0.5)
    assert sizes(sets_of(on_demand, bid)) == [(2,), (2,)]


def test_what_is_held_and_what_is_for_rent_under_one_id_are_two() -> None:
    for_rent = an_l40s(2, offer_id="same")
    held = replace(for_rent, held=True, price_usd_per_hour=0.5)
    found = sets_of(for_rent, held)
    assert sorted(tuple(unit.offer.held for unit in units) for units in found) == [(False,), (True,), (True, False)]


def test_a_disk_that_is_too_small_is_left_out_and_storage_is_paid() -> None:
    small, large = an_l40s(1, offer_id="small", disk_gb=50.0), an_l40s(1, offer_id="large", disk_gb=100.0)
    priced = replace(large, disk_included_gb=20.0, disk_usd_per_gb_month=0.1)
    ((unit,),) = sets_of(small, priced, disk_gb=80.0)
    assert unit.offer.offer_id == "large"
    assert unit.storage_gb == 80.0
    assert unit.storage_usd_per_hour == pytest.approx(60 * 0.1 / HOURS_PER_MONTH)
    assert unit.price_usd_per_hour == pytest.approx(1.0 + unit.storage_usd_per_hour)


def test_limits_hold() -> None:
    offers = (an_l40s(2, available=9), an_l40s(1, available=9, offer_id="single"))
    assert max(sum(size) for size in sizes(sets_of(*offers))) == 16
    assert max(sum(size) for size in sizes(sets_of(*offers, max_gpus=5))) <= 5
    assert max(len(size) for size in sizes(sets_of(*offers, max_machines=3))) == 3
    assert sets_of(an_l40s(8), max_gpus=4) == []


@for_each("seed", range(40))
def test_every_set_could_be_rented(seed: int) -> None:
    draw = Random(seed)
    offers = [random_offer(draw, number) for number in range(draw.randint(1, 6))]
    disk_gb = draw.choice((0.0, 60.0))
    seen = []
    for units in sets_of(*offers, disk_gb=disk_gb, max_gpus=12, max_machines=5):
        seen.append(Counter((unit.offer, unit.gpus) for unit in units))
        check_rentable(units, disk_gb)
    assert all(seen[i] != seen[j] for i in range(len(seen)) for j in range(i))
    cheapest = {offer.gpu for offer in offers if offer.available and (offer.disk_gb or 1e9) >= disk_gb}
    assert {units[0].offer.gpu for units in sets_of(*offers, disk_gb=disk_gb, max_gpus=12)} == cheapest


def random_offer(draw: Random, number: int) -> Offer:
    gpus = draw.choice((1, 2, 3, 4))
    offer = draw.choice((an_l40s, an_a100))(
        gpus,
        price=round(gpus * draw.uniform(0.5, 2.0), 2),
        available=draw.randint(0, 3),
        offer_id=f"offer-{draw.choice((number, 0))}",
        contract=draw.choice(("on_demand", "interruptible")),
        divisible=draw.random() < 0.3,
        disk_gb=draw.choice((None, 50.0, 500.0)),
        provider=f"cloud-{number}" if draw.random() < 0.5 else "cloud",
    )
    if draw.random() < 0.5:
        cards = tuple(draw.sample(range(4), gpus)) if draw.random() < 0.5 else None
        available = min(offer.available, 1) if cards else offer.available
        offer = replace(offer, machine_id="m", machine_gpus=4, gpu_ids=cards, available=available)
    return replace(offer, provider="cloud") if draw.random() < 0.5 else offer


def check_rentable(units: tuple[Unit, ...], disk_gb: float) -> None:
    assert 1 <= len(units) <= 5
    assert sum(unit.gpus for unit in units) <= 12
    assert len({unit.offer.gpu for unit in units}) == 1
    for offer, count in Counter(unit.offer for unit in units).items():
        assert count <= offer.available
    contracts: dict[tuple[str, str], set[str]] = {}
    cards: dict[tuple[str, str | None], list[int]] = {}
    on_machine: Counter[tuple[str, str]] = Counter()
    for unit in units:
        offer = unit.offer
        assert unit.gpus == offer.gpus or (offer.divisible and unit.gpus < offer.gpus and unit.gpus in (1, 2, 4))
        assert offer.disk_gb is None or offer.disk_gb >= disk_gb
        contracts.setdefault((offer.provider, offer.offer_id), set()).add(offer.contract)
        if offer.machine_id is not None:
            cards.setdefault((offer.provider, offer.machine_id), []).extend(offer.gpu_ids or ())
            on_machine[offer.provider, offer.machine_id] += unit.gpus
    assert all(len(found) == 1 for found in contracts.values())
    assert all(len(set(found)) == len(found) for found in cards.values())
    assert all(count <= 4 for count in on_machine.values())


def test_bills_have_a_minimum_increments_and_the_start_up() -> None:
    terms = BillingTerms(minimum_s=600.0, billing_increment_s=60.0, start_up_s=100.0)
    assert terms.billed_s(0.0) == 600.0
    assert terms.billed_s(500.0) == 600.0
    assert terms.billed_s(500.1) == 660.0
    assert BillingTerms(billing_increment_s=3600.0, start_up_s=0.0).billed_s(3600.1) == 7200.0
    assert BillingTerms(billing_increment_s=0.1, start_up_s=0.0).billed_s(0.3) == pytest.approx(0.3)


def test_a_minimum_is_rounded_up_to_whole_increments_too() -> None:
    assert BillingTerms(minimum_s=90.0, billing_increment_s=60.0, start_up_s=0.0).billed_s(10.0) == 120.0


def test_a_machine_that_is_not_used_any_more_is_given_back() -> None:
    offer = an_l40s(1, price=3.6, available=3)
    units = (Unit(offer, 1, 3.6),) * 3
    ran = execution((0.0, 500.0, {0, 1}), (500.0, 900.0, {0}))
    first, second, unused = billed(units, ran, BillingTerms(start_up_s=100.0))
    assert [machine.hosts for machine in (first, second, unused)] == [(0,), (1,), (2,)]
    assert [machine.billed_s for machine in (first, second, unused)] == [1000.0, 600.0, 100.0]
    assert [machine.usd for machine in (first, second, unused)] == pytest.approx([1.0, 0.6, 0.1])


def test_machines_that_are_billed_alike_are_one_entry() -> None:
    units = (Unit(an_l40s(1, price=3.6, available=2), 1, 3.6),) * 2
    (machines,) = billed(units, execution((0.0, 1000.0, {0, 1})), BillingTerms(start_up_s=0.0))
    assert (machines.count, machines.hosts) == (2, (0, 1))
    assert machines.usd == pytest.approx(2.0)


def test_every_machine_is_an_island_at_its_own_link_and_the_slowest_line_counts() -> None:
    fast = Unit(an_l40s(2, inet_down_gb_per_s=1.0, intra_machine_gb_per_s=50.0), 2, 1.0)
    slow = Unit(an_l40s(1, inet_down_gb_per_s=0.25), 1, 1.0)
    hardware = hardware_of((fast, slow), GPUS["l40s"], Loading())
    assert [(island.host, island.gpus) for island in hardware.islands] == [(0, (0, 1)), (1, (0,))]
    assert [island.gb_per_s for island in hardware.islands] == [50.0, GPUS["l40s"].link_gb_per_s]
    assert hardware.across_gb_per_s == 0.0
    assert hardware.loading.download_gb_per_s == 0.25
    assert hardware_of((fast,), GPUS["l40s"], Loading(download_gb_per_s=3.0)).loading.download_gb_per_s == 3.0
    assert hardware_of((Unit(an_l40s(), 1, 1.0),), GPUS["l40s"], Loading()).loading.download_gb_per_s is None
