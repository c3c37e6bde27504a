"""A compose file for all machines of a plan: a profile per machine, a service per process.

https://github.com/compose-spec/compose-spec/blob/main/spec.md; GPUs by
https://docs.docker.com/compose/how-tos/gpu-support/. Compose replaces $NAME in every value, so that each $ of the
plan's own text is doubled.
"""

from typing import Any, Final

from sutler.service.export.command import (
    HEALTH_PATH,
    IMAGES,
    PROGRAM_WORDS,
    START_UP_S,
    Reference,
    Word,
    describe_process,
    environment_of,
    heading_of,
    other_vendors,
    serve_words,
    side_channel,
)
from sutler.service.export.layout import Layout, Process, Serving
from sutler.service.export.power import cap_usage
from sutler.service.export.router import machine_endpoints, routing_document
from sutler.service.export.vllm_script import address_reference, address_variable
from sutler.service.export.yaml_text import yaml_document

CACHE: Final = "huggingface"
# Taken from the shell or .env where Compose runs, and left unset where they are not set there.
PASSED_ON: Final = ("HF_TOKEN", "VLLM_API_KEY")


def compose_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """Returns the file, and what to know before running it."""
    services: dict[str, Any] = {}
    for serving in layout.servings:
        for process in serving.processes:
            services[_service_name(serving, process)] = _service(serving, process)
    document = {
        "name": "sutler",
        "services": services,
        "volumes": {CACHE: {}},
        "x-sutler-router": _escaped(routing_document(layout, machine_endpoints(layout))),
    }
    warnings = tuple(other_vendors(layout))
    return yaml_document(document, heading=heading_of(layout, _usage(layout), warnings)), warnings


def _usage(layout: Layout) -> tuple[str, ...]:
    heads = {s.head.machine.name: s.head.machine for s in layout.servings if s.needs_address}
    addresses = tuple(
        f"Set {address_variable(machine)} to the IP address of {name}, on every machine (in .env, say)."
        for name, machine in heads.items()
    )
    return (
        "Usage: docker compose -f THIS_FILE --profile MACHINE up -d, on each machine.",
        *addresses,
        *cap_usage(layout),
    )


def _service_name(serving: Serving, process: Process) -> str:
    return serving.name if process.rank == 0 else f"{serving.name}-node-{process.rank}"


def _service(serving: Serving, process: Process) -> dict[str, Any]:
    words = serve_words(serving, process, master=address_reference(serving))
    command, program = [_value(word) for word in words], PROGRAM_WORDS[serving.server]
    is_head = process.rank == 0
    return {
        "image": IMAGES[serving.server],
        "profiles": [process.machine.name],
        "entrypoint": command[:program],
        "command": command[program:],
        "environment": _environment(serving, process),
        **_network(serving, is_head=is_head),
        "ipc": "host",
        "volumes": [f"{CACHE}:/root/.cache/huggingface"],
        "deploy": {"resources": {"reservations": {"devices": [_gpus(process)]}}},
        **({"healthcheck": _health(serving)} if is_head else {}),
        "restart": "unless-stopped",
        "labels": {"sutler.process": _escaped(describe_process(serving, process))},
    }


def _environment(serving: Serving, process: Process) -> dict[str, str | None]:
    """Returns the variables without a choice of GPUs: the container sees none but those reserved for it."""
    own = {name: value for name, value in environment_of(serving, process).items() if name != "CUDA_VISIBLE_DEVICES"}
    given = {**own, **side_channel(serving, address_reference(serving))}
    return {**dict.fromkeys(PASSED_ON), **{name: _value(value) for name, value in given.items()}}


def _value(word: Word) -> str:
    return word.text if isinstance(word, Reference) else str(_escaped(word))


def _network(serving: Serving, *, is_head: bool) -> dict[str, Any]:
    """Publishes the port. Nodes of one replica, and replicas that hand over, share the host's network: they reach
    each other on ports that NCCL, UCX and vLLM choose."""
    if serving.needs_address:
        return {"network_mode": "host"}
    return {"ports": [f"{serving.port}:{serving.port}"]} if is_head else {}


def _gpus(process: Process) -> dict[str, Any]:
    indices = [str(index) for index in process.gpu_indices]
    return {"driver": "nvidia", "device_ids": indices, "capabilities": ["gpu"]}


def _health(serving: Serving) -> dict[str, Any]:
    url = f"http://127.0.0.1:{serving.port}{HEALTH_PATH}"
    check = f"import urllib.request; urllib.request.urlopen('{url}', timeout=5)"
    return {
        "test": ["CMD", "python3", "-c", check],
        "interval": "10s",
        "timeout": "10s",
        "retries": 3,
        "start_period": f"{START_UP_S}s",
    }


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return value
