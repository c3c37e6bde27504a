"""What is held, and what of a plan stands on it: by hand."""

from dataclasses import replace

import pytest

from sutler.solver.plan import Rental
from sutler.solver.replanning import Holding, held_offer, holding_key, holdings_of, standing_of
from tests.builders import an_offer
from tests.solver.replanning.builders import a_plan, a_rental, a_replica, a_route, a_stage

A_ONE = Holding(("cloud", "a-1", "on_demand", 1), "a", 1, 1.0)


def test_machines_of_one_offer_and_size_are_one_holding_at_their_mean_price() -> None:
    """Three at 1 $/h and one that stores more, at 1.40 $/h: four at 1.10 $/h."""
    rentals = [a_rental(count=3, price=1.0), a_rental(count=1, price=1.4)]
    (holding,) = holdings_of(rentals)
    assert (holding.key, holding.gpu, holding.count) == (("cloud", "a-1", "on_demand", 1), "a", 4)
    assert holding.price_usd_per_hour == pytest.approx(1.1)


@pytest.mark.parametrize(
    "other",
    [
        a_rental(contract="interruptible"),
        a_rental("a-2"),
        a_rental(gpus=2),
        replace(a_rental(), provider="other"),
    ],
    ids=["contract", "offer", "gpus", "provider"],
)
def test_machines_that_can_be_told_apart_are_different_holdings(other: Rental) -> None:
    assert [holding.key for holding in holdings_of([a_rental(), other])] == [
        holding_key(a_rental()),
        holding_key(other),
    ]


def test_a_held_offer_is_the_one_that_was_rented_at_what_is_paid_for_it_now() -> None:
    offer = an_offer("a", 4, price=4.0, available=9, offer_id="a-4", site="s1", inter_machine_gb_per_s=12.5)
    holding = Holding(("cloud", "a-4", "on_demand", 4), "a", 2, 3.5)
    held = held_offer(holding, offer)
    assert held == replace(offer, available=2, price_usd_per_hour=3.5, held=True)


def test_a_slice_that_is_held_is_a_machine_of_its_own() -> None:
    """Two GPUs cut from a machine of eight, whose disk is in the price by now."""
    offer = an_offer(
        "a", 8, price=8.0, offer_id="m", divisible=True, disk_usd_per_gb_month=0.1, disk_included_gb=50.0
    )
    held = held_offer(Holding(("cloud", "m", "on_demand", 2), "a", 1, 2.3), offer)
    assert (held.gpus, held.available, held.price_usd_per_hour, held.divisible) == (2, 1, 2.3, False)
    assert (held.disk_usd_per_gb_month, held.disk_included_gb) == (0.0, 0.0)


def test_a_held_slice_names_no_machine_that_others_could_be_cut_from_but_stays_on_its_host() -> None:
    offer = an_offer("a", 2, offer_id="m-0", machine_id="m", machine_gpus=4, gpu_ids=(0, 1))
    held = held_offer(Holding(("cloud", "m-0", "on_demand", 2), "a", 1, 1.0), offer)
    assert (held.machine_id, held.machine_gpus, held.gpu_ids, held.host) == (None, None, None, "m")


def test_what_is_held_of_an_offer_that_nobody_lists_any_more_is_known_by_its_key() -> None:
    held = held_offer(Holding(("cloud", "gone", "interruptible", 4), "a", 3, 2.0), None)
    assert (held.provider, held.offer_id, held.contract) == ("cloud", "gone", "interruptible")
    assert (held.gpu, held.gpus, held.available, held.price_usd_per_hour, held.held) == ("a", 4, 3, 2.0, True)
    assert (held.site, held.inter_machine_gb_per_s) == (None, None)


def test_all_of_a_plan_stands_on_all_of_its_machines_at_the_prices_that_are_paid() -> None:
    plan = a_plan(
        [a_rental(count=2, price=1.0, storage_gb=20.0, storage_usd_per_hour=0.2)],
        [a_replica("chat-0", a_stage(0, 0)), a_replica("chat-1", a_stage(0, 1))],
        [a_route(chat_0=0.5, chat_1=0.5)],
    )
    standing = standing_of(plan, [replace(A_ONE, count=2, price_usd_per_hour=1.25)])
    assert standing.rentals == (a_rental(count=2, price=1.25, held=True),)
    assert standing.replicas == plan.replicas
    assert standing.routing == plan.routing
    assert standing.names_used == frozenset()
    assert sum(one.price_usd_per_hour * one.count for one in standing.rentals) == pytest.approx(2.5)


def test_where_one_of_three_equal_machines_is_gone_the_first_two_stand() -> None:
    plan = a_plan([a_rental(count=3)], [a_replica(f"chat-{number}", a_stage(0, number)) for number in (2, 0, 1)], ())
    standing = standing_of(plan, [replace(A_ONE, count=2)])
    assert [rental.count for rental in standing.rentals] == [2]
    assert [replica.id for replica in standing.replicas] == ["chat-0", "chat-1"]
    assert standing.names_used == {"chat-2"}


def test_two_rentals_of_one_key_stand_as_one() -> None:
    """The plan tells them apart by what they store; who reports holdings does not."""
    plan = a_plan(
        [a_rental(count=1), a_rental(count=2, price=1.3)],
        [a_replica("chat-0", a_stage(0, 0)), a_replica("code-0", a_stage(1, 1)), a_replica("code-1", a_stage(1, 0))],
    )
    standing = standing_of(plan, [replace(A_ONE, count=3, price_usd_per_hour=1.2)])
    assert [(rental.count, rental.price_usd_per_hour) for rental in standing.rentals] == [(3, 1.2)]
    assert [(replica.id, replica.stages[0].machine) for replica in standing.replicas] == [
        ("chat-0", 0),
        ("code-0", 2),
        ("code-1", 1),
    ]


def test_a_pipeline_that_lost_one_of_its_machines_is_gone_and_its_other_machine_stands_idle() -> None:
    plan = a_plan(
        [a_rental("a-1"), a_rental("b-1"), a_rental("c-1")],
        [
            a_replica("chat-0", a_stage(0), a_stage(1, gpu="b", piece=1)),
            a_replica("chat-1", a_stage(2, gpu="c")),
        ],
    )
    held = [holding for holding in holdings_of(plan.rentals) if holding.gpu != "b"]
    standing = standing_of(plan, held)
    assert [rental.offer_id for rental in standing.rentals] == ["c-1"]
    assert [(replica.id, replica.stages[0].rental) for replica in standing.replicas] == [("chat-1", 0)]
    assert standing.names_used == {"chat-0"}


def test_a_machine_that_runs_something_else_stands_although_a_pipeline_on_it_is_gone() -> None:
    plan = a_plan(
        [a_rental("a-2", 2), a_rental("b-1")],
        [a_replica("chat-0", a_stage(0, 0, 0), a_stage(1, gpu="b", piece=1)), a_replica("chat-1", a_stage(0, 0, 1))],
    )
    standing = standing_of(plan, holdings_of(plan.rentals)[:1])
    assert [rental.offer_id for rental in standing.rentals] == ["a-2"]
    assert [(replica.id, replica.stages[0].gpu_indices) for replica in standing.replicas] == [("chat-1", (1,))]


@pytest.mark.parametrize(
    "held",
    [
        (),
        (replace(A_ONE, key=("cloud", "a-1", "interruptible", 1)),),
        (replace(A_ONE, key=("cloud", "a-1", "on_demand", 2)),),
    ],
    ids=["nothing", "another contract", "another size"],
)
def test_nothing_stands_where_nothing_of_the_plan_is_held(held: tuple[Holding, ...]) -> None:
    standing = standing_of(a_plan([a_rental()], [a_replica("chat-0", a_stage(0))]), held)
    assert (standing.rentals, standing.replicas) == ((), ())
    assert standing.names_used == {"chat-0"}


def test_machines_that_are_held_and_that_the_plan_does_not_use_are_no_part_of_it() -> None:
    plan = a_plan([a_rental()], [a_replica("chat-0", a_stage(0))])
    standing = standing_of(plan, [A_ONE, replace(A_ONE, key=("cloud", "b-1", "on_demand", 1))])
    assert [(rental.offer_id, rental.count) for rental in standing.rentals] == [("a-1", 1)]
