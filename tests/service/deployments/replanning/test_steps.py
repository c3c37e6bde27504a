"""One plan stops and starts no more than the policy allows, but for what is needed."""

from itertools import pairwise
from typing import Any

import pytest

from tests.service.deployments.replanning.builders import a_problem, an_offer, holdings_as_planned, known_of, observed
from tests.service.deployments.replanning.worlds import World, a_world, machines

RPS = 100.0  # of questions: seven machines with headroom
TICK_S = 310.0  # a little more than the cool-down
CHEAP = an_offer(provider="bolt", price_usd_per_hour=1.0, available=20)
LARGE = an_offer(available=40)


def a_fleet(*offers: Any, **policy: Any) -> World:
    world = a_world(*(offers or (LARGE,)), problem=a_problem(RPS, 1e-3), policy=policy)
    hears(world, RPS)
    return world


def hears(world: World, rps: float) -> None:
    seen = observed(rps, 1e-3, until=world.now)
    world.traffic = known_of(seen, at=world.now, policy=world.policy, planned=world.planned)


def steps(world: World, *market: Any, rps: float = RPS, ticks: int = 12) -> list[dict[str, int]]:
    """The machines of every plan from the one that holds on."""
    found = [machines(world)]
    for _ in range(ticks):
        before = len(world.revisions)
        world.passes(TICK_S)
        world.poll(*market)
        hears(world, rps)
        world.look()
        assert world.plan.load_multiple is not None
        assert world.plan.load_multiple >= 1.0
        if len(world.revisions) > before:
            found.append(machines(world))
    return found


def stopped(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(max(0, count - after.get(name, 0)) for name, count in before.items())


def started(before: dict[str, int], after: dict[str, int]) -> int:
    return stopped(after, before)


def changes(plans: list[dict[str, int]]) -> list[tuple[int, int]]:
    """Machines stopped and started, plan by plan."""
    return [(stopped(*pair), started(*pair)) for pair in pairwise(plans)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [(7, 7)]),
        ({"most_stopped_fraction": 0.3}, [(2, 2), (2, 2), (2, 2), (1, 1)]),
        ({"most_stopped_fraction": 0.01}, [(1, 1)] * 7),
        ({"most_started_machines": 3}, [(3, 3), (3, 3), (1, 1)]),
        ({"most_started_usd_per_hour": 5.5}, [(5, 5), (2, 2)]),
    ],
)
def test_a_cheaper_fleet_is_moved_to_in_steps(policy: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    world = a_fleet(**policy)
    plans = steps(world, LARGE, CHEAP)
    assert changes(plans) == expected
    assert plans[-1] == {"bolt/large": 7}
    reasons = [verdict.decision.reason for verdict in world.verdicts if verdict.plan and verdict.decision]
    assert ["no larger step" in reason for reason in reasons] == [True] * (len(expected) - 1) + [False]


def test_what_all_steps_bring_is_what_counts() -> None:
    """The first step alone saves a seventh; of the last nothing more comes."""
    world = a_fleet(most_stopped_fraction=0.3, least_gain_fraction=0.2)
    plans = steps(world, LARGE, CHEAP)
    assert changes(plans) == [(2, 2)] * 3
    assert plans[-1] == {"bolt/large": 6, "acme/large": 1}


def test_capacity_is_given_up_in_steps() -> None:
    world = a_fleet(most_stopped_fraction=0.25)
    plans = steps(world, rps=RPS / 10, ticks=24)
    assert plans[0] == {"acme/large": 7}
    assert plans[-1] == {"acme/large": 1}
    assert {one for one, _ in changes(plans)} == {1}


def test_what_the_load_calls_for_is_started_at_once() -> None:
    world = a_fleet(most_started_machines=1, most_started_usd_per_hour=0.5, most_stopped_fraction=0.1)
    world.passes(600.0)
    world.poll()
    hears(world, 3 * RPS)
    world.look()
    assert machines(world) == {"acme/large": 19}


def test_what_is_lost_is_replaced_at_once() -> None:
    world = a_fleet(most_started_machines=1, most_stopped_fraction=0.1)
    [holding] = holdings_as_planned(world.plan)
    world.reports([holding.model_copy(update={"count": 3})])
    world.passes(TICK_S)
    world.poll()
    hears(world, RPS)
    world.look()
    assert sum(machines(world).values()) == 7


def test_what_a_new_budget_asks_for_is_not_held_up() -> None:
    world = a_fleet(most_stopped_fraction=0.1)
    world.problem = world.problem.model_copy(update={"budget_usd_per_hour": 8.0})
    world.poll(LARGE, CHEAP)
    world.passes(TICK_S)
    world.poll()
    hears(world, RPS)
    world.look(is_asked=True)
    assert machines(world) == {"bolt/large": 7}


def test_all_that_runs_on_one_machine_may_stop_together() -> None:
    eights = [an_offer(gpus=4, available=5, price_usd_per_hour=8.0)]
    cheap = an_offer(provider="bolt", gpus=4, price_usd_per_hour=4.0, available=5)
    world = a_fleet(*eights, most_stopped_fraction=0.1)
    plans = steps(world, *eights, cheap)
    assert plans[0] == {"acme/large": 2}
    assert changes(plans) == [(1, 1), (1, 1)]
