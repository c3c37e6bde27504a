"""A plan as a drawing: every GPU once, every replica to be found, what is missing marked."""

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.pages.fleet import COLOURS, MOST_DRAWN, anchors_of, colour_of, machines_of, routes_of
from sutler.solver.catalog import load_gpus
from tests.service.deployments.diff.fleets import On, a_fleet, a_machine, a_replica, a_route
from tests.service.deployments.holdings.test_comparison import a_holding


def test_machines_are_drawn_in_the_order_of_the_plan_with_all_their_gpus() -> None:
    split = a_replica("split", On(machine=1, gpus=1), On(rental=1, gpus=2))
    plan = a_fleet(a_machine("a", gpus=2, count=2), a_machine("b"), replicas=(a_replica("whole", On(gpus=2)), split))
    drawn = machines_of(plan)
    assert [machine.rental.offer_id for machine in drawn] == ["a", "a", "b"]
    for machine in drawn:
        assert sum(piece.cards for piece in machine.pieces) + machine.idle == machine.rental.gpus
    ids = {piece.replica.id for machine in drawn for piece in machine.pieces}
    assert ids == {replica.id for replica in plan.replicas}


def test_of_one_offer_as_many_are_marked_as_are_missing() -> None:
    plan = a_fleet(a_machine("a", count=3), a_machine("b"))
    missing: list[HoldingDocument] = [a_holding("a", count=2)]
    assert [machine.is_missing for machine in machines_of(plan, missing)] == [False, True, True, False]


def test_very_many_machines_that_run_alike_are_drawn_once_with_their_number() -> None:
    count = MOST_DRAWN + 20
    replicas = tuple(a_replica(f"chat-{i}", On(machine=i)) for i in range(count))
    plan = a_fleet(a_machine("a", count=count), replicas=replicas)
    [group] = machines_of(plan)
    assert group.count == count
    assert len(group.alike) == count


def test_places_on_the_page_are_safe_whatever_replicas_are_called() -> None:
    plan = a_fleet(a_machine("a"), replicas=(a_replica('"><script>'),))
    assert list(anchors_of(plan).values()) == ["replica-0"]


def test_shares_of_a_route_are_shown_the_largest_first() -> None:
    replicas = tuple(a_replica(f"chat-{i}", On(machine=i)) for i in range(3))
    route = a_route({"chat-0": 0.2, "chat-1": 0.5, "chat-2": 0.3})
    [found] = routes_of(a_fleet(a_machine("a", count=3), replicas=replicas, routing=(route,)))
    assert [(id, share) for id, _, share in found.shares] == [("chat-1", 0.5), ("chat-2", 0.3), ("chat-0", 0.2)]


def test_every_gpu_has_a_colour_of_the_style_sheet_also_one_that_nobody_knows() -> None:
    assert {colour_of(gpu) for gpu in load_gpus()} == set(range(COLOURS))
    assert colour_of("my-own-gpu") in range(COLOURS)
