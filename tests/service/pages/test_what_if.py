"""What a form of what-if changes about a problem, and how its answer is drawn."""

from typing import Any, Final

import pytest

from sutler.service.documents.changes import changed
from sutler.service.documents.errors import DocumentError
from sutler.service.pages.what_if import FRONTIER, changes_of, variants_of

PROBLEM: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost"},
    "budget_usd_per_hour": 20,
    "models": [
        {
            "name": "a.b*",
            "slo": {"ttft_p90_s": 2.0},
            "workloads": [
                {"name": "x", "input_tokens": 400, "output_tokens": 200, "rate_rps": 2.0},
                {"name": "y", "input_tokens": 400, "output_tokens": 200, "rate_rps": 3.0},
            ],
        },
        {"name": "c", "workloads": [{"name": "x", "input_tokens": 1, "output_tokens": 1, "rate_rps": 1.0}]},
    ],
}


def with_changes(given: dict[str, str]) -> Any:
    return changed(PROBLEM, changes_of(PROBLEM, given))


def test_nothing_given_changes_nothing_but_the_time_that_it_takes() -> None:
    assert with_changes({}) == {**PROBLEM, "solver": {"time_limit_s": 5.0}}


def test_load_changes_the_rates_of_all_workloads_whatever_they_are_called() -> None:
    found = with_changes({"load": "2"})
    assert [w["rate_rps"] for model in found["models"] for w in model["workloads"]] == [4.0, 6.0, 2.0]


def test_money_limits_places_and_precision_go_where_the_problem_has_them() -> None:
    given = {"budget": "7.5", "ttft_p90_s": "1", "tpot_p90_s": "0.05", "precision": "fp8", "regions": "US, EU,"}
    found = with_changes({**given, "contracts": "on_demand,interruptible", "providers": "vastai"})
    assert found["budget_usd_per_hour"] == 7.5
    assert [model["slo"] for model in found["models"]] == [{"ttft_p90_s": 1.0, "tpot_p90_s": 0.05}] * 2
    assert {model["precision"] for model in found["models"]} == {"fp8"}
    filters = {"regions": ["US", "EU"], "contracts": ["on_demand", "interruptible"], "providers": ["vastai"]}
    assert found["market"]["filter"] == filters


def test_a_frontier_is_over_loads_where_the_load_is_given_and_over_budgets_else() -> None:
    by_load = variants_of(PROBLEM, {"load": "2", "frontier": "1"})
    assert [one["models[0].workloads[0].rate_rps"] for one in by_load] == [4.0, *(2.0 * 2 * f for f in FRONTIER)]
    most = {**PROBLEM, "objective": {"kind": "max_throughput"}}
    by_budget = variants_of(most, {"frontier": "1"})
    assert [one.get("budget_usd_per_hour") for one in by_budget] == [None, *(20 * f for f in FRONTIER)]


@pytest.mark.parametrize("text", ["-1", "0", "nothing", "1e400", "nan", "inf", "1;2"])
@pytest.mark.parametrize("field", ["budget", "load", "ttft_p90_s", "seconds"])
def test_a_number_that_cannot_be_meant_is_refused_by_its_name(field: str, text: str) -> None:
    with pytest.raises(DocumentError, match=f"{field}: .*must be a number above 0"):
        changes_of(PROBLEM, {field: text})


def test_nobody_has_a_page_search_for_an_hour() -> None:
    assert changes_of(PROBLEM, {"seconds": "3600"})["solver.time_limit_s"] == 60.0
