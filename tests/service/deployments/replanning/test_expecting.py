"""More than is seen is planned for in time where a calendar says that it comes, and given back when it is over."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.service.deployments.replanning.builders import START, a_problem, an_offer, known_of, observed, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines

BEGINS = START + timedelta(hours=1)
LASTS_S = 3600.0
ENDS = BEGINS + timedelta(seconds=LASTS_S)
TICK_S = 60.0
LAUNCH = {"name": "launch", "starts": f"{BEGINS:%M %H} * * *", "lasts_s": LASTS_S, "times": 3.0}


def a_calendar_world(**policy: Any) -> World:
    given = {"calendar": [LAUNCH], "startup_s": 120.0, "download_gb_per_s": 0.5, "shrink_after_s": 600.0}
    world = a_world(an_offer(available=40), problem=a_problem(20.0, 2.0), policy={**given, **policy})
    world.traffic = traffic(20.0, 2.0, at=world.now, policy=world.policy)
    return world


def lives_until(world: World, until: datetime, *, factor: float = 1.0, seen: bool = True) -> list[int]:
    """Machines at every look."""
    counts = []
    while world.now < until:
        world.passes(TICK_S)
        world.poll()
        if seen:
            world.traffic = traffic(20.0 * factor, 2.0 * factor, at=world.now, policy=world.policy)
        world.look()
        counts.append(sum(machines(world).values()))
    return counts


def test_machines_serve_when_an_event_begins_and_are_ordered_no_earlier_than_needed() -> None:
    world = a_calendar_world()
    usual = sum(machines(world).values())
    lead_s = world.facts().lead_s + world.policy.window_s
    assert set(lives_until(world, BEGINS - timedelta(seconds=lead_s + TICK_S))) == {usual}
    lives_until(world, BEGINS - timedelta(seconds=world.facts().lead_s))
    assert world.plan.load_multiple is not None
    assert sum(w.rate_rps or 0.0 for w in world.planned.models[0].workloads or ()) == pytest.approx(66.0)
    assert sum(machines(world).values()) == 3 * usual
    told = [drift.detail for verdict in world.verdicts for drift in verdict.drifts if drift.kind == "rate"]
    assert told == ["chat: 66 requests/s with launch of the calendar, 3 x what is stated, 22 were planned (+200%)"]


@pytest.mark.slow
def test_while_it_lasts_a_quiet_hour_is_no_lull_and_afterwards_it_is() -> None:
    world = a_calendar_world()
    usual = sum(machines(world).values())
    lives_until(world, BEGINS)
    assert set(lives_until(world, ENDS - timedelta(seconds=TICK_S))) == {3 * usual}
    counts = lives_until(world, ENDS + timedelta(seconds=900.0))
    assert counts[-1] == usual


def test_more_than_was_expected_counts_as_it_is_seen() -> None:
    world = a_calendar_world()
    usual = sum(machines(world).values())
    lives_until(world, BEGINS)
    assert lives_until(world, BEGINS + timedelta(seconds=600.0), factor=4.0)[-1] > 3 * usual


def test_without_a_feed_the_calendar_is_kept_and_the_feed_stays_missing() -> None:
    world = a_calendar_world()
    usual = sum(machines(world).values())
    world.traffic = known_of([], at=world.now, policy=world.policy)
    lives_until(world, BEGINS, seen=False)
    assert sum(machines(world).values()) == 3 * usual
    lives_until(world, ENDS + timedelta(seconds=120.0), seen=False)
    assert sum(machines(world).values()) == usual
    assert {verdict.state.feed for verdict in world.verdicts} == {"none"}


def test_where_reports_have_stopped_what_was_planned_for_is_kept_and_an_event_brings_more() -> None:
    world = a_calendar_world()
    lives_until(world, START + timedelta(seconds=600.0), factor=2.0)
    doubled = sum(machines(world).values())
    long_ago = observed(40.0, 4.0, until=START + timedelta(seconds=600.0))
    for until in (BEGINS - timedelta(seconds=1200.0), BEGINS, ENDS + timedelta(seconds=1200.0)):
        while world.now < until:
            world.passes(TICK_S)
            world.poll()
            world.traffic = known_of(long_ago, at=world.now, policy=world.policy, planned=world.planned)
            world.look()
        if until < BEGINS:
            assert sum(machines(world).values()) == doubled
        else:
            assert sum(machines(world).values()) > doubled
    assert world.verdicts[-1].state.feed == "silent"


def test_the_next_look_is_when_machines_have_to_be_ordered() -> None:
    world = a_calendar_world(refine_s=86_400.0)
    due = BEGINS - timedelta(seconds=world.facts().lead_s + world.policy.window_s)
    lives_until(world, due - 2 * timedelta(seconds=TICK_S))
    assert world.verdicts[-1].look_at == due
