"""SkyPilot tasks: one for every replica, or for replicas that share machines, on nodes like those of the plan.

https://docs.skypilot.co/en/latest/reference/yaml-spec.html. SkyPilot rents for itself: equal machines, not the very
offers of the plan, so prices can differ.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sutler.service.export import sglang
from sutler.service.export.command import VLLM_VERSION, Reference, describe_machine, heading_of
from sutler.service.export.layout import Layout, RentedMachine, Serving, refuse
from sutler.service.export.naming import dns_labels
from sutler.service.export.power import cap_lines
from sutler.service.export.shell import ALL_OR_NONE, WAIT, indented, shell_start
from sutler.service.export.skypilot_names import CLOUDS, NO_SPOT, ONE_NODE_ONLY, accelerator_of
from sutler.service.export.yaml_text import LiteralBlock, yaml_documents

USAGE: Final = (
    "Usage: csplit -z -f task- -b %02d.yaml THIS_FILE '/^---$/' '{*}', which leaves this heading in task-00.yaml,",
    "then sky launch -c NAME task-01.yaml, and so on for every other.",
    "For gated models add --secret HF_TOKEN; with --secret VLLM_API_KEY clients must send that key.",
)


_PACKAGES: Final = {"vllm": f"vllm=={VLLM_VERSION}", "sglang": f"sglang=={sglang.VERSION}"}


@dataclass(frozen=True, slots=True)
class _Task:
    """Replicas and the machines that they share with nobody else; the machines are SkyPilot's nodes, in order."""

    servings: tuple[Serving, ...]
    machines: tuple[RentedMachine, ...]

    @property
    def title(self) -> str:
        return ", ".join(serving.replica.id for serving in self.servings)

    @property
    def hands_over(self) -> bool:
        return any(serving.hands_over for serving in self.servings)

    @property
    def cloud(self) -> str | None:
        return CLOUDS.get(self.machines[0].rental.provider)


def skypilot_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """The tasks, and what to know before launching them. Raises DocumentError for replicas that can have none."""
    tasks = _tasks(layout)
    names = dns_labels(task.servings[0].replica.id for task in tasks)
    refuse(layout, "skypilot", {s.replica.id: _obstacle(task) for task in tasks for s in task.servings})
    warnings = tuple(dict.fromkeys(warning for task in tasks for warning in _warnings(task)))
    documents = [_document(layout, task, names[task.servings[0].replica.id]) for task in tasks]
    return yaml_documents(documents, heading=heading_of(layout, USAGE, warnings)), warnings


def _tasks(layout: Layout) -> list[_Task]:
    """Returns connected groups of replicas and machines, in the plan's order."""
    groups: list[tuple[list[Serving], list[RentedMachine]]] = []
    for serving in layout.servings:
        mine = list(dict.fromkeys(process.machine for process in serving.processes))
        touching = [group for group in groups if any(machine in group[1] for machine in mine)]
        servings = [*(s for group in touching for s in group[0]), serving]
        machines = list(dict.fromkeys([*(m for group in touching for m in group[1]), *mine]))
        groups = [group for group in groups if group not in touching]
        groups.append((servings, machines))
    order = {serving.name: number for number, serving in enumerate(layout.servings)}
    tasks = [_Task(tuple(sorted(s, key=lambda x: order[x.name])), tuple(m)) for s, m in groups]
    return sorted(tasks, key=lambda task: order[task.servings[0].name])


def _obstacle(task: _Task) -> str | None:
    kinds = {(m.rental.provider, m.rental.gpu, m.rental.gpus, m.rental.contract) for m in task.machines}
    if len(kinds) > 1:
        return f"all nodes of a SkyPilot task are alike, those of {task.title} are not: export the vllm format"
    if len({serving.server for serving in task.servings}) > 1:
        return f"{task.title} share machines, and a SkyPilot task installs one engine: export the vllm format"
    return None


def _warnings(task: _Task) -> Iterator[str]:
    rental, cloud = task.machines[0].rental, task.cloud
    if cloud is None:
        yield f"SkyPilot has no cloud called {rental.provider}: it looks for {rental.gpu} on those you enabled"
    if len(task.machines) > 1 and cloud in ONE_NODE_ONLY:
        yield f"{task.title}: SkyPilot 0.14 runs no tasks of several nodes on {cloud}; take another format"
    if task.hands_over:
        yield (
            "keys and values go between prefill and decode replicas, which can be tasks of their own: give those "
            "tasks one region and a network in which their nodes reach each other on all ports"
        )
    if rental.contract == "interruptible" and cloud in NO_SPOT:
        yield f"{task.title}: SkyPilot 0.14 rents no spot machines on {cloud}; use_spot is left out"
    accelerator = accelerator_of(rental.gpu, cloud)
    if not accelerator.is_known:
        yield f"{rental.gpu} has no name in SkyPilot that is known here: look it up with sky gpus list"
    elif accelerator.also:
        others = ", ".join(accelerator.also)
        yield f"SkyPilot's {accelerator.name} stands for {rental.gpu} and also for {others}: check what it rents"


def _document(layout: Layout, task: _Task, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "resources": _resources(task),
        "num_nodes": len(task.machines),
        "secrets": {"HF_TOKEN": "", "VLLM_API_KEY": ""},
        "setup": f"pip install {_PACKAGES[task.servings[0].server]}{' nixl' if task.hands_over else ''}",
        "run": LiteralBlock("\n".join(_run(layout, task)) + "\n"),
    }


def _resources(task: _Task) -> dict[str, Any]:
    rental, cloud = task.machines[0].rental, task.cloud
    storage_gb = math.ceil(max(machine.rental.storage_gb for machine in task.machines))
    ports = sorted({serving.port for serving in task.servings})
    return {
        **({"infra": cloud} if cloud else {}),
        "accelerators": {accelerator_of(rental.gpu, cloud).name: rental.gpus},
        "use_spot": rental.contract == "interruptible" and cloud not in NO_SPOT,
        **({"disk_size": storage_gb} if storage_gb else {}),
        "ports": ports,
    }


def _run(layout: Layout, task: _Task) -> Iterator[str]:
    """Yields the script: every node runs the same text; its rank is its place among the task's machines."""
    yield "set -euo pipefail"
    yield 'mapfile -t nodes <<< "$SKYPILOT_NODE_IPS"'
    yield from ALL_OR_NONE
    yield 'case "$SKYPILOT_NODE_RANK" in'
    for rank, machine in enumerate(task.machines):
        yield f"{rank})"
        yield f"  # {describe_machine(machine)}"
        yield from indented(cap_lines(layout, machine, prefix="sudo "))
        for serving in task.servings:
            master = Reference(f"${{nodes[{task.machines.index(serving.head.machine)}]}}")
            for process in serving.processes:
                if process.machine == machine:
                    yield from indented(shell_start(serving, process, master=master))
        yield "  ;;"
    yield "esac"
    yield WAIT
