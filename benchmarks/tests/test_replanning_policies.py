"""What the policies decide in situations that are easy to judge, and that the figures of a day add up."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.day.autoscaler import STABILISATION_S, Autoscaler
from benchmarks.day.fleet import Engine, Fleet, Lease
from benchmarks.day.market import ForRent
from benchmarks.day.policies import NeverReplan, ReplanAlways, Sight
from benchmarks.day.simulation import Outcome, live, oracle, outcome_of
from benchmarks.day.traffic import Day
from benchmarks.day.world import Machine
from benchmarks.tests.replanning_builders import HOUR_S, STEADY_S, first_fleet, setting
from sutler.adapters.base import Offer


def rented(lease: Lease, offer: ForRent) -> Machine:
    return Machine(0, lease, offer, ordered_s=0.0, serves_s=0.0)


def sight(offers: tuple[ForRent, ...], *machines: Machine) -> Sight:
    return Sight(HOUR_S, offers, machines, setting().day)


def card(name: str, *, price: float = 2.0, gpu: str = "h100-sxm") -> ForRent:
    offer = Offer(
        offer_id=name,
        feed="on_demand",
        gpu=gpu,
        gpus=1,
        available=1,
        price_usd_per_hour=price,
        contract="on_demand",
        machine_id=name,
    )
    return ForRent("vastai", offer)


def node(name: str, *, gpus: int, price: float) -> ForRent:
    offer = Offer(
        offer_id=name,
        feed="nodes",
        gpu="h100-sxm",
        gpus=gpus,
        available=1,
        price_usd_per_hour=price,
        contract="on_demand",
        divisible=True,
        machine_id=name,
        machine_gpus=gpus,
    )
    return ForRent("lium", offer)


def lease_of(offer: ForRent) -> Lease:
    given = offer.offer
    return Lease(offer.provider, given.offer_id, given.contract, given.gpu, given.gpus, given.price_usd_per_hour)


def test_the_estimates_that_the_world_takes_for_true_are_those_of_the_plan() -> None:
    """A fleet that was planned for some traffic with headroom serves it."""
    made = replace(setting(), length_s=STEADY_S)
    fleet = first_fleet()
    outcome = live(made, NeverReplan(fleet), fleet)
    assert outcome.served / outcome.arrived > 0.98
    assert outcome.usd == pytest.approx(fleet.usd_per_hour * STEADY_S / HOUR_S)


def test_never_replanning_goes_on_while_nothing_is_lost() -> None:
    offer = card("a")
    lease = lease_of(offer)
    fleet = Fleet((lease,), (Engine(0, 1, (1.0,)),))
    assert NeverReplan(fleet).decide(sight((), rented(lease, offer))) is None


def test_never_replanning_replaces_what_is_lost_by_the_cheapest_of_its_kind() -> None:
    kept, lost = card("kept"), card("lost")
    fleet = Fleet((lease_of(kept), lease_of(lost)), (Engine(0, 1, (0.5,)), Engine(1, 1, (0.5,))))
    others = (card("a", price=2.5), node("b", gpus=4, price=8.8), card("c", price=1.0, gpu="a40"))
    found = NeverReplan(fleet).decide(sight(others, rented(lease_of(kept), kept)))
    assert found is not None
    assert found.machines[0] == fleet.machines[0]
    assert found.machines[1] == Lease("lium", "b", "on_demand", "h100-sxm", 1, 2.2)
    assert found.engines == fleet.engines


def test_never_replanning_goes_on_without_what_nobody_rents_out_and_takes_it_later() -> None:
    kept, lost = card("kept"), card("lost")
    fleet = Fleet((lease_of(lost), lease_of(kept)), (Engine(0, 1, (0.4,)), Engine(1, 1, (0.6,))))
    policy = NeverReplan(fleet)
    assert policy.decide(sight((), rented(lease_of(kept), kept))) is None
    found = policy.decide(sight((lost,), rented(lease_of(kept), kept)))
    assert found is not None
    assert len(found.machines) == 2


def test_of_two_lost_machines_one_is_replaced_where_one_is_for_rent() -> None:
    first, second, other = card("first"), card("second"), card("other")
    fleet = Fleet((lease_of(first), lease_of(second)), (Engine(0, 1, (0.4,)), Engine(1, 1, (0.6,))))
    found = NeverReplan(fleet).decide(sight((other,)))
    assert found is not None
    assert [lease.offer_id for lease in found.machines] == [other.offer.offer_id]
    assert found.engines == (Engine(0, 1, (0.4,)),)


BUCKETS = 4


def ten_rps_per_gpu(gpu: str, tensor_parallel: int, intra_gb_per_s: float | None) -> NDArray[np.float64]:
    return np.full(BUCKETS, 10.0 * tensor_parallel)


def at_rps(rps: float, at_s: float, offers: tuple[ForRent, ...], *machines: Machine) -> Sight:
    """What is seen while so many requests arrive, evenly over the buckets."""
    minutes = round(at_s / 60)
    requests = np.full((minutes, BUCKETS), rps * 60 / BUCKETS)
    return Sight(at_s, offers, machines, Day(60.0, setting().day.buckets, requests))


def autoscaler(*cards: ForRent, headroom: float = 0.25) -> Autoscaler:
    leases = tuple(lease_of(each) for each in cards)
    engines = tuple(Engine(number, 1, (1.0 / len(cards),) * BUCKETS) for number in range(len(cards)))
    return Autoscaler(Fleet(leases, engines), ten_rps_per_gpu, ten_rps_per_gpu, headroom)


def test_the_autoscaler_leaves_alone_what_is_as_busy_as_it_is_to_be() -> None:
    one = card("one")
    policy = autoscaler(one)
    for rps in (7.3, 8.0, 8.7):  # of 10, within a tenth of the eight that leave a quarter of headroom
        assert policy.decide(at_rps(rps, HOUR_S, (card("other"),), rented(lease_of(one), one))) is None


def test_it_rents_at_once_the_cheapest_of_what_it_began_with_until_that_is_enough() -> None:
    one = card("one")
    offers = (
        card("dear", price=3.0),
        card("cheap", price=1.0),
        node("node", gpus=4, price=10.0),
        card("x", gpu="a40"),
    )
    found = autoscaler(one).decide(at_rps(30.0, HOUR_S, offers, rented(lease_of(one), one)))
    assert found is not None
    assert [lease.offer_id for lease in found.machines] == ["one", "cheap", "node", "node"]
    assert np.array([engine.shares for engine in found.engines]).sum(axis=0) == pytest.approx(1.0)


def test_it_chooses_by_what_is_estimated_and_counts_what_is_true() -> None:
    """The a40 is estimated to serve as much as the a100 for two thirds of the price, and truly serves half of it."""
    slow, fast = card("slow", gpu="a40", price=2.0), card("fast", gpu="a100-sxm4-80gb", price=3.0)

    def truly(gpu: str, tensor_parallel: int, intra_gb_per_s: float | None) -> NDArray[np.float64]:
        return ten_rps_per_gpu(gpu, tensor_parallel, intra_gb_per_s) * (0.5 if gpu == "a40" else 1.0)

    leases = (lease_of(slow), lease_of(fast))
    first = Fleet(leases, tuple(Engine(number, 1, (0.5,) * BUCKETS) for number in range(2)))
    offers = tuple(
        card(f"{gpu}-{n}", gpu=gpu, price=p) for gpu, p in (("a40", 2.0), ("a100-sxm4-80gb", 3.0)) for n in "ab"
    )
    policy = Autoscaler(first, truly, ten_rps_per_gpu, 0.0)
    found = policy.decide(at_rps(19.0, HOUR_S, offers, rented(leases[1], fast)))
    assert found is not None
    assert [lease.gpu for lease in found.machines] == ["a100-sxm4-80gb", "a40", "a40"]


def test_it_goes_on_with_what_there_is_where_that_is_not_enough() -> None:
    one = card("one")
    found = autoscaler(one).decide(at_rps(100.0, HOUR_S, (card("two"),), rented(lease_of(one), one)))
    assert found is not None
    assert [lease.offer_id for lease in found.machines] == ["one", "two"]


def test_it_gives_the_dearest_back_once_five_minutes_have_needed_no_more() -> None:
    cards = [card("a", price=1.0), card("b", price=3.0), card("c", price=2.0)]
    machines = [rented(lease_of(each), each) for each in cards]
    policy = autoscaler(*cards)
    assert policy.decide(at_rps(22.0, HOUR_S, (), *machines)) is None
    assert policy.decide(at_rps(7.0, HOUR_S + STABILISATION_S - 60, (), *machines)) is None
    found = policy.decide(at_rps(7.0, HOUR_S + STABILISATION_S + 60, (), *machines))
    assert found is not None
    assert [lease.offer_id for lease in found.machines] == ["a"]


def test_it_keeps_one_machine_without_any_traffic() -> None:
    one = card("one")
    assert autoscaler(one).decide(at_rps(0.0, HOUR_S, (), rented(lease_of(one), one))) is None


@cache
def always() -> Outcome:
    return live(setting(), ReplanAlways(setting().planner, 900.0), first_fleet())


def test_replanning_always_follows_the_traffic() -> None:
    never = live(setting(), NeverReplan(first_fleet()), first_fleet())
    assert always().served > never.served
    assert always().revisions > 0
    assert always().idle_machine_hours > never.idle_machine_hours == 0.0


def test_no_fleet_that_serves_all_is_cheaper_than_the_oracle() -> None:
    spans = oracle(setting(), step_s=600.0)
    bound = outcome_of(spans, revisions=0, started=0, stopped=0, lost=0, gpus=0.0)
    large = first_fleet(2.5)
    enough = live(setting(), NeverReplan(large), large)
    assert bound.served == bound.arrived == pytest.approx(enough.arrived)
    assert enough.served == pytest.approx(enough.arrived, rel=1e-3)
    assert bound.usd < enough.usd
