"""A comparison as people read it: who wins, by how much, and what is kept apart."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sutler.service.cli.terminal.output import show
from sutler.service.cli.views.comparison import claim, comparison_view
from sutler.service.comparing.compared import comparison_of
from sutler.service.comparing.sweeping import Sweep, frontier_of
from sutler.service.documents.comparison import ComparisonDocument
from sutler.solver.plan import Conflict
from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.strategies.comparing import Ran
from tests.service.builders import NOW
from tests.service.comparing.builders import a_comparison, a_strategy, a_translation, not_applicable, ran, sutler


def shown(comparison: ComparisonDocument, capfd: pytest.CaptureFixture[str]) -> str:
    show(*comparison_view(comparison))
    text = capfd.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 100
    return text


@pytest.mark.parametrize(
    ("objective", "rival", "words"),
    [
        ("max_throughput", 3.2, "sutler serves 4.000 requests/s for 9.050 $/h: 25 % more than the best rival"),
        ("min_makespan", 5.0, "sutler is done in 4.000 s for 9.050 $/h: 20 % less time than the best rival"),
        ("min_cost", 5.0, "sutler carries the load for 4.000 $/h: 20 % cheaper than the best rival"),
        ("min_power", 5.0, "sutler carries the load with 4.000 W for 9.050 $/h: 20 % less power than the best rival"),
    ],
)
def test_the_first_line_says_by_how_much_sutler_is_better(objective: ObjectiveKind, rival: float, words: str) -> None:
    found = claim(a_comparison(ran(a_strategy("h100"), rival, objective=objective), objective=objective))
    assert found.startswith(f"{words} on the same supply, h100 (")


@pytest.mark.parametrize(
    ("value", "rival", "words"),
    [
        (0.0, 5.0, "for 0 $/h: 100 % cheaper than the best rival on the same supply, h100 (5.000 $/h)"),
        (0.0, 0.0, "for 0 $/h: as good as the best rival on the same supply, h100 (0 $/h)"),
        (3.0, 0.0, "for 3.000 $/h, 3.000 $/h worse than the best rival on the same supply, h100 (0 $/h): "),
    ],
)
def test_savings_are_said_where_a_plan_costs_nothing(value: float, rival: float, words: str) -> None:
    plans = (ran(sutler(), value, objective="min_cost"), ran(a_strategy("h100"), rival, objective="min_cost"))
    assert words in claim(a_comparison(*plans, objective="min_cost"))


def test_a_difference_within_the_gap_is_none() -> None:
    found = claim(a_comparison(ran(a_strategy("h100"), 3.998)))
    assert "as good as the best rival on the same supply, h100 (3.998 req/s)" in found


def test_a_better_rival_is_admitted_with_what_to_do() -> None:
    early = ran(sutler(), 4.0, status="feasible", relative_gap=0.3)
    assert claim(a_comparison(early, ran(a_strategy("lucky"), 5.0))).endswith(
        "20 % worse than the best rival on the same supply, lucky (5.000 req/s): its search was ended early, raise "
        "--time-limit-s"
    )
    coarse = claim(a_comparison(ran(a_strategy("lucky"), 4.1)))
    assert coarse.endswith("the gap that was asked for allows that, lower solver.relative_gap")
    settings = ("search.disaggregation: auto", "search.power_caps_fraction: [0.5]")
    freer = replace(ran(a_strategy("freer"), 5.0), beyond=settings)
    assert claim(a_comparison(freer)).endswith(f"{' and '.join(settings)} lets sutler do as it does")


def test_without_a_rival_that_is_said() -> None:
    assert claim(a_comparison(ran(a_strategy("slow"), None))).endswith("; no rival has a plan on the same supply")


@pytest.mark.parametrize(
    ("status", "words"),
    [("infeasible", "Infeasible: no plan meets every limit"), ("unknown", "raise it with --time-limit-s")],
)
def test_without_a_plan_of_sutler_nothing_is_claimed(status: str, words: str) -> None:
    assert words in claim(a_comparison(ran(sutler(), None, status=status), ran(a_strategy("h100"), 3.0)))


def test_rows_stand_below_their_family_with_a_bar_each(capfd: pytest.CaptureFixture[str]) -> None:
    results = [ran(a_strategy("h100"), 2.0), ran(a_strategy("even", "ablation"), 1.0), ran(a_strategy("a40"), 1.0)]
    text = shown(a_comparison(*results), capfd)
    rows = [line.split() for line in text.split("On the market as it is")[1].split("What they rent")[0].splitlines()]
    names = [row[0] for row in rows if row]
    assert names[2:] == ["sutler", "homogeneous", "h100", "a40", "ablation", "even"]
    assert [len(row[1]) for row in rows if len(row) > 1 and row[1][0] == "█"] == [16, 8, 4, 4]


def test_supply_that_the_market_does_not_have_stands_apart(capfd: pytest.CaptureFixture[str]) -> None:
    text = shown(a_comparison(ran(a_strategy("rich", own_market=True), 8.0)), capfd)
    before, after = text.split("On supply that the market does not have")
    assert "rich" not in before
    assert "rich" in after
    assert "1 of them on a market of their own" in before


def test_what_is_not_applicable_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    text = shown(a_comparison(not_applicable(a_strategy("picky"))), capfd)
    assert "Not applicable\n  - picky: it needs a budget: set budget_usd_per_hour" in text


def test_an_infeasible_problem_says_what_has_to_give(capfd: pytest.CaptureFixture[str]) -> None:
    conflict = Conflict("budget", 9.0, 2.0, "usd_per_hour", "raise budget_usd_per_hour to 9")
    text = shown(a_comparison(ran(sutler(), None, status="infeasible", conflicts=(conflict,))), capfd)
    assert "What has to give" in text
    assert "raise budget_usd_per_hour to 9" in text


def test_a_long_name_and_a_large_value_fit(capfd: pytest.CaptureFixture[str]) -> None:
    name = "homogeneous-unlimited/" + "rtx-pro-6000-blackwell-server-" * 3
    text = shown(a_comparison(ran(a_strategy(name, own_market=True), 123_456_789.0)), capfd)
    assert "123,456,789" in text


@pytest.mark.parametrize("points", [2, 7, 8, 30])
def test_a_sweep_fits_however_many_points_it_has(points: int, capfd: pytest.CaptureFixture[str]) -> None:
    def run(problem: Problem) -> Sequence[Ran]:
        budget = problem.budget_usd_per_hour or 0.0
        return (
            ran(sutler(), 1234.5 * budget, cost_usd_per_hour=budget),
            ran(a_strategy("h100"), budget, cost_usd_per_hour=budget),
            ran(a_strategy("rich", own_market=True), 9e5 * budget, cost_usd_per_hour=budget),
        )

    translation = a_translation()
    sweep = Sweep("budget_usd_per_hour", tuple(float(1000 + at) for at in range(points)))
    frontier = frontier_of(translation.problem, sweep, run)
    comparison = comparison_of(run(translation.problem), translation, created_at=NOW, frontier=frontier)
    text = shown(comparison, capfd)
    assert "At other budgets (req/s, by $/h;" in text
    assert text.count("*") >= points
    assert all(f"{1000 + at:,} $/h" in text for at in range(points))


def test_who_has_no_plan_at_any_budget_takes_no_row(capfd: pytest.CaptureFixture[str]) -> None:
    results = (ran(sutler(), 4.0), ran(a_strategy("slow"), None), ran(a_strategy("lost"), None))
    frontier = frontier_of(a_translation().problem, Sweep("budget_usd_per_hour", (1.0, 2.0)), lambda _: results)
    text = shown(comparison_of(results, a_translation(), created_at=NOW, frontier=frontier), capfd)
    assert "without any plan: slow, lost" in text


def test_the_same_reason_is_given_once(capfd: pytest.CaptureFixture[str]) -> None:
    text = shown(a_comparison(*(not_applicable(a_strategy(name)) for name in ("h100", "a40"))), capfd)
    assert text.count("it needs a budget") == 1
    assert "- h100, a40: it needs a budget" in text


def test_strategies_that_differ_in_the_gpu_are_described_once(capfd: pytest.CaptureFixture[str]) -> None:
    text = shown(a_comparison(*(ran(a_strategy(f"alone/{gpu}"), 1.0) for gpu in ("h100", "a40"))), capfd)
    assert "- alone/*: what alone/h100 does, and so on (A paper, section 1)" in text


def test_a_rejected_plan_is_not_shown_as_one(capfd: pytest.CaptureFixture[str]) -> None:
    broken = replace(ran(a_strategy("broken"), 9.0), violations=("supply/vastai: 9 machines",))
    text = shown(a_comparison(broken), capfd)
    assert "9.000" not in text
    assert "defect of sutler: supply/vastai: 9 machines" in text
