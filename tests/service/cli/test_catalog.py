"""`sutler catalog` as people and scripts see it."""

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.catalog import catalog
from sutler.solver.catalog import load_gpus, load_models


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(catalog)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_json_lists_every_gpu_with_the_source_of_its_figures() -> None:
    listed = json.loads(run("gpus", "--json").stdout)
    assert {gpu["slug"] for gpu in listed} == set(load_gpus())
    h100 = next(gpu for gpu in listed if gpu["slug"] == "h100-sxm")
    assert h100["memory_gb"] == h100["facts"]["memory_gb"]["value"] == 80
    assert h100["facts"]["memory_gb"].keys() == {"value", "source", "as_of", "basis", "confidence"}


def test_json_lists_every_model() -> None:
    listed = json.loads(run("models", "--json").stdout)
    assert {model["id"] for model in listed} == set(load_models())
    assert listed[0]["facts"]["layers"]["value"] == listed[0]["layers"]


def test_the_papers_gpus_are_another_edition() -> None:
    listed = json.loads(run("gpus", "--catalog", "paper_table1", "--json").stdout)
    prices = {gpu["slug"]: gpu["facts"]["price_usd_per_hour"]["value"] for gpu in listed}
    assert prices["h100"] == 2.99


def test_people_see_a_table_with_every_entry() -> None:
    gpus = run("gpus").stdout
    models = run("models").stdout
    assert all(slug in gpus for slug in load_gpus())
    assert all(model in models for model in load_models())


@pytest.mark.parametrize(
    ("part", "name", "shown"), [("gpus", "RTX_4090", "rtx-4090"), ("models", "bloom", "bloom-176b")]
)
def test_one_entry_shows_the_basis_of_every_figure(part: str, name: str, shown: str) -> None:
    result = run(part, name)
    assert shown in result.stdout
    assert "basis" in result.stdout
    assert "2026-11" in result.stdout


def test_an_unknown_name_is_bad_input() -> None:
    result = run("gpus", "RTX 6000")
    assert result.exit_code == 2
    assert "rtx-6000-ada" in result.stderr
    assert result.stdout == ""
