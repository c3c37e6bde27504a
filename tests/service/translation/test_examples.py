"""The examples are what they say: the paper's tables, and files that their scripts reproduce."""

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import to_problem
from sutler.solver import Plan, solve
from sutler.solver.catalog import gpu_facts
from tests.service.builders import NOW

EXAMPLES = Path(__file__).parents[3] / "examples"
# arXiv 2502.00722, Table 4, availability 1, and Table 5, trace 2, in % by (input, output) tokens
AVAILABILITY_1 = {"4090": 16, "a40": 12, "a6000": 8, "l40": 12, "a100": 6, "h100": 8}
TRACE_2 = {
    (2455, 18): 22,
    (824, 18): 5,
    (496, 18): 5,
    (2455, 253): 21,
    (824, 253): 5,
    (496, 253): 5,
    (2455, 510): 19,
    (824, 510): 6,
    (496, 510): 12,
}


def document(name: str) -> Any:
    return read_document(EXAMPLES / name)


def planned(name: str, **search: Any) -> Plan:
    """The example, with another `search` where one is given, and without alternatives."""
    problem = document(name)
    changed = {**problem, "search": {**problem["search"], **search}, "solver": {"alternatives": False}}
    return solve(to_problem(validate(ProblemDocument, changed), folder=None, now=NOW).problem)


def test_the_papers_market_has_its_prices_and_counts() -> None:
    gpus: Counter[str] = Counter()
    for offer in document("paper_market.json")["offers"]:
        gpus[offer["gpu"]] += offer["gpus"] * offer["available"]
        assert offer["gpus"] <= 8
        [price] = (f.value for f in gpu_facts(offer["gpu"], "paper_table1") if f.figure == "price_usd_per_hour")
        assert offer["price_usd_per_hour"] == pytest.approx(offer["gpus"] * float(price))
    assert gpus == AVAILABILITY_1


def test_the_papers_case_has_the_mix_of_its_trace() -> None:
    [model] = document("paper_case.yaml")["models"]
    shares = {(w["input_tokens"], w["output_tokens"]): 100 * w["rate_rps"] for w in model["workloads"]}
    assert shares == pytest.approx(TRACE_2)


def test_the_two_models_share_the_requests_80_to_20() -> None:
    small, large = (
        sum(workload["rate_rps"] for workload in model["workloads"])
        for model in document("two_models.yaml")["models"]
    )
    assert (small, large) == (pytest.approx(0.8), pytest.approx(0.2))


@pytest.mark.parametrize(
    ("script", "made"), [("make_vast_like_market.py", "vast_like_market.json"), ("make_trace.py", "trace.csv")]
)
def test_a_script_makes_the_same_file_again(tmp_path: Path, script: str, made: str) -> None:
    runpy.run_path(str(EXAMPLES / script))["main"](tmp_path / made)
    assert (tmp_path / made).read_bytes() == (EXAMPLES / made).read_bytes()


def test_the_marketplace_is_one_of_hundreds_of_single_hosts() -> None:
    offers = document("vast_like_market.json")["offers"]
    assert len(offers) >= 400
    assert all(offer["available"] == 1 and not offer.get("inter_machine_gb_per_s") for offer in offers)
    assert len({offer["machine_id"] for offer in offers}) > 50


@pytest.mark.slow
def test_prompts_and_answers_apart_save_over_a_quarter_of_the_cost_of_the_example() -> None:
    plan, without = (planned("disaggregated.yaml", disaggregation=choice) for choice in ("auto", "off"))
    assert plan.status == without.status == "optimal"
    assert {replica.role for replica in plan.replicas} == {"aggregated", "prefill", "decode"}
    assert plan.kv_transfers
    assert plan.cost_usd_per_hour == pytest.approx(0.70 * (without.cost_usd_per_hour or 0.0), rel=0.05)
    assert any(plan.rentals[replica.stages[0].rental].provider == "bolt" for replica in plan.replicas)


@pytest.mark.slow
def test_power_caps_save_almost_a_third_of_the_watts_of_the_example() -> None:
    plan, without = (planned("power_capped.yaml", power_caps_fraction=caps) for caps in ([0.5, 0.6, 0.7, 0.8], []))
    assert document("power_capped.yaml")["search"]["power_caps_fraction"] == [0.5, 0.6, 0.7, 0.8]
    assert plan.value == pytest.approx(0.683 * (without.value or 0.0), rel=0.02)
    caps = {replica.role: replica.stages[0].power_cap_watts for replica in plan.replicas}
    assert caps["decode"] is not None
    assert caps["decode"] < (caps["prefill"] or 0.0)
