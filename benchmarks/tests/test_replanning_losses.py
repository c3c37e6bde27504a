"""Who loses machines when: the same for every policy, as often as it is said, and together where it is said."""

import math

import pytest

from benchmarks.day.losses import (
    DOWN_S,
    FAILING_FRACTION,
    INTERRUPTED_S,
    LIFE_IN_WAVE_S,
    LIFE_S,
    OUTAGE_S,
    PROVIDERS,
    TAKEN_FRACTION,
    WAVE_S,
    WITHIN_S,
    absences,
    is_away,
    lost_at,
    outage_of,
    waves_of,
)
from benchmarks.day.traffic import DAY_S

MACHINES = 2000


def named(provider: str, number: int) -> tuple[str, str]:
    return provider, str(number)


def other(provider: str) -> str:
    return next(each for each in PROVIDERS if each != provider)


def test_the_same_machine_is_lost_at_the_same_moments_whoever_asks() -> None:
    assert absences(1, named("lium", 7), "interruptible") == absences(1, named("lium", 7), "interruptible")
    assert absences(1, named("lium", 7), "interruptible") != absences(2, named("lium", 7), "interruptible")


def test_about_one_machine_in_seven_fails_within_the_day_and_is_away_for_an_hour() -> None:
    sound = other(outage_of(1)[0])
    found = [absences(1, named(sound, number), "on_demand") for number in range(MACHINES)]
    failing = [moments[0] for moments in found if moments]
    assert len(failing) / MACHINES == pytest.approx(FAILING_FRACTION, abs=0.03)
    assert {round(end_s - begin_s) for begin_s, end_s in failing} == {DOWN_S}


def test_when_a_provider_fails_all_of_its_machines_go_at_once() -> None:
    provider, at_s = outage_of(1)
    for number in range(50):
        machine = named(provider, number)
        assert (at_s, at_s + OUTAGE_S) in absences(1, machine, "on_demand")
        assert is_away(1, machine, "on_demand", at_s + OUTAGE_S / 2)
        assert lost_at(1, machine, "on_demand", at_s - 1) <= at_s
    assert {outage_of(seed)[0] for seed in range(20)} == set(PROVIDERS)


def test_a_wave_takes_most_interruptible_machines_and_what_is_rented_in_it_again() -> None:
    (provider, at_s), *_ = waves_of(1)
    taken, listed, again = 0, 0, []
    for number in range(MACHINES):
        machine = named(provider, number)
        first_s = lost_at(1, machine, "interruptible", at_s)
        if first_s <= at_s + WITHIN_S:
            taken += 1
            again.append(lost_at(1, machine, "interruptible", first_s) - first_s)
            listed += not is_away(1, machine, "interruptible", first_s + 1)
    assert taken / MACHINES == pytest.approx(TAKEN_FRACTION, abs=0.03)
    assert listed / taken > 0.9  # the others failed or were taken alone shortly before
    soon = sum(each < LIFE_IN_WAVE_S for each in again) / len(again)
    assert soon == pytest.approx(1 - math.exp(-1), abs=0.05)
    assert sum(each < WAVE_S for each in again) / len(again) > 0.99


def test_beside_that_an_interruptible_machine_is_taken_once_in_its_life_on_average() -> None:
    own = [
        moment
        for number in range(MACHINES)
        for moment in absences(1, named("lium", number), "interruptible")
        if moment[1] - moment[0] == pytest.approx(INTERRUPTED_S)
    ]
    assert len(own) / MACHINES == pytest.approx(DAY_S / LIFE_S, rel=0.05)


def test_what_is_never_lost_is_lost_at_no_moment() -> None:
    sound = other(outage_of(1)[0])
    quiet = next(n for n in range(100) if not absences(1, named(sound, n), "on_demand"))
    assert lost_at(1, named(sound, quiet), "on_demand", 0.0) == math.inf
