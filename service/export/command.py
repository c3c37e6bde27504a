"""The command line of one server process, and what stands above every export.

Flags and multi-node start-up are those of vLLM 0.33.0: https://docs.vllm.ai/en/v0.33.0/cli/serve.html and
https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html (multiprocessing, one process per node). Those of
SGLang are in sglang.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sutler.service.export import sglang
from sutler.service.export.layout import Layout, Process, RentedMachine, Serving, Value
from sutler.service.export.naming import one_line

VLLM_VERSION: Final = "0.33.0"
IMAGES: Final = {"vllm": f"vllm/vllm-openai:v{VLLM_VERSION}", "sglang": sglang.IMAGE}
PROGRAM_WORDS: Final = {"vllm": 2, "sglang": len(sglang.COMMAND)}
DOCUMENTATION: Final = f"https://docs.vllm.ai/en/v{VLLM_VERSION}/serving/parallelism_scaling.html"
HEALTH_PATH: Final = "/health"
NODE_PORTS: Final = 100  # more than GPUs of a machine, so that nodes of several replicas do not meet on a port
START_UP_S: Final = 3600
"""How long a server may take to fetch and load its weights before it counts as broken."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A word that the format itself fills in, such as `$(NAME)`; never text of the plan."""

    text: str


Word = str | Reference


def serve_words(
    serving: Serving, process: Process, *, master: Word, port: int | None = None, rank: Word | None = None
) -> tuple[Word, ...]:
    """`vllm serve ...`, or SGLang's server, of one process as words, unquoted; `master` is where its head listens.

    `port` and `rank` replace those of the layout.
    """
    if serving.server == "sglang":
        return _sglang_words(serving, process, master=master, port=port, rank=rank)
    words: list[Word] = ["vllm", "serve", serving.model_path]
    if process.rank == 0:
        words += ["--port", str(serving.port if port is None else port)]
    for name, value in serving.arguments:
        words += flag(name, value)
    if len(serving.processes) > 1:
        words += ["--nnodes", str(len(serving.processes)), "--node-rank", rank or str(process.rank)]
        words += ["--master-addr", master, "--master-port", str(serving.master_port)]
        words += ["--headless"] if process.rank else []
    return tuple(words)


def _sglang_words(
    serving: Serving, process: Process, *, master: Word, port: int | None, rank: Word | None
) -> tuple[Word, ...]:
    words: list[Word] = [*sglang.COMMAND, "--model-path", serving.model_path, "--host", "0.0.0.0"]
    # nodes without the head listen too, to say that they live
    words += ["--port", str((serving.port if port is None else port) + NODE_PORTS * process.rank)]
    for name, value in sglang.arguments(serving.arguments, serving.replica.role):
        words += flag(name, value)
    if serving.replica.role == "prefill":
        words += ["--disaggregation-bootstrap-port", str(serving.side_port)]
    if len(serving.processes) > 1:
        address = f"{master.text if isinstance(master, Reference) else master}:{serving.master_port}"
        words += ["--nnodes", str(len(serving.processes)), "--node-rank", rank or str(process.rank)]
        words += ["--dist-init-addr", Reference(address) if isinstance(master, Reference) else address]
    return tuple(words)


def environment_of(serving: Serving, process: Process) -> dict[str, str]:
    """Returns the replica's variables, with the GPUs to use where they are not all of the machine's in its order."""
    gpus = {} if process.uses_whole_machine else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, process.gpu_indices))}
    if gpus and any(stage.power_cap_watts is not None for stage in serving.replica.stages):
        gpus["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # nvidia-smi's, by which GPUs are capped
    own = serving.replica.engine_env
    return {**gpus, **(sglang.environment(own) if serving.server == "sglang" else own)}


def side_channel(serving: Serving, host: Word) -> dict[str, Word]:
    """Returns where a replica of one phase says which keys and values it has; `host`: its address for others.

    https://docs.vllm.ai/en/latest/features/nixl_connector_usage.html
    """
    if not serving.hands_over or serving.server == "sglang":
        return {}
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": host, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(serving.side_port)}


def heading_of(layout: Layout, usage: tuple[str, ...], warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Comment lines, without a comment sign: what this is, how to use it, the machines, what to know."""
    plan = layout.plan
    lines = [f"Plan {plan.id}, revision {plan.revision}, made {plan.created_at.isoformat()} by sutler."]
    lines += [*_engines(layout), *usage, "", "Machines:"]
    lines += [f"  {machine.name}: {describe_machine(machine)}" for machine in layout.machines]
    notes = [*layout.warnings, *warnings, *plan.warnings]
    if notes:
        lines += ["", "Before running it:", *(f"  - {one_line(note)}" for note in notes)]
    return tuple(lines)


def _engines(layout: Layout) -> Iterator[str]:
    servers = {serving.server for serving in layout.servings}
    if "vllm" in servers:
        yield f"For vLLM {VLLM_VERSION}, {DOCUMENTATION}"
    if "sglang" in servers:
        yield f"For SGLang {sglang.VERSION}, {sglang.DOCUMENTATION}; its servers ask clients for no key."


def other_vendors(layout: Layout) -> Iterator[str]:
    """Warns of containers on GPUs that are not NVIDIA's, such as MI300X."""
    gpus = {process.machine.rental.gpu for serving in layout.servings for process in serving.processes}
    for gpu in sorted(gpus):
        if re.match(r"mi\d", gpu):
            yield f"{gpu} is an AMD GPU: image and GPU reservation are for NVIDIA's, replace both by those for ROCm"


def describe_machine(machine: RentedMachine) -> str:
    """Says what to rent for it, on one line."""
    rental = machine.rental
    which = f", {machine.index + 1} of {rental.count}" if rental.count > 1 else ""
    contract = rental.contract.replace("_", " ")
    text = f"{rental.gpus} x {rental.gpu}, offer {rental.offer_id} of {rental.provider}{which}, {contract}"
    return one_line(text + (f", site {rental.site}" if rental.site else ""))


def describe_process(serving: Serving, process: Process) -> str:
    """Says whose process it is, on one line."""
    replica = serving.replica
    part = f", node {process.rank + 1} of {len(serving.processes)}" if len(serving.processes) > 1 else ""
    return one_line(f"Replica {replica.id} of model {replica.model}{part}")


def processes_on(layout: Layout, machine: RentedMachine) -> Iterator[tuple[Serving, Process]]:
    """Yields what runs on a machine, in the plan's order."""
    for serving in layout.servings:
        yield from ((serving, process) for process in serving.processes if process.machine == machine)


def flag(name: str, value: Value) -> list[str]:
    """Writes an engine argument for vLLM's command line. https://docs.vllm.ai/en/latest/serving/engine_args.html"""
    words = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [words if value else f"--no-{words[2:]}"]
    return [f"{words}={value}"] if str(value).startswith("-") else [words, str(value)]
