"""The example's keys and the service's are the same, for any plan."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.deployments.terraform import state_document
from sutler.service.documents.plan import PlanDocument
from tests.service.deployments.diff.fleets import LINEAGE, On, a_fleet, a_machine, a_replica, on_four

EXAMPLES = Path(__file__).parents[2] / "examples"
SOLVED = sorted((Path(__file__).parents[1] / "service" / "export" / "plans").glob("*.json"))


@pytest.fixture(scope="module")
def sutler_fleet() -> Any:
    """The module beside the script, found as the script finds it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("sutler_fleet")


def keys_of(fleet: Any) -> dict[str, set[str]]:
    return {name: set(getattr(fleet, name)) for name in ("rentals", "replicas", "routing")}


def outputs_of(plan: PlanDocument) -> dict[str, set[str]]:
    outputs = json.loads(state_document(plan, deployment="chat", lineage=LINEAGE))["outputs"]
    return {name: set(outputs[name]["value"]) for name in ("rentals", "replicas", "routing")}


def as_json(plan: PlanDocument) -> Any:
    return json.loads(plan.model_dump_json(by_alias=True))


@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_the_keys_of_a_solved_plan_are_those_of_its_terraform_outputs(path: Path, sutler_fleet: Any) -> None:
    plan = PlanDocument.model_validate_json(path.read_bytes())
    assert keys_of(sutler_fleet.fleet_of(as_json(plan))) == outputs_of(plan)


RUNS = st.lists(st.tuples(st.sampled_from(["chat", "co/de"]), st.lists(st.integers(0, 3), min_size=1, max_size=2)))


@given(RUNS)
def test_the_keys_of_any_fleet_are_those_of_the_service(sutler_fleet: Any, runs: list[tuple[str, list[int]]]) -> None:
    """Machines 0 and 1 are copies of one offer, 2 and 3 of another."""
    used = [0] * 4
    replicas = []
    for number, (model, machines) in enumerate(runs):
        places = [On(machine // 2, machine % 2, 1, used[machine] + at) for at, machine in enumerate(machines)]
        for machine in machines:
            used[machine] += 2
        replicas.append(a_replica(f"r-{number}", *places, model=model))
    plan = a_fleet(a_machine("1", count=2), a_machine("2", count=2), replicas=tuple(replicas))
    fleet = sutler_fleet.fleet_of(as_json(plan))
    assert keys_of(fleet) == outputs_of(plan)
    where = {
        part.key: [stage["rental"] for stage in fleet.replicas[part.key]["stages"]] for part in keyed(plan).replicas
    }
    assert where == {part.key: list(part.machines) for part in keyed(plan).replicas}


@pytest.mark.parametrize("bend", [True, False])
def test_another_phase_is_a_matter_of_routes_where_engines_take_either(sutler_fleet: Any, bend: bool) -> None:
    plans = [on_four(roles, bend=bend) for roles in ("ppd", "pdd")]
    fleets = [sutler_fleet.fleet_of(as_json(plan)) for plan in plans]
    for plan, fleet in zip(plans, fleets, strict=True):
        assert keys_of(fleet) == outputs_of(plan)
    actions = {change.action for change in sutler_fleet.changes(*fleets)}
    assert actions == ({"route"} if bend else {"start", "stop", "route"})
