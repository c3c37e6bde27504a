"""The configuration of nginx, as text; what nginx makes of it is in tests/service/routers/test_nginx.py."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.export import exported
from sutler.service.export.layout import layout_of
from sutler.service.export.nginx import nginx_config
from sutler.service.export.router import ReplicaAddress
from tests.looped import for_each
from tests.service.export.plans import NAMES, a_plan, in_two_phases, plan_of, stored

UPSTREAM: Final = re.compile(r"^# (.*)\nupstream \w+ \{\n((?:    .*\n)*)\}", re.MULTILINE)
SERVER: Final = re.compile(r"server (\S+) weight=(\d+);  # (\S+)")
ORDERS: Final = ("tags", "summaries")


def upstreams(config: str) -> dict[str, dict[str, int]]:
    """Weights by replica, by the comment of the upstream."""
    return {
        said: {replica: int(weight) for _, weight, replica in SERVER.findall(servers)}
        for said, servers in UPSTREAM.findall(config)
    }


def of_two_workloads() -> dict[str, Any]:
    """shared_machine, where the small model has 60 tags/s and 20 summaries/s."""
    document = stored("shared_machine")
    shares: Mapping[str, Mapping[str, float]] = {
        "tags": {"small-0": 0.5, "small-1": 0.5},
        "summaries": {"small-1": 0.25, "small-2": 0.75},
    }
    rates = {"tags": 60.0, "summaries": 20.0}
    for replica in document["replicas"][2:]:
        replica["throughput_rps"] = {name: rates[name] * shares[name].get(replica["id"], 0.0) for name in ORDERS}
    routes = [{"model": "small", "workload": name, "fractions": shares[name]} for name in ORDERS]
    return {**document, "routing": [document["routing"][0], *routes]}


@for_each("name", NAMES)
def test_the_weights_are_the_plans_fractions(name: str) -> None:
    plan = a_plan(name)
    found = upstreams(exported(plan, "nginx").content)
    for route in plan.routing:
        weights = found[f"{route.model}: {route.workload}"]
        assert sum(weights.values()) == 1000
        for replica, fraction in route.fractions.items():
            assert weights.get(replica, 0) == pytest.approx(1000 * fraction, abs=1)


def test_requests_that_name_no_workload_are_taken_to_come_in_the_planned_mix() -> None:
    found = upstreams(exported(plan_of(of_two_workloads()), "nginx").content)
    assert found["small: summaries"] == {"small-1": 250, "small-2": 750}
    assert found["small: no workload named"] == {"small-0": 375, "small-1": 438, "small-2": 187}


def test_what_gets_less_than_a_weight_gets_nothing() -> None:
    document = stored("shared_machine")
    document["routing"][1]["fractions"] = {"small-0": 0.9996, "small-1": 0.0003, "small-2": 0.0001}
    assert upstreams(exported(plan_of(document), "nginx").content)["small: tags"] == {"small-0": 1000}


def test_replicas_whose_address_nobody_knows_get_no_requests() -> None:
    layout = layout_of(a_plan("shared_machine"))
    config = nginx_config(layout, {"small-2": ReplicaAddress("small", "::1", 9001)}, "127.0.0.1:80")
    assert upstreams(config)["small: tags"].keys() == {"small-2"}
    assert "server [::1]:9001 weight=" in config
    assert "listen 127.0.0.1:80;" in config
    assert config.count("server 127.0.0.1:9 down;") == 2  # nginx wants a server in each upstream


def test_prefill_and_decode_replicas_are_refused_with_what_to_do() -> None:
    with pytest.raises(
        DocumentError,
        match=r"small-0.*as nginx: requests go to a prefill and then .*router format",
    ):
        exported(plan_of(in_two_phases()), "nginx")


def test_engines_that_we_do_not_start_get_requests_too() -> None:
    document = stored("single_gpu")
    document["replicas"][0]["engine"] = "tensorrt-llm"
    assert upstreams(exported(plan_of(document), "nginx").content)
