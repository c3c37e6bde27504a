"""What a plan says where prefill and decode replicas or power caps were asked for and something stands against it."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import to_problem
from sutler.service.wording.words import unit_words
from sutler.solver import Plan, solve
from tests.service.builders import NOW

CARDS = {"big": {"memory_gb": 80, "tdp_watts": 700}, "small": {"memory_gb": 40, "tdp_watts": 300}}


def a_row(gpu: str, role: str, rps: float, *, stages: int = 1) -> dict[str, Any]:
    pipeline = [{"gpu": gpu, "tensor_parallel": 1}] * stages
    return {"model": "chat", "stages": pipeline, "role": role, "rps": {"w": rps}}


def planned(*rows: dict[str, Any], search: dict[str, Any], **changes: Any) -> Plan:
    """Two big and four small GPUs on one site with a network, rates as measured."""
    site = {"provider": "acme", "contract": "on_demand", "site": "s", "inter_machine_gb_per_s": 25, "gpus": 1}
    offers = [
        {**site, "offer_id": "x", "gpu": "big", "available": 2, "price_usd_per_hour": 4.0},
        {**site, "offer_id": "y", "gpu": "small", "available": 4, "price_usd_per_hour": 1.0},
    ]
    workload = {"name": "w", "input_tokens": 2000, "output_tokens": 200, "rate_rps": 1}
    document = {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "mine", "workloads": [workload]}],
        "gpus": CARDS,
        "throughput": {"only": True, "table": list(rows)},
        "market": {"offers": {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": offers}},
        "search": search,
        **changes,
    }
    return solve(to_problem(validate(ProblemDocument, document), folder=None, now=NOW).problem)


def test_rates_of_one_phase_that_did_not_count_are_named() -> None:
    plan = planned(a_row("big", "aggregated", 2.0), a_row("big", "prefill", 5.0), search={"disaggregation": "off"})
    assert plan.warnings == (
        "1 measured rate of prefill and decode replicas did not count: search.disaggregation is off",
    )


@pytest.mark.parametrize(("choice", "words"), [("off", "disaggregation: auto or only"), ("auto", "decode row")])
def test_a_table_of_one_phase_alone_says_what_it_lacks(choice: str, words: str) -> None:
    [conflict] = planned(a_row("big", "prefill", 5.0), search={"disaggregation": choice}).conflicts
    assert words in conflict.remedy


def test_a_pipeline_of_one_phase_comes_with_a_warning() -> None:
    rows = (a_row("big", "prefill", 5.0), a_row("small", "decode", 2.0, stages=2))
    [warning] = planned(*rows, search={"disaggregation": "auto"}).warnings
    assert warning.startswith("chat-1: ")
    assert "pipelines that guess tokens, prefill or decode alone" in warning


@pytest.mark.parametrize(
    ("changes", "words"),
    [({}, "watts matter to min_power"), ({"objective": {"kind": "min_power"}}, "hold without a power cap")],
)
def test_caps_that_did_not_count_are_named(changes: dict[str, Any], words: str) -> None:
    search = {"power_caps_fraction": [0.5]}
    [warning] = planned(a_row("big", "aggregated", 2.0), search=search, **changes).warnings
    assert words in warning


def test_a_cap_that_no_card_takes_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"power_caps_fraction\[0\]"):
        planned(a_row("big", "aggregated", 2.0), search={"power_caps_fraction": [1e-9]})


def test_where_only_phases_are_allowed_a_mix_is_offered_as_the_way_out() -> None:
    rows = (a_row("big", "prefill", 1.0), a_row("small", "decode", 0.1))
    conflicts = planned(*rows, search={"disaggregation": "only"}).conflicts
    assert all("set search.disaggregation to auto" in conflict.remedy for conflict in conflicts)


def test_units_are_words_also_before_other_words() -> None:
    assert unit_words("gb_per_s between machines") == "GB/s between machines"
