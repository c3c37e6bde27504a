"""The papers' evaluations: cells have the papers' facts, summaries are what a pencil finds, the report renders."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers import cauchy, grid, melange, splitwise
from benchmarks.papers.__main__ import all_cells
from benchmarks.papers.cells import PARTS, Cell, Outcome
from benchmarks.papers.claims import MELANGE_COSTS, MELANGE_GPUS, GridClaim
from benchmarks.papers.comparing import compared
from benchmarks.papers.melange_summary import over_best, rows, saving
from benchmarks.papers.plots import PLOTS
from benchmarks.papers.report import report, write
from benchmarks.papers.report_splitwise import best_of
from benchmarks.papers.running import read, run
from benchmarks.papers.summaries import (
    SUTLER,
    beaten,
    broken,
    claimed,
    index,
    less_is_better,
    rival,
    shares,
    spread,
    standing,
    unproven,
)
from sutler.solver.checks import check

GAP = 0.002


def cell(part: str = "grid", **wanted: object) -> Cell:
    """The first cell of a part with these parameters."""
    return next(
        one for one in all_cells() if one.part == part and all(one.get(name) == wish for name, wish in wanted.items())
    )


def outcome(of: Cell, strategy: str = SUTLER, value: float | None = 10.0, bound: float | None = None) -> Outcome:
    return Outcome(of.name, strategy, "optimal", value, value if bound is None else bound)


def test_the_grid_has_a_cell_for_every_trace_availability_budget_model_and_catalogue() -> None:
    cells = [one for one in grid.cells() if one.part == "grid"]
    assert len(cells) == len({one.name for one in cells}) == 3 * 4 * 3 * 3 * 2


def test_every_cell_has_a_name_of_its_own_and_a_problem_that_makes_sense() -> None:
    cells = all_cells()
    assert len({one.name for one in cells}) == len(cells)
    for part in PARTS:
        check(cell(part).problem())


def test_an_availability_is_machines_of_eight_and_one_of_the_rest() -> None:
    offers = {offer.offer_id: offer for offer in grid.offers(grid.AVAILABILITY[2], catalog="paper_table1")}
    assert {name: (one.gpus, one.available) for name, one in offers.items()} == {
        "4090-x8": (8, 4),
        "a40-x8": (8, 1),
        "a6000-x8": (8, 2),
        "l40-x8": (8, 2),
        "a100-x7": (7, 1),
        "h100-x8": (8, 1),
        "h100-x4": (4, 1),
    }
    assert all(one.divisible and one.inter_machine_gb_per_s == 0.625 for one in offers.values())
    assert offers["a100-x7"].price_usd_per_hour == pytest.approx(7 * 1.75)


@pytest.mark.parametrize("availability", grid.AVAILABILITY)
def test_offers_hold_as_many_gpus_as_table_4(availability: int) -> None:
    totals: dict[str, int] = {}
    for offer in grid.offers(grid.AVAILABILITY[availability], catalog="paper_table1"):
        totals[offer.gpu] = totals.get(offer.gpu, 0) + offer.gpus * offer.available
    assert totals == grid.AVAILABILITY[availability]


def test_todays_figures_have_the_papers_prices() -> None:
    today = cell(catalog="default", availability=1).problem().offers
    then = cell(catalog="paper_table1", availability=1).problem().offers
    assert [one.price_usd_per_hour for one in today] == [one.price_usd_per_hour for one in then]
    assert {one.gpu for one in today} == set(grid.TODAY.values())


def test_the_mix_gives_the_small_model_four_requests_in_five() -> None:
    small, large = cell(model="both", trace=3).problem().models
    assert sum(one.demand for one in small.workloads) == pytest.approx(0.8)
    assert sum(one.demand for one in large.workloads) == pytest.approx(0.2)
    assert small.workloads[5].demand == pytest.approx(0.8 * 0.27)


def test_lengths_of_melange_keep_their_means_and_the_mix_its_shares() -> None:
    loads = melange.workloads("mixed", 10.0)
    long = [one for one in loads if one.name.startswith("pubmed")]
    assert sum(one.demand for one in loads) == pytest.approx(10.0)
    assert sum(one.demand for one in long) == pytest.approx(2.0)
    mean = sum(one.demand * one.input_tokens for one in long) / 2.0
    assert mean == pytest.approx(melange.LENGTHS["pubmed"].input_mean, rel=1e-3)
    assert max(one.input_tokens for one in melange.workloads("arena", 1.0)) < 2000


def test_costs_of_melanges_tables_are_sums_of_its_prices() -> None:
    """Table 5 at 8 req/s: an L4, two A10G, an A100 and an H100."""
    prices = melange.PRICES_USD_PER_HOUR
    mixed = prices["l4"] + 2 * prices["a10g"] + prices["a100-sxm4-80gb"] + prices["h100-sxm"]
    assert MELANGE_COSTS["mixed", 120][8][0] == pytest.approx(mixed)
    for table in MELANGE_COSTS.values():
        for paper, *singles in table.values():
            for single, gpu in zip(singles, MELANGE_GPUS, strict=True):
                # To the cent; 11 A10G are printed as 11.1.
                assert single is None or single / prices[gpu] == pytest.approx(round(single / prices[gpu]), abs=0.015)
            assert paper is not None
            assert paper <= min(single for single in singles if single is not None)


def test_cauchys_servers_hold_eight_gpus_of_each_type() -> None:
    offers = cauchy.offers()
    assert {one.gpu: one.gpus * one.available for one in offers} == {"h800-sxm": 8, "a800-pcie-80gb": 8, "h20": 8}
    # 744 tokens 54 times a second for 10 $/h.
    assert cauchy.tokens_per_usd("dailymail", 54.0, 10.0) == pytest.approx(744 * 54 * 360)


def test_seventy_dgx_a100_draw_as_much_as_forty_dgx_h100() -> None:
    problem = cell("splitwise", goal="iso-power").problem()
    watts = {one.gpu: (problem.gpus[one.gpu].tdp_watts or 0.0) * one.gpus for one in problem.offers}
    assert problem.limits.max_power_watts == pytest.approx(40 * watts[splitwise.H100])
    assert problem.limits.max_power_watts == pytest.approx(70 * watts[splitwise.A100])
    assert cell("splitwise", goal="iso-cost").problem().budget_usd_per_hour == pytest.approx(40 * 37.6)


def test_a_design_is_asked_under_the_settings_that_it_needs() -> None:
    allowed = {one.get("allowed"): one for one in splitwise.cells() if one.get("goal") == "least-power"}
    assert {name: one.problem().search.disaggregation for name, one in allowed.items()} == {
        "together": "off",
        "apart": "auto",
        "apart and capped": "auto",
    }
    assert [name for name, one in allowed.items() if one.problem().search.power_caps_fraction] == ["apart and capped"]
    assert all(one.strategies[0] == SUTLER for one in allowed.values())
    assert not [one for one in splitwise.cells() if one.name.endswith("iso-cost/apart and capped/0.6")]


def test_limits_of_splitwise_are_multiples_of_the_unloaded_machine() -> None:
    limits = {(one.metric, one.percentile): one.seconds for one in splitwise.served("llama-2-70b", "coding").slo}
    assert len(limits) == 9
    assert limits["ttft", 99] == pytest.approx(3 * limits["ttft", 50])
    assert limits["e2e", 90] == pytest.approx(1.2 * limits["e2e", 50])
    assert limits["e2e", 50] == pytest.approx(1.25 * (limits["ttft", 50] / 2 + 12 * limits["tpot", 50] / 1.25))


H100_CLAIM = GridClaim("", "", "gain", ("h100/unlimited", "a6000/unlimited"), ("llama-3-70b",), traces=(1,))


def two_cells() -> tuple[Cell, Cell]:
    cells = [one for one in grid.cells() if one.name.startswith("grid/paper_table1/llama-3-70b/1/1/")]
    return cells[0], cells[1]


def test_gains_are_over_every_rival_or_over_the_best_of_them() -> None:
    """10 against 8 and 5, then 12 against 15: 25 %, 100 %, -20 %; over the best 25 % where both have a plan."""
    first, second = two_cells()
    h100, a6000 = "homogeneous-unlimited/h100", "homogeneous-unlimited/a6000"
    found = index(
        [
            outcome(first),
            outcome(first, h100, 8.0),
            outcome(first, a6000, 5.0),
            outcome(second, value=12.0),
            outcome(second, h100, 15.0),
            outcome(second, a6000, None),
        ]
    )
    gains = claimed(H100_CLAIM, two_cells(), found, catalog="paper_table1")
    assert gains == pytest.approx([0.25, 1.0, -0.2])
    best = claimed(replace(H100_CLAIM, best=True), two_cells(), found, catalog="paper_table1")
    assert best == pytest.approx([0.25])
    made = spread(gains)
    assert made is not None
    assert (made.pairs, made.behind) == (3, 1)
    assert (made.mean, made.least, made.most) == pytest.approx((0.35, -0.2, 1.0))


def test_losses_are_of_sutlers_value() -> None:
    first, _ = two_cells()
    claim = GridClaim("", "", "loss", ("round-robin-assignment",), ("llama-3-70b",))
    found = index([outcome(first), outcome(first, "round-robin-assignment", 7.0)])
    assert claimed(claim, [first], found, catalog="paper_table1") == pytest.approx([0.3])
    assert claimed(claim, [first], found, catalog="default") == []


def test_a_claim_without_outcomes_has_no_spread() -> None:
    assert spread(claimed(H100_CLAIM, two_cells(), {}, catalog="paper_table1")) is None


def test_rivals_are_named_as_the_catalogue_names_gpus() -> None:
    assert rival("h100", "default") == "homogeneous/h100-sxm"
    assert rival("4090/unlimited", "paper_table1") == "homogeneous-unlimited/4090"
    assert rival("hexgen/even", "default") == "hexgen/even"


@pytest.mark.parametrize(
    ("theirs", "bound", "expected"),
    [(10.01, 10.02, []), (10.5, 11.0, [False]), (10.5, 10.02, [True])],
    ids=["within the gap", "within what is unproven", "beyond the bound"],
)
def test_a_rival_beyond_the_bound_is_a_contradiction(theirs: float, bound: float, expected: list[bool]) -> None:
    first, _ = two_cells()
    found = index([outcome(first, bound=bound), outcome(first, "round-robin-assignment", theirs)])
    assert [one.contradicts for one in beaten([first], found, gap=GAP)] == expected


def test_a_rival_with_supply_of_its_own_may_win() -> None:
    first, _ = two_cells()
    rich = replace(outcome(first, "homogeneous-unlimited/h100", 20.0), own_market=True)
    assert beaten([first], index([outcome(first), rich]), gap=GAP) == []


def test_a_rival_with_a_plan_where_sutler_has_none_is_told() -> None:
    first, _ = two_cells()
    none = replace(outcome(first), value=None, bound=None, status="infeasible")
    theirs = outcome(first, "greedy-cheapest", 1.0)
    assert [one.contradicts for one in beaten([first], index([none, theirs]), gap=GAP)] == [True]
    stopped = replace(none, status="unknown")
    assert [one.contradicts for one in beaten([first], index([stopped, theirs]), gap=GAP)] == [False]


def test_the_standing_counts_every_rival_on_the_same_supply() -> None:
    """Of 10 requests/s with a gap of 2 %: 9 is less, 9.9 as good, 11 better."""
    first, second = two_cells()
    found = index(
        [
            outcome(first),
            outcome(first, "greedy-cheapest", 9.0),
            outcome(first, "hexgen/even", 9.9),
            outcome(first, "hexgen/ours", 11.0),
            outcome(first, "uniform-composition", None),
            replace(outcome(first, "homogeneous-unlimited/h100", 20.0), own_market=True),
            outcome(second, "greedy-cheapest", 9.0),
        ]
    )
    made = standing("grid", [first, second], found, gap=0.02)
    assert (made.cells, made.ahead, made.level, made.behind, made.alone) == (1, 1, 1, 1, 1)


def test_where_less_is_better_the_cheaper_rival_wins() -> None:
    cheap = cell("melange")
    assert less_is_better(cheap)
    found = index([outcome(cheap, bound=9.9), outcome(cheap, "melange", 9.0)])
    assert [one.contradicts for one in beaten([cheap], found, gap=GAP)] == [True]
    assert less_is_better(cell("splitwise", goal="least-power"))
    assert not less_is_better(cell("splitwise", goal="iso-cost"))


def test_open_gaps_and_plans_that_do_not_verify_are_counted() -> None:
    first, second = two_cells()
    bad = replace(outcome(second), violations=("too dear",))
    found = index([outcome(first, bound=11.0), bad])
    assert [one.cell for one in unproven([first, second], found, gap=GAP)] == [first.name]
    assert broken(found) == [bad]


def test_shares_are_means_over_cells() -> None:
    """All on H100, then half on 4090: three quarters and a quarter."""
    first, second = two_cells()
    one = replace(outcome(first), gpu_usd_per_hour={"h100": 9.0})
    other = replace(outcome(second), gpu_usd_per_hour={"h100": 6.0, "4090": 6.0})
    found = shares([first, second], index([one, other]), served=False)
    assert found == pytest.approx({"data centre": 0.75, "workstation": 0.0, "consumer": 0.25})


def test_savings_are_of_the_single_fleets_cost() -> None:
    assert saving(3.0, 4.0) == pytest.approx(0.25)
    assert saving(3.0, None) is None
    assert over_best(3.0, (None, 6.0, 4.0)) == pytest.approx(0.25)
    assert over_best(3.0, (None, None)) is None


def test_rows_of_melange_stand_beside_the_papers() -> None:
    first = cell("melange", dataset="arena", tpot_ms=120, rate=4)
    (row,) = rows([first], index([outcome(first, value=4.0), outcome(first, "homogeneous/l4", 5.0)]))
    assert (row.paper, row.papers_singles) == (4.37, (7.516, 7.34, 6.06, 6.3))
    assert row.ours == {SUTLER: 4.0, "melange": None}
    assert row.singles == (None, None, None, 5.0)


def test_a_design_is_given_the_utilisation_at_which_it_does_best() -> None:
    cells = [one for one in splitwise.cells() if one.get("goal") == "least-cost"][:2]
    found = index([outcome(cells[0], value=9.0), outcome(cells[1], value=7.0)])
    best = best_of(cells, found, SUTLER)
    assert best is not None
    assert best[0] == cells[1]
    assert best_of(cells, found, "splitwise/aa") is None


def tens(asked: Cell) -> Sequence[Outcome]:
    return [outcome(asked, name) for name in asked.strategies]


def test_an_interrupted_run_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    kept = tmp_path / "build" / "kept.jsonl"
    told: list[str] = []
    first, second = two_cells()
    run([first], jobs=1, kept=kept, tell=told.append, compare=tens)
    with kept.open("a") as file:
        file.write('{"run": "an older one", "cell": "x"}\n{"cell": "half a li')
    asked: list[str] = []

    def noted(one: Cell) -> Sequence[Outcome]:
        asked.append(one.name)
        return tens(one)

    found = run([first, second], jobs=1, kept=kept, tell=told.append, compare=noted)
    assert asked == [second.name]
    assert [one.cell for one in found] == [
        *[first.name] * len(first.strategies),
        *[second.name] * len(first.strategies),
    ]


def test_what_is_kept_is_read_back_as_it_was(tmp_path: Path) -> None:
    first, _ = two_cells()
    made = replace(outcome(first), gpus={"h100": 2}, violations=("one",), reason="so")
    kept = tmp_path / "kept.jsonl"
    run([replace(first, strategies=(SUTLER,))], jobs=1, kept=kept, tell=lambda line: None, compare=lambda one: [made])
    assert read(kept) == [made]


def test_strategies_that_this_version_lacks_are_left_for_a_later_one() -> None:
    asked = replace(cell("melange", dataset="arena", rate=1), strategies=("homogeneous/l4", "no such strategy"))
    (one,) = compared(asked)
    assert one.strategy == "homogeneous/l4"
    assert one.value == pytest.approx(one.cost_usd_per_hour)
    assert one.gpus == {"l4": 1}
    assert compared(replace(asked, strategies=("no such strategy",))) == []


def test_the_report_renders_without_outcomes() -> None:
    text = report(all_cells(), {}, drawn=False)
    assert text.count("\n## ") == 5
    assert "Not run yet" in text


def test_the_report_and_the_results_are_the_same_from_the_same_outcomes(tmp_path: Path) -> None:
    cells = [cell(), cell("budget"), cell("melange"), cell("cauchy"), cell("splitwise")]
    outcomes = [one for each in cells for one in tens(each)]
    every = all_cells()
    assert write(every, outcomes, docs=tmp_path / "a", results=tmp_path / "a", plots=False)
    assert write(every, outcomes, docs=tmp_path / "b", results=tmp_path / "b", plots=False)
    made = {path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")}
    assert Path("papers.md") in made
    assert Path("papers.txt") in made
    assert Path("papers.json") in made
    for path in made:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


def test_every_plot_is_drawn_and_shown(tmp_path: Path) -> None:
    outcomes = [one for each in two_cells() for one in tens(each)]
    assert write(all_cells(), outcomes, docs=tmp_path, results=tmp_path)
    page = (tmp_path / "papers.md").read_text()
    for name in PLOTS:
        assert (tmp_path / "papers" / name).read_text().startswith("<?xml")
        assert f"(papers/{name})" in page


def test_a_plan_that_does_not_verify_fails_the_report(tmp_path: Path) -> None:
    first, _ = two_cells()
    bad = replace(outcome(first), violations=("too dear",))
    assert not write(all_cells(), [bad], docs=tmp_path, results=tmp_path, plots=False)


def test_cauchys_gains_are_of_tokens_per_dollar() -> None:
    """As many requests for 5 $/h as for 6: 20 % more."""
    own = cell("cauchy", dataset="dailymail")
    text = report(all_cells(), index([outcome(own, SUTLER, 5.0), outcome(own, "melange", 6.0)]), drawn=False)
    line = next(line for line in text.splitlines() if line.startswith("| sutler over Mélange"))
    assert line.startswith("| sutler over Mélange (CAUCHY) | 16.4 to 38.3 | 20.0 | – |")


def test_a_splitwise_ratio_stands_beside_the_papers() -> None:
    """14 requests/s of one design over 10 of another, at whichever utilisation each does best."""
    low, high = [
        one
        for one in splitwise.cells()
        if (one.get("model"), one.get("mix"), one.get("goal")) == ("bloom-176b", "conversation", "iso-cost")
    ][:2]
    alone = f"homogeneous/{splitwise.H100}"
    made = [outcome(low, alone, 10.0), outcome(high, "splitwise/aa", 14.0), outcome(low, "splitwise/aa", 8.0)]
    text = report(all_cells(), index(made), drawn=False)
    line = next(line for line in text.splitlines() if "splitwise/aa over homogeneous/h100-sxm | Figure 18b" in line)
    assert line.endswith("| 1.4 | – | 1.40 |")
