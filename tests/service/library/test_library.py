"""What Python programs call: the same as the commands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sutler
from sutler.service.cli.app import app
from sutler.service.documents.examples import CHAT as EXAMPLE
from sutler.service.documents.fields import document_json

QUICK = {"solver.alternatives": False}


def test_everything_that_is_promised_is_there() -> None:
    for name in sutler.__all__:
        assert getattr(sutler, name).__doc__, name
    with pytest.raises(AttributeError, match="nothing"):
        sutler.nothing  # noqa: B018


def test_a_problem_is_planned_from_its_file_its_content_or_its_document(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(EXAMPLE), encoding="utf-8")
    document = sutler.ProblemDocument.model_validate(EXAMPLE)
    plans = [sutler.plan(given, changes=QUICK) for given in (path, str(path), EXAMPLE, document)]
    assert {plan.objective.value for plan in plans} == {plans[0].objective.value}
    assert plans[0].status == "optimal"


def test_a_path_in_a_problem_is_relative_to_its_file_or_to_the_folder_named(tmp_path: Path) -> None:
    market = EXAMPLE["market"]["offers"]
    (tmp_path / "market.json").write_text(json.dumps(market), encoding="utf-8")
    problem = {**EXAMPLE, "market": {"offers": "market.json"}}
    (tmp_path / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
    assert sutler.plan(tmp_path / "problem.json", changes=QUICK).status == "optimal"
    assert sutler.plan(problem, folder=tmp_path, changes=QUICK).status == "optimal"
    with pytest.raises(sutler.DocumentError, match=r"market\.offers"):
        sutler.plan(problem, folder=tmp_path / "nowhere")


@pytest.mark.slow
def test_an_alternative_is_nearly_the_best_plan_without_the_gpu() -> None:
    """Among hundreds of candidates, of which an alternative's are others than the plan's."""
    path = Path(__file__).parents[3] / "examples" / "min_cost_slo.yaml"
    plan = sutler.plan(path)
    assert len(plan.alternatives) == 2
    for alternative in plan.alternatives:
        changes = {**QUICK, "limits": {"max_gpus": {alternative.without: 0}}}
        best = sutler.plan(path, changes=changes)
        assert alternative.value == pytest.approx(best.objective.value, rel=0.01)


def test_wrong_fields_are_named() -> None:
    with pytest.raises(sutler.DocumentError, match=r"budget_usd_per_hour.*-1"):
        sutler.plan(EXAMPLE, changes={"budget_usd_per_hour": -1})
    with pytest.raises(sutler.DocumentError, match="unknown key"):
        sutler.plan({**EXAMPLE, "budgets": 3})


@pytest.mark.parametrize("given", [3, None, [], "objective: {kind: min_cost}\nmodels: []\n"])
def test_what_is_no_problem_is_named(given: Any) -> None:
    with pytest.raises(sutler.DocumentError, match="PROBLEM"):
        sutler.plan(given)


@pytest.mark.parametrize("changes", ["budget_usd_per_hour=20", [("a", 1)], {3: 3}])
def test_what_are_no_changes_is_named(changes: Any) -> None:
    with pytest.raises(sutler.DocumentError, match="mapping of paths to values"):
        sutler.plan(EXAMPLE, changes=changes)


@pytest.mark.parametrize("variants", [{"budget_usd_per_hour": 20}, "budget_usd_per_hour=20", ["a"], [{}] * 101])
def test_what_are_no_variants_is_named(variants: Any) -> None:
    with pytest.raises(sutler.DocumentError, match=r"variants|changes"):
        sutler.what_if(EXAMPLE, variants)


def test_variants_may_be_generated() -> None:
    found = sutler.what_if(EXAMPLE, ({"objective.headroom_fraction": share} for share in (0.1, 0.3)))
    assert len(found.variants) == 2


def test_a_plan_is_validated_where_that_is_asked_for() -> None:
    plan = sutler.plan(EXAMPLE, changes=QUICK, validate=True)
    assert plan.validation is not None
    assert plan.validation.traffic.startswith("Poisson")


def test_an_estimate_is_that_of_the_command() -> None:
    asked = (
        "--model llama-3.1-8b --gpu h100-sxm --precision bf16 --input-tokens 500 --output-tokens 250 --concurrency 9"
    )
    shown = CliRunner().invoke(app, ["estimate", *asked.split(), "--json"])
    found = sutler.estimate(
        "llama-3.1-8b", "h100-sxm", precision="bf16", input_tokens=500, output_tokens=250, concurrency=9
    )
    assert document_json(found) == shown.stdout


def test_a_plan_is_simulated_as_it_is_as_a_mapping_and_from_its_file(tmp_path: Path) -> None:
    plan = sutler.plan(EXAMPLE, changes=QUICK)
    path = tmp_path / "plan.json"
    path.write_text(document_json(plan), encoding="utf-8")
    found = [sutler.simulate(given, duration_s=30, seed=3) for given in (plan, json.loads(path.read_text()), path)]
    assert len({one.requests for one in found}) == 1
    assert found[0].models[0].requests > 0
    with pytest.raises(sutler.DocumentError, match="duration"):
        sutler.simulate(plan, duration_s=1e-9)
    for wrong in ({"duration_s": -1}, {"duration_s": "abc"}, {"load_multiple": 0}, {"traces": "trace.csv"}):
        with pytest.raises(sutler.DocumentError, match=next(iter(wrong))):
            sutler.simulate(plan, **wrong)
    with pytest.raises(sutler.DocumentError, match="leave lengths and duration_s out"):
        sutler.simulate(plan, traces={"chat": path}, duration_s=3)


def test_importing_sutler_imports_nothing_that_is_slow() -> None:
    code = "import sys, sutler; sys.exit(str({'pydantic', 'numpy', 'ortools', 'fastapi'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
