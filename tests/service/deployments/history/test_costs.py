"""Amounts that change in steps: added up, sampled and paid."""

from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from sutler.service.deployments.history.costs import Spell, Sum, instants, spells
from sutler.service.deployments.history.repository import HeldPlan
from sutler.service.deployments.history.service import means_by_step, planned_spells, rates_at
from tests.looped import for_each

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_each_amount_holds_until_the_next() -> None:
    held = spells([(NOON, 2.0), (NOON + HOUR, 3.0)])
    assert held == [Spell(NOON, NOON + HOUR, 2.0), Spell(NOON + HOUR, None, 3.0)]
    assert spells([(NOON, 2.0)], NOON + HOUR) == [Spell(NOON, NOON + HOUR, 2.0)]
    assert spells([], NOON) == []
    assert spells([(NOON, 2.0), (NOON + HOUR, None)]) == [Spell(NOON, NOON + HOUR, 2.0)]


def test_of_two_changes_at_one_instant_the_last_counts() -> None:
    assert spells([(NOON, 2.0), (NOON, 3.0)]) == [Spell(NOON, None, 3.0)]


def test_two_deployments_cost_what_both_cost() -> None:
    both = Sum([*spells([(NOON, 2.0), (NOON + 2 * HOUR, 5.0)]), *spells([(NOON + HOUR, 1.0)], NOON + 3 * HOUR)])
    assert [both.at(NOON + i * HOUR) for i in range(-1, 4)] == [(0.0, 0), (2.0, 1), (3.0, 2), (6.0, 2), (5.0, 1)]
    assert both.usd(NOON - HOUR, NOON + 4 * HOUR) == pytest.approx(2 + 3 + 6 + 5)
    assert both.usd(NOON + HOUR / 2, NOON + HOUR) == pytest.approx(1.0)


@for_each("seed", range(50))
def test_the_sum_is_that_of_its_spells(seed: int) -> None:
    draw = Random(seed)
    every = []
    for _ in range(draw.randint(0, 6)):
        ats = sorted(draw.sample(range(100), draw.randint(1, 5)))
        ends = draw.choice((None, NOON + HOUR * (ats[-1] + draw.randint(1, 9))))
        every += spells([(NOON + HOUR * at, draw.uniform(0, 9)) for at in ats], ends)
    whole = Sum(every)
    for _ in range(20):
        instant = NOON + HOUR * draw.uniform(-5, 120)
        holding = [
            one for one in every if one.began_at <= instant and (one.ended_at is None or instant < one.ended_at)
        ]
        usd, count = whole.at(instant)
        assert count == len(holding)
        assert usd == pytest.approx(sum(one.usd_per_hour for one in holding))
    assert whole.usd(NOON, NOON + 90 * HOUR) == pytest.approx(
        whole.usd(NOON, NOON + 31.5 * HOUR) + whole.usd(NOON + 31.5 * HOUR, NOON + 90 * HOUR)
    )


def test_samples_have_both_ends() -> None:
    assert instants(NOON, NOON + 2 * HOUR, 3) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert instants(NOON, NOON + HOUR, 2) == [NOON, NOON + HOUR]
    since = datetime.min.replace(tzinfo=UTC)
    found = instants(since, NOON, 1000)
    assert (len(found), found[0], found[-1]) == (1000, since, NOON)


def a_held_plan(usd: float | None, hour: float, *, of: str = "chat", id: UUID | None = None) -> HeldPlan:
    return HeldPlan(id, of, 1, NOON + hour * HOUR, usd, None)


def test_plans_hold_until_the_next_or_until_their_deployment_is_deleted() -> None:
    """Two that were called chat: of the first, $2 and $3; of the second, $5. And one that stands."""
    plans = [
        a_held_plan(2.0, 0),
        a_held_plan(7.0, 0.5, of="docs", id=UUID(int=1)),
        a_held_plan(3.0, 1),
        a_held_plan(5.0, 4),
    ]
    whole = Sum(planned_spells(plans, {"chat": [NOON + 2 * HOUR, NOON + 6 * HOUR]}))
    assert [whole.at(NOON + i * HOUR)[0] for i in range(8)] == [2, 10, 7, 7, 12, 12, 7, 7]
    assert [whole.at(NOON + i * HOUR)[1] for i in range(8)] == [1, 2, 1, 1, 2, 2, 1, 1]


def test_a_plan_that_was_stored_after_its_deletion_never_held() -> None:
    """By the clocks of two processes."""
    assert planned_spells([a_held_plan(2.0, 0), a_held_plan(3.0, 2)], {"chat": [NOON + HOUR]}) == [
        Spell(NOON, NOON + HOUR, 2.0)
    ]
    assert planned_spells([a_held_plan(2.0, 0)], {}) == []


def test_a_deployment_whose_machines_were_given_up_costs_nothing() -> None:
    me = UUID(int=1)
    found = planned_spells([a_held_plan(2.0, 0, id=me), a_held_plan(None, 1, id=me)], {})
    assert found == [Spell(NOON, NOON + HOUR, 2.0)]


def test_steps_have_the_mean_of_the_quarters_that_are_known() -> None:
    quarter = timedelta(minutes=15)
    known = {NOON: 2.0, NOON + 3 * quarter: 4.0, NOON + 8 * quarter: 0.0, NOON + 9 * quarter: 1.0}
    assert means_by_step(known, NOON, HOUR) == {0: 3.0, 2: 0.5}
    assert means_by_step(known, NOON, quarter) == {0: 2.0, 3: 4.0, 8: 0.0, 9: 1.0}


def test_the_plan_that_holds_is_the_last_that_came() -> None:
    plans = [(NOON, {"chat": 2.0}), (NOON + HOUR, {"chat": 3.0})]
    assert [dict(rates_at(plans, NOON + i * HOUR)) for i in (-1, 0, 0.5, 1, 9)] == [
        {}, {"chat": 2.0}, {"chat": 2.0}, {"chat": 3.0}, {"chat": 3.0},
    ]  # fmt: skip
