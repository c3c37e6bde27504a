"""Plans for SGLang: the same replicas by SGLang's flags."""

import json
import re
import shlex
from typing import Any, Final

import pytest
import yaml

from sutler.service.documents.errors import DocumentError
from sutler.service.export import exported
from sutler.service.export.layout import layout_of
from tests.service.export.commands import interpolated, pods
from tests.service.export.plans import in_two_phases, plan_of, stored

FLAG: Final = re.compile(r"--[a-z-]+")
# https://docs.sglang.io/advanced_features/server_arguments.html
KNOWN: Final = {
    *(
        "--model-path",
        "--host",
        "--port",
        "--served-model-name",
        "--tp-size",
        "--pp-size",
        "--dtype",
        "--quantization",
    ),
    *("--max-running-requests", "--chunked-prefill-size", "--context-length", "--nnodes", "--node-rank"),
    *("--dist-init-addr", "--disaggregation-mode", "--disaggregation-transfer-backend"),
    "--disaggregation-bootstrap-port",
}


def for_sglang(document: dict[str, Any]) -> dict[str, Any]:
    for replica in document["replicas"]:
        replica["engine"] = "sglang"
    return document


def servers(script: str) -> list[list[str]]:
    starts = [line for line in script.splitlines() if "sglang.launch_server" in line]
    return [shlex.split(line.removesuffix("&")) for line in starts]


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", ["single_gpu", "shared_machine", "several_machines", "uneven_pipeline"])
def test_every_process_is_a_server_of_sglang_with_flags_of_its_own(name: str) -> None:
    plan = plan_of(for_sglang(stored(name)))
    found = servers(exported(plan, "vllm").content)
    assert len(found) == sum(len(serving.processes) for serving in layout_of(plan).servings)
    for words in found:
        assert {word for word in words if FLAG.fullmatch(word)} <= KNOWN
        assert value(words, "--host") == "0.0.0.0"
    sizes = {int(value(words, "--tp-size")) * int(value(words, "--pp-size")) for words in found}
    assert sizes == {sum(stage.tensor_parallel for stage in replica.stages) for replica in plan.replicas}


def test_limits_have_sglangs_names() -> None:
    document = for_sglang(stored("single_gpu"))
    given = {
        "quantization": "compressed-tensors",
        "max_num_seqs": 7,
        "max_num_batched_tokens": 2048,
        "max_model_len": 99,
    }
    document["replicas"][0]["engine_args"] |= given
    words = servers(exported(plan_of(document), "vllm").content)[0]
    assert [value(words, f) for f in ("--quantization", "--max-running-requests")] == ["w8a8_int8", "7"]
    assert [value(words, f) for f in ("--chunked-prefill-size", "--context-length")] == ["2048", "99"]


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (
            {"method": "mtp", "num_speculative_tokens": 2},
            {"algorithm": "NEXTN", "num-steps": "2", "eagle-topk": "1", "num-draft-tokens": "3"},
        ),
        (
            {"method": "eagle3", "model": "a/draft", "num_speculative_tokens": 3},
            {"algorithm": "EAGLE3", "draft-model-path": "a/draft", "num-steps": "3", "num-draft-tokens": "4"},
        ),
        ({"method": "ngram", "num_speculative_tokens": 5}, {"algorithm": "NGRAM", "num-draft-tokens": "5"}),
    ],
)
def test_guesses_are_told_by_sglangs_flags(config: dict[str, Any], flags: dict[str, str]) -> None:
    document = for_sglang(stored("single_gpu"))
    document["replicas"][0]["engine_args"] |= {"speculative_config": json.dumps(config)}
    words = servers(exported(plan_of(document), "vllm").content)[0]
    assert {flag: value(words, f"--speculative-{flag}") for flag in flags} == flags
    assert "--speculative-config" not in words


def test_nodes_find_their_head_and_listen_apart() -> None:
    found = servers(exported(plan_of(for_sglang(stored("several_machines"))), "vllm").content)
    assert [value(words, "--node-rank") for words in found] == ["0", "1", "2"]
    addresses = {re.sub(r"\$\{.*\}", "HEAD", " ".join(words)).partition("--dist-init-addr ")[2] for words in found}
    assert addresses == {"HEAD:29501"}
    assert len({value(words, "--port") for words in found}) == 3


def test_layers_are_split_by_sglangs_variable() -> None:
    plan = plan_of(for_sglang(stored("uneven_pipeline")))
    split = plan.replicas[0].engine_env["VLLM_PP_LAYER_PARTITION"]
    script = exported(plan, "vllm").content
    assert f"SGLANG_PP_LAYER_PARTITION={split}" in script
    assert "VLLM_" not in script


def test_prefill_and_decode_say_so_and_need_no_side_channel() -> None:
    script = exported(plan_of(for_sglang(in_two_phases())), "vllm").content
    modes = [value(words, "--disaggregation-mode") for words in servers(script) if "--disaggregation-mode" in words]
    assert sorted(modes) == ["decode", "decode", "prefill"]
    assert "NIXL_SIDE_CHANNEL" not in script
    assert "sglang_router" in script


def test_containers_are_sglangs() -> None:
    plan = plan_of(for_sglang(stored("several_machines")))
    services = yaml.safe_load(exported(plan, "compose").content)["services"].values()
    for service in services:
        assert service["image"].startswith("lmsysorg/sglang:v")
        assert service["entrypoint"] == ["python3", "-m", "sglang.launch_server"]
        assert interpolated(service["command"][-1])
    for pod in pods(exported(plan, "kubernetes").content):
        [container] = pod["spec"]["containers"]
        assert (container["name"], container["command"][-1]) == ("sglang", "sglang.launch_server")
        assert container["args"][0] == "--model-path"


def test_a_task_installs_its_engine_and_never_two() -> None:
    [task] = yaml.safe_load_all(exported(plan_of(for_sglang(stored("several_machines"))), "skypilot").content)
    assert task["setup"].startswith("pip install sglang==")
    document = stored("shared_machine")
    document["replicas"][0]["engine"] = "sglang"
    with pytest.raises(DocumentError, match="a SkyPilot task installs one engine"):
        exported(plan_of(document), "skypilot")
