"""The router's weights: exactly the plan's fractions."""

import json

import pytest
import yaml

from sutler.service.export import exported
from tests.service.export.plans import NAMES, a_plan
from tests.service.surviving import SURVIVING, on_two_providers


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_the_plans_fractions(name: str) -> None:
    plan = a_plan(name)
    weights = json.loads(exported(plan, "router").content)["weights"]
    assert sum(len(workloads) for workloads in weights.values()) == len(plan.routing)
    for route in plan.routing:
        assert weights[route.model][route.workload] == route.fractions
        assert sum(weights[route.model][route.workload].values()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_every_replica_that_runs_has_an_endpoint(name: str) -> None:
    document = json.loads(exported(a_plan(name), "router").content)
    weighted = {r for workloads in document["weights"].values() for shares in workloads.values() for r in shares}
    assert set(document["replicas"]) == weighted


def test_the_same_weights_come_with_compose_and_kubernetes() -> None:
    plan = a_plan("shared_machine")
    weights = json.loads(exported(plan, "router").content)["weights"]
    assert yaml.safe_load(exported(plan, "compose").content)["x-sutler-router"]["weights"] == weights
    config = next(yaml.safe_load_all(exported(plan, "kubernetes").content))
    router = json.loads(config["data"]["router.json"])
    assert router["weights"] == weights
    assert router["replicas"]["small-2"] == {"model": "small", "host": "small-2", "port": 8000}


def test_it_says_where_requests_go_after_each_loss_and_never_to_what_is_lost() -> None:
    plan = on_two_providers(**SURVIVING)
    document = json.loads(exported(plan, "router").content)
    assert {(each["kind"], each["name"]) for each in document["after_losses"]} == {
        ("provider", "p"),
        ("provider", "q"),
    }
    for each in document["after_losses"]:
        shares = each["weights"]["chat"]["w"]
        assert sum(shares.values()) == pytest.approx(1.0)
        assert each["lost"]
        assert set(shares) == set(document["replicas"]) - set(each["lost"])
        assert each["carried_fraction"] >= 0.8
    assert yaml.safe_load(exported(plan, "compose").content)["x-sutler-router"]["after_losses"]
    config = next(yaml.safe_load_all(exported(plan, "kubernetes").content))
    after_losses = json.loads(config["data"]["router.json"])["after_losses"]
    assert [each["weights"] for each in after_losses] == [each["weights"] for each in document["after_losses"]]


def test_a_plan_that_is_to_survive_nothing_says_nothing_of_losses() -> None:
    assert "after_losses" not in json.loads(exported(on_two_providers(), "router").content)
