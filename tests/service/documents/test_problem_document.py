"""The problem document accepts what the contract shows and names every wrong field with a remedy."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import WHOLE_DOCUMENT, validate
from tests.service.builders import (
    DELETE,
    Path,
    a_model,
    a_problem,
    a_row,
    a_snapshot,
    a_workload,
    an_inline_model,
    an_offer,
    changed,
)

INF = float("inf")
NAN = float("nan")
WORKLOAD = ("models", 0, "workloads", 0)
ROW = ("throughput", "table", 0)

# (where, what is put there, field named in the error, part of the remedy)
WRONG: list[tuple[Path, object, str, str]] = [
    (("objectiv",), 1, "objectiv", "did you mean objective?"),
    (("objective",), DELETE, "objective", "is missing"),
    (("objective",), None, "objective", "mapping"),
    (("objective",), "max_throughput", "objective", "mapping"),
    (("objective", "kind"), "fastest", "objective.kind", "'min_cost'"),
    (("objective", "kind"), DELETE, "objective.kind", "'min_cost'"),
    (
        ("objective", "headroom_fraction"),
        0.1,
        "objective.headroom_fraction",
        "does not go with kind: max_throughput: leave it out",
    ),
    (("objective",), {"kind": "min_cost", "headroom_fraction": -0.1}, "objective.headroom_fraction", "at least 0"),
    (("objective",), {"kind": "min_power", "headroom_fraction": 1.5}, "objective.headroom_fraction", "at most 1"),
    (("objective", "give_up_fraction"), 1, "objective.give_up_fraction", "below 1"),
    (("objective", "give_up_fraction"), -0.01, "objective.give_up_fraction", "at least 0"),
    (("objective", "give_up_fraction"), "1 %", "objective.give_up_fraction", "must be a fraction of 1: write 0.01"),
    (("objective", "robust"), "yes", "objective.robust", "true or false"),
    (
        ("objective",),
        {"kind": "max_throughput", "give_up_fraction": 0.01, "robust": True},
        "objective.give_up_fraction",
        "keep one of the two",
    ),
    (("budget_usd_per_hour",), DELETE, "budget_usd_per_hour", "is required with max_throughput"),
    (("budget_usd_per_hour",), -3, "budget_usd_per_hour", "at least 0"),
    (("budget_usd_per_hour",), NAN, "budget_usd_per_hour", "finite"),
    (("budget_usd_per_hour",), INF, "budget_usd_per_hour", "finite"),
    (("budget_usd_per_hour",), 1e30, "budget_usd_per_hour", "at most 1e+07"),
    (("budget_usd_per_hour",), 10**400, "budget_usd_per_hour", "too large"),
    (("budget_usd_per_hour",), "15", "budget_usd_per_hour", "remove the quotes"),
    (("budget_usd_per_hour",), True, "budget_usd_per_hour", "must be a number"),
    (("models",), DELETE, "models", "is missing"),
    (("models",), [], "models", "must not be empty"),
    (("models",), {"chat": {}}, "models", "must be a list"),
    (("models",), [a_model(), a_model()], "models[1].name", "models[0] has the same name"),
    (("models", 0), "llama", "models[0]", "mapping"),
    (("models", 0, "name"), DELETE, "models[0].name", "is missing"),
    (("models", 0, "name"), "", "models[0].name", "must not be empty"),
    (("models", 0, "name"), 7, "models[0].name", "quotes"),
    (("models", 0, "name"), "a\x1b[31mb", "models[0].name", "control characters"),
    (("models", 0, "name"), "x" * 201, "models[0].name", "at most 200"),
    (("models", 0, "model"), 70, "models[0].model", "id of the catalogue"),
    (("models", 0, "model"), an_inline_model(layers=0), "models[0].model.layers", "at least 1"),
    (("models", 0, "model"), an_inline_model(kv_heads=3), "models[0].model.kv_heads", "divide heads"),
    (("models", 0, "model"), an_inline_model(hidden_size=510), "models[0].model.heads", "give head_dim"),
    (("models", 0, "model"), an_inline_model(vocabsize=1), "models[0].model.vocabsize", "did you mean vocab_size?"),
    (("models", 0, "precision"), "bf17", "models[0].precision", "'bf16'"),
    (("models", 0, "precision"), [], "models[0].precision", "must not be empty"),
    (("models", 0, "precision"), ["bf16", "fp9"], "models[0].precision[1]", "'fp8'"),
    (("models", 0, "precision"), ["fp8", "bf16", "fp8"], "models[0].precision", "names a precision twice"),
    (("models", 0, "precision"), ["bf16", "fp8"], "models[0].precision", "throughput.only to false"),
    (("models", 0, "precision"), {"weights": "fp8"}, "models[0].precision", "a list of them"),
    (("models", 0, "precision"), 8, "models[0].precision", "a list of them"),
    (("throughput", "table", 0, "precision"), "fp8", "throughput.table[0].precision", "use bf16"),
    (("models", 0, "kv_precision"), "none", "models[0].kv_precision", "'fp8'"),
    (("models", 0, "prefix_cache_hit_fraction"), 1.0, "models[0].prefix_cache_hit_fraction", "below 1"),
    (("models", 0, "engine"), "trt", "models[0].engine", "'tensorrt-llm'"),
    (("engine",), None, "engine", "'any-layout'"),
    (("models", 0, "max_context_tokens"), 0, "models[0].max_context_tokens", "at least 1"),
    (("models", 0, "max_context_tokens"), 2472, "models[0].max_context_tokens", "give at least 2473"),
    (("search",), {"mixed_gpu_pipelines": "yes"}, "search.mixed_gpu_pipelines", "true or false"),
    (("models", 0, "slo"), {"ttft_p80_s": 1.0}, "models[0].slo.ttft_p80_s", "did you mean ttft_p"),
    (("models", 0, "slo"), {"ttft_p90_s": 0}, "models[0].slo.ttft_p90_s", "above 0"),
    (("models", 0, "workloads"), DELETE, "models[0].workloads", "workloads or with trace"),
    (("models", 0, "workloads"), [], "models[0].workloads", "must not be empty"),
    (("models", 0, "workloads"), [a_workload(), a_workload()], "models[0].workloads[1].name", "same name"),
    (("models", 0, "trace"), {"file": "t.csv"}, "models[0].trace", "keep one of the two"),
    ((*WORKLOAD, "input_tokens"), 0, "models[0].workloads[0].input_tokens", "at least 1"),
    ((*WORKLOAD, "input_tokens"), -5, "models[0].workloads[0].input_tokens", "at least 1"),
    ((*WORKLOAD, "input_tokens"), 1e12, "models[0].workloads[0].input_tokens", "at most 1e+07"),
    ((*WORKLOAD, "output_tokens"), NAN, "models[0].workloads[0].output_tokens", "finite"),
    ((*WORKLOAD, "slo"), {"ttft_p80_s": 1.0}, "models[0].workloads[0].slo.ttft_p80_s", "did you mean ttft_p"),
    ((*WORKLOAD, "slo"), {"e2e_p99_s": 0}, "models[0].workloads[0].slo.e2e_p99_s", "above 0"),
    ((*WORKLOAD, "slo"), {"tpot_p50_s": "1"}, "models[0].workloads[0].slo.tpot_p50_s", "remove the quotes"),
    ((*WORKLOAD, "slo"), 2.0, "models[0].workloads[0].slo", "mapping"),
    (("models", 0, "max_utilisation_fraction"), 0, "models[0].max_utilisation_fraction", "above 0"),
    (("models", 0, "max_utilisation_fraction"), 1.1, "models[0].max_utilisation_fraction", "at most 1"),
    (("models", 0, "max_utilisation_fraction"), NAN, "models[0].max_utilisation_fraction", "finite"),
    ((*WORKLOAD, "rate_rps"), DELETE, "models[0].workloads[0].rate_rps", "is missing"),
    ((*WORKLOAD, "rate_rps"), 0, "models[0].workloads[0].rate_rps", "above 0"),
    ((*WORKLOAD, "requests"), 10, "models[0].workloads[0].requests", "give rate_rps instead"),
    (("objective", "kind"), "min_makespan", "models[0].workloads[0].rate_rps", "give requests instead"),
    (("market",), {"offer": "m.json"}, "market.offer", "did you mean offers?"),
    (("market", "offers"), 3, "market.offers", "path of a snapshot file"),
    (("market", "offers"), "a\0b", "market.offers", "control characters"),
    (("market", "live"), True, "market.live", "keep one of the two"),
    (("market", "live"), "yes", "market.live", "true or false"),
    (("market", "offers", "offers"), [], "market.offers.offers", "must not be empty"),
    (("market", "filter"), {"contracts": ["barter"]}, "market.filter.contracts[0]", "'on_demand'"),
    (("market", "filter"), {"min_reliability_fraction": 95}, "market.filter.min_reliability_fraction", "at most 1"),
    (("market", "filter"), {"providers": "vastai"}, "market.filter.providers", "must be a list"),
    (("market", "filter"), {"max_age_s": -1}, "market.filter.max_age_s", "above 0"),
    (("limits",), {"max_gpus": {"h100-sxm": -1}}, "limits.max_gpus.h100-sxm", "at least 0"),
    (("limits",), {"max_gpus": {"h100-sxm": 1.5}}, "limits.max_gpus.h100-sxm", "whole number"),
    (("limits",), {"max_gpus": 8}, "limits.max_gpus", "mapping"),
    (("limits",), {"max_utilisation_fraction": 0}, "limits.max_utilisation_fraction", "above 0"),
    (("limits",), {"max_share_per_provider_fraction": 2}, "limits.max_share_per_provider_fraction", "at most 1"),
    (("search",), {"tensor_parallel": [3]}, "search.tensor_parallel[0]", "1, 2, 4 or 8"),
    (("search",), {"tensor_parallel": [True]}, "search.tensor_parallel[0]", "1, 2, 4 or 8"),
    (("search",), {"tensor_parallel": []}, "search.tensor_parallel", "must not be empty"),
    (("search",), {"tensor_parallel": [2, 2]}, "search.tensor_parallel", "twice"),
    (("search",), {"max_pipeline_stages": 0}, "search.max_pipeline_stages", "at least 1"),
    (("solver",), {"method": "magic"}, "solver.method", "'exact'"),
    (("solver",), {"relative_gap": 0}, "solver.relative_gap", "at least 1e-06"),
    (("solver",), {"time_limit_s": 0}, "solver.time_limit_s", "above 0"),
    (("solver",), {"time_limit_s": 1e9}, "solver.time_limit_s", "at most 86400"),
    (("catalog",), "mine", "catalog", "'paper_table1'"),
    (("gpus",), {"t1": {}}, "gpus.t1.memory_gb", "is missing"),
    (("gpus",), {"t1": {"memory_gb": -80}}, "gpus.t1.memory_gb", "above 0"),
    (("throughput",), {"only": True}, "throughput.table", "no configuration would exist"),
    ((*ROW, "model"), "chta", "throughput.table[0].model", "use chat"),
    ((*ROW, "rps"), {"short": 1.0}, "throughput.table[0].rps", "use long-short"),
    ((*ROW, "rps"), {}, "throughput.table[0].rps", "must not be empty"),
    ((*ROW, "rps"), {"long-short": -1}, "throughput.table[0].rps.long-short", "at least 0"),
    ((*ROW, "stages"), [], "throughput.table[0].stages", "must not be empty"),
    ((*ROW, "stages", 0, "tensor_parallel"), 3, "throughput.table[0].stages[0].tensor_parallel", "1, 2, 4 or 8"),
    (("throughput", "table"), [a_row(), a_row()], "throughput.table[1].stages", "merge the two rows"),
]


def problems_of(document: object) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        validate(ProblemDocument, document)
    return [(problem.field, problem.remedy) for problem in caught.value.problems]


@pytest.mark.parametrize(("path", "value", "field", "remedy"), WRONG)
def test_a_wrong_field_is_named_with_its_remedy(path: Path, value: object, field: str, remedy: str) -> None:
    found = problems_of(changed(a_problem(), path, value))
    assert any(f == field and remedy in r for f, r in found), found


@pytest.mark.parametrize(("path", "value", "field", "remedy"), WRONG)
def test_a_wrong_field_brings_no_error_elsewhere(path: Path, value: object, field: str, remedy: str) -> None:
    found = {f for f, _ in problems_of(changed(a_problem(), path, value))}
    assert found == {field}


def test_of_very_many_wrong_fields_the_first_are_named_and_the_others_counted() -> None:
    with pytest.raises(DocumentError) as caught:
        validate(ProblemDocument, a_problem(**{f"k{number}": 1 for number in range(50_000)}))
    *named, last = caught.value.problems
    assert [problem.field for problem in named] == [f"k{number}" for number in range(100)]
    assert (last.field, last.remedy.split(" ")[0]) == (WHOLE_DOCUMENT, "49900")


def test_every_wrong_field_is_reported_at_once() -> None:
    document = a_problem(budget_usd_per_hour=-1, catalog="mine", limits={"max_power_watts": 0})
    assert [field for field, _ in problems_of(document)] == [
        "budget_usd_per_hour",
        "limits.max_power_watts",
        "catalog",
    ]


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_a_document_that_is_no_mapping_is_refused(document: object) -> None:
    [(field, remedy)] = problems_of(document)
    assert field == "(document)"
    assert "mapping" in remedy


@pytest.mark.parametrize("kind", ["min_cost", "min_power"])
def test_binary_search_answers_no_cost_or_power_question(kind: str) -> None:
    document = a_problem(objective={"kind": kind}, solver={"method": "binary_search"})
    [(field, remedy)] = problems_of(document)
    assert field == "solver.method"
    assert "use method: exact" in remedy


@pytest.mark.parametrize("kind", ["min_cost", "min_power"])
def test_cost_and_power_need_no_budget(kind: str) -> None:
    document = changed(
        a_problem(objective={"kind": kind, "headroom_fraction": 0.1}), ("budget_usd_per_hour",), DELETE
    )
    assert validate(ProblemDocument, document).budget_usd_per_hour is None


def test_the_problem_of_the_contract_is_accepted() -> None:
    document: dict[str, Any] = {
        "objective": {"kind": "min_cost", "headroom_fraction": 0.1},
        "budget_usd_per_hour": 15,
        "models": [
            {
                "name": "chat",
                "model": "llama-3-70b",
                "precision": "bf16",
                "slo": {"ttft_p90_s": 2.0, "tpot_p90_s": 0.05, "e2e_p99_s": 30},
                "kv_precision": "bf16",
                "prefix_cache_hit_fraction": 0.0,
                "workloads": [a_workload()],
            },
            {
                "name": "traced",
                "model": an_inline_model(),
                "trace": {"file": "path.csv", "buckets": 9, "duration_s": None},
            },
        ],
        "market": {
            "offers": "market.json",
            "filter": {
                "providers": [],
                "regions": [],
                "gpus": [],
                "contracts": ["on_demand", "reserved"],
                "min_reliability_fraction": 0.95,
                "max_age_s": 900,
            },
        },
        "limits": {
            "max_gpus": {"h100-sxm": 8},
            "max_share_per_provider_fraction": 1.0,
            "max_utilisation_fraction": 0.85,
            "max_power_watts": None,
        },
        "search": {"tensor_parallel": [1, 2, 4, 8], "max_pipeline_stages": 4, "mixed_gpu_pipelines": True},
        "solver": {"method": "exact", "relative_gap": 0.001, "time_limit_s": 30, "tolerance_fraction": 0.001},
        "catalog": "default",
        "gpus": {"t1": {"memory_gb": 80}},
        "throughput": {"table": [a_row("t1", 1)]},
    }
    assert validate(ProblemDocument, document).models[1].name == "traced"


def test_defaults_are_those_of_the_contract() -> None:
    document = validate(ProblemDocument, a_problem())
    assert document.market.filter.contracts == ("on_demand", "reserved")
    assert document.search.tensor_parallel == (1, 2, 4, 8)
    assert document.search.max_pipeline_stages == 4
    assert document.limits.max_share_per_provider_fraction == 1.0
    assert (document.solver.relative_gap, document.solver.time_limit_s) == (0.001, 30)


def test_a_gpu_named_by_a_bare_number_is_that_gpu() -> None:
    document = a_problem(limits={"max_gpus": {4090: 8}}, market={"offers": a_snapshot(an_offer(gpu=4090))})
    checked = validate(ProblemDocument, document)
    assert checked.limits.max_gpus == {"4090": 8}


def test_a_document_does_not_change_after_it_was_checked() -> None:
    document = validate(ProblemDocument, a_problem())
    with pytest.raises(ValueError, match="frozen"):
        document.budget_usd_per_hour = 1.0
