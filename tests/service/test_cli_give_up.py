"""`sutler plan --give-up`: the flag that takes the fleet named as the best at low rates for a little more."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper_case.yaml"


def sutler(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_the_flag_takes_the_fleet_that_the_plan_names() -> None:
    code, out, _ = sutler("plan", str(EXAMPLE), "--json")
    assert code == 0
    plan = json.loads(out)
    near = plan["robustness"]["near_optimum"]
    assert plan["objective"]["optimum_value"] is None
    code, out, _ = sutler(
        "plan", str(EXAMPLE), "--json", "--give-up", str(plan["robustness"]["near_optimum_fraction"])
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
