"""Chances against truths: hazards that are known, lives that do not end at one rate, and cells that are worth it."""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import CensoredData, ecdf

from sutler.solver.outlook.cells import chosen_chain, estimates
from sutler.solver.outlook.chances import Prospects, any_of, survival
from sutler.solver.outlook.hazards import PRIOR, Cells, Rate
from sutler.solver.outlook.lives import DAY_S, HOUR_S, Lives, Slot, Spell, joined, watched
from tests.solver.outlook.builders import MONDAY_S, AliveAndGone, a_slot, exponential, looks, watched_machines

DRAWS = 200
AHEAD_H = 3.0


def away_h(chance: np.random.Generator) -> float:
    """Longer than several looks are apart: what was away for less was never seen to be."""
    return 0.4 + float(chance.exponential(3.0))


def a_market(seed: int) -> tuple[Lives, dict[tuple[str, str], float], float]:
    """Two clouds with three GPU types, each with its own rate, and polls of which some, and once many, failed."""
    chance = np.random.default_rng(seed)
    usual = np.exp(chance.normal(np.log(0.1), 1.0))
    looks_s = looks(float(chance.uniform(1, 10)), every_s=600.0)
    failed = chance.uniform(size=len(looks_s)) < 0.03
    begun = int(chance.integers(1, len(looks_s) - 40))
    failed[begun : begun + min(30, len(looks_s) // 4)] = True
    looks_s = looks_s[~failed]
    rates: dict[tuple[str, str], float] = {}
    machines: list[tuple[Slot, AliveAndGone]] = []
    for kind in ((cloud, gpu) for cloud in ("north", "south") for gpu in ("a", "b", "c")):
        rates[kind] = float(usual * np.exp(chance.normal(0, 0.7)))
        for i in range(int(chance.integers(2, 15))):
            slot = a_slot(f"{kind}{i}", provider=kind[0], gpu=kind[1], host=f"host{i // 3}")
            machines.append((slot, AliveAndGone(exponential(1 / rates[kind]), away_h)))
    return watched_machines(machines, looks_s, chance), rates, float(looks_s[-1])


@pytest.mark.slow
def test_intervals_cover_what_is_true() -> None:
    covered = []
    for seed in range(DRAWS):
        lives, rates, now_s = a_market(seed)
        there = list(lives.since_s)
        if there:
            slot = there[seed % len(there)]
            found = Prospects(estimates(lives)).of(slot, at_s=now_s, within_s=AHEAD_H * HOUR_S)
            assert found is not None
            assert found.stays.low_fraction <= found.stays.fraction <= found.stays.high_fraction
            truth = np.exp(-AHEAD_H * rates[slot.provider, slot.gpu])
            covered.append(found.stays.low_fraction <= truth <= found.stays.high_fraction)
    assert len(covered) > 0.95 * DRAWS
    assert 0.85 <= np.mean(covered) <= 0.95


def young_ones_go(chance: np.random.Generator) -> float:
    """Two of three go within an hour on average, the third stays for four days."""
    return float(chance.exponential(1.0 if chance.uniform() < 2 / 3 else 96.0))


def test_lives_that_end_young_are_told_by_age_and_agree_with_kaplan_and_meier() -> None:
    chance = np.random.default_rng(1)
    kind = AliveAndGone(young_ones_go, away_h)
    slots = [a_slot(f"m{i}") for i in range(60)]
    lives = watched_machines([(slot, kind) for slot in slots], looks(10), chance)
    found = estimates(lives)
    assert "age" in found.cells["north"].chain
    times = [young_ones_go(chance) for _ in range(4000)]
    curve = ecdf(CensoredData(uncensored=[t for t in times if t < 24], right=[24.0 for t in times if t >= 24])).sf
    prospects = Prospects(found)
    for hours in (1.0, 3.0, 12.0):
        new = prospects.of(a_slot("new"), at_s=MONDAY_S + 10 * DAY_S, within_s=hours * HOUR_S)
        assert new is not None
        assert new.stays.fraction == pytest.approx(float(curve.evaluate(hours)), abs=0.06)


def mixed(hosts: Sequence[float], seed: int) -> Lives:
    """One cloud, one GPU type; each host's machines have a rate of their own."""
    chance = np.random.default_rng(seed)
    machines = [
        (a_slot(f"m{i}-{j}", host=f"h{i}"), AliveAndGone(exponential(1 / rate), away_h))
        for i, rate in enumerate(hosts)
        for j in range(4)
    ]
    return watched_machines(machines, looks(8), chance)


def test_hosts_are_told_apart_where_they_differ() -> None:
    assert "host" in chosen_chain(mixed([0.02, 0.6] * 6, 1), "north")


def test_nothing_is_told_apart_that_does_not_differ() -> None:
    chains = [chosen_chain(mixed([0.1] * 12, seed), "north") for seed in range(8)]
    assert sum(chain == ("provider", "gpu") for chain in chains) >= 5, chains


def test_of_a_cloud_that_nobody_watched_the_others_tell_and_with_nothing_the_prior() -> None:
    cells = Cells(mixed([0.1] * 4, 1), ("provider", "gpu"))
    elsewhere = cells.rate(a_slot("x", provider="south", gpu="t4"), 0, 0)
    assert elsewhere.per_hour == pytest.approx(0.1, rel=0.3)
    assert elsewhere.shape < cells.rate(a_slot("x"), 0, 0).shape
    assert Cells(joined([]), ("provider", "gpu")).rate(a_slot("x"), 0, 0) == PRIOR


def test_a_kind_that_nobody_watched_has_no_prospect() -> None:
    prospects = Prospects(estimates(mixed([0.1] * 4, 1)))
    assert prospects.of(a_slot("x", gpus=8), at_s=MONDAY_S, within_s=600) is None


def test_more_time_and_fewer_lives_make_less_sure() -> None:
    known, vague = Rate(50, 500), Rate(1, 10)
    sure, unsure = survival([(known, 1)]), survival([(vague, 1)])
    assert sure.fraction > survival([(known, 2)]).fraction
    assert unsure.low_fraction < sure.low_fraction < sure.high_fraction < unsure.high_fraction


def test_of_one_rate_the_interval_is_exact() -> None:
    rates = np.random.default_rng(1).gamma(5.0, 1 / 40.0, 400_000)
    chance, low, high = astuple(survival([(Rate(5, 40), 2.0), (Rate(5, 40), 4.0)]))
    true = np.exp(-6 * rates)
    assert (chance, low, high) == pytest.approx((true.mean(), *np.quantile(true, [0.05, 0.95])), abs=2e-3)


def test_one_of_several_is_surer_than_each() -> None:
    assert any_of([0.5, 0.5]) == 0.75
    assert any_of([]) == 0


def test_the_figures_say_what_was_seen() -> None:
    looks_s = looks(1)
    spells = [Spell(MONDAY_S + 6 * HOUR_S, MONDAY_S + 8 * HOUR_S), Spell(MONDAY_S + 20 * HOUR_S)]
    lives = watched([a_slot("a"), a_slot("b")], [spells, spells[:1]], looks_s)
    found = Prospects(estimates(lives)).of(a_slot("a"), at_s=float(looks_s[-1]), within_s=600)
    assert found is not None
    assert (found.machines, found.lives, found.deaths) == (2, 3, 2)
    assert found.machine_hours == pytest.approx(8 - 600 / HOUR_S, abs=0.01)
    assert found.rate_low_per_hour < found.rate_per_hour < found.rate_high_per_hour
    assert found.stays.fraction < found.is_there.fraction < 1


def test_what_comes_back_soon_is_there_though_it_went() -> None:
    """Up for two hours and away for half an hour on average; the truth is that of a process with two states."""
    chance, kind = np.random.default_rng(1), AliveAndGone(exponential(2.0), exponential(0.5))
    slots = [a_slot(f"m{i}") for i in range(60)]
    looks_s = looks(6, every_s=60.0)
    prospects = Prospects(estimates(watched_machines([(slot, kind) for slot in slots], looks_s, chance)))
    found = prospects.of(a_slot("new"), at_s=float(looks_s[-1]), within_s=0.5 * HOUR_S)
    assert found is not None
    assert found.stays.fraction == pytest.approx(np.exp(-0.5 / 2), abs=0.02)
    assert found.is_there.fraction == pytest.approx(1 - 0.2 * (1 - np.exp(-2.5 * 0.5)), abs=0.02)
