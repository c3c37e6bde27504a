"""What docs/holdings.md says is so."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from sutler.service.cli.deployments.app import deployments
from sutler.service.deployments.diff.schema import REROUTE, START, STOP, DiffDocument
from sutler.service.deployments.holdings.schemas import HoldingDocument, HoldingsDocument, HoldingsResource
from sutler.service.documents.validation import validate
from sutler.solver.catalog import load_gpus

PAGE: Final = (Path(__file__).parents[4] / "docs" / "holdings.md").read_text(encoding="utf-8")


def test_the_report_on_the_page_is_one() -> None:
    [body] = re.findall(r"-d '(\[.*?\])'", PAGE, re.DOTALL)
    found = validate(HoldingsDocument, json.loads(body))
    assert {holding.gpu for holding in found.holdings} <= set(load_gpus("default"))
    assert validate(HoldingsDocument, yaml.safe_load(body)) == found


def test_every_field_of_a_holding_is_on_the_page_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(HoldingDocument.model_fields)


@pytest.mark.parametrize("name", ["lost", "missing", "unplanned", "reported"])
def test_what_the_answer_is_said_to_have_it_has(name: str) -> None:
    assert f"`{name}" in PAGE
    assert name in HoldingsResource.model_fields


def test_the_phases_are_in_the_order_of_the_page() -> None:
    phases = re.findall(r"^(\d)\. \*\*`(\w+)`\*\*", PAGE, re.MULTILINE)
    assert [(int(phase), name) for phase, name in phases] == [(START, "start"), (REROUTE, "reroute"), (STOP, "stop")]
    assert {name for _, name in phases} <= set(DiffDocument.model_fields)


def test_every_command_on_the_page_is_there() -> None:
    used = set(re.findall(r"sutler deployments (\w+)", PAGE))
    known = {
        command.name or command.callback.__name__ for command in deployments.registered_commands if command.callback
    }
    assert used
    assert used <= known
