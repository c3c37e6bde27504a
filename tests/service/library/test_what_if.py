"""A problem with one thing or another changed, side by side."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sutler
from sutler.service.cli.app import app
from sutler.service.cli.terminal.output import show
from sutler.service.cli.views.what_if import what_if_view
from sutler.service.documents.examples import CHAT as EXAMPLE
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument


def test_each_variant_is_what_planning_the_changed_problem_gives() -> None:
    variants: list[dict[str, Any]] = [
        {"objective.headroom_fraction": 0.5},
        {"market.filter.exclude.gpus": ["rtx-4090"]},
        {"models.chat.precision": "fp8"},
    ]
    told: list[VariantDocument] = []
    found = sutler.what_if(EXAMPLE, variants, on_planned=told.append)
    assert told == [found.base, *found.variants]
    assert [one.changes for one in found.variants] == variants
    for one in (found.base, *found.variants):
        alone = sutler.plan(EXAMPLE, changes={**one.changes, "solver.alternatives": False})
        assert one.objective == alone.objective
        assert one.rentals == alone.rentals
        assert one.replicas == len(alone.replicas)
    assert found.base.better_fraction == 0
    dearer, without, fp8 = (one.better_fraction or 0.0 for one in found.variants)
    assert dearer < 0
    assert without < 0
    assert fp8 > 0
    assert "rtx-4090" not in found.variants[1].gpus


def test_a_variant_without_a_market_is_an_answer_and_one_that_is_wrong_an_error() -> None:
    nothing = {"market.filter.gpus": ["h200-sxm"]}
    found = sutler.what_if(EXAMPLE, [nothing])
    assert found.variants[0].status == "no_market_data"
    assert "none of" in (found.variants[0].reason or "")
    with pytest.raises(sutler.DocumentError, match="precision"):
        sutler.what_if(EXAMPLE, [{"models.*.precision": "fp9"}])


def test_an_infeasible_variant_says_what_has_to_give() -> None:
    found = sutler.what_if(EXAMPLE, [{"budget_usd_per_hour": 0.5}])
    assert found.variants[0].status == "infeasible"
    assert [conflict.constraint for conflict in found.variants[0].conflicts] == ["budget"]
    assert found.variants[0].better_fraction is None


def test_a_name_that_leaves_nothing_out_is_noted() -> None:
    found = sutler.what_if(EXAMPLE, [{"market.filter.exclude.providers": ["vastai"]}])
    assert any("exclude.providers: vastai is none of the offers" in note for note in found.variants[0].notes)


def planned(*arguments: str, folder: Path, **others: Any) -> Any:
    path = folder / "problem.json"
    path.write_text(json.dumps({**EXAMPLE, **others}), encoding="utf-8")
    return CliRunner().invoke(app, ["plan", str(path), *arguments])


def test_commas_make_a_table_and_options_together_one_plan(tmp_path: Path) -> None:
    table = planned("--exclude", "rtx-4090,h100-sxm", "--budget", "9", folder=tmp_path)
    assert table.exit_code == 0
    rows = [line.split() for line in table.stdout.splitlines()]
    assert ["as", "it", "is"] in [row[:3] for row in rows]
    assert ["h100-sxm", "9"] in [row[:2] for row in rows] or ["9", "h100-sxm"] in [row[:2] for row in rows]
    both = planned("--exclude", "rtx-4090", "--exclude", "acme/large", folder=tmp_path)
    assert both.exit_code == 4
    assert "none of 2 offers is left" in both.stderr
    one = planned("--exclude", "rtx-4090", "--json", folder=tmp_path)
    assert {rental["gpu"] for rental in json.loads(one.stdout)["rentals"]} == {"h100-sxm"}


def test_json_is_the_document_and_options_of_the_solve_change_all(tmp_path: Path) -> None:
    shown = planned("--precision", "bf16,fp8", "--relative-gap", "0.05", "--json", folder=tmp_path)
    found = WhatIfDocument.model_validate_json(shown.stdout)
    assert [one.changes for one in found.variants] == [{"models.*.precision": p} for p in ("bf16", "fp8")]
    together = planned("--precision", "bf16", "--precision", "fp8", "--json", folder=tmp_path)
    assert json.loads(together.stdout)["schema"] == "sutler/plan/v1"


def test_the_command_ends_as_its_variants_do(tmp_path: Path) -> None:
    assert planned("--budget", "0.5,9", folder=tmp_path).exit_code == 0
    nothing = planned("--budget", "0.5,0.6", folder=tmp_path)
    assert nothing.exit_code == 3
    assert "What has to give with budget $/h 0.5" in nothing.stdout
    assert planned("--budget", "1,2", "--validate", folder=tmp_path).exit_code == 2
    wrong = planned("--set", "models.nobody.precision=fp8", folder=tmp_path)
    assert (wrong.exit_code, "known there are chat" in wrong.stderr) == (2, True)


def test_what_has_to_give_is_said_once_for_all_variants_in_which_it_is_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = sutler.what_if(EXAMPLE, [{"budget_usd_per_hour": 0.5}])
    (poor,) = found.variants
    as_poor = poor.model_copy(update={"changes": {**poor.changes, "objective.robust": True}})
    show(*what_if_view(found.model_copy(update={"variants": (poor, as_poor)})))
    shown = capsys.readouterr().out
    assert shown.count("What has to give") == 1
    assert "What has to give with budget $/h 0.5 or budget $/h 0.5, robust true" in shown


def test_a_robust_plan_and_a_region_are_asked_for_by_options(tmp_path: Path) -> None:
    robust = json.loads(planned("--robust", "--json", folder=tmp_path).stdout)
    assert robust["cost_usd_per_hour"] > json.loads(planned("--json", folder=tmp_path).stdout)["cost_usd_per_hour"]
    assert planned("--region", "US", folder=tmp_path).exit_code == 4
    assert planned("--contract", "spot", folder=tmp_path).exit_code == 4
