"""The application document accepts what the contract shows and names every wrong field with a remedy."""

from pathlib import Path as FilePath
from typing import Any

import jsonschema
import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import json_schema
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.translate import translate
from tests.service.builders import DELETE, Path, a_snapshot, changed
from tests.service.offline.builders import a_reader, a_writer, an_application, an_asker, an_edge, read_application

EXAMPLES = FilePath(__file__).parents[3] / "examples"
REQUESTS = ("models", 0, "requests")
OUTPUT = ("models", 1, "output_tokens")
LOAD = {"table": [{"model": "judge", "tensor_parallel": 2, "seconds": 60}]}

# (where, what is put there, field named in the error, part of the remedy)
WRONG: list[tuple[Path, object, str, str]] = [
    (("modles",), 1, "modles", "did you mean models?"),
    (("models",), [], "models", "must not be empty"),
    (("models", 0), a_writer("judge"), "models[1].name", "models[0] has the same name"),
    (("models", 0, "model"), 13, "models[0].model", "id of the catalogue"),
    (("models", 0, "precision"), "bf17", "models[0].precision", "'bf16'"),
    (("models", 0, "max_output_tokens"), 0, "models[0].max_output_tokens", "at least 1"),
    (REQUESTS, 7, "models[0].requests", "{recorded: ...}"),
    ((*REQUESTS, "count"), 0, "models[0].requests.count", "at least 1"),
    ((*REQUESTS, "count"), 2.5, "models[0].requests.count", "whole number"),
    ((*REQUESTS, "cuont"), 2, "models[0].requests.cuont", "did you mean count?"),
    ((*REQUESTS, "input_tokens"), DELETE, "models[0].requests.input_tokens", "is missing"),
    ((*REQUESTS, "input_tokens"), "long", "models[0].requests.input_tokens", "{lognormal: ...}"),
    ((*REQUESTS, "chain_length"), DELETE, "models[0].requests.chain_length", "edges[0] makes chains"),
    (REQUESTS, {"recorded": {"input_tokens": [5]}}, "models[0].requests", "recorded requests have no chains"),
    (REQUESTS, DELETE, "models[0].requests", "edges[0] makes chains"),
    (REQUESTS, {"trace": {"fiel": "x.csv"}}, "models[0].requests.trace.file", "is missing: Path of the CSV"),
    (
        ("models", 1, "requests"),
        {"count": 3, "input_tokens": 5, "chain_length": 2},
        "models[1].requests.chain_length",
        "add an edge from judge to itself",
    ),
    (
        ("models", 1, "requests"),
        {"recorded": {"input_tokens": [5, 6], "output_tokens": [7]}},
        "models[1].requests.recorded.output_tokens",
        "has 1 entries where input_tokens has 2",
    ),
    (OUTPUT, DELETE, "models[1].output_tokens", "say how long its answers are"),
    (
        REQUESTS,
        {"count": 2, "input_tokens": 5, "chain_length": 2, "trace": {"file": "x.csv"}},
        "models[0].requests",
        "must be one of {count: ..., input_tokens: ...}, {trace: ...}",
    ),
    (OUTPUT, True, "models[1].output_tokens", "must be a whole number"),
    (
        OUTPUT,
        {"uniform": {"low": 5, "high": 6}, "empirical": {"tokens": [4]}},
        "models[1].output_tokens",
        "or one of {uniform: ...}",
    ),
    (OUTPUT, {"uniform": {"low": 5, "high": 4}}, "models[1].output_tokens.uniform.high", "at least low (5)"),
    (OUTPUT, {"uniform": {"low": 5, "hi": 6}}, "models[1].output_tokens.uniform.hi", "did you mean high?"),
    (OUTPUT, {"uniform": {"low": 5, "high": 6}, "mean": 3}, "models[1].output_tokens.mean", "unknown key"),
    (OUTPUT, {"lognormal": {"mean": 0.5, "standard_deviation": 1}}, "models[1].output_tokens.lognormal.mean", "1"),
    (
        OUTPUT,
        {"lognormal": {"mean": 5, "standard_deviation": 1, "low": 9, "high": 8}},
        "models[1].output_tokens.lognormal.high",
        "at least low (9)",
    ),
    (
        OUTPUT,
        {"empirical": {"tokens": [1, 2], "weights": [1]}},
        "models[1].output_tokens.empirical.weights",
        "has 1 entries where tokens has 2",
    ),
    (
        OUTPUT,
        {"empirical": {"tokens": [1], "weights": [0]}},
        "models[1].output_tokens.empirical.weights",
        "one must be above",
    ),
    (
        OUTPUT,
        {"quantiles": {"fractions": [0, 0.9], "tokens": [1, 2]}},
        "models[1].output_tokens.quantiles.fractions",
        "ascend from 0 to 1",
    ),
    (
        OUTPUT,
        {"quantiles": {"fractions": [0, 1], "tokens": [3, 2]}},
        "models[1].output_tokens.quantiles.tokens",
        "must ascend",
    ),
    (
        OUTPUT,
        {"quantiles": {"fractions": [0, 1], "tokens": [1, 2, 3]}},
        "models[1].output_tokens.quantiles.fractions",
        "has 2 entries where tokens has 3",
    ),
    (("models", 0, "prompt_tokens"), 30, "models[0].prompt_tokens", "no edge brings it any"),
    (("edges", 1, "to"), "jugde", "edges[1].to", "use summary, judge"),
    (("edges", 1, "from"), "x", "edges[1].from", "use summary, judge"),
    (("edges", 1, "outputs"), "first", "edges[1].outputs", "'every'"),
    (("edges", 1, "copies"), 0, "edges[1].copies", "at least 1"),
    (("edges", 1, "share_fraction"), 0, "edges[1].share_fraction", "above 0"),
    (("edges", 1, "source"), "summary", "edges[1].source", "known here: copies, fan_in, from"),
    (("edges", 0), an_edge("summary", "judge"), "edges[1]", "edges[0] has the same ends"),
    (("edges", 0, "copies"), 2, "edges[0].copies", "leave it out"),
    (("edges", 0, "outputs"), "every", "edges[0].outputs", "leave it out"),
    (("edges", 0, "share_fraction"), 0.5, "edges[0].share_fraction", "leave it out"),
    (("hardware",), DELETE, "hardware", "or give a market"),
    (("market",), {"offers": a_snapshot()}, "market", "keep one of the two"),
    (("hardware", "gpus"), DELETE, "hardware.gpus", "say how many GPUs"),
    (("hardware", "gpus"), 0, "hardware.gpus", "at least 1"),
    (("hardware", "island_gpus"), 8, "hardware.island_gpus", "at most gpus (4)"),
    (("hardware", "islands"), [[0, 1], [2, 3]], "hardware.island_gpus", "keep one of the two"),
    (
        ("hardware",),
        {"gpu": "a100-sxm4-80gb", "islands": [[0, 1], [1, 2]]},
        "hardware.islands[1]",
        "GPU 1 is in islands[0]",
    ),
    (("hardware",), {"gpu": "a100-sxm4-80gb", "gpus": 4, "islands": [[0, 1]]}, "hardware.gpus", "islands list 2"),
    (("hardware", "across_gb_per_s"), -1, "hardware.across_gb_per_s", "at least 0"),
    (("hardware", "loading"), {"read_gb_per_s": 0}, "hardware.loading.read_gb_per_s", "above 0"),
    (
        ("hardware", "loading"),
        {"table": [{"model": "x", "tensor_parallel": 2, "seconds": 60}]},
        "hardware.loading.table[0].model",
        "use summary, judge",
    ),
    (("hardware", "loading"), {"table": LOAD["table"] * 2}, "hardware.loading.table[1]", "keep one of the two"),
    (("objective",), {"kind": "min_power"}, "objective.kind", "'min_time', 'min_cost'"),
    (("objective",), {}, "objective.kind", "must be one of 'min_time', 'min_cost'"),
    (("objective",), {"kind": "min_cost"}, "objective.deadline_s", "is missing"),
    (("objective",), {"kind": "min_cost", "deadline_s": 60}, "objective.kind", "needs a market"),
    (("objective",), {"kind": "min_time", "budget_usd": 5}, "objective.budget_usd", "only with a market"),
    (
        ("objective",),
        {"kind": "min_time", "budget_usd_per_hour": 5},
        "objective.budget_usd_per_hour",
        "only with a market",
    ),
    (("rental",), {"minimum_s": 60}, "rental", "only with a market"),
    (("limits",), {"max_gpus": 4}, "limits", "only with a market"),
    (("search",), {"tensor_parallel": [1, 1]}, "search.tensor_parallel", "twice"),
    (("search",), {"tensor_parallel": [3]}, "search.tensor_parallel[0]", "1, 2, 4 or 8"),
    (("search",), {"seed": -1}, "search.seed", "at least 0"),
    (("search",), {"max_sequences": 0}, "search.max_sequences", "at least 1"),
    (("gpus",), {"mine": {"memory_gb": 0}}, "gpus.mine.memory_gb", "above 0"),
]


@pytest.mark.parametrize(("where", "value", "field", "remedy"), WRONG)
def test_a_wrong_field_is_named_with_a_remedy(where: Path, value: object, field: str, remedy: str) -> None:
    with pytest.raises(DocumentError) as error:
        validate(ApplicationDocument, changed(an_application(), where, value))
    found = {problem.field: problem.remedy for problem in error.value.problems}
    assert field in found
    assert remedy in found[field]


@pytest.mark.parametrize(
    "right",
    [
        an_application(),
        an_application(hardware={"gpu": "a100-sxm4-80gb", "islands": [[0, 1], [2, 3, 4]], "loading": LOAD}),
        an_application(
            hardware={"gpu": "a100-sxm4-80gb", "gpus": 2, "across_gb_per_s": 0, "island_gb_per_s": 250.5},
            search={"tensor_parallel": [1, 2], "preemption": False, "keep_replicas": False, "time_limit_s": 5},
        ),
        changed(
            an_application(
                market={"offers": a_snapshot()},
                objective={"kind": "min_cost", "deadline_s": 3600},
                rental={"minimum_s": 60, "billing_increment_s": 60, "start_up_s": 0, "loading": LOAD},
                limits={"max_gpus": 16, "max_machines": 4},
            ),
            ("hardware",),
            DELETE,
        ),
        an_application(models=[an_asker(requests={"trace": {"file": "x.csv"}})], edges=[]),
        an_application(
            models=[an_asker(requests={"recorded": {"input_tokens": [3], "output_tokens": [4]}})], edges=[]
        ),
        an_application(models=[an_asker(output_tokens={"file": {"path": "x.csv", "column": "c"}})], edges=[]),
    ],
)
def test_what_the_contract_shows_is_accepted_and_survives_a_round_trip(right: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(json_schema("application")).validate(right)
    document = validate(ApplicationDocument, right)
    assert ApplicationDocument.model_validate_json(document.model_dump_json(by_alias=True)) == document


def test_a_problem_is_told_from_an_application() -> None:
    with pytest.raises(DocumentError, match=r"^APPLICATION: is a problem .*`sutler plan` plans it"):
        read_application(EXAMPLES / "min_cost_slo.yaml")


def test_the_schema_refuses_what_is_refused() -> None:
    for where, value in ((("extra",), 1), (("edges", 1, "copies"), 0), (OUTPUT, {"uniform": {"low": 1}})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed(an_application(), where, value), json_schema("application"))


@pytest.mark.parametrize("name", ["offline_chain.yaml", "offline_ensemble.yaml", "offline_rented.yaml"])
def test_an_example_fits_its_schema_and_translates(name: str) -> None:
    jsonschema.Draft202012Validator(json_schema("application")).validate(read_document(EXAMPLES / name))
    translation = translate(read_application(EXAMPLES / name), folder=EXAMPLES)
    assert (translation.hardware is None) == (translation.document.market is not None)
    assert len(translation.application.nodes) == len(translation.document.models)


def test_the_examples_are_the_chain_and_the_ensemble() -> None:
    chain, ensemble = (
        translate(read_application(EXAMPLES / f"offline_{name}.yaml"), folder=EXAMPLES)
        for name in ("chain", "ensemble")
    )
    assert chain.hardware is not None
    assert [island.gpus for island in chain.hardware.islands] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert chain.application.has_chains("summary")
    assert chain.application.sources("judge")[0].copies == 4
    assert [node.requests.items for node in ensemble.application.nodes] == [1000] * 3  # type: ignore[union-attr]


def test_a_file_that_is_no_mapping_is_refused(tmp_path: FilePath) -> None:
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(DocumentError, match="sutler schema application"):
        read_application(tmp_path / "list.yaml")
    with pytest.raises(DocumentError, match="does not exist"):
        read_application(tmp_path / "none.yaml")


def test_models_that_only_read_need_no_requests() -> None:
    assert validate(ApplicationDocument, an_application(models=[a_writer(), a_reader()])).models[1].requests is None
