"""Histories end well; and where a bug of the past is put back, one of them ends badly."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import Server
from tests.service.faults.histories import a_world, run
from tests.service.running import ROOT

HISTORIES: Final = 8  # 2,000 take an hour: `make histories`
ENOUGH: Final = 300  # many times as many as it takes to find any of these
PACKAGES: Final = ("sutler", "solver", "service", "adapters", "migrations")


@dataclass(frozen=True)
class Bug:
    """What once was wrong, as a change of the code that is right now, and how a history tells of it.

    `steps`: what it takes, so that it is found soon; among all steps it takes minutes.
    """

    file: str
    right: str
    wrong: str
    told: str
    steps: tuple[str, ...]


BUGS: Final = {
    "who has deleted a deployment still finds its plan": Bug(
        "service/web/state.py",
        "            self.notices.arrived(topic)",
        "            pass",
        "its plan is still there",
        ("replan", "change"),
    ),
    "two deployments plan on the same machine": Bug(
        "service/workers/replan_job.py",
        "        if taken is None and budget is None:\n            return True",
        "        return True",
        "planned twice",
        ("carry_out", "report", "move_the_market", "delay", "hold_a_row"),
    ),
    "two deployments hold the same machine": Bug(
        "service/deployments/holdings/service.py",
        "    await _check_not_held_twice(connection, deployment, begun, places)\n",
        "",
        "held twice",
        ("report_one_machine_for_both", "carry_out"),
    ),
}


def test_histories_end_well(postgres: Server) -> None:
    with a_world(postgres) as world:
        run(world, HISTORIES)
    assert world.done["histories"] >= HISTORIES


def put_back(bug: Bug, folder: Path) -> None:
    """Into a copy of the code."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    path = folder / bug.file
    text = path.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1
    path.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_the_past_is_found(name: str, postgres: Server, tmp_path: Path) -> None:
    put_back(BUGS[name], tmp_path)
    with a_world(postgres, PYTHONPATH=str(tmp_path)) as world, pytest.raises(AssertionError, match=BUGS[name].told):
        run(world, ENOUGH, only=BUGS[name].steps)
