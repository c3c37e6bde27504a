"""Amounts that change in steps: added up, sampled and paid."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from sutler.service.deployments.history.costs import Spell, Sum, instants, spells
from tests.looped import for_each

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_each_amount_holds_until_the_next() -> None:
    held = spells([(NOON, 2.0), (NOON + HOUR, 3.0)])
    assert held == [Spell(NOON, NOON + HOUR, 2.0), Spell(NOON + HOUR, None, 3.0)]
    assert spells([(NOON, 2.0)], NOON + HOUR) == [Spell(NOON, NOON + HOUR, 2.0)]
    assert spells([], NOON) == []


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
