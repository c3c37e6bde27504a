"""What comes at the same time of every day has its machines in time; chance orders nothing."""

from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import pytest

from sutler.service.deployments.traffic.season import QUARTER, quarter_of, quarters_wanted, usually_comes_to
from sutler.service.deployments.traffic.window import Observation
from tests.looped import for_each
from tests.service.deployments.replanning.builders import START, a_problem, an_offer, known_of
from tests.service.deployments.replanning.worlds import World, a_world, machines

RPS = 105.0  # of 20 a machine and a fifth of headroom: 6.3 machines, so that no number hangs on rounding
PER_MACHINE_RPS = 20.0
AHEAD = timedelta(minutes=5)
TICK_S = 30.0
BEGINS = START + timedelta(hours=1)  # 13:00 on a Friday
Rate = Callable[[datetime], float]


def on_weekdays(moment: datetime) -> float:
    """Twice as much from 13:00 to 17:00."""
    return RPS * (2.0 if moment.weekday() < 5 and BEGINS.hour <= moment.hour < 17 else 1.0)


def history(rate: Rate, now: datetime, *, days: int, spread: float = 0.0, seed: int = 0) -> dict[datetime, float]:
    """The quarters that are over by then."""
    draw, last = np.random.default_rng(seed), quarter_of(now) - QUARTER
    quarters = [last - number * QUARTER for number in range(days * 96 + 8)]
    return {one: rate(one) * float(np.exp(draw.normal(0.0, spread))) for one in quarters}


def usual(rate: Rate, now: datetime, *, days: int, spread: float = 0.0, seed: int = 0) -> float | None:
    known = history(rate, now, days=days, spread=spread, seed=seed)
    return usually_comes_to(known, now=now, ahead=AHEAD, quantile=0.9)


@pytest.mark.parametrize("days", [3, 8, 14, 28])
@pytest.mark.parametrize("spread", [0.0, 0.03])
def test_what_comes_every_day_is_known_as_soon_as_it_is_within_reach(days: int, spread: float) -> None:
    assert usual(on_weekdays, BEGINS - timedelta(minutes=6), days=days, spread=spread) is None
    found = usual(on_weekdays, BEGINS - timedelta(minutes=4), days=days, spread=spread)
    assert found == pytest.approx(2 * RPS, rel=0.2)
    assert usual(on_weekdays, BEGINS + timedelta(hours=2), days=days, spread=spread) is None


def test_it_follows_the_level_of_the_day() -> None:
    now = BEGINS - timedelta(minutes=2)
    known = history(on_weekdays, now, days=8)
    known |= {one: 3 * rps for one, rps in known.items() if one > now - timedelta(hours=2)}
    assert usually_comes_to(known, now=now, ahead=AHEAD, quantile=0.9) == pytest.approx(6 * RPS)


def test_a_weekend_is_compared_with_weekends_and_a_day_with_that_day_of_other_weeks() -> None:
    saturday = BEGINS + timedelta(days=1, minutes=-2)
    assert usual(on_weekdays, saturday, days=9) is None
    assert usual(lambda t: on_weekdays(t) if t.weekday() == 4 else RPS, BEGINS - timedelta(minutes=2), days=22)


@for_each("days", [0, 1, 2, 5, 8, 28])
def test_where_all_days_are_flat_or_too_few_nothing_is_usual(days: int) -> None:
    for minutes in range(0, 24 * 60, 95):
        assert usual(lambda _: RPS, START + timedelta(minutes=minutes), days=days) is None
    if days <= 1:
        assert usual(on_weekdays, BEGINS - timedelta(minutes=2), days=days) is None


@for_each("spread", [0.05, 0.2, 0.5])
def test_chance_makes_nothing_usual(spread: float) -> None:
    """Of 720 moments; one in 5,000 is a false alarm."""
    alarms = 0
    for days in (2, 5, 8, 15):
        known = history(lambda _: RPS, START + timedelta(days=2), days=days + 2, spread=spread, seed=days)
        for number in range(180):
            now = START + number * QUARTER
            found = usually_comes_to(
                {one: rps for one, rps in known.items() if one + QUARTER <= now}, now=now, ahead=AHEAD, quantile=0.9
            )
            alarms += found is not None
    assert alarms <= 1


def test_a_gap_in_the_reports_tells_nothing() -> None:
    now = BEGINS - timedelta(minutes=2)
    known = history(on_weekdays, now, days=8)
    del known[quarter_of(now) - QUARTER]
    assert usually_comes_to(known, now=now, ahead=AHEAD, quantile=0.9) is None


def test_few_quarters_are_read() -> None:
    assert len(quarters_wanted(BEGINS - timedelta(minutes=2), AHEAD)) <= 6 * 11


def test_what_is_usual_is_ordered_within_the_growth_that_is_allowed_and_never_less_than_is_there() -> None:
    for usual_rps, factor, needed in ((2 * RPS, 4.0, 13), (2 * RPS, 1.5, 10), (0.5 * RPS, 4.0, 7)):
        world = a_world(an_offer(available=40), problem=a_problem(RPS, 1e-4), policy={"most_growth_factor": factor})
        told = [observation(world.now - timedelta(seconds=(n + 1) * TICK_S), lambda _: RPS) for n in range(120)]
        world.traffic = known_of(told, at=world.now, policy=world.policy, planned=world.planned)
        world.usual_rps = {"chat": usual_rps}
        world.look()
        assert sum(machines(world).values()) == needed


def lived(comes: Rate, *, season: bool) -> tuple[World, float, list[int]]:
    """From ten minutes before to eighty after: seconds with more than the serving machines carry, and machines."""
    policy = {"shrink_after_s": 7200.0, "cooldown_s": 600.0}
    world = a_world(an_offer(available=40), problem=a_problem(RPS, 1e-4), policy=policy)
    world.now, under_s = BEGINS - timedelta(minutes=10), 0.0
    past, counts = history(on_weekdays, world.now, days=8), []
    told = [observation(world.now - timedelta(seconds=(number + 1) * TICK_S), comes) for number in range(240)]
    ordered = [(START, sum(machines(world).values()))]
    while world.now < BEGINS + timedelta(minutes=80):
        told.append(observation(world.now, comes))
        world.passes(TICK_S)
        world.poll()
        past |= {one: comes(one) for one in [quarter_of(world.now) - QUARTER]}
        world.traffic = known_of(told[-240:], at=world.now, policy=world.policy, planned=world.planned)
        ahead = world.facts().ahead
        found = usually_comes_to(past, now=world.now, ahead=ahead, quantile=0.9) if season else None
        world.usual_rps = {} if found is None else {"chat": found}
        world.look()
        ordered.append((world.now, sum(machines(world).values())))
        counts.append(ordered[-1][1])
        since = world.now - timedelta(seconds=world.facts().lead_s)
        serving = min(count for at, count in ordered if at >= max(since, START))
        under_s += TICK_S * (comes(world.now) > serving * PER_MACHINE_RPS)
    return world, under_s, counts


def observation(begin: datetime, comes: Rate) -> Observation:
    requests = comes(begin) * TICK_S
    return Observation("chat", "g", begin, begin + timedelta(seconds=TICK_S), requests, ((500.0, 250.0, requests),))


@pytest.mark.slow
def test_machines_serve_when_what_comes_every_day_begins_and_without_they_come_too_late() -> None:
    with_it, under_s, counts = lived(on_weekdays, season=True)
    _, late_s, usual_counts = lived(on_weekdays, season=False)
    assert under_s == 0
    assert late_s >= 150
    assert all(one >= other for one, other in zip(counts, usual_counts, strict=True))
    assert counts[-1] == usual_counts[-1]
    told = [drift.detail for verdict in with_it.verdicts for drift in verdict.drifts if drift.kind == "rate"]
    assert told[0].startswith(f"chat: usually at {2 * RPS:g} requests/s in 1")


@pytest.mark.slow
def test_on_a_day_on_which_it_does_not_come_what_was_ordered_is_given_back() -> None:
    _, under_s, counts = lived(lambda _: RPS, season=True)
    assert under_s == 0
    assert max(counts) >= 12
    assert counts[-1] == counts[0] == 7
