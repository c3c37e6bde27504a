"""The Terraform example, applied by a real terraform: it makes everything once, then only what changed."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from os import environ
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from sutler.service.documents.plan import PlanDocument
from tests.examples.stand_in import StandIn
from tests.service.deployments.diff.fleets import (
    On,
    a_fleet,
    a_machine,
    a_replica,
    a_route,
    an_infeasible_fleet,
    one_replica_each,
)

MODULE = Path(__file__).parents[2] / "examples" / "terraform"
BINARY = shutil.which("terraform")
NO_CHANGES, CHANGES = 0, 2  # of `plan -detailed-exitcode`

pytestmark = pytest.mark.skipif(BINARY is None, reason="needs terraform 1.4 or newer on the PATH")


class Workspace:
    """A copy of the example in a folder of its own, initialised; the key comes from the environment."""

    def __init__(self, folder: Path, service: StandIn) -> None:
        self.folder = folder
        self.service = service
        shutil.copytree(MODULE, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
        (folder / "cli.tfrc").touch()
        self.run("init", "-input=false")

    def run(self, *words: str, expected: int = 0, environment: Mapping[str, str] | None = None) -> str:
        """The standard output; the exit status must be as expected."""
        assert BINARY is not None
        done = subprocess.run(
            [BINARY, *words, "-no-color"],
            cwd=self.folder,
            env=self._environment(environment or {}),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in environ.items() if not name.startswith("TF_")}
        return {
            **inherited,
            "CHECKPOINT_DISABLE": "1",
            "TF_CLI_CONFIG_FILE": str(self.folder / "cli.tfrc"),
            "TF_HTTP_USERNAME": "anyone",
            "TF_HTTP_PASSWORD": self.service.key,
            "TF_VAR_url": self.service.url,
            "TF_VAR_deployment": "chat",
            **more,
        }

    def apply(self, plan: PlanDocument) -> None:
        self.service.publish("chat", plan)
        self.run("apply", "-auto-approve", "-input=false")

    def changes(self, plan: PlanDocument) -> dict[str, list[str]]:
        """What a new plan would change: actions by `kind`, one for each resource that is not left alone. That its
        revision is acknowledged is left out."""
        self.service.publish("chat", plan)
        self.run("plan", "-out=next.tfplan", "-input=false")
        shown = json.loads(self.run("show", "-json", "next.tfplan"))
        found: dict[str, list[str]] = {}
        for change in shown["resource_changes"]:
            actions = "+".join(change["change"]["actions"])
            if actions != "no-op" and change["name"] != "acknowledged":
                found.setdefault(f"{actions} {change['name']}", []).append(change["index"])
        return found


@pytest.fixture
def workspace(tmp_path: Path, service: StandIn) -> Workspace:
    return Workspace(tmp_path / "terraform", service)


def counts(changes: Mapping[str, list[str]]) -> dict[str, int]:
    return {kind: len(keys) for kind, keys in changes.items()}


def test_the_module_is_valid_and_formatted(workspace: Workspace) -> None:
    workspace.run("validate")
    workspace.run("fmt", "-check", "-diff")


def test_the_first_apply_makes_every_machine_replica_and_route(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    listed = workspace.run("state", "list").split()
    kinds = [address.partition("[")[0] for address in listed if address.startswith("terraform_data")]
    made = {"rental": 2, "replica": 2, "route": 1, "acknowledged": 1}
    assert Counter(kinds) == {f"terraform_data.{kind}": count for kind, count in made.items()}


def test_where_nobody_takes_the_acknowledgement_the_rest_stays_and_it_is_said(workspace: Workspace) -> None:
    workspace.service.publish("chat", one_replica_each(1))
    said = workspace.run("apply", "-auto-approve", "-input=false")
    assert "not acknowledged: sutler deployments ack NAME --revision 1" in said
    assert workspace.service.key not in said
    assert workspace.service.key not in (workspace.folder / "terraform.tfstate").read_text(encoding="utf-8")
    assert "terraform_data.rental" in workspace.run("state", "list")


def test_acknowledging_can_be_left_to_others(workspace: Workspace) -> None:
    workspace.service.publish("chat", one_replica_each(1))
    said = workspace.run("apply", "-auto-approve", "-input=false", environment={"TF_VAR_acknowledge": "false"})
    assert "curl" not in said
    assert "acknowledged" not in workspace.run("state", "list")


def test_the_same_plan_again_changes_nothing(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    workspace.run("plan", "-detailed-exitcode", "-input=false", expected=NO_CHANGES)


def test_one_more_machine_makes_that_machine_and_its_replica(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    changed = workspace.changes(one_replica_each(3, revision=2))
    assert counts(changed) == {"create rental": 1, "create replica": 1, "update route": 1}
    assert changed["create rental"] == ["vastai/123/on_demand/4xh100-sxm/3"]


def test_a_replica_that_goes_takes_nothing_else_with_it(workspace: Workspace) -> None:
    """The first of two rentals goes, so that every index and every replica id of the plan shifts."""
    keeps = a_machine("2", gpu="a100-sxm4-80gb")
    second = a_replica("chat-1", On(1), gpu="a100-sxm4-80gb")
    workspace.apply(a_fleet(a_machine("1"), keeps, replicas=(a_replica("chat-0", On(0)), second)))
    left = a_fleet(keeps, replicas=(a_replica("chat-0", On(0), gpu="a100-sxm4-80gb"),), revision=2)
    changed = workspace.changes(left)
    assert counts(changed) == {"delete rental": 1, "delete replica": 1, "update route": 1}
    assert changed["delete rental"] == ["vastai/1/on_demand/4xh100-sxm/1"]


def test_one_of_two_replicas_on_a_machine_goes_and_the_machine_stays(workspace: Workspace) -> None:
    half, other = a_replica("chat-0", On(gpus=2)), a_replica("chat-1", On(gpus=2, first=2))
    workspace.apply(a_fleet(replicas=(half, other)))
    changed = workspace.changes(a_fleet(replicas=(half,), revision=2))
    assert counts(changed) == {"delete replica": 1, "update route": 1}


def test_other_shares_change_the_route_alone(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    shares = {"chat-0": 0.75, "chat-1": 0.25}
    changed = workspace.changes(one_replica_each(2, routing=(a_route(shares),), revision=2))
    assert changed == {"update route": ["chat/long-short"]}


def test_a_price_that_moves_by_a_cent_changes_no_resource(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    dearer = one_replica_each(2).model_copy(update={"rentals": (a_machine(count=2, price_usd_per_hour=9.06),)})
    assert workspace.changes(dearer) == {}


def test_other_engine_settings_change_the_replica_in_place(workspace: Workspace) -> None:
    workspace.apply(a_fleet())
    args = {"model": "meta-llama/Meta-Llama-3-70B", "tensor_parallel_size": 4, "max_num_seqs": 100}
    changed = workspace.changes(a_fleet(replicas=(a_replica("chat-0", engine_args=args),), revision=2))
    assert counts(changed) == {"update replica": 1}


def test_a_changed_plan_is_applied_and_then_settled(workspace: Workspace) -> None:
    workspace.apply(one_replica_each(2))
    workspace.apply(one_replica_each(1, revision=2))
    workspace.run("plan", "-detailed-exitcode", "-input=false", expected=NO_CHANGES)
    machines: dict[str, Any] = json.loads(workspace.run("output", "-json", "machines"))
    assert list(machines) == ["vastai/123/on_demand/4xh100-sxm/1"]


def test_an_infeasible_plan_stops_terraform_and_removes_nothing(workspace: Workspace) -> None:
    workspace.apply(a_fleet())
    workspace.service.publish("chat", an_infeasible_fleet())
    said = workspace.run("apply", "-auto-approve", "-input=false", expected=1)
    assert "409" in said
    assert "terraform_data.rental" in workspace.run("state", "list")


def test_a_plan_that_costs_too_much_is_refused(workspace: Workspace) -> None:
    workspace.service.publish("chat", a_fleet())
    said = workspace.run("plan", "-input=false", expected=1, environment={"TF_VAR_most_usd_per_hour": "9"})
    assert "The plan costs 9.05 USD per hour" in said


def test_the_wrong_key_is_refused(workspace: Workspace) -> None:
    workspace.service.publish("chat", a_fleet())
    said = workspace.run("plan", "-input=false", expected=1, environment={"TF_HTTP_PASSWORD": "no-key"})
    assert "HTTP remote state endpoint requires auth" in said


def test_a_key_in_the_environment_is_written_nowhere(workspace: Workspace) -> None:
    workspace.apply(a_fleet())
    workspace.changes(one_replica_each(2, revision=2))
    files = [path for path in workspace.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"terraform.tfstate", "next.tfplan"}
    shown = workspace.run("show", "-json", "next.tfplan") + workspace.run("output", "-json")
    assert workspace.service.key not in shown
    with ZipFile(workspace.folder / "next.tfplan") as planned:
        contents = {name: planned.read(name) for name in planned.namelist()}
    contents |= {path.name: path.read_bytes() for path in files}
    assert [name for name, content in contents.items() if workspace.service.key.encode() in content] == []


def test_a_key_in_a_variable_is_in_no_output(workspace: Workspace) -> None:
    workspace.service.publish("chat", a_fleet())
    by_variable = {"TF_VAR_key": workspace.service.key, "TF_HTTP_PASSWORD": "", "TF_HTTP_USERNAME": ""}
    said = workspace.run("apply", "-auto-approve", "-input=false", environment=by_variable)
    assert workspace.service.key not in said + workspace.run("output", "-json", environment=by_variable)
