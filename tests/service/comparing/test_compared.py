"""From what strategies did to the comparison document: statuses, reasons, the best rival."""

import json
from dataclasses import replace

import jsonschema
import pytest

from sutler.service.comparing.compared import comparison_of
from sutler.service.documents.fields import document_json
from sutler.service.json_schemas import json_schema
from sutler.solver.plan import Conflict
from sutler.solver.problem import ObjectiveKind
from tests.service.builders import NOW, a_rental
from tests.service.comparing.builders import a_comparison, a_strategy, a_translation, not_applicable, ran, sutler


def test_a_comparison_matches_its_schema() -> None:
    found = a_comparison(ran(a_strategy("h100"), 3.0), not_applicable(a_strategy("other", "greedy")))
    document = json.loads(document_json(found))
    jsonschema.validate(document, json_schema("comparison"))
    assert document["schema"] == "sutler/comparison/v1"
    assert [one["name"] for one in document["strategies"]] == ["sutler", "h100", "other"]


def test_an_entry_says_what_the_plan_achieves_and_rents() -> None:
    rentals = (a_rental(gpu="a40", gpus=4, count=2), a_rental(gpu="h100-sxm"), a_rental(gpu="a40", gpus=1))
    entry = a_comparison(ran(a_strategy("mixed"), 3.2, rentals=rentals)).strategies[1]
    assert entry.objective is not None
    assert (entry.objective.value, entry.ratio_to_sutler, entry.seconds) == (3.2, 1.25, 0.25)
    assert entry.gpus == {"a40": 9, "h100-sxm": 4}
    assert (entry.status, entry.reason, entry.replicas) == ("optimal", None, 1)


@pytest.mark.parametrize(
    ("objective", "best"),
    [("max_throughput", "more"), ("min_makespan", "less"), ("min_cost", "less"), ("min_power", "less")],
)
def test_the_best_rival_is_the_one_with_the_best_value(objective: ObjectiveKind, best: str) -> None:
    results = [ran(a_strategy("less"), 3.0, objective=objective), ran(a_strategy("more"), 5.0, objective=objective)]
    assert a_comparison(*results, objective=objective).best_rival == best


def test_a_market_of_its_own_is_no_rival() -> None:
    found = a_comparison(ran(a_strategy("rich", own_market=True), 9.0), ran(a_strategy("h100"), 3.0))
    assert found.best_rival == "h100"


def test_who_may_do_just_what_sutler_may_is_no_rival() -> None:
    """Where prefill and decode stay together, aggregated plans are all that sutler makes."""
    twin = ran(a_strategy("aggregated-only", "aggregated"), 4.0)
    found = a_comparison(twin, ran(a_strategy("h100"), 3.0), ran(a_strategy("melange", "aggregated"), 3.5))
    assert found.best_rival == "melange"
    assert found.notes[-1] == "aggregated-only plans as sutler does, since search.disaggregation is off."


def test_who_may_do_more_than_sutler_is_named_with_the_settings_that_sutler_lacks() -> None:
    setting = "search.disaggregation: auto"
    free = [replace(ran(a_strategy(name), 5.0), beyond=(setting,)) for name in ("pools", "combos")]
    found = a_comparison(*free, ran(a_strategy("h100"), 3.0))
    assert found.notes[-1] == f"pools, combos: may do what sutler may not here without {setting}."
    assert [one.allowed_beyond for one in found.strategies] == [(), (setting,), (setting,), ()]


def test_without_plans_there_is_no_best_rival() -> None:
    assert a_comparison(ran(a_strategy("slow"), None), not_applicable(a_strategy("other"))).best_rival is None


def test_a_plan_that_fails_verification_is_rejected_and_rivals_nobody() -> None:
    broken = replace(ran(a_strategy("broken"), 9.0), violations=("budget: 12 $/h, expected at most 9",))
    found = a_comparison(broken, ran(a_strategy("h100"), 3.0))
    assert found.best_rival == "h100"
    assert (found.strategies[1].status, found.strategies[1].violations) == ("rejected", broken.violations)
    assert "12 $/h" in (found.strategies[1].reason or "")


def test_a_plan_that_was_withheld_for_its_violations_is_rejected_too() -> None:
    withheld = replace(not_applicable(a_strategy("broken")), violations=("supply",))
    assert a_comparison(withheld).strategies[1].status == "rejected"


def test_an_infeasible_strategy_says_what_has_to_give() -> None:
    conflict = Conflict("demand/chat/long-short", 2.0, 1.0, "rps", "raise the budget")
    entry = a_comparison(ran(a_strategy("h100"), None, status="infeasible", conflicts=(conflict,))).strategies[1]
    assert entry.reason == "no such plan meets every limit (demand/chat/long-short)"
    assert entry.conflicts[0].remedy == "raise the budget"


def test_numbers_without_meaning_become_null() -> None:
    odd = replace(ran(a_strategy("odd"), 3.0, bound=float("inf"), power_watts=float("nan")), ratio=float("inf"))
    document = json.loads(document_json(comparison_of((ran(sutler(), 4.0), odd), a_translation(), created_at=NOW)))
    entry = document["strategies"][1]
    assert (entry["objective"]["bound"], entry["power_watts"], entry["ratio_to_sutler"]) == (None, None, None)
