"""Prefill and decode replicas, and power caps, in every format."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from kubernetes_validate.utils import validate

from sutler.service.documents.errors import DocumentError
from sutler.service.export import FORMATS, exported
from sutler.service.export.layout import PROXY
from sutler.service.library.planning import plan
from sutler.solver.answer.engine_args import STEP_TOKENS
from tests.service.builders import a_problem, a_snapshot, an_offer, changed
from tests.service.export.commands import HEAD, in_compose, in_pod, in_shell, pods
from tests.service.export.plans import a_plan, in_two_phases, plan_of
from tests.service.export.test_compose import compose_schema
from tests.service.export.test_kubernetes import VERSION
from tests.service.export.test_vllm_script import FLAGS

PLAN = plan_of(in_two_phases())


def text_of(format: str) -> str:
    return exported(PLAN, format).content  # type: ignore[arg-type]


def by_port(format: str) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Variables and words of each server."""
    found = in_shell(text_of(format)) if format == "vllm" else in_compose(text_of(format)).values()
    return {words[words.index("--port") + 1]: (environment, words) for environment, words in found}


def transfer_of(words: list[str]) -> dict[str, str]:
    config: dict[str, str] = json.loads(words[words.index("--kv-transfer-config") + 1])
    return config


@pytest.mark.parametrize("format", ["vllm", "compose"])
def test_replicas_of_one_phase_say_how_they_hand_over_and_where(format: str) -> None:
    servers = by_port(format)
    assert "--kv-transfer-config" not in servers["8000"][1]
    ports = set()
    for port, role in (("8002", "kv_producer"), ("8003", "kv_consumer"), ("8004", "kv_consumer")):
        environment, words = servers[port]
        assert transfer_of(words)["kv_connector"] == "NixlConnector"
        assert transfer_of(words)["kv_role"] == role
        assert environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == HEAD
        ports.add(environment["VLLM_NIXL_SIDE_CHANNEL_PORT"])
    assert len(ports) == 3


def test_what_prefills_has_the_steps_that_its_rate_rests_on() -> None:
    _, words = by_port("vllm")["8002"]
    assert words[words.index("--max-num-batched-tokens") + 1] == str(STEP_TOKENS)
    assert "--max-num-batched-tokens" not in by_port("vllm")["8003"][1]


def test_every_flag_is_one_of_vllm() -> None:
    lines = FLAGS.read_text(encoding="utf-8").splitlines()
    known = {flag for line in lines if not line.startswith("#") for flag in line.split()}
    for _, words in in_shell(text_of("vllm")):
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def test_the_router_has_the_plans_fractions() -> None:
    document = json.loads(text_of("router"))
    assert document["weights"]["small"]["tags"] == {"small-0": 1.0}
    assert document["hand_over"] == {"small": {"tags": {"small-0": {"small-1": 0.25, "small-2": 0.75}}}}
    assert {"small-1", "small-2"} <= set(document["replicas"])
    assert yaml.safe_load(text_of("compose"))["x-sutler-router"]["hand_over"] == document["hand_over"]
    assert "hand_over" not in json.loads(exported(a_plan("shared_machine"), "router").content)


def test_the_router_names_the_replicas_that_take_either_phase_and_when() -> None:
    """One prefills 6 prompts/s of 1,000 tokens: half of the wait of 3 s is 9,000 tokens."""
    stages = [{"gpu": "h100-sxm", "tensor_parallel": 1}]
    table = [
        {"model": "chat", "stages": stages, "role": role, "rps": {"question": rps}}
        for role, rps in (("prefill", 6.0), ("decode", 4.0))
    ]
    workload = {"name": "question", "input_tokens": 1000, "output_tokens": 200, "rate_rps": 4}
    model = {"name": "chat", "model": "llama-3.1-8b", "slo": {"ttft_p90_s": 3}, "workloads": [workload]}
    offer = an_offer(
        gpu="h100-sxm", gpus=1, available=4, price_usd_per_hour=2.0, site="s", inter_machine_gb_per_s=50.0
    )
    found = plan(
        a_problem(
            objective={"kind": "min_cost"},
            models=[model],
            market={"offers": a_snapshot(offer)},
            throughput={"only": True, "table": table},
            search={"disaggregation": "only"},
        )
    )
    roles = {replica.id: replica.role for replica in found.replicas}
    assert sorted(roles.values()) == ["decode", "decode", "prefill"]
    document = json.loads(exported(found, "router").content)
    assert document["either_phase"]["chat"] == {
        name: {"role": role, "waiting_prompt_tokens": 9000, "answers": 256} for name, role in roles.items()
    }
    assert "either_phase" not in json.loads(text_of("router"))


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in ("nginx", "envoy")])
def test_that_there_is_no_proxy_is_said(format: str) -> None:
    result = exported(PLAN, format)  # type: ignore[arg-type]
    assert PROXY in result.warnings
    assert PROXY not in exported(a_plan("shared_machine"), format).warnings  # type: ignore[arg-type]


def test_the_schema_of_compose_accepts_it_and_ucx_finds_its_ports() -> None:
    document = yaml.safe_load(text_of("compose"))
    jsonschema.validate(document, compose_schema())
    assert document["services"]["small-0"]["network_mode"] == "host"
    assert "network_mode" not in document["services"]["large-0"]


def test_pods_say_their_own_address() -> None:
    text = text_of("kubernetes")
    for document in yaml.safe_load_all(text):
        validate(document, VERSION, strict=True)
    said = [
        item["valueFrom"]["fieldRef"]["fieldPath"]
        for pod in pods(text)
        for item in pod["spec"]["containers"][0]["env"]
        if item["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST"
    ]
    assert said == ["status.podIP"] * 3
    assert sum("--kv-transfer-config" in in_pod(pod)[1] for pod in pods(text)) == 3


def test_skypilot_installs_what_hands_over() -> None:
    assert "nixl" in text_of("skypilot")
    assert "one region" in text_of("skypilot")
    assert "nixl" not in exported(a_plan("shared_machine"), "skypilot").content


def test_a_hand_over_to_a_replica_of_another_role_is_refused() -> None:
    document = changed(in_two_phases(), ("kv_transfers", 0, "decode"), "large-0")
    with pytest.raises(DocumentError, match=r"kv_transfers\[0\]\.decode"):
        exported(plan_of(document), "vllm")


def test_gpus_are_capped_where_they_are_before_their_server_starts(tmp_path: Path) -> None:
    """Run with an nvidia-smi that writes down its call, and with one that may not."""
    seen = {}
    for status in (0, 4):
        folder = tmp_path / str(status)
        folder.mkdir()
        for name, script in (
            ("nvidia-smi", f'echo "$@" >> {folder}/calls; exit {status}'),
            ("vllm", f'echo "$CUDA_DEVICE_ORDER" >> {folder}/servers; sleep 1'),
        ):
            (folder / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
            (folder / name).chmod(0o755)
        given = {"PATH": f"{folder}:{os.defpath}", "RENTAL_0_MACHINE_0_ADDRESS": "10.0.0.5"}
        command = ["bash", "-c", text_of("vllm"), "plan.sh", "rental-0-machine-0"]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
        assert (folder / "calls").read_text().split() == ["-i", "4", "-pl", "350"]
        assert sorted((folder / "servers").read_text().split("\n")).count("PCI_BUS_ID") == 1
        seen[status] = done.stderr
    assert seen[0] == ""
    assert seen[4] == "warning: rental-0-machine-0 keeps its power limit: nvidia-smi -pl needs root on the host\n"


@pytest.mark.parametrize("format", ["compose", "kubernetes"])
def test_a_format_without_a_step_for_it_says_what_root_has_to_do(format: str) -> None:
    assert "# On the host of rental-0-machine-0, as root, before it starts: nvidia-smi -i 4 -pl 350" in text_of(
        format
    )


def test_kubernetes_cannot_tell_the_capped_gpus_of_a_node_from_others() -> None:
    assert any("can meet the wrong ones" in warning for warning in exported(PLAN, "kubernetes").warnings)


def test_skypilot_asks_for_root() -> None:
    assert "sudo nvidia-smi -i 4 -pl 350 ||" in text_of("skypilot")


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in ("nginx", "envoy")])
def test_without_caps_nothing_is_capped(format: str) -> None:
    plain = exported(plan_of(in_two_phases(cap_watts=None)), format)  # type: ignore[arg-type]
    assert "nvidia-smi" not in plain.content


def test_prompts_for_a_decode_replica_are_refused() -> None:
    document = changed(in_two_phases(), ("routing", 1, "fractions"), {"small-1": 1.0})
    with pytest.raises(DocumentError, match="that take prompts"):
        exported(plan_of(document), "vllm")
