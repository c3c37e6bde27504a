"""Histories end well; and where a bug of the past is put back, one of them ends badly."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import Server
from tests.service.faults.histories import a_world, run
from tests.service.running import ROOT

HISTORIES: Final = 12  # 2,000 take an hour: `make histories`
ENOUGH: Final = 300  # many times as many as it takes to find any of these
PACKAGES: Final = ("sutler", "solver", "service", "adapters", "migrations")


@dataclass(frozen=True)
class Bug:
    """What once was wrong, as a change of the code that is right now."""

    file: str
    right: str
    wrong: str


BUGS: Final = {
    "who has deleted a deployment still finds its plan": Bug(
        "service/web/state.py", "            self.notices.arrived(topic)", "            pass"
    ),
    "two deployments plan on the same machine": Bug(
        "service/workers/replan_job.py",
        "        if taken is None and budget is None:\n            return True",
        "        return True",
    ),
    "two deployments hold the same machine": Bug(
        "service/deployments/holdings/service.py",
        "    await _check_not_held_twice(connection, deployment, begun, places)\n",
        "",
    ),
}


def test_histories_end_well(postgres: Server) -> None:
    with a_world(postgres) as world:
        run(world, HISTORIES)
    assert world.done["histories"] >= HISTORIES


@contextmanager
def with_bug(bug: Bug, folder: Path) -> Iterator[Path]:
    """A copy of the code that has it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    path = folder / bug.file
    text = path.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1
    path.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")
    yield folder


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_the_past_is_found(name: str, postgres: Server, tmp_path: Path) -> None:
    with with_bug(BUGS[name], tmp_path) as code, a_world(postgres, PYTHONPATH=str(code)) as world:
        assert world.roles["api-0"].get("/healthz").ok
        with pytest.raises(AssertionError):
            run(world, ENOUGH)
        assert world.failures
