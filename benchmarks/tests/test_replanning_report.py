"""The report of the simulated day: figures that add up, targets that are told when they are missed, pictures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.day.comparison import HEADROOMS, Compared, PolicyName
from benchmarks.day.pictures import draw
from benchmarks.day.report import BIN_S, Report, curves_of, missed, report_of, text_of
from benchmarks.day.simulation import Outcome, outcome_of
from benchmarks.day.world import Span
from benchmarks.machine import Machine

MACHINE = Machine(
    cpu="A", cores=2, memory_gb=8.0, system="Linux x86_64", python="3.11", packages={}, sutler="0", date="2026-01-01"
)


def outcome(*, usd_per_hour: float, idle_machines: int = 0, served_fraction: float = 1.0) -> Outcome:
    """Two hours of 10 requests/s; in the first of them machines are idle."""
    spans = [
        Span(0.0, 3600.0, 10.0, 10.0 * served_fraction, 12.0, usd_per_hour, idle_machines, 2 * idle_machines),
        Span(3600.0, 7200.0, 10.0, 10.0, 14.0, usd_per_hour, 0, 0),
    ]
    return outcome_of(spans, revisions=3, started=4, stopped=2, lost=1, gpus=6.0)


def compared(seed: int, *, usd_per_hour: float = 8.0, idle_machines: int = 1) -> Compared:
    outcomes: dict[PolicyName, Outcome] = {
        "sutler": outcome(usd_per_hour=usd_per_hour, idle_machines=idle_machines, served_fraction=0.98),
        "never": outcome(usd_per_hour=10.0, served_fraction=0.98),
        "always": outcome(usd_per_hour=9.0, idle_machines=20),
        "oracle": outcome(usd_per_hour=5.0),
    }
    return Compared(seed, 1.4, True, outcomes, autoscaled(usd_per_hour))


def autoscaled(usd_per_hour: float) -> dict[float, Outcome]:
    """With 10 % of headroom as dear as sutler, with 50 % as good."""
    poor = outcome(usd_per_hour=usd_per_hour - 1.0, served_fraction=0.9)
    as_dear = outcome(usd_per_hour=usd_per_hour, served_fraction=0.95)
    good = outcome(usd_per_hour=12.0, served_fraction=0.98)
    return {each: poor if each < 0.1 else as_dear if each < 0.5 else good for each in HEADROOMS}


def report(found: Sequence[Compared]) -> Report:
    return report_of(MACHINE, found)


def test_the_figures_of_a_day_add_up() -> None:
    made = outcome(usd_per_hour=8.0, idle_machines=3, served_fraction=0.9)
    assert made.arrived == pytest.approx(72_000.0)
    assert made.unserved == pytest.approx(3_600.0)
    assert made.usd == pytest.approx(16.0)
    assert made.usd_per_million_served == pytest.approx(16.0 / 0.0684)
    assert [made.idle_machine_hours, made.idle_gpu_hours] == pytest.approx([3.0, 6.0])
    assert made.under_capacity_s == 3600.0


def test_a_hundredth_unserved_is_not_yet_under_capacity() -> None:
    assert outcome(usd_per_hour=8.0, served_fraction=0.991).under_capacity_s == 0.0


def test_savings_and_churn_are_against_their_own_baselines() -> None:
    (seed,) = report([compared(101)])["seeds"]
    assert seed["saving_fraction"] == pytest.approx(0.2)
    assert seed["churn_fraction"] == pytest.approx(0.05)


def test_the_autoscaler_has_one_headroom_for_all_seeds() -> None:
    made = report([compared(101), compared(102, usd_per_hour=9.0)])
    assert (made["headroom_fraction"], made["autoscaler_serves_as_much"]) == (0.5, True)
    assert made["as_dear_headroom_fraction"] == 0.1
    assert [seed["policies"]["autoscaler"]["usd"] for seed in made["seeds"]] == [24.0, 24.0]
    shown = text_of(made)
    assert "with 50% headroom, which serves as much, per served request of all seeds: 29.2%, target 10%" in shown
    assert "against those of the autoscaler with 10%, which costs as much: 40%, target 50%" in shown


def test_an_autoscaler_that_never_serves_as_much_is_compared_where_it_serves_most() -> None:
    one = compared(101)
    never_enough = {each: replace(day, served=0.9 * day.arrived) for each, day in one.autoscaled.items()}
    made = report([replace(one, autoscaled=never_enough)])
    assert not made["autoscaler_serves_as_much"]
    assert "which serves less with any" in text_of(made)


def test_targets_that_are_met_are_not_told_as_missed() -> None:
    assert missed(report([compared(101)])) == []


def test_each_missed_target_is_told_with_its_figure() -> None:
    (told,) = missed(report([compared(101, usd_per_hour=9.5)]))
    assert "5.0% cheaper than never" in told


def test_the_autoscaler_has_targets_of_its_own() -> None:
    one = compared(101)
    as_good = replace(one, autoscaled=dict.fromkeys(HEADROOMS, one.outcomes["sutler"]))
    assert [sentence.split(",")[0] for sentence in missed(report([as_good]))] == [
        "sutler is 0.0% cheaper than the autoscaler",
        "sutler leaves 100% of what the autoscaler leaves unserved at the same cost",
    ]


def test_the_text_has_the_worst_seed_beside_the_mean() -> None:
    shown = text_of(report([compared(101, usd_per_hour=8.0), compared(102, usd_per_hour=9.0)]))
    assert "15.0% (worst seed 10.0%), target 10%" in shown
    assert "17.00 (18.00)" in shown
    assert "MISSED" not in shown
    assert "101, 102" in shown


def test_a_curve_keeps_the_money_and_the_requests_of_its_day() -> None:
    made = outcome(usd_per_hour=8.0, idle_machines=3, served_fraction=0.9)
    curves = curves_of(made)
    assert len(curves["usd_per_hour"]) == 12
    assert sum(curves["usd_per_hour"]) * BIN_S / 3600 == pytest.approx(made.usd)
    assert sum(curves["arriving_rps"]) * BIN_S == pytest.approx(made.arrived)
    assert curves["capacity_rps"][0] == 12.0
    assert curves["capacity_rps"][-1] == 14.0


def test_pictures_are_small_and_the_same_for_the_same_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    made = report([compared(101)])
    (tmp_path / "again").mkdir()
    once, again = draw(made, tmp_path), draw(made, tmp_path / "again")
    for one, other in zip(once, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_size < 200_000
