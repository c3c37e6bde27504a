"""The compose file against the official schema, and as one machine sees it."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sutler.service.export import exported
from tests.service.export.commands import in_compose, in_shell
from tests.service.export.plans import NAMES, a_plan, plan_of, with_texts, with_values


def compose_schema() -> dict[str, Any]:
    """The schema of the Compose specification, as the package check-jsonschema carries it."""
    folder = Path(str(distribution("check-jsonschema").locate_file("check_jsonschema")))
    schema: dict[str, Any] = json.loads((folder / "builtin_schemas/vendor/compose-spec.json").read_text("utf-8"))
    return schema


def compose_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(exported(a_plan(name), "compose").content)
    return document


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_accepts_every_file(name: str) -> None:
    jsonschema.validate(compose_of(name), compose_schema())


def test_the_schema_accepts_text_of_strangers() -> None:
    plan = plan_of(with_texts("several_machines", text='$(x) ${Y} $$ "\n---\n!!x'))
    jsonschema.validate(yaml.safe_load(exported(plan, "compose").content), compose_schema())


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_the_same_servers_as_the_script(name: str) -> None:
    plan = a_plan(name)
    from_script = sorted(words for _, words in in_shell(exported(plan, "vllm").content))
    assert sorted(words for _, words in in_compose(exported(plan, "compose").content).values()) == from_script


def test_a_profile_per_machine_starts_what_runs_there() -> None:
    services = compose_of("single_gpu")["services"]
    profiles = {name: service["profiles"] for name, service in services.items()}
    assert profiles == {
        "chat-0": ["rental-0-machine-0"],
        "chat-1": ["rental-0-machine-1"],
        "chat-2": ["rental-1-machine-0"],
    }


def test_services_of_one_machine_share_neither_gpus_nor_ports() -> None:
    services = compose_of("shared_machine")["services"].values()
    reserved = [service["deploy"]["resources"]["reservations"]["devices"][0] for service in services]
    gpus = [index for device in reserved for index in device["device_ids"]]
    assert gpus == ["0", "1", "2", "3", "4", "5", "6"]
    ports = [port for service in services for port in service["ports"]]
    assert len(set(ports)) == len(ports) == 5
    assert all("CUDA_VISIBLE_DEVICES" not in service["environment"] for service in services)


def test_tokens_are_passed_on_and_not_written_down() -> None:
    for service in compose_of("shared_machine")["services"].values():
        assert service["environment"] == {"HF_TOKEN": None, "VLLM_API_KEY": None}


def test_nodes_of_one_replica_share_the_hosts_network() -> None:
    services = compose_of("several_machines")["services"]
    assert list(services) == ["chat-0", "chat-0-node-1", "chat-0-node-2"]
    assert {service["network_mode"] for service in services.values()} == {"host"}
    assert [("healthcheck" in service) for service in services.values()] == [True, False, False]


def test_an_amd_gpu_comes_with_a_warning() -> None:
    changes = ((("rentals", 0, "gpu"), "mi300x"), (("replicas", 0, "stages", 0, "gpu"), "mi300x"))
    plan = plan_of(with_values("shared_machine", *changes))
    for result in (exported(plan, "compose"), exported(plan, "kubernetes")):
        assert result.warnings[-1].startswith("mi300x is an AMD GPU")
