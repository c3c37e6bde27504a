"""What people see: facts of the plan in words, within 100 columns, without codes for terminals that show none."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from sutler.service.cli.views.plan import group_replicas, plan_view
from sutler.service.cli.views.progress import progress_line
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import to_problem
from sutler.service.wording.words import layout, number, percent, span
from sutler.solver.catalog.entries import Gpu, Precision
from sutler.solver.plan import (
    Alternative,
    Binding,
    Combo,
    Evidence,
    KvTransfer,
    Plan,
    PrecisionAlternative,
    RobustAlternative,
    Robustness,
    Route,
    Share,
)
from sutler.solver.progress import Progress
from tests.service.builders import (
    NOW,
    a_plan,
    a_problem,
    a_rental,
    a_replica,
    a_robustness,
    a_stage,
    an_infeasible_plan,
)


def document_of(plan: Plan) -> PlanDocument:
    translation = to_problem(validate(ProblemDocument, a_problem()), folder=None, now=NOW)
    gpus = {stage.gpu: Gpu(stage.gpu, 80.0) for replica in plan.replicas for stage in replica.stages}
    translation = replace(
        translation, problem=replace(translation.problem, gpus={**translation.problem.gpus, **gpus})
    )
    return issue_plan(plan, translation, plan_id=UUID(int=1), created_at=NOW)


def shown(plan: Plan) -> str:
    console = Console(width=100, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in plan_view(document_of(plan)):
            console.print(part)
    return captured.get()


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("max_throughput", "4.1000 requests/s at the given mix"),
        ("min_makespan", "All requests done in 4.1000 s"),
        ("min_cost", "4.1000 $/h carries the load"),
        ("min_power", "4.1000 W carry the load"),
    ],
)
def test_the_first_line_says_what_the_plan_achieves(objective: Any, words: str) -> None:
    assert shown(a_plan(objective=objective)).splitlines()[0].strip() == words


def test_the_headline_gives_proof_cost_and_market() -> None:
    text = shown(a_plan())
    assert "Optimal; proven: no plan is better than 4.1002 req/s (gap 0.005 %)" in text
    assert "9.050 $/h · 0.310 $ per million tokens · 2,800 W" in text
    assert "Solved in 0.42 s (exact, 2,099 candidates)" in text
    assert "Market of 2026-11-20 12:00 UTC (20 s old), 1 offers" in text


def test_a_limit_that_ended_the_search_is_named() -> None:
    plan = a_plan(status="feasible", relative_gap=0.034)
    text = shown(replace(plan, solver=replace(plan.solver, limit="time limit of 30 s")))
    assert "Not proven optimal, time limit of 30 s ended the search" in text
    assert "(gap 3.4 %)" in text


def test_a_search_without_a_result_says_so() -> None:
    text = shown(a_plan(status="unknown", value=None, bound=None, relative_gap=None, rentals=(), replicas=()))
    assert text.startswith("No plan found before the time limit: raise it with --time-limit-s\n")
    assert "Neither a plan nor a proof that there is none" in text


def test_an_infeasible_plan_shows_what_has_to_give() -> None:
    text = shown(an_infeasible_plan())
    assert text.startswith("Infeasible: no plan meets every limit")
    row = next(line for line in text.splitlines() if line.strip().startswith("budget"))
    assert row.split()[:4] == ["budget", "9.050", "2.000", "$/h"]
    assert "raise budget_usd_per_hour to at least 9.05" in row


def test_what_binds_is_said_in_words() -> None:
    bindings = (
        Binding("supply/h100-sxm/4", 0.5, "rps per gpu"),
        Binding("budget", 0.41, "rps per usd_per_hour"),
    )
    text = shown(a_plan(binding=bindings))
    assert "budget: one more $/h would bring 0.410 req/s" in text
    assert text.index("budget:") < text.index(
        "supply of h100-sxm in pieces of at least 4: one more GPU would bring 0.500 req/s"
    )


@pytest.mark.parametrize(("price", "words"), [(-2.0, "would save 2.000 s"), (2.0, "would cost 2.000 s")])
def test_less_is_better_for_a_makespan(price: float, words: str) -> None:
    text = shown(a_plan(objective="min_makespan", binding=(Binding("budget", price, "s per usd_per_hour"),)))
    assert f"budget: one more $/h {words}" in text


def test_the_weakest_of_many_constraints_are_only_counted() -> None:
    bindings = tuple(Binding(f"supply/p{i}/1", 1.0 + i, "rps per gpu") for i in range(20))
    text = shown(a_plan(binding=bindings))
    assert "supply of p19:" in text
    assert "supply of p0:" not in text
    assert "weaker ones: 12" in text


@pytest.mark.parametrize(
    ("objective", "value", "unit", "words"),
    [
        ("max_throughput", 0.5, "rps", "would bring 0.500 req/s"),
        ("min_cost", -1.5, "usd_per_hour", "would save 1.500 $/h"),
        ("min_makespan", -20.0, "s", "would save 20.00 s"),
        ("min_power", -300.0, "watts", "would save 300.0 W"),
    ],
)
def test_of_a_network_it_is_said_what_no_limit_would_bring(
    objective: Any, value: float, unit: str, words: str
) -> None:
    binding = Binding("network/vastai/host-9", value, f"{unit} for an unlimited network")
    text = flat(shown(a_plan(objective=objective, binding=(binding,))))
    assert f"network/vastai/host-9: an unlimited network between prefill and decode {words}" in text


def a_plan_in_two_phases(**others: Any) -> Plan:
    """One h800 that prefills for two h20."""
    prefill = replace(a_replica("chat-p0", a_stage("h800", 1)), role="prefill")
    decode = [replace(a_replica(f"chat-d{i}", a_stage("h20", 1)), role="decode") for i in range(2)]
    given: dict[str, Any] = {
        "replicas": (prefill, *decode),
        "routing": (Route("chat", "long-short", (Share("chat-p0", 1.0),)),),
        "kv_transfers": tuple(
            KvTransfer("chat", "long-short", "chat-p0", one.id, 0.5, 0.268, 0.0123) for one in decode
        ),
        "combos": (
            Combo("chat", "vastai/host-9", 1, 2, (("h800", 1),), (("h20", 2),), 4_321_000.0, 1e-12, 1e-9, None),
        ),
    }
    return a_plan(**{**given, **others})


def test_a_plan_in_two_phases_says_who_hands_over_to_whom() -> None:
    rows = [line.split() for line in shown(a_plan_in_two_phases()).splitlines()]
    assert ["chat", "long-short", "A", "B", "100", "%", "0.27", "12.3"] in rows
    assert ["long-short", "100", "%"] in rows  # no column for those that only decode


def test_a_combo_is_its_gpus_and_what_a_dollar_buys() -> None:
    text = shown(a_plan_in_two_phases())
    assert "1 × h800 → 2 × h20" in text
    [row] = [line.split() for line in text.splitlines() if "→ 2 × h20" in line]
    assert row[-3:] == ["1:2", "4,321,000", "–"]


def test_a_plan_without_phases_has_no_such_sections() -> None:
    text = shown(a_plan())
    assert "Hand over" not in text
    assert "Combos" not in text


def test_many_hand_overs_are_cut_short_and_fit() -> None:
    found = tuple(
        KvTransfer("chat", f"a-rather-long-name-of-a-workload-{i}", "chat-p0", "chat-d0", 1.0, None, None)
        for i in range(40)
    )
    text = shown(a_plan_in_two_phases(kv_transfers=found))
    assert "10 more (--json lists all)" in flat(text)
    assert max(len(line) for line in text.splitlines()) <= 100


def test_alternatives_say_how_much_is_lost() -> None:
    found = Alternative("h100-sxm", 3.28, 8.0, (a_rental(gpu="a100-sxm4-80gb", gpus=4, count=2),))
    nothing = Alternative("a100-sxm4-80gb", None, None, ())
    rows = [line.split() for line in shown(a_plan(alternatives=(found, nothing))).splitlines()]
    assert ["h100-sxm", "8", "×", "a100-sxm4-80gb", "3.280", "20", "%", "8.000"] in rows
    assert ["a100-sxm4-80gb", "–", "no", "plan", "–", "–"] in rows


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "min_cost",
            "fp8 (org/model-FP8) would cost 7.440 $/h, 38 % less: set models[0].precision to [bf16, fp8] or fp8",
        ),
        ("max_throughput", "fp8 (org/model-FP8) would bring 7.440 req/s, 38 % more: set models[0].precision to"),
    ],
)
def test_what_8_bits_would_bring_is_one_sentence(kind: Any, words: str) -> None:
    found = PrecisionAlternative("fp8", (("chat", "org/model-FP8"),), 7.44, 7.44, 0.38)
    said = " ".join(shown(a_plan(objective=kind, precision_alternative=found)).split())
    assert words in said
    assert "quality is yours to judge" in said


def test_replicas_at_several_precisions_are_rows_of_their_own() -> None:
    order: tuple[Precision, ...] = ("fp8", "bf16", "fp8")
    replicas = tuple(replace(a_replica(f"chat-{i}"), precision=precision) for i, precision in enumerate(order))
    groups = group_replicas(document_of(a_plan(replicas=replicas)).replicas, at_precisions=["chat"])
    assert [(group.layout[-5:], len(group.replicas)) for group in groups] == [(", fp8", 2), (" bf16", 1)]


def test_equal_replicas_are_one_row() -> None:
    plan = a_plan(replicas=(a_replica("chat-0", rps=2.0, busy=0.8), a_replica("chat-1", rps=2.1, busy=0.95)))
    [group] = group_replicas(document_of(plan).replicas)
    assert (group.name, group.layout, len(group.replicas)) == ("A", "h100-sxm TP4", 2)
    assert sum(sum(replica.throughput_rps.values()) for replica in group.replicas) == pytest.approx(4.1)


def test_a_group_shows_its_cap_its_load_and_what_it_may_carry() -> None:
    busy = [replace(a_replica(f"chat-{i}", rps=2.0, busy=0.5 + i / 10), max_load_fraction=0.9) for i in range(2)]
    rows = [line.split() for line in shown(a_plan(replicas=tuple(busy))).splitlines()]
    assert ["A", "chat", "h100-sxm", "TP4", "2", "200", "50–60", "%", "90", "%", "4.000"] in rows
    older = [line.split() for line in shown(a_plan(replicas=(a_replica(busy=0.5),))).splitlines()]
    assert ["A", "chat", "h100-sxm", "TP4", "1", "200", "50", "%", "–", "4.100"] in older


def test_routing_adds_up_the_replicas_of_a_group() -> None:
    replicas = (a_replica("chat-0"), a_replica("chat-1"), a_replica("chat-2", a_stage("a100-sxm4-80gb")))
    shares = (Share("chat-0", 0.3), Share("chat-1", 0.3), Share("chat-2", 0.4))
    text = shown(a_plan(replicas=replicas, routing=(Route("chat", "long-short", shares),)))
    assert ["long-short", "60", "%", "40", "%"] in [line.split() for line in text.splitlines()]


def test_routing_to_many_groups_is_said_in_words_and_still_fits() -> None:
    names = [f"chat-{i}" for i in range(30)]
    replicas = tuple(a_replica(name, a_stage(f"gpu-{name}")) for name in names)
    route = Route("chat", "long-short", tuple(Share(name, 1 / 30) for name in names))
    text = shown(a_plan(replicas=replicas, routing=(route,)))
    assert "A 3.3 %, B 3.3 %" in text
    assert "AD 3.3 %" in text


def test_every_line_fits_100_columns() -> None:
    long_name = "a-rather-long-name-of-a-provider" * 4
    plan = a_plan(
        rentals=(a_rental(provider=long_name, offer_id=long_name, site=f"{long_name}/host"),),
        warnings=("A sentence that goes on. " * 10,),
    )
    assert max(len(line) for line in shown(plan).splitlines()) <= 100


def test_names_in_brackets_are_text_and_not_markup() -> None:
    assert "[red]vast[/red]" in shown(a_plan(rentals=(a_rental(site="[red]vast[/red]"),)))


def test_evidence_is_summed_up_by_source() -> None:
    measured = Evidence("chat-0", "short", "measured", "row 0", 3.0, 3.0, 3.0)
    text = shown(a_plan(evidence=(*a_plan().evidence, measured)))
    assert "roofline: 1 rate, true within -50 % to +100 %" in text
    assert "measured: 1 rate, taken as given" in text


def flat(text: str) -> str:
    return " ".join(text.split())


def test_what_is_left_at_low_rates_and_what_would_be_better_is_one_sentence() -> None:
    text = flat(shown(a_plan(robustness=a_robustness())))
    words = "2.050 req/s; 3.000 req/s with 8 × h100-sxm for 14.80 $/h (robust alternative)"
    assert f"at the low end of every band: {words}" in text


def test_the_fleet_within_one_percent_is_named_with_its_price_and_the_flag_that_takes_it() -> None:
    near = RobustAlternative(9.09, 9.09, 0.973, 1.1, 9.09, ())
    found = a_robustness(value_at_low=9.05, load_multiple_at_low=0.675, near_optimum=near, near_optimum_fraction=0.01)
    plan = a_plan(objective="min_cost", value=9.05, robustness=found)
    text = flat(shown(plan))
    assert "for 9.090 $/h (+0.44 %): 0.973 × the load there, the most within 1.0 % (--give-up 0.01 takes it)" in text
    assert "--give-up" not in shown(replace(plan, robustness=replace(found, near_optimum=None)))


def test_what_was_given_up_stands_below_the_proof() -> None:
    lines = shown(a_plan(objective="min_cost", value=9.09, optimum_value=9.0)).splitlines()
    assert lines[2] == "Planned for low rates: the optimum at the rates themselves is 9.0000 $/h (1.0 % given up)"


def test_under_least_cost_the_load_is_what_is_left() -> None:
    other = RobustAlternative(11.0, 11.0, 1.1, 1.6, 11.0, a_plan().rentals)
    found = a_robustness(value_at_low=9.05, load_multiple_at_low=0.75, alternative=other, reason="one may exist")
    text = flat(shown(a_plan(objective="min_cost", robustness=found)))
    assert (
        "band: 0.750 × the load; 1.100 × the load with the same machines, laid out otherwise, for 11.00 $/h" in text
    )
    assert "(robust alternative; one may exist)" in text


def test_where_nothing_is_better_at_low_rates_the_reason_is_given() -> None:
    found = a_robustness(verdict="none_better", alternative=None, reason="no plan is better there")
    assert "at the low end of every band: 2.050 req/s; no plan is better there" in flat(
        shown(a_plan(robustness=found))
    )


@pytest.mark.parametrize("found", [None, a_robustness(low_fraction=1.0, verdict="none_better", alternative=None)])
def test_nothing_is_said_of_rates_that_are_taken_as_given(found: Robustness | None) -> None:
    assert "low end" not in shown(a_plan(robustness=found))


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((a_stage("t1", 1),), "t1"),
        ((a_stage("h100-sxm", 4),), "h100-sxm TP4"),
        ((a_stage("a40", 2, 40), a_stage("a40", 2, 40)), "2 stages of a40 TP2"),
        ((a_stage("h100", 4, 50), a_stage("a100", 4, 30)), "h100 TP4 (50 layers) → a100 TP4 (30)"),
        ((a_stage("h100", 1, None), a_stage("a100", 1, None)), "h100 → a100"),
        ((replace(a_stage("h100", 2), power_cap_watts=350.0),), "h100 TP2 at 350 W"),
        (
            (replace(a_stage("h100", 1), power_cap_watts=350.0), a_stage("h100", 1)),
            "h100 at 350 W (80 layers) → h100 (80)",
        ),
    ],
)
def test_a_layout_is_said_in_words(stages: tuple[Any, ...], words: str) -> None:
    [replica] = document_of(a_plan(replicas=(a_replica("chat-0", *stages),))).replicas
    assert layout(replica.stages) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (0, "0"),
        (7.1, "7.100"),
        (28.431, "28.43"),
        (2099, "2,099"),
        (0.00012, "0.00012"),
        (-3.5, "-3.500"),
    ],
)
def test_numbers_have_four_digits(value: float | None, words: str) -> None:
    assert number(value) == words


def test_fractions_are_percentages() -> None:
    assert [percent(f) for f in (0, 1e-15, 0.0006, 0.034, 0.5)] == ["0 %", "0 %", "0.06 %", "3.4 %", "50 %"]
    assert span([0.81, 0.97]) == "81–97 %"
    assert span([1.0, 1.0]) == "100 %"


def test_progress_is_one_line() -> None:
    line = progress_line(Progress("proving", 1.23, 2055, 7.1, 7.14, 0.0056), "max_throughput")
    assert line == "1.2 s · proving · best 7.100 req/s · proven 7.140 (gap 0.56 %) · 2,055 candidates"
    assert progress_line(Progress("candidates", 0.5), "min_cost") == "0.5 s · candidates"
    assert progress_line(Progress("candidates", 0.5), "min_cost", limit_s=30.0) == "0.5 of 30 s · candidates"
