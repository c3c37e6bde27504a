"""`sutler plan --give-up`: the flag that takes the fleet named as the best at low rates for a little more."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sutler.service.cli.app import app

EXAMPLE = Path(__file__).parents[3] / "examples" / "paper_case.yaml"
# the cheapest machine carries little more than half of the load where its rates are at their low end
NEAR = """
objective: {kind: min_cost}
models:
  - name: chat
    model: llama-3.1-8b
    workloads: [{name: all, input_tokens: 1000, output_tokens: 200, rate_rps: 6}]
market:
  offers:
    taken_at: 2026-01-01T00:00:00Z
    offers:
    - {provider: a, offer_id: risky, gpu: rtx-5090, gpus: 1, available: 1, contract: on_demand,
       price_usd_per_hour: 0.996}
    - {provider: a, offer_id: known, gpu: h100-sxm, gpus: 1, available: 1, contract: on_demand,
       price_usd_per_hour: 1.0}
"""


def sutler(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_the_flag_takes_the_fleet_that_the_plan_names(tmp_path: Path) -> None:
    problem = tmp_path / "near.yaml"
    problem.write_text(NEAR)
    code, out, _ = sutler("plan", str(problem), "--json")
    assert code == 0
    plan = json.loads(out)
    near = plan["robustness"]["near_optimum"]
    assert [each["offer_id"] for each in plan["rentals"]] == ["risky"]
    assert [each["offer_id"] for each in near["rentals"]] == ["known"]
    assert plan["objective"]["optimum_value"] is None
    code, out, _ = sutler(
        "plan", str(problem), "--json", "--give-up", str(plan["robustness"]["near_optimum_fraction"])
    )
    assert code == 0
    taken = json.loads(out)
    assert (taken["objective"]["value"], taken["rentals"]) == (near["value"], near["rentals"])
    assert taken["objective"]["optimum_value"] == pytest.approx(plan["objective"]["value"])
    assert taken["robustness"]["load_multiple_at_low"] == pytest.approx(near["load_multiple_at_low"])


@pytest.mark.parametrize(
    ("value", "remedy"), [("1", "objective.give_up_fraction: 1.0: must be below 1"), ("-1", "must be at least 0")]
)
def test_a_share_beyond_all_exits_2(value: str, remedy: str) -> None:
    code, out, err = sutler("plan", str(EXAMPLE), "--give-up", value)
    assert (code, out) == (2, "")
    assert remedy in err
