"""`sutler plan --validate`: a plan is replayed, and corrected where it misses its limits."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.json_schemas import json_schema
from tests.service.builders import a_problem, a_snapshot, an_offer
from tests.service.simulation.test_cli_simulate import HEADER, estimated


def sutler(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps(document))
    return path


def planned(folder: Path, document: dict[str, Any], *arguments: str | Path) -> dict[str, Any]:
    result = sutler("plan", written(folder, document), "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(found, json_schema("plan"))
    return found


def bursts(folder: Path, *, of: int, every_s: int = 20) -> Path:
    """So many requests at once, again and again for ten minutes; 800 tokens in and 120 out."""
    seconds = [start for start in range(0, 600, every_s) for _ in range(of)]
    rows = (f"2026-01-01 00:{s // 60:02}:{s % 60:02}.0,800,120\n" for s in seconds)
    path = folder / "bursts.csv"
    path.write_text(HEADER + "".join(rows))
    return path


def test_without_it_nothing_is_replayed(tmp_path: Path) -> None:
    assert planned(tmp_path, estimated())["validation"] is None


@pytest.mark.slow
def test_a_plan_that_keeps_its_limits_stays_as_it_is(tmp_path: Path) -> None:
    plain, tried = planned(tmp_path, estimated()), planned(tmp_path, estimated(), "--validate")
    validation = tried["validation"]
    assert (validation["rounds"], validation["meets_all_limits"], validation["derated"]) == (1, True, [])
    assert {limit["metric"] for limit in validation["limits"]} == {"ttft", "tpot"}
    assert tried["cost_usd_per_hour"] == plain["cost_usd_per_hour"]


def a_bursty_problem(folder: Path) -> dict[str, Any]:
    """60 requests at once, three per second on average: one H100 carries the mean, but not the bursts in time."""
    document = estimated()
    [model] = document["models"]
    trace = bursts(folder, of=60)
    document["models"] = [
        {
            "name": "chat",
            "model": "llama-3-8b",
            "precision": "bf16",
            "slo": {"ttft_p90_s": 1.0, "tpot_p90_s": 0.2},
            "trace": {"file": trace.name, "buckets": 1},
        }
    ]
    assert model["name"] == "chat"
    return document


def document_workload(plan: dict[str, Any]) -> str:
    [workload] = plan["models"][0]["workloads"]
    return str(workload["name"])


@pytest.mark.slow
def test_bursts_that_the_closed_form_does_not_see_are_planned_for(tmp_path: Path) -> None:
    document = a_bursty_problem(tmp_path)
    plain, tried = planned(tmp_path, document), planned(tmp_path, document, "--validate")
    validation = tried["validation"]
    assert validation["meets_all_limits"]
    assert validation["rounds"] > 1
    [derated] = validation["derated"]
    assert derated["stages"] == [{"gpu": "h100-sxm", "tensor_parallel": 1}]
    assert derated["workload"] == document_workload(tried)
    assert 0 < derated["fraction"] < 1
    first, *others = validation["tried"]
    assert (first["round"], first["meets_all_limits"], first["value"]) == (0, False, plain["cost_usd_per_hour"])
    assert first["most_missed_fraction"] > 0
    assert validation["rounds"] == len(validation["tried"])
    cheapest = min(one["cost_usd_per_hour"] for one in others if one["meets_all_limits"])
    assert tried["cost_usd_per_hour"] == cheapest
    assert tried["cost_usd_per_hour"] > plain["cost_usd_per_hour"]
    assert "since it missed limits when it was simulated" in tried["evidence"][0]["detail"]
    [ttft] = [limit for limit in validation["limits"] if limit["metric"] == "ttft"]
    assert ttft["within_fraction"] >= 0.9


@pytest.mark.slow
def test_the_corrected_plan_keeps_its_limits_when_it_is_simulated_again(tmp_path: Path) -> None:
    made = planned(tmp_path, a_bursty_problem(tmp_path), "--validate")
    (tmp_path / "plan.json").write_text(json.dumps(made))
    trace = tmp_path / "bursts.csv"
    again = sutler("simulate", tmp_path / "plan.json", "--trace", trace, "--at-rated-load", "--json")
    assert json.loads(again.stdout)["meets_all_limits"]


def test_limits_that_no_lighter_load_keeps_are_told(tmp_path: Path) -> None:
    """900 at once, all of them on the only machine: the last waits for all prompts before it, however seldom."""
    document = a_bursty_problem(tmp_path)
    bursts(tmp_path, of=900, every_s=300)
    offers = [an_offer(gpu="h100-sxm", gpus=1, available=1, price_usd_per_hour=2.5)]
    document["market"] = {"offers": a_snapshot(*offers)}
    made = planned(tmp_path, document, "--validate")
    assert not made["validation"]["meets_all_limits"]
    assert any(
        warning.startswith("replayed, this plan misses limits (chat: ttft p90") for warning in made["warnings"]
    )


@pytest.mark.slow
def test_where_no_plan_takes_its_place_the_first_one_stays_with_what_it_misses(tmp_path: Path) -> None:
    """The bursts need two machines; there is one."""
    document = a_bursty_problem(tmp_path)
    offers = [an_offer(gpu="h100-sxm", gpus=1, available=1, price_usd_per_hour=2.5)]
    document["market"] = {"offers": a_snapshot(*offers)}
    made = planned(tmp_path, document, "--validate")
    assert len(made["replicas"]) == 1
    assert (made["validation"]["meets_all_limits"], made["validation"]["derated"]) == (False, [])
    assert "replayed, this plan misses limits" in " ".join(made["warnings"])


def test_that_a_measured_configuration_is_counted_on_for_less_makes_it_no_slower(tmp_path: Path) -> None:
    document = estimated()
    row = {"model": "chat", "stages": [{"gpu": "h100-sxm", "tensor_parallel": 1}], "rps": {"short": 20, "long": 6}}
    document["throughput"] = {"table": [row]}
    full = planned(tmp_path, document)
    half = json.loads(json.dumps(full))
    derated = {"model": "chat", "stages": [{"gpu": "h100-sxm", "tensor_parallel": 1}], "fraction": 0.5}
    half["evidence"] = [{**one, "rps": one["rps"] / 2} for one in full["evidence"]]
    nothing = {"traffic": "", "requests": 0, "rounds": 1, "meets_all_limits": True, "limits": []}
    half["validation"] = {**nothing, "derated": [derated]}
    latencies = []
    for name, plan in (("full", full), ("half", half)):
        (tmp_path / f"{name}.json").write_text(json.dumps(plan))
        found = json.loads(sutler("simulate", tmp_path / f"{name}.json", "--poisson", "--json").stdout)
        latencies.append(found["models"][0]["e2e"])
    assert latencies[0] == latencies[1]


def test_people_are_told_what_was_replayed(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, a_bursty_problem(tmp_path)), "--validate")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "every limit is met (after" in words
    assert "of its estimated rate" in words
    assert "tried: as planned at first:" in words
    assert "the best of them is this plan" in words


def test_a_plan_without_limits_has_none_to_meet(tmp_path: Path) -> None:
    document = estimated()
    document["models"][0]["slo"] = {}
    result = sutler("plan", written(tmp_path, document), "--validate")
    assert "there is no limit to meet" in " ".join(result.stdout.split())


def test_another_trace_than_the_problems_own_can_be_named(tmp_path: Path) -> None:
    trace = bursts(tmp_path, of=2)
    made = planned(tmp_path, estimated(), "--validate", "--trace", trace)
    assert made["validation"]["requests"] == 60
    assert made["validation"]["traffic"] == "the recorded requests at the rate of the plan"


def test_a_trace_without_validation_is_refused(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, estimated()), "--trace", "trace.csv")
    assert result.exit_code == 2
    assert "goes with --validate" in result.stderr


def test_a_plan_of_measured_rates_alone_is_replayed_where_the_architecture_is_known(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, a_problem()), "--validate", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["validation"] is not None


def test_an_infeasible_problem_has_nothing_to_replay(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, estimated(budget_usd_per_hour=0.1)), "--validate", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["validation"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["AzureLLMInferenceTrace_conv.csv", pytest.param("AzureLLMInferenceTrace_code.csv", marks=pytest.mark.slow)],
)
def test_a_plan_for_an_azure_trace_keeps_a_p99_for_99_percent_of_its_requests(name: str, tmp_path: Path) -> None:
    trace = Path(__file__).parents[4] / "shared" / "data" / "traces" / name
    if not trace.exists():
        pytest.skip(f"{name} is not beside the checkout, as shared/data/traces/{name}")
    document = estimated()
    document["models"] = [
        {
            "name": "chat",
            "model": "llama-3-8b",
            "slo": {"ttft_p99_s": 5.0, "tpot_p99_s": 0.2},
            "trace": {"file": str(trace), "buckets": 9},
        }
    ]
    offers = [an_offer(gpu="h100-sxm", gpus=1, available=20, price_usd_per_hour=2.5)]
    document["market"] = {"offers": a_snapshot(*offers)}
    validation = planned(tmp_path, document, "--validate")["validation"]
    assert validation["meets_all_limits"]
    assert all(limit["within_fraction"] >= 0.99 for limit in validation["limits"])
