"""SamuLLM's evaluation: applications have the paper's facts, ratios are what a pencil finds, the report renders."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.offline.__main__ import main
from benchmarks.offline.applications import (
    DOCUMENTS_SEED,
    EVALUATOR,
    ROUTING_REQUESTS,
    SUMMARY,
    chain_summary,
    chunks_of,
    ensembling,
    mixed,
    paper_hardware,
    routing,
)
from benchmarks.offline.lengths import heavy_tailed, lognormal, spaced
from benchmarks.offline.models import spec_of
from benchmarks.offline.paper import END_TO_END, PARTS
from benchmarks.offline.report import report
from benchmarks.offline.results import read_results, write_results
from benchmarks.offline.run import RUN, read, run
from benchmarks.offline.settings import VARIANTS, Loss, Outcome, Recovery, Setting, VariantName, settings
from benchmarks.offline.summaries import (
    beaten,
    forecast_error,
    gain_over_best,
    gap_fraction,
    index,
    known_summaries,
    ratio,
    ratios,
    recovered_fraction,
    recovered_in_all,
    refuted,
    slowest_planning,
    without_preemption,
)
from sutler.solver.offline.application import Application, Drawn, Recorded
from sutler.solver.offline.plan import STRATEGIES, Strategy
from sutler.solver.offline.planner import simulate_schedule
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import ExecutionPlan, ScheduleStage

ONE = "ensembling: 1000 requests, limit 256"
TWO = "ensembling: 2000 requests, limit 256"


def recorded(application: Application, position: int = 0) -> Recorded:
    requests = application.nodes[position].requests
    assert isinstance(requests, Recorded)
    return requests


def outcome(
    strategy: Strategy = "sutler",
    makespan_s: float | None = 100.0,
    *,
    planning_s: float = 0.0,
    setting: str = ONE,
    variant: VariantName = "keeps",
    area_s: float = 50.0,
    forecast_s: float | None = None,
) -> Outcome:
    return Outcome(
        setting,
        variant,
        strategy,
        makespan_s,
        planning_s,
        2 * planning_s,
        forecast_s,
        area_s,
        20.0,
        reason="no room" if makespan_s is None else None,
    )


def recovery(
    going_on_s: float,
    adjusted_s: float,
    oracle_s: float,
    *,
    factor: float = 1.3,
) -> Recovery:
    return Recovery(ONE, "vicuna-13b-v1.5", factor, 30.0, going_on_s, adjusted_s, oracle_s, slowdown=1.25)


def test_lengths_between_two_ends_have_the_mean_that_was_asked_for() -> None:
    lengths = lognormal(mean=199, spread=0.8, least=3, most=1585)
    assert lengths.mean == pytest.approx(199, rel=1e-6)
    assert (lengths.values[0], lengths.most) == (3, 1585)
    drawn = lengths.at(np.random.default_rng(1).random(20_000))
    assert drawn.mean() == pytest.approx(199, rel=0.03)


def test_a_mean_beyond_the_ends_is_an_error() -> None:
    with pytest.raises(ValueError, match="sign"):
        lognormal(mean=200, spread=0.5, least=5, most=127)


def test_a_heavy_tail_gives_the_longest_to_the_share_asked_for_and_half_of_it_at_most_to_the_rest() -> None:
    lengths = heavy_tailed(median=3, spread=1.0, most=60, top_fraction=0.01)
    drawn = lengths.at(np.random.default_rng(1).random(50_000))
    assert (drawn == 60).mean() == pytest.approx(0.01, abs=0.002)
    assert np.median(drawn) == 3
    assert drawn[drawn < 60].max() <= 30


def test_spaced_lengths_reach_both_ends_and_repeat_by_seed() -> None:
    lengths = lognormal(mean=21, spread=0.6, least=5, most=127)
    found = spaced(lengths, 1000, seed=1)
    assert (min(found), max(found)) == (5, 127)
    assert found == spaced(lengths, 1000, seed=1) != spaced(lengths, 1000, seed=2)


@pytest.mark.parametrize("requests", [1000, 10000])
def test_ensembling_asks_nine_models_the_same_short_questions(requests: int) -> None:
    application = ensembling(requests=requests, limit_tokens=256)
    assert len(application.nodes) == 9
    assert len({recorded(application, position).input_tokens for position in range(9)}) == 1
    prompts = recorded(application).input_tokens
    assert (len(prompts), min(prompts), max(prompts)) == (requests, 5, 127)
    assert np.mean(prompts) == pytest.approx(21, abs=0.5)


def test_models_of_the_ensemble_would_write_180_to_300_tokens_and_stop_at_the_limit() -> None:
    application = ensembling(requests=1000, limit_tokens=256)
    for node in application.nodes:
        assert 180 - 0.01 <= node.output_tokens.mean <= 300 + 0.01
    assert sample(application, seed=0).output_tokens.max() == 256


def test_routing_gives_each_model_its_requests_of_table_1() -> None:
    application = routing(is_known=False)
    counts = {node.name: len(recorded(application, i).input_tokens) for i, node in enumerate(application.nodes)}
    assert counts == dict(ROUTING_REQUESTS)
    assert sum(counts.values()) == 6856
    prompts = [tokens for i in range(5) for tokens in recorded(application, i).input_tokens]
    assert (min(prompts), max(prompts)) == (9, 577)
    assert np.mean(prompts) == pytest.approx(310, rel=0.01)


def test_known_lengths_of_routing_are_those_of_the_dataset() -> None:
    application = routing(is_known=True)
    answers = [tokens for i in range(5) for tokens in recorded(application, i).output_tokens or ()]
    assert len(answers) == 6856
    assert (min(answers), max(answers)) == (3, 1585)
    assert np.mean(answers) == pytest.approx(199, rel=0.01)
    assert sample(application, seed=0).output_tokens.tolist() == answers
    assert all(recorded(routing(is_known=False), i).output_tokens is None for i in range(5))


@pytest.mark.parametrize(("documents", "longest"), [(100, 60), (300, 201), (500, 201)])
def test_documents_have_a_median_of_three_chunks_and_one_very_long_one(documents: int, longest: int) -> None:
    application = chain_summary(documents=documents, limit_tokens=900, evaluations=1)
    pile = sample(application, seed=DOCUMENTS_SEED)
    lengths = np.bincount(pile.item[pile.of_node(0)])
    assert len(lengths) == documents
    assert 2 <= np.median(lengths) <= 4
    assert lengths.max() == longest
    assert (lengths == longest).sum() == 1
    assert chunks_of(documents).most == longest


@pytest.mark.parametrize("evaluations", [1, 4])
def test_every_summary_is_judged_as_often_as_asked(evaluations: int) -> None:
    application = chain_summary(documents=100, limit_tokens=500, evaluations=evaluations)
    pile = sample(application, seed=0)
    assert [node.name for node in application.nodes] == [SUMMARY, EVALUATOR]
    assert len(pile.of_node(1)) == 100 * evaluations


def test_other_answers_leave_the_documents_as_they_are() -> None:
    application = chain_summary(documents=100, limit_tokens=900, evaluations=1)
    one, other = (sample(application, seed=DOCUMENTS_SEED, answers_seed=seed) for seed in (1, 2))
    assert one.item.tolist() == other.item.tolist()
    assert one.output_tokens.tolist() != other.output_tokens.tolist()


def test_the_mix_has_eleven_models() -> None:
    application = mixed(documents=100)
    assert len(application.nodes) == len({node.name for node in application.nodes}) == 11
    assert {node.max_output_tokens for node in application.nodes} == {900, 256}


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.name)
def test_no_request_leaves_its_models_context(setting: Setting) -> None:
    application = setting.build()
    pile = sample(application, seed=1)
    for position, node in enumerate(application.nodes):
        own = pile.of_node(position)
        whole = pile.input_tokens[own] + pile.output_tokens[own]
        assert whole.max() <= node.spec.max_context_tokens, node.name


def test_even_a_full_chunk_after_a_full_summary_leaves_room_for_another() -> None:
    node = chain_summary(documents=100, limit_tokens=900, evaluations=1).nodes[0]
    assert isinstance(node.requests, Drawn)
    assert node.requests.input_tokens.most + 900 + 900 <= node.spec.max_context_tokens


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("dolly-v2-12b", 11_846_072_320),
        ("mpt-7b-chat", 6_649_286_656),
        ("chatglm3-6b", 6_243_584_000),
        ("stablelm-tuned-alpha-7b", 7_869_358_080),
    ],
)
def test_models_that_the_catalogue_has_not_add_up_to_their_publishers_count(model: str, parameters: int) -> None:
    assert spec_of(model).total_params == pytest.approx(parameters, rel=1e-3)


def test_the_hardware_is_eight_gpus_two_by_two() -> None:
    hardware = paper_hardware()
    assert [len(island.gpus) for island in hardware.islands] == [2, 2, 2, 2]
    assert hardware.gpu.memory_gb == 80
    assert 11 <= hardware.loading.seconds("", 12.5, 1) <= 47


@pytest.mark.parametrize(("requests", "gpus", "paper_s"), [(1000, 1, 48), (10000, 8, 67)])
def test_one_model_of_the_ensemble_takes_about_as_long_as_in_the_paper(
    requests: int, gpus: int, paper_s: float
) -> None:
    nodes = ensembling(requests=requests, limit_tokens=512).nodes
    alone = Application("alone", tuple(node for node in nodes if node.name == "chatglm3-6b"))
    schedule = (ScheduleStage({0: ExecutionPlan(gpus, 1)}),)
    assert simulate_schedule(alone, paper_hardware(), schedule).makespan_s == pytest.approx(paper_s, rel=0.25)


def test_settings_have_names_of_their_own_in_every_part_of_the_paper() -> None:
    found = settings()
    assert len({setting.name for setting in found}) == len(found) == 8 + 2 + 9 + 4
    assert {setting.part for setting in found if setting.is_quick} == set(PARTS)
    assert {(part, name) for part in PARTS for name in ("max_heuristic", "min_heuristic")} == set(END_TO_END)


def test_ratios_are_of_inference_or_of_inference_and_planning() -> None:
    outcomes = index([outcome("sutler", 100.0, planning_s=20.0), outcome("max_heuristic", 210.0, planning_s=30.0)])
    one = ratio(outcomes, ONE, "keeps", rival="max_heuristic", over="sutler", with_planning=False)
    both = ratio(outcomes, ONE, "keeps", rival="max_heuristic", over="sutler", with_planning=True)
    assert one == pytest.approx(2.1)
    assert both == pytest.approx(2.0)


def test_ratios_spread_over_the_settings_of_their_own_application_and_variant() -> None:
    outcomes = index(
        [
            outcome("greedy", 100.0),
            outcome("min_heuristic", 110.0),
            outcome("greedy", 100.0, setting=TWO),
            outcome("min_heuristic", 160.0, setting=TWO),
            outcome("greedy", 100.0, variant="reloads"),
            outcome("min_heuristic", 500.0, variant="reloads"),
            outcome("greedy", 100.0, setting="routing: known lengths"),
            outcome("min_heuristic", 300.0, setting="routing: known lengths"),
        ]
    )
    spread = ratios(outcomes, "ensembling", "keeps", rival="min_heuristic", over="greedy")
    assert spread is not None
    assert spread.least == pytest.approx(1.1)
    assert spread.most == pytest.approx(1.6)
    assert ratios(outcomes, "mixed", "keeps", rival="min_heuristic", over="greedy") is None


def test_a_strategy_without_a_plan_has_no_ratio() -> None:
    outcomes = index([outcome("sutler"), outcome("max_heuristic", None)])
    assert ratio(outcomes, ONE, "keeps", rival="max_heuristic", over="sutler", with_planning=True) is None


def test_preemption_is_compared_with_the_variant_asked_for() -> None:
    outcomes = index(
        [
            outcome("greedy", 120.0, variant="no preemption"),
            outcome("greedy", 100.0, variant="reloads"),
            outcome("greedy", 80.0),
        ]
    )
    assert without_preemption(outcomes, ONE, "greedy", variant="reloads") == pytest.approx(1.2)
    assert without_preemption(outcomes, ONE, "greedy", variant="keeps") == pytest.approx(1.5)
    assert without_preemption(outcomes, ONE, "sutler", variant="keeps") is None


def test_the_gap_is_what_the_larger_bound_leaves() -> None:
    assert gap_fraction(outcome(makespan_s=100.0, area_s=50.0)) == pytest.approx(0.5)
    assert gap_fraction(outcome(makespan_s=100.0, area_s=10.0)) == pytest.approx(0.8)
    assert gap_fraction(outcome(makespan_s=None)) is None


def test_sutler_is_beaten_only_by_a_faster_plan_of_the_same_variant() -> None:
    ours, faster = outcome("sutler", 100.0), outcome("greedy", 90.0)
    assert beaten([ours, faster]) == [ours]
    assert not beaten([ours, outcome("greedy", 100.0), outcome("greedy", 90.0, variant="reloads")])
    failed = outcome("sutler", None)
    assert beaten([failed, faster]) == [failed]


def test_a_plan_below_the_bound_is_refuted() -> None:
    impossible = outcome(makespan_s=49.0)
    assert refuted([outcome(), impossible, outcome(makespan_s=None)]) == [impossible]


def test_losses_are_fractions_of_the_time_with_known_lengths() -> None:
    losses = [Loss(ONE, 1, 95.0, 110.0, 100.0), Loss(ONE, 2, 95.0, 99.0, 110.0), Loss(TWO, 1, 1.0, 3.0, 2.0)]
    one, two = known_summaries(losses)
    assert (one.seeds, one.expected_s, one.known_s) == (2, 95.0, 105.0)
    assert (one.mean, one.least, one.worst) == pytest.approx((0.0, -0.1, 0.1))
    assert two.worst == pytest.approx(0.5)


def test_what_adjusting_recovers_is_a_share_of_what_the_oracle_gains() -> None:
    assert recovered_fraction(recovery(200.0, 185.0, 180.0)) == pytest.approx(0.75)
    assert recovered_fraction(recovery(200.0, 210.0, 180.0)) == pytest.approx(-0.5)


def test_nothing_is_recovered_where_the_oracle_gains_less_than_a_hundredth_of_the_time() -> None:
    assert recovered_fraction(recovery(200.0, 198.1, 198.1)) is None
    assert recovered_fraction(recovery(200.0, 198.0, 198.0)) == pytest.approx(1.0)


def test_small_and_lost_gains_count_in_the_sum_over_all_cases() -> None:
    cases = [recovery(200.0, 185.0, 180.0), recovery(100.0, 100.5, 99.5), recovery(100.0, 100.0, 100.0)]
    assert recovered_in_all(cases) == pytest.approx(14.5 / 20.5)
    assert recovered_in_all([recovery(100.0, 100.0, 100.0)]) is None


def test_a_gain_is_over_the_best_of_the_others_of_the_same_variant() -> None:
    outcomes = index(
        [
            outcome("sutler", 100.0),
            outcome("greedy", 120.0),
            outcome("min_heuristic", 105.0),
            outcome("max_heuristic", None),
            outcome("greedy", 101.0, variant="reloads"),
        ]
    )
    assert gain_over_best(outcomes, ONE, "keeps") == pytest.approx(0.05)
    assert gain_over_best(outcomes, ONE, "reloads") is None


def test_a_forecast_that_is_too_early_is_an_error_below_zero() -> None:
    assert forecast_error(outcome(forecast_s=90.0)) == pytest.approx(-0.1)
    assert forecast_error(outcome()) is None


def test_the_slowest_search_is_of_all_settings_and_variants() -> None:
    slowest = outcome(planning_s=7.0, setting=TWO, variant="reloads")
    outcomes = index([outcome(planning_s=3.0), slowest])
    assert slowest_planning(outcomes, "ensembling", "sutler") == slowest
    assert slowest_planning(outcomes, "routing", "sutler") is None


def test_the_report_stands_beside_the_papers_ratios(tmp_path: Path) -> None:
    path = tmp_path / "offline.json"
    write_results(
        [
            outcome("sutler", 100.0, planning_s=5.0, forecast_s=97.0),
            outcome("greedy", 105.0, planning_s=1.0),
            outcome("max_heuristic", 209.0, planning_s=1.0),
            outcome("min_heuristic", None),
            outcome("sutler", 120.0, variant="no preemption"),
        ],
        [Loss(ONE, 1, 95.0, 110.0, 100.0)],
        [recovery(200.0, 185.0, 180.0), recovery(150.0, 150.0, 150.0, factor=0.7)],
        path,
    )
    text = report(read_results(path))
    assert "| ensembling | max heuristic | 1.1–2.4 | 1.98–1.98 | 2.00–2.00 |" in text
    assert "| 1000 requests, limit 256 | 209 + 1.0 | – | 105 + 1.0 | 100 + 5.0 | 50 | 50 | 1.98 | – | 2.00 |" in text
    assert "| **ensembling**, the paper | – | – | – | – | – | – | 1.1–2.4 | 1.0–1.6 |" in text
    assert f"| {ONE} | – | – | 100 / 120: 1.20 |" in text
    assert f"| {ONE} | 1 | 95 | 100 | 10.0 | 10.0 | 10.0 |" in text
    assert f"| {ONE} | vicuna-13b-v1.5 | 200 / 185 / 180: 75 % | 150 / 150 / 150: – |" in text
    summary = "1 of 2 cases have something to gain; adjusting recovers at least half of it in 1; over all cases"
    assert f"{summary} it recovers 75 % of what an oracle gains." in " ".join(text.split())
    assert f"- {ONE}, keeps: 5.0 %" in text
    assert f"- {ONE}, keeps: -3.0 %" in text
    assert "no room" in text


@pytest.mark.parametrize(("planning_s", "found"), [(9.9, "9.9 (19.8) s, of at most 10 s: met"), (10.1, "**missed**")])
def test_the_largest_ensembling_has_ten_seconds_to_be_planned(tmp_path: Path, planning_s: float, found: str) -> None:
    large = outcome(setting="ensembling: 10000 requests, limit 256", planning_s=planning_s)
    write_results([large], [], [], tmp_path / "offline.json")
    assert found in report(read_results(tmp_path / "offline.json"))


def test_the_page_is_written_from_the_results_alone_and_fails_where_sutler_is_beaten(tmp_path: Path) -> None:
    write_results([outcome("sutler", 100.0), outcome("greedy", 120.0)], [], [], tmp_path / "offline.json")
    where = ["--report", "--out", str(tmp_path), "--docs", str(tmp_path)]
    assert main(where) == 0
    assert (tmp_path / "offline-results.md").read_text(encoding="utf-8").startswith("<!-- Generated")
    write_results([outcome("sutler", 100.0), outcome("greedy", 90.0)], [], [], tmp_path / "offline.json")
    assert main(where) == 1


def test_a_setting_is_planned_run_on_other_answers_and_adjusted_once(tmp_path: Path) -> None:
    def small() -> Application:
        whole = ensembling(requests=100, limit_tokens=512)
        return Application("small", whole.nodes[:2])

    setting = Setting("ensembling", "small", small, compares_known=True, slowed=("vicuna-13b-v1.5",))
    kept, told = tmp_path / "offline.jsonl", list[str]()
    run([setting], kept=kept, tell=told.append, known_seeds=2)
    outcomes, losses, recoveries = read(kept)
    assert [one.strategy for one in outcomes] == list(STRATEGIES)
    assert not beaten(outcomes)
    assert not refuted(outcomes)
    assert [one.seed for one in losses] == [1, 2]
    assert len({one.known_s for one in losses}) == 2
    assert [one.factor for one in recoveries] == [1.3, 0.7]
    assert all(one.oracle_s <= one.going_on_s for one in recoveries)
    told.clear()
    run([setting], kept=kept, tell=told.append, known_seeds=2)
    assert told == ["1/1 ensembling: small"]


def test_what_another_version_kept_is_passed_over(tmp_path: Path) -> None:
    kept = tmp_path / "offline.jsonl"
    row = {"kind": "outcome", "setting": ONE, "variant": "keeps", "strategy": "greedy", "makespan_s": 3.0}
    loss = {"kind": "loss", "setting": ONE, "seed": 1, "expected_s": 1.0, "executed_s": 2.0, "known_s": 2.0}
    lines = [
        {"run": RUN, **row},
        {"run": "0.0.1, 9 s", **row},
        {"run": RUN, **row, "unheard": 1},
        {"run": RUN, **loss},
        {"run": RUN, "kind": "recovery", **asdict(recovery(200.0, 185.0, 180.0))},
    ]
    kept.write_text("\n".join(map(json.dumps, lines)) + '\n{"run": "', encoding="utf-8")
    outcomes, losses, recoveries = read(kept)
    assert outcomes == [Outcome(ONE, "keeps", "greedy", 3.0)]
    assert losses == [Loss(ONE, 1, 1.0, 2.0, 2.0)]
    assert recoveries == [recovery(200.0, 185.0, 180.0)]
    assert read(tmp_path / "none.jsonl") == ([], [], [])


def test_variants_say_what_their_names_promise() -> None:
    by_name = {variant.name: variant.options for variant in VARIANTS}
    assert not by_name["reloads"].keeps_replicas
    assert by_name["keeps"].keeps_replicas
    assert not by_name["no preemption"].preemption
