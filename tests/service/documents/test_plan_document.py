"""The plan document: the keys that scripts rely on, and JSON Schemas that say what is valid."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest

from sutler.service.deployments.schemas import NewDeploymentDocument
from sutler.service.documents.fields import document_json
from sutler.service.documents.kinds import DocumentName
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import DOCUMENTS, json_schema
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.plan import Plan
from tests.service.builders import NOW, a_plan, a_problem, a_robustness, a_snapshot, an_infeasible_plan, an_offer

EXAMPLES = Path(__file__).parents[3] / "examples"
ON_THE_STORE = "live_market.yaml"
DEPLOYMENT = "standing.yaml"
APPLICATION = "offline_"
PROBLEMS = [
    path
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if path.name != DEPLOYMENT and not path.name.startswith(APPLICATION)
]
PLAN_ID = UUID("00000000-0000-4000-8000-000000000001")


def issued(plan: Plan) -> dict[str, Any]:
    translation = to_problem(validate(ProblemDocument, a_problem()), folder=None, now=NOW)
    document = issue_plan(plan, translation, plan_id=PLAN_ID, created_at=NOW)
    parsed: dict[str, Any] = json.loads(document_json(document))
    return parsed


def check(name: DocumentName, document: object) -> None:
    jsonschema.Draft202012Validator(json_schema(name)).validate(document)


def test_the_keys_of_the_contract_are_there() -> None:
    document = issued(a_plan())
    assert document["schema"] == "sutler/plan/v1"
    assert (document["id"], document["revision"], document["status"]) == (str(PLAN_ID), 1, "optimal")
    assert document["created_at"] == "2026-11-20T12:00:20Z"
    assert document["objective"] == {
        "kind": "max_throughput",
        "value": 4.1,
        "bound": 4.1002,
        "relative_gap": 0.00005,
        "optimum_value": None,
    }
    assert document["makespan_s"] is None
    assert document["rentals"][0].items() >= {"offer_id": "123", "gpus": 4, "count": 1}.items()
    replica = document["replicas"][0]
    assert replica["throughput_rps"] == {"long-short": 4.1}
    assert replica["stages"][0].items() >= {"gpu": "h100-sxm", "layers": 80, "rental": 0, "machine": 0}.items()
    assert replica["engine_args"] == {"tensor_parallel_size": 4}
    assert document["routing"] == [{"model": "chat", "workload": "long-short", "fractions": {"chat-0": 1.0}}]
    assert document["binding"][0]["unit"] == "rps per usd_per_hour"
    assert document["market"].items() >= {"taken_at": "2026-11-20T12:00:00Z", "age_s": 20.0, "offers": 1}.items()
    assert document["evidence"][0]["source"] == "roofline"
    assert document["solver"].items() >= {"method": "exact", "seconds": 0.42, "candidates": 2099}.items()


def test_robustness_is_null_or_complete() -> None:
    assert issued(a_plan())["robustness"] is None
    document = issued(a_plan(robustness=a_robustness()))
    check("plan", document)
    found = document["robustness"]
    assert (found["value_at_low"], found["low_fraction"], found["verdict"]) == (2.05, 0.5, "better")
    assert (found["load_multiple_at_low"], found["reason"], found["bound_at_low"]) == (None, None, 3.01)
    other = found["alternative"]
    assert (other["value_at_low"], other["value"], other["cost_usd_per_hour"]) == (3.0, 3.6, 14.8)
    assert other["rentals"][0].items() >= {"gpu": "h100-sxm", "gpus": 4, "count": 2}.items()
    unproven = a_robustness(
        verdict="cannot_carry", alternative=None, bound_at_low=None, most_load_multiple_at_low=0.8
    )
    found = issued(a_plan(robustness=unproven))["robustness"]
    assert (found["alternative"], found["bound_at_low"], found["most_load_multiple_at_low"]) == (None, None, 0.8)


def test_an_infeasible_plan_carries_its_conflicts() -> None:
    document = issued(an_infeasible_plan())
    assert document["objective"]["value"] is None
    assert document["conflicts"][0]["constraint"] == "budget"
    check("plan", document)


def test_a_bound_that_says_nothing_is_null() -> None:
    document = issued(a_plan(status="unknown", value=None, bound=float("inf"), relative_gap=float("nan")))
    assert document["objective"]["bound"] is None
    assert document["objective"]["relative_gap"] is None


def test_a_solved_plan_fits_its_schema() -> None:
    translation = to_problem(validate(ProblemDocument, a_problem()), folder=None, now=NOW)
    plan = issue_plan(solve(translation.problem), translation, plan_id=PLAN_ID, created_at=NOW)
    document = json.loads(document_json(plan))
    check("plan", document)
    assert document["status"] == "optimal"
    assert document["throughput_rps"] == pytest.approx(3.0)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.name)
def test_an_example_problem_fits_its_schema_and_translates(path: Path) -> None:
    document: Any = read_document(path)
    check("problem", document)
    if path.name == ON_THE_STORE:
        document["market"]["offers"] = a_snapshot(an_offer(reliability_fraction=0.99))
    translation = to_problem(validate(ProblemDocument, document), folder=EXAMPLES, now=NOW)
    assert translation.problem.offers


def test_the_example_deployment_is_a_problem_that_stands() -> None:
    document: Any = read_document(EXAMPLES / DEPLOYMENT)
    check("problem", document["problem"])
    assert validate(NewDeploymentDocument, document).name == document["name"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*market.json")), ids=lambda path: path.name)
def test_an_example_market_fits_its_schema(path: Path) -> None:
    check("market", read_document(path))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_of_a_schema_says_what_it_means(name: DocumentName) -> None:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    parts = {name: schema, **schema.get("$defs", {})}
    silent = [
        f"{part}.{field}"
        for part, definition in parts.items()
        for field, meaning in definition.get("properties", {}).items()
        if not meaning.get("description") and "$ref" not in meaning  # the part that is meant says it
    ]
    assert silent == []


@pytest.mark.parametrize(
    "wrong",
    [
        a_problem(budget_usd_per_hour="15"),
        a_problem(extra=1),
        a_problem(models=[]),
        a_problem(market={"offers": {"taken_at": "2026-11-20T12:00:00Z", "offers": [an_offer(gpus=0)]}}),
    ],
)
def test_the_schema_refuses_what_sutler_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check("problem", wrong)
