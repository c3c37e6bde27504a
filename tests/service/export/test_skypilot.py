"""SkyPilot tasks: fields, names and clouds by SkyPilot's rules; `check_skypilot.py` asks SkyPilot itself."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from sutler.service.export import exported
from sutler.service.export.skypilot_names import CLOUDS, NO_SPOT, ONE_NODE_ONLY, accelerator_of
from tests.service.export.commands import in_shell
from tests.service.export.plans import NAMES, a_plan, plan_of, stored, with_texts, with_values

RUNNABLE: Final = [name for name in NAMES if name != "mixed_pipeline"]

# What sky/utils/schemas.py and sky/task.py of SkyPilot 0.14.1 demand of the fields that are used.
TASK: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "resources", "num_nodes", "secrets", "setup", "run"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*$"},
        "num_nodes": {"type": "integer", "minimum": 1},
        "secrets": {"type": "object", "additionalProperties": {"type": "string"}},
        "setup": {"type": "string"},
        "run": {"type": "string"},
        "resources": {
            "type": "object",
            "additionalProperties": False,
            "required": ["accelerators", "use_spot", "ports"],
            "properties": {
                "infra": {"enum": sorted(CLOUDS.values())},
                "accelerators": {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": {"type": "integer", "minimum": 1},
                },
                "use_spot": {"type": "boolean"},
                "disk_size": {"type": "integer", "minimum": 1},
                "ports": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
            },
        },
    },
}


def tasks(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(exported(a_plan(name), "skypilot").content))


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_task_has_the_fields_of_skypilot(name: str) -> None:
    for task in tasks(name):
        jsonschema.validate(task, TASK)


def test_a_task_of_strangers_text_has_the_fields_of_skypilot() -> None:
    plan = plan_of(with_texts("several_machines", text="$(x)\n---\n'"))
    (task,) = yaml.safe_load_all(exported(plan, "skypilot").content)
    jsonschema.validate(task, TASK)


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_tasks_start_the_same_servers_as_the_script(name: str) -> None:
    plan = a_plan(name)
    started = [start for task in tasks(name) for start in in_shell(task["run"])]
    assert started == in_shell(exported(plan, "vllm").content)


@pytest.mark.parametrize("name", RUNNABLE)
def test_bash_accepts_what_runs(name: str) -> None:
    for task in tasks(name):
        result = subprocess.run(["bash", "-n"], input=task["run"], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_clouds_gpus_and_contracts_are_those_of_the_rentals() -> None:
    resources = [task["resources"] for task in tasks("single_gpu")]
    assert [r["infra"] for r in resources] == ["vast", "vast", "runpod"]
    assert [r["accelerators"] for r in resources] == [{"RTX4090": 1}, {"RTX4090": 1}, {"H100-SXM": 1}]
    assert [r["use_spot"] for r in resources] == [True, True, False]


def test_replicas_that_share_a_machine_share_a_task() -> None:
    (task,) = tasks("shared_machine")
    assert task["resources"]["accelerators"] == {"H100": 8}
    assert task["resources"]["ports"] == [8000, 8001, 8002, 8003, 8004]
    assert task["num_nodes"] == 1


def test_a_replica_on_several_machines_is_a_task_of_several_nodes() -> None:
    (task,) = tasks("several_machines")
    assert task["num_nodes"] == 3
    assert '--master-addr "${nodes[0]}"' in task["run"]


def test_replicas_chained_by_shared_machines_are_one_task() -> None:
    document = stored("several_machines")
    document["rentals"][0]["gpus"] = 4
    neighbour = with_values("single_gpu")["replicas"][0]
    place = {"rental": 0, "machine": 2, "gpu_indices": [2]}
    document["replicas"].append({**neighbour, "id": "chat-1", "stages": [{**neighbour["stages"][0], **place}]})
    (task,) = yaml.safe_load_all(exported(plan_of(document), "skypilot").content)
    assert (task["name"], task["num_nodes"]) == ("chat-0", 3)
    assert len(in_shell(task["run"])) == 4


@pytest.mark.parametrize(
    ("name", "provider", "warning"),
    [
        ("several_machines", "vastai", "chat-0: SkyPilot 0.14 runs no tasks of several nodes on vast"),
        (
            "several_machines",
            "acme",
            "SkyPilot has no cloud called acme: it looks for rtx-a6000 on those you enabled",
        ),
        ("single_gpu", "lambda", "chat-0: SkyPilot 0.14 rents no spot machines on lambda; use_spot is left out"),
    ],
)
def test_what_skypilot_cannot_do_is_said(name: str, provider: str, warning: str) -> None:
    result = exported(plan_of(with_values(name, (("rentals", 0, "provider"), provider))), "skypilot")
    assert any(text.startswith(warning) for text in result.warnings)
    assert warning in result.content


def test_a_gpu_without_a_name_and_one_whose_name_means_several_are_said() -> None:
    unknown = with_values("shared_machine", (("rentals", 0, "gpu"), "tpu-9"))
    assert "tpu-9 has no name in SkyPilot" in exported(plan_of(unknown), "skypilot").warnings[0]
    assert "also for h100-pcie" in exported(a_plan("shared_machine"), "skypilot").warnings[0]


def test_one_name_of_vast_means_cards_of_both_sizes() -> None:
    accelerator = accelerator_of("a100-sxm4-80gb", "vast")
    assert accelerator.name == "A100"
    assert "a100-sxm4-40gb" in accelerator.also


def test_limits_are_known_only_of_clouds_that_are() -> None:
    assert set(CLOUDS.values()) >= ONE_NODE_ONLY | NO_SPOT


def test_csplit_cuts_the_file_as_the_heading_says(tmp_path: Path) -> None:
    text = exported(a_plan("single_gpu"), "skypilot").content
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    command = re.search(r"csplit (.*) THIS_FILE (.*), which", text)
    assert command is not None
    line = f"csplit {command[1]} plan.yaml {command[2]}"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True, capture_output=True)
    parts = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.glob("task-*.yaml"))]
    assert parts == [None, *yaml.safe_load_all(text)]
