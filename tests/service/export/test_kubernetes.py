"""The manifests against the schemas of Kubernetes 1.37, strictly; LeaderWorkerSets against what their CRD demands."""

import re
from typing import Any, Final

import jsonschema
import pytest
import yaml
from kubernetes_validate.utils import ValidationError, validate

from sutler.service.documents.errors import DocumentError
from sutler.service.export import exported
from tests.service.export.commands import HEAD, in_pod, in_shell, pods
from tests.service.export.plans import NAMES, a_plan, plan_of, stored, with_texts

VERSION: Final = "1.37"
DNS_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")

# The fields of leaderworkerset.x-k8s.io/v1 that are used, with the limits that its CRD and its controller set:
# https://github.com/kubernetes-sigs/lws/blob/main/api/leaderworkerset/v1/leaderworkerset_types.go
LEADER_WORKER_SET: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "leaderworkerset.x-k8s.io/v1"},
        "kind": {"const": "LeaderWorkerSet"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["leaderWorkerTemplate"],
            "properties": {
                "replicas": {"type": "integer", "minimum": 0},
                "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
                "leaderWorkerTemplate": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["workerTemplate"],
                    "properties": {
                        "leaderTemplate": {"type": "object"},
                        "workerTemplate": {"type": "object"},
                        "size": {"type": "integer", "minimum": 1},
                        "restartPolicy": {
                            "enum": ["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]
                        },
                    },
                },
            },
        },
    },
}


def check(document: dict[str, Any]) -> None:
    """Raises for anything that the API server would refuse or drop."""
    if document["kind"] != "LeaderWorkerSet":
        validate(document, VERSION, strict=True)
        return
    jsonschema.validate(document, LEADER_WORKER_SET)
    group = document["spec"]["leaderWorkerTemplate"]
    for template in (group["leaderTemplate"], group["workerTemplate"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}
        validate(pod, VERSION, strict=True)


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(exported(a_plan(name), "kubernetes").content))


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_accept_every_manifest(name: str) -> None:
    for document in manifests(name):
        check(document)


def test_the_schemas_refuse_what_is_not_in_them() -> None:
    (_, document, *_) = manifests("several_machines")
    document["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["nodeSelectors"] = {}
    with pytest.raises(ValidationError):
        check(document)


@pytest.mark.parametrize("text", ['$(x) "\n---\n', "Ünïcode / ?", "x" * 300, "-"])
def test_any_text_gives_names_and_labels_that_kubernetes_allows(text: str) -> None:
    plan = plan_of(with_texts("shared_machine", text=text))
    documents = list(yaml.safe_load_all(exported(plan, "kubernetes").content))
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    for document in documents:
        check(document)
        assert DNS_LABEL.fullmatch(document["metadata"]["name"])
        assert len(document["metadata"]["name"]) <= 50
        for value in document["metadata"]["labels"].values():
            assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", value)
            assert len(value) <= 63


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_the_same_servers_as_the_script(name: str) -> None:
    """But for ports, which every pod has to itself, and for ranks, which the controller gives to workers."""

    def unplaced(words: list[str]) -> list[str]:
        places = {number + 1 for number, word in enumerate(words) if word in ("--port", "--node-rank")}
        return [word for number, word in enumerate(words) if number not in places]

    plan = a_plan(name)
    from_script = {tuple(unplaced(words)) for _, words in in_shell(exported(plan, "vllm").content)}
    found = [in_pod(pod)[1] for pod in pods(exported(plan, "kubernetes").content)]
    assert {tuple(unplaced(words)) for words in found} == from_script


def test_a_replica_on_one_machine_is_a_deployment_with_a_service() -> None:
    config, deployment, service, *_ = manifests("single_gpu")
    assert [config["kind"], deployment["kind"], service["kind"]] == ["ConfigMap", "Deployment", "Service"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"sutler/machine": "rental-0-machine-0"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    token = next(item for item in container["env"] if item["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "vllm", "key": "hf-token", "optional": True}


def test_a_replica_on_several_machines_is_a_group_with_a_service_for_its_head() -> None:
    _, group, service = manifests("several_machines")
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 3
    selector = service["spec"]["selector"].items()
    assert selector <= template["leaderTemplate"]["metadata"]["labels"].items()
    assert not selector <= template["workerTemplate"]["metadata"]["labels"].items()
    _, words = in_pod(template["workerTemplate"])
    assert [words[words.index(flag) + 1] for flag in ("--node-rank", "--master-addr")] == [HEAD, HEAD]


def test_workers_go_to_the_machines_that_the_heading_labels_for_them_one_to_each() -> None:
    text = exported(a_plan("several_machines"), "kubernetes").content
    _, worker = pods(text)
    assert worker["spec"]["nodeSelector"] == {"worker.sutler/chat-0": "true"}
    assert "podAntiAffinity" in worker["spec"]["affinity"]
    assert text.count(" worker.sutler/chat-0=true\n") == 2


def test_workers_on_different_gpus_cannot_be_told_apart_and_are_refused() -> None:
    document = stored("several_machines")
    other = {**document["rentals"][0], "gpu": "l40s", "count": 1}
    document["rentals"].append(other)
    document["replicas"][0]["stages"][2] |= {"gpu": "l40s", "rental": 1, "machine": 0}
    with pytest.raises(DocumentError, match="cannot be exported as kubernetes: its workers need different GPUs"):
        exported(plan_of(document), "kubernetes")
    assert exported(plan_of(document), "vllm").content.count("vllm serve") == 3
