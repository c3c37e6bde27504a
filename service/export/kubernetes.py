"""Kubernetes manifests: a Deployment and a Service per replica, a LeaderWorkerSet for those on several machines.

Pods are pinned to the machines of the plan by node labels that the heading lists. Kubernetes replaces $(NAME) in
commands and variables, so that each $ of the plan's own text is doubled.
https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
https://lws.sigs.k8s.io/docs/concepts/ (controller 0.6 or newer: it sets LWS_WORKER_INDEX)
"""

from collections.abc import Iterator
from typing import Any, Final

from sutler.service.export.command import (
    HEALTH_PATH,
    IMAGES,
    PROGRAM_WORDS,
    START_UP_S,
    Reference,
    Word,
    describe_machine,
    environment_of,
    heading_of,
    other_vendors,
    serve_words,
)
from sutler.service.export.layout import FIRST_PORT, Layout, Process, RentedMachine, Serving, refuse
from sutler.service.export.naming import label_value
from sutler.service.export.power import cap_usage, power_caps
from sutler.service.export.router import ReplicaAddress, router_json
from sutler.service.export.yaml_text import LiteralBlock, yaml_documents

MACHINE_LABEL: Final = "sutler/machine"
SECRET: Final = "vllm"
_PROBE_PERIOD_S: Final = 10  # Kubernetes' own default
_LEADER: Final = Reference("$(LWS_LEADER_ADDRESS)")
_WORKER: Final = Reference("$(LWS_WORKER_INDEX)")


def kubernetes_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """Returns the manifests and what to know before. Raises DocumentError for replicas that have none."""
    refuse(layout, "kubernetes", {serving.replica.id: _obstacle(serving) for serving in layout.servings})
    warnings = (*_partly_capped(layout), *other_vendors(layout))
    documents = [_router(layout)]
    for serving in layout.servings:
        documents += [_deployment(serving) if len(serving.processes) == 1 else _group(serving), _service(serving)]
    heading = heading_of(layout, tuple(_usage(layout)), warnings)
    return yaml_documents(documents, heading=heading), warnings


def _obstacle(serving: Serving) -> str | None:
    """Says why not: all workers of a group share one template, and the scheduler chooses which runs where."""
    workers = serving.processes[1:]
    if len({process.machine.rental.gpu for process in workers}) > 1:
        return (
            "its workers need different GPUs and a LeaderWorkerSet has one template for all of them: export the vllm "
            "format, or plan without search.mixed_gpu_pipelines"
        )
    return None


def _partly_capped(layout: Layout) -> Iterator[str]:
    """Warns where caps differ: the device plugin chooses which GPUs of a node a pod gets."""
    for machine in layout.machines:
        caps = power_caps(layout, machine)
        if caps and list(caps.values()) != [list(range(machine.rental.gpus))]:
            yield (
                f"{machine.name} has GPUs with different power caps, or without one, and Kubernetes chooses which of "
                "them a pod gets: its caps can meet the wrong ones; take another format"
            )


def _usage(layout: Layout) -> Iterator[str]:
    yield "Usage: join the machines to a cluster with NVIDIA's device plugin, label their nodes, kubectl apply -f."
    yield f"A secret called {SECRET} may hold hf-token (for gated models) and api-key (which clients then send)."
    if any(len(serving.processes) > 1 for serving in layout.servings):
        yield "Replicas on several machines need the LeaderWorkerSet controller: https://lws.sigs.k8s.io"
    for machine in layout.machines:
        labels = [f"{MACHINE_LABEL}={machine.name}", *_worker_labels(machine, layout)]
        yield f"  kubectl label node NODE {' '.join(labels)}"
    yield from cap_usage(layout)


def _worker_labels(machine: RentedMachine, layout: Layout) -> Iterator[str]:
    for serving in layout.servings:
        if machine in [process.machine for process in serving.processes[1:]]:
            yield from (f"{key}={value}" for key, value in _worker_place(serving).items() if key != MACHINE_LABEL)


def _worker_place(serving: Serving) -> dict[str, str]:
    names = {process.machine.name for process in serving.processes[1:]}
    return {MACHINE_LABEL: names.pop()} if len(names) == 1 else {f"worker.sutler/{serving.name}": "true"}


def _router(layout: Layout) -> dict[str, Any]:
    endpoints = {s.replica.id: ReplicaAddress(s.replica.model, _service_name(s), FIRST_PORT) for s in layout.servings}
    metadata = {"name": "sutler-router", "labels": {"app.kubernetes.io/part-of": "sutler"}}
    return _manifest("v1", "ConfigMap", metadata, data={"router.json": LiteralBlock(router_json(layout, endpoints))})


def _manifest(api_version: str, kind: str, metadata: dict[str, Any], **content: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _deployment(serving: Serving) -> dict[str, Any]:
    """Makes a Deployment that is recreated on changes: its GPUs are not free for a second pod beside the first."""
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _selector(serving)},
        "template": _head_pod(serving),
    }
    return _manifest("apps/v1", "Deployment", _metadata(serving), spec=spec)


def _group(serving: Serving) -> dict[str, Any]:
    template = {
        "size": len(serving.processes),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _head_pod(serving),
        "workerTemplate": _worker_pod(serving),
    }
    spec = {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template}
    return _manifest("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", _metadata(serving), spec=spec)


def _service(serving: Serving) -> dict[str, Any]:
    spec = {
        "selector": {**_selector(serving), "app.kubernetes.io/component": "head"},
        "ports": [{"name": "http", "port": FIRST_PORT, "targetPort": "http"}],
    }
    return _manifest("v1", "Service", {**_metadata(serving), "name": _service_name(serving)}, spec=spec)


def _service_name(serving: Serving) -> str:
    """Names the service; the controller of LeaderWorkerSets makes a headless service with the name of each set."""
    return serving.name if len(serving.processes) == 1 else f"{serving.name}-head"


def _selector(serving: Serving) -> dict[str, str]:
    return {"app.kubernetes.io/name": serving.server, "app.kubernetes.io/instance": serving.name}


def _labels(serving: Serving, component: str) -> dict[str, str]:
    return {
        **_selector(serving),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "sutler",
        "sutler/model": label_value(serving.replica.model),
    }


def _metadata(serving: Serving) -> dict[str, Any]:
    annotations = {"sutler/replica": serving.replica.id, "sutler/model": serving.replica.model}
    for process in serving.processes:
        annotations[f"sutler/node-{process.rank}"] = f"{process.machine.name}: {describe_machine(process.machine)}"
    return {"name": serving.name, "labels": _labels(serving, "replica"), "annotations": annotations}


def _head_pod(serving: Serving) -> dict[str, Any]:
    head = serving.head
    words = serve_words(serving, head, master=_LEADER, port=FIRST_PORT)
    served = {
        "ports": [{"name": "http", "containerPort": FIRST_PORT}],
        "startupProbe": {**_probe(), "failureThreshold": START_UP_S // _PROBE_PERIOD_S},
        "readinessProbe": {**_probe(), "failureThreshold": 3},
        "livenessProbe": {**_probe(), "failureThreshold": 6},
    }
    return _pod(serving, head, words, component="head", place={MACHINE_LABEL: head.machine.name}, more=served)


def _worker_pod(serving: Serving) -> dict[str, Any]:
    worker = serving.processes[1]
    words = serve_words(serving, worker, master=_LEADER, rank=_WORKER)
    pod = _pod(serving, worker, words, component="worker", place=_worker_place(serving), more={})
    machines = {process.machine.name for process in serving.processes[1:]}
    if len(machines) == len(serving.processes) - 1 > 1:
        pod["spec"]["affinity"] = _one_per_node({**_selector(serving), "app.kubernetes.io/component": "worker"})
    return pod


def _one_per_node(labels: dict[str, str]) -> dict[str, Any]:
    """Keeps workers apart: those that share a label could else fill one node and take the GPUs of others."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _probe() -> dict[str, Any]:
    return {
        "httpGet": {"path": HEALTH_PATH, "port": "http"},
        "periodSeconds": _PROBE_PERIOD_S,
        "timeoutSeconds": 5,
    }


def _pod(
    serving: Serving,
    process: Process,
    words: tuple[Word, ...],
    *,
    component: str,
    place: dict[str, str],
    more: dict[str, Any],
) -> dict[str, Any]:
    command = [word.text if isinstance(word, Reference) else _escaped(word) for word in words]
    program = PROGRAM_WORDS[serving.server]
    container = {
        "name": serving.server,
        "image": IMAGES[serving.server],
        "command": command[:program],
        "args": command[program:],
        "env": _environment(serving, process),
        "resources": {"limits": {"nvidia.com/gpu": str(len(process.gpu_indices))}},
        **more,
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "cache", "mountPath": "/root/.cache/huggingface"},
        ],
    }
    volumes = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}, {"name": "cache", "emptyDir": {}}]
    # Without service links: Kubernetes would set VLLM_PORT and the like, which vLLM reads, for a service "vllm".
    spec = {"nodeSelector": place, "enableServiceLinks": False, "containers": [container], "volumes": volumes}
    return {"metadata": {"labels": _labels(serving, component)}, "spec": spec}


def _environment(serving: Serving, process: Process) -> list[dict[str, Any]]:
    """Lists variables, without GPUs, which the device plugin chooses; nodes find each other by pod addresses."""
    own = {name: value for name, value in environment_of(serving, process).items() if name != "CUDA_VISIBLE_DEVICES"}
    variables = [_secret("HF_TOKEN", "hf-token"), _secret("VLLM_API_KEY", "api-key")]
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    if len(serving.processes) > 1 and serving.server == "vllm":
        variables.append({"name": "VLLM_HOST_IP", "valueFrom": address})
    if (
        serving.hands_over and serving.server == "vllm"
    ):  # the port is the default: every pod has an address of its own
        variables.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    return variables + [{"name": name, "value": _escaped(value)} for name, value in own.items()]


def _secret(variable: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key, "optional": True}}}


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
