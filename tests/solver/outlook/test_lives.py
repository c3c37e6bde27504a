"""What looks tell of lives: ages, ends between looks, and what nobody watched."""

from typing import Any

import numpy as np
import pytest

from sutler.solver.arrays import FloatArray
from sutler.solver.outlook.lives import DAY_S, HOUR_S, OLD, UNKNOWN_AGE, Lives, Spell, time_class, watched
from tests.solver.outlook.builders import MONDAY_S, a_slot, looks

LOOKS = looks(2)


def of_one(*spells: Spell, looks_s: FloatArray = LOOKS) -> Lives:
    return watched([a_slot()], [spells], looks_s)


def at(hours: float) -> float:
    return MONDAY_S + hours * HOUR_S


def by_age(lives: Lives) -> dict[int, Any]:
    ages = set(lives.atoms.age.tolist())
    return {age: pytest.approx(lives.atoms.hours[lives.atoms.age == age].sum(), abs=1e-9) for age in ages}


def test_a_life_seen_from_begin_to_end_counts_up_to_half_way_to_the_look_that_missed_it() -> None:
    lives = of_one(Spell(at(5), at(7)))
    assert lives.atoms.deaths.sum() == 1
    assert by_age(lives) == {0: 0.5, 1: 0.5, 2: 1.0 - 150 / HOUR_S}
    assert lives.since_s == {}


def test_what_is_there_is_watched_until_the_last_look() -> None:
    lives = of_one(Spell(at(40)))
    assert lives.atoms.deaths.sum() == 0
    assert lives.atoms.hours.sum() == pytest.approx(8 - 300 / HOUR_S)
    assert lives.since_s == {a_slot(): (at(40), True)}


@pytest.mark.parametrize("begun_h", [-70.0, 0.0])
def test_the_age_of_what_was_there_at_the_first_look_is_unknown_until_it_is_old(begun_h: float) -> None:
    lives = of_one(Spell(at(begun_h), at(30)))
    assert {int(age) for age in lives.atoms.age} == ({OLD} if begun_h < -24 else {UNKNOWN_AGE, OLD})
    assert lives.atoms.hours.sum() == pytest.approx(30 - 150 / HOUR_S)


def test_nobody_goes_while_nobody_looks() -> None:
    hours_from_the_start = np.arange(12 * 20, 12 * 25)
    some = looks(2, lost=hours_from_the_start)
    gone, stays = of_one(Spell(at(10), at(25)), looks_s=some), of_one(Spell(at(10)), looks_s=some)
    assert gone.atoms.deaths.sum() == 0
    assert gone.atoms.hours.sum() == pytest.approx(10 - 300 / HOUR_S)
    assert stays.atoms.hours.sum() == pytest.approx(48 - 10 - 5 - 2 * 300 / HOUR_S)


def test_who_comes_after_a_time_without_looks_is_of_unknown_age() -> None:
    lives = of_one(Spell(at(25)), looks_s=looks(2, lost=np.arange(12 * 20, 12 * 25)))
    assert lives.since_s == {a_slot(): (at(25), False)}


def test_what_we_rented_was_watched_and_did_not_go() -> None:
    lives = of_one(Spell(at(5), at(7), is_ours=True), Spell(at(9), at(10)))
    assert (lives.atoms.deaths.sum(), lives.counts.tolist()) == (1, [2])


def test_of_one_look_it_is_known_that_it_was_there_and_nothing_more() -> None:
    lives = of_one(Spell(at(0)), looks_s=LOOKS[:1])
    assert (len(lives.atoms.slot), lives.since_s) == (0, {a_slot(): (at(0), False)})


def test_absences_are_watched_until_somebody_finds_it_again_or_the_end() -> None:
    lives = of_one(Spell(at(5), at(7)), Spell(at(10), at(47)))
    assert lives.returns.sum() == 1
    assert lives.returns[0, 3] == 1  # after two to four hours
    assert lives.away_hours[0, :2].tolist() == pytest.approx([1.0, 1.0 - 300 / HOUR_S])
    assert lives.away_hours.sum() == pytest.approx(3 + 1 - 300 / HOUR_S)


def test_without_looks_nothing_is_known() -> None:
    assert len(of_one(Spell(at(0)), looks_s=np.zeros(0)).atoms.slot) == 0


def test_time_classes_tell_times_of_day_and_weekends_apart() -> None:
    week = np.array([time_class(MONDAY_S + day * DAY_S + hour * HOUR_S) for day in range(7) for hour in range(24)])
    assert sorted(set(week.tolist())) == list(range(12))
    assert week[:24].tolist() == [hour // 4 for hour in range(24)]
    assert set(week[5 * 24 :].tolist()) == set(range(6, 12))
