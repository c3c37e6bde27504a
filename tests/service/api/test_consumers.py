"""The examples against the real service: what they do with plans that really change."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from requests import Response

from tests.examples.stand_in import StandIn
from tests.examples.test_provision import SCRIPT, Desk
from tests.examples.test_terraform import BINARY, NO_CHANGES, Workspace
from tests.postgres import Server
from tests.service.api.conftest import Guarded, guarding
from tests.service.builders import CHAT, changed
from tests.service.running import until

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {**CHAT, "solver": {"time_limit_s": 20}}
BUSIER = changed(QUICK, ("models", 0, "workloads", 0, "rate_rps"), 28)


@pytest.fixture(scope="module")
def guarded(postgres: Server) -> Iterator[Guarded]:
    """With time to prove a plan on a busy machine: what changes with the traffic is only certain of proven ones."""
    with guarding(postgres, "consumers") as service:
        yield service


@dataclass(frozen=True)
class Answering:
    """Where the examples find the service, and their key."""

    url: str
    key: str


def found(guarded: Guarded, scope: str) -> StandIn:
    return cast(StandIn, Answering(guarded.running.url, guarded.keys[scope]))


class DeskOf(Desk):
    """For a deployment of this name."""

    def __init__(self, folder: Path, service: StandIn, name: str) -> None:
        super().__init__(folder, service)
        self._name = name

    def command(self, *options: str) -> list[str]:
        return [sys.executable, str(SCRIPT), self._name, *options]


def planned(guarded: Guarded, name: str, problem: dict[str, Any], *, revision: int) -> dict[str, Any]:
    put = guarded.ask("plan", "PUT", f"/v1/deployments/{name}", json={"problem": problem})
    assert put.ok, put.text
    asked = {"params": {"after": revision - 1, "wait_s": 2}}
    answer = until(lambda: _if_there(guarded.ask("read", "GET", f"/v1/deployments/{name}/plan", **asked)))
    plan: dict[str, Any] = answer.json()
    assert plan["revision"] == revision
    return plan


def _if_there(answer: Response) -> Response | None:
    return answer if answer.status_code == 200 else None


@pytest.mark.skipif(BINARY is None, reason="needs terraform 1.4 or newer on the PATH")
def test_terraform_applies_a_real_plan_and_then_only_what_changed(
    guarded: Guarded, name: str, tmp_path: Path
) -> None:
    mine = {"TF_VAR_deployment": name}
    workspace = Workspace(tmp_path / "terraform", found(guarded, "plan"))
    first = planned(guarded, name, QUICK, revision=1)
    workspace.run("apply", "-auto-approve", "-input=false", environment=mine)
    before = set(workspace.run("state", "list").split())
    machines = sum(rental["count"] for rental in first["rentals"])
    held = guarded.ask("read", "GET", f"/v1/deployments/{name}/holdings").json()
    assert held["reported"]
    assert sum(holding["count"] for holding in held["holdings"]) == machines
    assert sum("terraform_data.rental[" in address for address in before) == machines
    workspace.run("plan", "-detailed-exitcode", "-input=false", expected=NO_CHANGES, environment=mine)
    planned(guarded, name, BUSIER, revision=2)
    workspace.run("plan", "-out=next.tfplan", "-input=false", environment=mine)
    changes = json.loads(workspace.run("show", "-json", "next.tfplan"))["resource_changes"]
    actions = {change["address"]: tuple(change["change"]["actions"]) for change in changes}
    assert actions.pop("terraform_data.acknowledged[0]") in {("delete", "create"), ("create", "delete")}
    machines_kept = [address for address in before if "terraform_data.rental[" in address and address in actions]
    assert machines_kept
    assert {actions[address] for address in machines_kept if "delete" not in actions[address]} == {("no-op",)}
    assert any(action == ("create",) for address, action in actions.items() if address not in before)
    workspace.run("apply", "-input=false", "next.tfplan", environment=mine)
    workspace.run("plan", "-detailed-exitcode", "-input=false", expected=NO_CHANGES, environment=mine)
    workspace.run("destroy", "-auto-approve", "-input=false", environment=mine)


def test_the_script_carries_out_a_real_plan_and_then_only_what_changed(
    guarded: Guarded, name: str, tmp_path: Path
) -> None:
    desk = DeskOf(tmp_path, found(guarded, "plan"), name)
    problem = tmp_path / "problem.yaml"
    problem.write_text(
        yaml.safe_dump(QUICK).replace("'2026-11-20T12:00:00Z'", "2026-11-20T12:00:00Z"), encoding="utf-8"
    )

    def run() -> list[str]:
        earlier = len(desk.calls())
        desk.run("--problem", str(problem), *desk.with_hook)
        return [call["action"] for call in desk.calls()[earlier:]]

    first = run()
    plan = guarded.ask("read", "GET", f"/v1/deployments/{name}/plan").json()
    assert first.count("rent") == sum(rental["count"] for rental in plan["rentals"])
    assert first.count("start") == len(plan["replicas"])
    assert run() == []
    problem.write_text(yaml.safe_dump(BUSIER), encoding="utf-8")
    then = run()
    assert 0 < then.count("rent") < first.count("rent")
