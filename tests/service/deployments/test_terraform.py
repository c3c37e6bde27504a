"""The Terraform state document: exactly typed outputs, in which a plan that changed little changes little."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.deployments.terraform import NothingToServeError, state_document
from sutler.service.documents.plan import PlanDocument
from tests.service.deployments.diff.fleets import (
    LINEAGE,
    On,
    a_fleet,
    a_machine,
    a_replica,
    a_route,
    an_infeasible_fleet,
    one_replica_each,
)
from tests.service.surviving import SURVIVING, on_two_providers

# Solved problems, one GPU up to pipelines over several machines.
SOLVED = sorted((Path(__file__).parents[1] / "export" / "plans").glob("*.json"))


def state(plan: PlanDocument) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(state_document(plan, deployment="chat", lineage=LINEAGE))
    return document


def values(plan: PlanDocument) -> dict[str, Any]:
    return {name: output["value"] for name, output in state(plan)["outputs"].items()}


def misfits(value: object, kind: Any, path: str = "") -> list[str]:
    """Where a value is not of a Terraform type: https://github.com/zclconf/go-cty/blob/v1.12.1/docs/json.md"""
    if isinstance(kind, str):
        python: tuple[type, ...] = {"string": (str,), "number": (int, float), "bool": (bool,)}[kind]
        fits = value is None or (isinstance(value, python) and isinstance(value, bool) == (kind == "bool"))
        return [] if fits else [f"{path}: {value!r} is no {kind}"]
    name, inner = kind
    if name == "list":
        assert isinstance(value, list)
        return [found for at, member in enumerate(value) for found in misfits(member, inner, f"{path}[{at}]")]
    assert isinstance(value, dict)
    if name == "object" and value.keys() != inner.keys():
        return [f"{path}: {value.keys() ^ inner.keys()}"]
    kinds = inner if name == "object" else dict.fromkeys(value, inner)
    return [found for key, member in value.items() for found in misfits(member, kinds[key], f"{path}.{key}")]


def test_it_says_where_requests_go_after_each_loss_by_the_keys_of_what_is_left() -> None:
    plan = on_two_providers(**SURVIVING)
    outputs = state(plan)["outputs"]
    after, replicas = outputs["routing_after_losses"], outputs["replicas"]["value"]
    assert misfits(after["value"], after["type"]) == []
    assert set(after["value"]) == {"provider/p", "provider/q"}
    for loss in after["value"].values():
        assert loss["lost"]
        assert all(key.startswith(f"{loss['name']}/") for lost in loss["lost"] for key in replicas[lost]["rentals"])
        assert set(loss["routing"]["chat/w"]["fractions"]) == set(replicas) - set(loss["lost"])
    assert values(on_two_providers())["routing_after_losses"] == {}


def test_it_is_a_state_of_version_4_without_resources() -> None:
    document = state(a_fleet(revision=7))
    assert {name: document[name] for name in ("version", "serial", "lineage", "resources", "check_results")} == {
        "version": 4,
        "serial": 7,
        "lineage": str(LINEAGE),
        "resources": [],
        "check_results": None,
    }


@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_every_output_of_a_solved_plan_has_exactly_the_type_it_states(path: Path) -> None:
    plan = PlanDocument.model_validate_json(path.read_bytes())
    outputs = state(plan)["outputs"]
    assert {found for output in outputs.values() for found in misfits(output["value"], output["type"])} == set()
    assert all(output["type"][:1] == ["map"] for name, output in outputs.items() if name != "plan")
    assert len(outputs["rentals"]["value"]) == sum(rental.count for rental in plan.rentals)
    assert len(outputs["replicas"]["value"]) == len(plan.replicas)


def test_the_types_do_not_depend_on_the_plan() -> None:
    odd = a_fleet(
        a_machine(site="vastai/host-9"),
        replicas=(a_replica("chat-0", engine_args={"model": "m", "enable_x": True, "share": 0.5}, max_batch=None),),
        throughput_rps=None,
    )
    plain, other = state(a_fleet())["outputs"], state(odd)["outputs"]
    assert {name: output["type"] for name, output in plain.items()} == {
        name: output["type"] for name, output in other.items()
    }
    assert [found for output in other.values() for found in misfits(output["value"], output["type"])] == []


@pytest.mark.parametrize("most", [None, 0.75])
def test_the_load_that_a_replica_may_carry_is_one_of_its_figures(most: float | None) -> None:
    found = values(a_fleet(replicas=(a_replica("chat-0", max_load_fraction=most),)))
    assert [figures["max_load_fraction"] for figures in found["replica_figures"].values()] == [most]


def test_the_same_plan_is_the_same_text() -> None:
    plan = one_replica_each(3)
    assert state_document(plan, deployment="chat", lineage=LINEAGE) == state_document(
        plan, deployment="chat", lineage=LINEAGE
    )


def test_figures_have_the_keys_of_what_they_are_about() -> None:
    found = values(one_replica_each(2))
    assert found["rental_figures"].keys() == found["rentals"].keys()
    assert found["replica_figures"].keys() == found["replicas"].keys()


def test_a_replica_names_machines_that_are_rented() -> None:
    plan = a_fleet(a_machine("1"), a_machine("2"), replicas=(a_replica("chat-0", On(0), On(1)),))
    found = values(plan)
    [replica] = found["replicas"].values()
    assert replica["rentals"] == list(found["rentals"])
    assert [stage["rental"] for stage in replica["stages"]] == replica["rentals"]


def test_prices_and_figures_that_move_leave_what_is_acted_on_as_it_is() -> None:
    before = one_replica_each(2)
    busier = tuple(
        replica.model_copy(update={"utilisation_fraction": 0.5, "throughput_rps": {"long-short": 2.0}})
        for replica in before.replicas
    )
    cent = a_machine(count=2, price_usd_per_hour=9.06)
    later = before.created_at + timedelta(hours=1)
    after = a_fleet(cent, replicas=busier, revision=2, created_at=later, throughput_rps=4.0)
    old, new = values(before), values(after)
    assert {name for name in old if old[name] != new[name]} == {"plan", "rental_figures", "replica_figures"}


def test_one_more_machine_changes_nothing_but_what_is_new_and_the_routes() -> None:
    old, new = values(one_replica_each(2)), values(one_replica_each(3))
    for name in ("rentals", "replicas"):
        assert new[name].items() > old[name].items()
    assert old["routing"].keys() == new["routing"].keys()


def test_noise_in_the_last_digits_is_not_shown() -> None:
    plan = a_fleet(cost_usd_per_hour=14.990000000000002)
    assert values(plan)["plan"]["cost_usd_per_hour"] == 14.99


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=9).filter(lambda given: sum(given) > 0.001))
def test_rounded_fractions_of_a_route_sum_to_one(weights: list[float]) -> None:
    shares = {f"chat-{number}": weight / sum(weights) for number, weight in enumerate(weights)}
    size = len(weights)
    replicas = tuple(a_replica(f"chat-{number}", On(machine=number)) for number in range(size))
    plan = a_fleet(a_machine(count=size), replicas=replicas, routing=(a_route(shares),))
    [route] = values(plan)["routing"].values()
    assert sum(round(share * 1_000_000) for share in route["fractions"].values()) == 1_000_000
    exact = keyed(plan).routes[0].fractions
    assert all(abs(share - exact[key]) <= 1e-6 for key, share in route["fractions"].items())


def test_engine_arguments_are_text_and_a_command() -> None:
    args = {
        "model": "m",
        "tensor_parallel_size": 4,
        "share": 0.5,
        "enable_prefix_caching": False,
        "async_scheduling": True,
        "odd": "-1",
    }
    [replica] = values(a_fleet(replicas=(a_replica("chat-0", engine_args=args),)))["replicas"].values()
    assert replica["engine_args"] == {
        "model": "m",
        "tensor_parallel_size": "4",
        "share": "0.5",
        "enable_prefix_caching": "false",
        "async_scheduling": "true",
        "odd": "-1",
    }
    words = "--tensor-parallel-size 4 --share 0.5 --no-enable-prefix-caching --async-scheduling --odd=-1"
    assert replica["command"] == ["vllm", "serve", "m", "--served-model-name", "chat", *words.split()]


def test_a_replica_that_vllm_cannot_start_has_no_command() -> None:
    uneven = a_replica("chat-0", On(gpus=2), On(gpus=1, first=2))
    [replica] = values(a_fleet(replicas=(uneven,)))["replicas"].values()
    assert replica["command"] == []


def test_an_infeasible_plan_is_an_error_that_says_what_to_do_and_never_an_empty_fleet() -> None:
    with pytest.raises(NothingToServeError, match=r"chat is infeasible.*raise budget_usd_per_hour") as raised:
        state(an_infeasible_fleet())
    assert raised.value.status == "infeasible"


def test_a_plan_that_was_not_found_in_time_is_an_error_too() -> None:
    with pytest.raises(NothingToServeError, match="time_limit_s"):
        state(a_fleet(status="unknown"))


def test_a_feasible_plan_is_served() -> None:
    assert values(a_fleet(status="feasible"))["plan"]["status"] == "feasible"
