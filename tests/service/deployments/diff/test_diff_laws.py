"""What holds for the difference of any two fleets."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.schema import MachineChange
from sutler.service.deployments.diff.stable_ids import offer_key
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import PlanDocument, RentalDocument
from tests.service.deployments.diff.fleets import On, a_fleet, a_machine, a_replica

Fleet = tuple[list[tuple[str, float, list[str]]], list[tuple[str, str]]]
OFFERS = st.sampled_from("abc")
# Machines of a few offers at moving prices, each with replicas of one GPU; pipelines on two machines of their own.
FLEETS: st.SearchStrategy[Fleet] = st.tuples(
    st.lists(
        st.tuples(OFFERS, st.sampled_from([1.0, 2.5]), st.lists(st.sampled_from(["chat", "code"]), max_size=3)),
        max_size=6,
    ),
    st.lists(st.tuples(OFFERS, OFFERS), max_size=2),
)
HELD = st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4))


def planned(fleet: Fleet, order: st.DataObject) -> PlanDocument:
    """The fleet, its machines and replicas listed in any order."""
    machines, pairs = fleet
    rents = [(offer, price) for offer, price, _ in machines] + [(offer, 1.0) for pair in pairs for offer in pair]
    rentals = order.draw(st.permutations(sorted(set(rents))))
    counts: Counter[tuple[str, float]] = Counter()
    places = []
    for rent in rents:
        places.append((rentals.index(rent), counts[rent]))
        counts[rent] += 1
    runs = [
        (model, [On(*places[at], 1, first)])
        for at, (_, _, models) in enumerate(machines)
        for first, model in enumerate(models)
    ]
    start = len(machines)
    runs += [
        ("pair", [On(*places[start + 2 * at], 1), On(*places[start + 2 * at + 1], 1)]) for at in range(len(pairs))
    ]
    replicas = tuple(
        a_replica(f"r-{number}", *stages, model=model)
        for number, (model, stages) in enumerate(order.draw(st.permutations(runs)))
    )
    rented = tuple(a_machine(offer, price_usd_per_hour=price, count=counts[offer, price]) for offer, price in rentals)
    cost = sum(rental.count * rental.price_usd_per_hour for rental in rented)
    return a_fleet(replicas=replicas).model_copy(update={"rentals": rented, "cost_usd_per_hour": cost})


def holdings(held: dict[str, int] | None) -> list[HoldingDocument] | None:
    if held is None:
        return None
    given: dict[str, Any] = {"provider": "vastai", "gpu": "h100-sxm", "gpus": 4, "price_usd_per_hour": 1.0}
    return [HoldingDocument(offer_id=offer, count=count, **given) for offer, count in held.items()]


def rented(machines: Iterable[RentalDocument | HoldingDocument]) -> Counter[str]:
    found: Counter[str] = Counter()
    for machine in machines:
        found[offer_key(machine)] += machine.count
    return found


def changed(*items: MachineChange) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in items:
        found[item.key] += item.count
    return found


@pytest.mark.slow
@given(FLEETS, FLEETS, HELD, st.data())
def test_machines_add_up(old: Fleet, new: Fleet, held: dict[str, int] | None, order: st.DataObject) -> None:
    before, after = planned(old, order), planned(new, order)
    documents = holdings(held)
    diff = difference(before, after, reason="", held=documents)
    assert changed(*diff.keep, *diff.start) == rented(after.rentals)
    assert changed(*diff.keep, *diff.stop) == rented(before.rentals) | rented(documents or ())
    if documents is not None:
        assert changed(*diff.keep, *(stop for stop in diff.stop if stop.held)) == rented(documents)


@pytest.mark.slow
@given(FLEETS, FLEETS, HELD, st.data())
def test_what_is_kept_and_started_costs_what_the_plan_costs(
    old: Fleet, new: Fleet, held: dict[str, int] | None, order: st.DataObject
) -> None:
    before, after = planned(old, order), planned(new, order)
    diff = difference(before, after, reason="", held=holdings(held))
    assert sum(item.usd_per_hour for item in (*diff.keep, *diff.start)) == pytest.approx(after.cost_usd_per_hour)
    assert diff.usd_per_hour.change == pytest.approx(diff.usd_per_hour.after - diff.usd_per_hour.before)


@given(FLEETS, st.data())
def test_a_plan_differs_in_nothing_from_itself_however_it_is_listed(fleet: Fleet, order: st.DataObject) -> None:
    one, other = planned(fleet, order), planned(fleet, order)
    diff = difference(one, other, reason="")
    assert (diff.start, diff.stop, diff.reroute) == ((), (), ())
    assert [item.restart for item in diff.keep] == [()] * len(diff.keep)


@pytest.mark.slow
@given(FLEETS, FLEETS, HELD, st.data())
def test_every_machine_and_replica_of_the_new_plan_is_named_once(
    old: Fleet, new: Fleet, held: dict[str, int] | None, order: st.DataObject
) -> None:
    before, after = planned(old, order), planned(new, order)
    diff = difference(before, after, reason="", held=holdings(held))
    machines = [key for item in (*diff.keep, *diff.start) for key in item.machines]
    assert len(machines) == len(set(machines)) == sum(rental.count for rental in after.rentals)
    assert {name for item in (*diff.keep, *diff.start) for name in item.replicas} == {r.id for r in after.replicas}
    assert all(set(item.restart) <= set(item.replicas) for item in diff.keep)


@pytest.mark.slow
@given(FLEETS, FLEETS, HELD, st.data())
def test_every_restart_is_a_step_and_the_last_step_carries_everything(
    old: Fleet, new: Fleet, held: dict[str, int] | None, order: st.DataObject
) -> None:
    diff = difference(planned(old, order), planned(new, order), reason="", held=holdings(held))
    phases = [step.phase for step in diff.capacity]
    assert phases == [1, *[2] * (len(phases) - 2), 3]
    restarts = [name for step in diff.capacity for name in step.restart]
    assert sorted(restarts) == sorted({name for item in diff.keep for name in item.restart})
    assert all(0.0 <= step.carried_fraction <= 1.0 for step in diff.capacity)
    assert diff.capacity[-1].carried_fraction == pytest.approx(1.0)


@pytest.mark.slow
@given(FLEETS, FLEETS, st.data())
def test_there_and_back_swaps_what_is_started_and_stopped(old: Fleet, new: Fleet, order: st.DataObject) -> None:
    before, after = planned(old, order), planned(new, order)
    there, back = difference(before, after, reason=""), difference(after, before, reason="")
    assert changed(*there.keep) == changed(*back.keep)
    assert changed(*there.start) == changed(*back.stop)
    assert there.usd_per_hour.change == pytest.approx(-back.usd_per_hour.change)
