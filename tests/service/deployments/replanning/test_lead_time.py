"""Machines are ordered for the traffic that there will be once they serve, none for a storm that is over by then."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from benchmarks.lead_time import BASE_RPS, HEADROOM, LEAD_S, RPS_PER_MACHINE, SHAPES, Autoscaler, Shape, Sutler, lived
from sutler.service.deployments.traffic.window import Observation
from tests.service.deployments.replanning.builders import START, a_problem, an_offer, known_of
from tests.service.deployments.replanning.worlds import World, a_world, machines

CLIMB, DOUBLING, STEP, STORM, *_ = SHAPES
SLICE_S = 15.0


def reports(rps: Callable[[float], float], *, until_s: float) -> list[Observation]:
    """Of a gateway, every 15 s and evenly."""
    found = []
    for number in range(round((until_s + 7200) / SLICE_S)):
        begin_s = -7200 + number * SLICE_S
        requests, begin = rps(begin_s + SLICE_S / 2) * SLICE_S, START + timedelta(seconds=begin_s)
        buckets = ((500.0, 250.0, requests),)
        found.append(Observation("chat", "g", begin, begin + timedelta(seconds=SLICE_S), requests, buckets))
    return found


def climbed(seconds: float, **policy: float | None) -> World:
    """A load of 200 requests/s has climbed by 2 % every 5 s for so long."""
    problem = a_problem(200.0, 1e-4)
    world = a_world(an_offer(available=500), problem=problem, policy={"shrink_after_s": 3600.0, **policy})
    hears(world, lambda t_s: 200.0 * 1.02 ** (max(0.0, t_s) / 5), until_s=seconds)
    return world


def hears(world: World, rps: Callable[[float], float], *, until_s: float) -> None:
    world.now = START + timedelta(seconds=until_s)
    world.poll()
    told = reports(rps, until_s=until_s)
    world.traffic = known_of(told, at=world.now, policy=world.policy, planned=world.planned)


def goes_on(world: World, rps: Callable[[float], float]) -> None:
    """Ten minutes more, from the fourth minute on, with a look every half of one."""
    for number in range(1, 21):
        hears(world, rps, until_s=240.0 + number * 30.0)
        world.look()


def test_a_climb_is_planned_for_as_it_will_be_when_new_machines_serve_and_for_a_window_more() -> None:
    world = climbed(240.0)
    found = world.look()
    [drift] = [one for one in found.drifts if one.kind == "rate"]
    then_rps = 200.0 * 1.02 ** ((240.0 + LEAD_S + world.policy.window_s) / 5)
    assert machines(world)["acme/large"] >= then_rps * 1.2 / 20.0
    assert "requests/s" in drift.detail


def test_a_climb_that_rates_so_far_do_not_show_is_told_as_such() -> None:
    world = climbed(60.0)
    [drift] = [one for one in world.look().drifts if one.kind == "rate"]
    assert "climbing to" in drift.detail
    assert f"in {LEAD_S:.0f} s, when what is ordered now serves" in drift.detail
    assert world.revisions


@pytest.mark.parametrize("shrink_after_s", [3600.0, 86_400.0])
def test_what_was_ordered_for_a_climb_that_has_ended_is_withdrawn_within_the_cool_down(shrink_after_s: float) -> None:
    """2 % every 5 s for four minutes, then as it is: what was ordered for the six and a half to come goes, whether
    traffic is known for as long as a lull has to last or not."""
    world = climbed(240.0, cooldown_s=3600.0, shrink_after_s=shrink_after_s)
    world.look()
    ordered = machines(world)["acme/large"]
    goes_on(world, lambda t_s: 200.0 * 1.02 ** (min(240.0, max(0.0, t_s)) / 5))
    needed = 200.0 * 1.02**48 * 1.2 / 20.0
    assert needed <= machines(world)["acme/large"] <= needed * 1.1 < ordered / 2


def test_what_was_there_before_a_climb_is_given_up_as_after_any_lull() -> None:
    """After the climb there is a quarter of what there was before it."""
    world = climbed(240.0, cooldown_s=0.0, shrink_after_s=86_400.0)
    world.look()
    ordered = machines(world)["acme/large"]
    goes_on(world, lambda t_s: 50.0 if t_s > 240 else 200.0 * 1.02 ** (max(0.0, t_s) / 5))
    needed = 200.0 * 1.2 / 20.0
    assert needed <= machines(world)["acme/large"] < ordered / 4


def test_without_a_quantile_what_is_there_is_planned_for() -> None:
    world = climbed(60.0, lead_quantile=None)
    assert world.look().drifts == ()
    assert world.revisions == []


def test_no_more_is_ordered_than_the_policy_allows_times_what_is_there() -> None:
    world = climbed(240.0, most_growth_factor=1.5)
    world.look()
    rate_rps = world.traffic["chat"].rate_rps
    assert machines(world)["acme/large"] <= rate_rps * 1.5 * 1.2 / 20.0 + 1


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "slice_s"), [(CLIMB, 15.0), (DOUBLING, 60.0)], ids=["climb", "doubling"])
def test_of_a_climb_as_much_is_carried_as_the_quantile_promises(shape: Shape, slice_s: float) -> None:
    climb = replace(shape, length_s=shape.counts_s)
    assert lived(climb, Sutler(0.9), slice_s=slice_s, seed=0).under <= 0.1
    assert lived(climb, Sutler(None), slice_s=slice_s, seed=0).under > 0.2


def test_a_storm_of_ten_seconds_orders_nothing() -> None:
    storm = lived(replace(STORM, length_s=600.0), Sutler(0.9), slice_s=SLICE_S, seed=0)
    assert (storm.changes, storm.most) == (0, math.ceil(BASE_RPS * (1 + HEADROOM) / RPS_PER_MACHINE) + 1)


def test_a_step_is_planned_for_as_it_is() -> None:
    step = replace(STEP, length_s=600.0)
    found, rival = (lived(step, keeper, slice_s=SLICE_S, seed=0) for keeper in (Sutler(0.9), Autoscaler()))
    assert found.most <= rival.most + 1
