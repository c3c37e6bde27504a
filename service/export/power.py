"""Power caps of a plan as commands: `nvidia-smi -pl`, which takes root on the host, in containers as well.

A cap holds until it is set anew, or the driver is loaded anew. https://docs.nvidia.com/deploy/nvidia-smi/index.html
"""

from collections import defaultdict
from collections.abc import Iterator

from sutler.service.export.layout import Layout, RentedMachine, machine_name


def power_caps(layout: Layout, machine: RentedMachine) -> dict[float, list[int]]:
    """Returns the GPUs of a machine on which replicas run, by the watts to cap them to."""
    found: dict[float, list[int]] = defaultdict(list)
    for serving in layout.servings:
        for stage in serving.replica.stages:
            if stage.power_cap_watts is not None and machine_name(stage.rental, stage.machine) == machine.name:
                found[stage.power_cap_watts] += stage.gpu_indices
    return {watts: sorted(found[watts]) for watts in sorted(found)}


def cap_commands(layout: Layout, machine: RentedMachine) -> Iterator[str]:
    """Yields one command for each wattage."""
    for watts, gpus in power_caps(layout, machine).items():
        yield f"nvidia-smi -i {','.join(map(str, gpus))} -pl {watts:.0f}"


def cap_lines(layout: Layout, machine: RentedMachine, *, prefix: str = "") -> Iterator[str]:
    """Yields the commands for a shell; where they may not be given, servers start all the same, and it is said."""
    for command in cap_commands(layout, machine):
        warning = f"warning: {machine.name} keeps its power limit: nvidia-smi -pl needs root on the host"
        yield f"{prefix}{command} || echo '{warning}' >&2"


def cap_usage(layout: Layout) -> Iterator[str]:
    """Yields the commands for a heading, where the format has no step for them."""
    for machine in layout.machines:
        for command in cap_commands(layout, machine):
            yield f"On the host of {machine.name}, as root, before it starts: {command}"
