"""The bash script: what it starts on which machine, seen by running it with a vllm that writes down its call."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sutler.service.export import exported
from tests.service.export.commands import in_shell
from tests.service.export.plans import NAMES, a_plan, plan_of, with_texts, with_values

FLAGS = Path(__file__).with_name("vllm_flags.txt")
# Waits for its fellows, since the script stops all servers when one ends.
RECORDER = """#!{python}
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["RECORDS"])
(folder / f"{{os.getpid()}}.part").write_text(json.dumps({{"words": sys.argv[1:], "environment": dict(os.environ)}}))
(folder / f"{{os.getpid()}}.part").rename(folder / f"{{os.getpid()}}.json")
for _ in range(600):
    if len(list(folder.glob("*.json"))) >= int(os.environ["SERVERS"]):
        break
    time.sleep(0.05)
"""


def script_of(name: str) -> str:
    return exported(a_plan(name), "vllm").content


def run(script: str, folder: Path, *arguments: str, servers: int = 1, address: str | None = None) -> Any:
    """The finished process and what each vllm saw, in the order of their ports and ranks."""
    binaries, records = folder / "bin", folder / "records"
    for made in (binaries, records):
        made.mkdir()
    (binaries / "vllm").write_text(RECORDER.format(python=sys.executable))
    (binaries / "vllm").chmod(0o755)
    path = folder / "plan.sh"
    path.write_text(script, encoding="utf-8")
    given = {"PATH": f"{binaries}:{os.defpath}", "RECORDS": str(records), "SERVERS": str(servers)}
    if address is not None:
        given["RENTAL_0_MACHINE_0_ADDRESS"] = address
    process = subprocess.run(
        ["bash", str(path), *arguments], env=given, capture_output=True, text=True, timeout=60, check=False
    )
    seen = [json.loads(record.read_text()) for record in records.glob("*.json")]
    return process, sorted(seen, key=lambda record: record["words"])


@pytest.mark.parametrize("name", NAMES)
def test_bash_accepts_every_script(name: str) -> None:
    result = subprocess.run(["bash", "-n"], input=script_of(name), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_is_one_of_vllm(name: str) -> None:
    lines = FLAGS.read_text(encoding="utf-8").splitlines()
    known = {flag for line in lines if not line.startswith("#") for flag in line.split()}
    for _, words in in_shell(script_of(name)):
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known


def test_a_machine_starts_its_own_servers_and_no_others(tmp_path: Path) -> None:
    process, seen = run(script_of("shared_machine"), tmp_path, "rental-0-machine-0", servers=5)
    assert process.returncode == 0
    ports = sorted(record["words"][record["words"].index("--port") + 1] for record in seen)
    assert ports == ["8000", "8001", "8002", "8003", "8004"]
    devices = sorted(record["environment"]["CUDA_VISIBLE_DEVICES"] for record in seen)
    assert devices == ["0,1", "2,3", "4", "5", "6"]


def test_a_replica_that_has_the_machine_to_itself_names_no_gpus(tmp_path: Path) -> None:
    _, (record,) = run(script_of("uneven_pipeline"), tmp_path, "rental-0-machine-0")
    assert "CUDA_VISIBLE_DEVICES" not in record["environment"]
    assert record["environment"]["VLLM_PP_LAYER_PARTITION"] == "17,16,16,15"


def test_nodes_of_one_replica_meet_at_the_head(tmp_path: Path) -> None:
    for rank in range(3):
        folder = tmp_path / str(rank)
        folder.mkdir()
        _, (record,) = run(script_of("several_machines"), folder, f"rental-0-machine-{rank}", address="10.0.0.5")
        words = record["words"]
        assert words[words.index("--node-rank") + 1] == str(rank)
        assert words[words.index("--master-addr") + 1] == "10.0.0.5"
        assert ("--headless" in words, "--port" in words) == (rank > 0, rank == 0)


def test_without_the_heads_address_nothing_starts(tmp_path: Path) -> None:
    process, seen = run(script_of("several_machines"), tmp_path, "rental-0-machine-1", servers=0)
    assert "set it to the IP address of rental-0-machine-0" in process.stderr
    assert process.returncode != 0
    assert seen == []


def test_when_one_server_ends_the_others_are_stopped(tmp_path: Path) -> None:
    """The one on port 8000 ends with 7 once all five run; the others would sleep on."""
    fake = """#!/bin/sh
echo $$ > "$PIDS/$$"
case "$*" in *"--port 8000 "*) while [ "$(ls "$PIDS" | wc -l)" -lt 5 ]; do sleep 0.05; done; exit 7 ;; esac
exec sleep 600
"""
    (tmp_path / "vllm").write_text(fake)
    (tmp_path / "vllm").chmod(0o755)
    (tmp_path / "pids").mkdir()
    command = ["bash", "-s", "rental-0-machine-0"]
    given = {"PATH": f"{tmp_path}:{os.defpath}", "PIDS": str(tmp_path / "pids")}
    process = subprocess.run(
        command,
        input=script_of("shared_machine"),
        env=given,
        text=True,
        timeout=60,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    assert process.returncode == 7
    left = [path.name for path in (tmp_path / "pids").iterdir() if is_running(int(path.name))]
    assert left == []


def is_running(pid: int) -> bool:
    """A killed process that nobody has waited for yet does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


@pytest.mark.parametrize("arguments", [(), ("rental-9-machine-9",), ("; true",)])
def test_without_a_machine_of_the_plan_it_lists_them(arguments: tuple[str, ...], tmp_path: Path) -> None:
    process, seen = run(script_of("several_machines"), tmp_path, *arguments)
    assert (process.returncode, seen) == (2, [])
    assert process.stderr.endswith("one of: rental-0-machine-0 rental-0-machine-1 rental-0-machine-2\n")


@pytest.mark.parametrize(
    "text",
    [
        "; touch hit; ",
        "$(touch hit)",
        "`touch hit`",
        "' ; touch hit ; '",
        '" ; touch hit ; "',
        "\n touch hit\n",
        "\\",
        "#no comment",
        "${HOME}",
        "!!",
        "*",
        "~root",
        "a\rb",
        "日本",
    ],
)
def test_bash_hands_text_of_strangers_to_vllm_unchanged(text: str, tmp_path: Path) -> None:
    plan = plan_of(with_texts("shared_machine", text=text))
    process, seen = run(exported(plan, "vllm").content, tmp_path, "rental-0-machine-0", servers=5)
    assert (process.returncode, process.stderr) == (0, "")
    assert not list(Path.cwd().glob("hit")) + list(tmp_path.rglob("hit"))
    for record in seen:
        words = record["words"]
        assert words[1] == f"m{text}"
        assert words[words.index("--served-model-name") + 1] == text
        assert record["environment"]["NOTE"] == text


def test_arguments_keep_their_meaning() -> None:
    arguments = {
        "model": "org/model",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.85,
        "tokenizer": "--trust-remote-code",
    }
    document = with_values("uneven_pipeline", (("replicas", 0, "engine_args"), arguments))
    ((_, words),) = in_shell(exported(plan_of(document), "vllm").content)
    assert words == [
        *["vllm", "serve", "org/model", "--port", "8000", "--served-model-name", "chat"],
        *["--tensor-parallel-size", "1", "--pipeline-parallel-size", "4", "--enforce-eager"],
        *["--no-enable-prefix-caching", "--gpu-memory-utilization", "0.85", "--tokenizer=--trust-remote-code"],
    ]
