"""vLLM's server as the product starts it: exported scripts, vLLM's own benchmark, an offline plan's script."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import requests

from tests.engine.beside import CORE, ENGINE, LENGTHS, VERSION, problem, sutler, written
from tests.service.running import until

START_S: Final = 300.0  # chosen: ends what hangs; 41 s on a quiet machine
STOP_S: Final = 60.0
# What a model without weights on a CPU takes beside what plans say.
ARGUMENTS: Final = ("--argument", "load_format=dummy", "--argument", "enforce_eager=true")
PAGE: Final = Path("docs/offline-running.md")
_SETTINGS: Final = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the only worker is in the engine's process: a start takes 42 s for 60
    "VLLM_NO_USAGE_STATS": "1",
}


def environment() -> dict[str, str]:
    """Of an engine, whose commands are the first on the path."""
    path = os.pathsep.join([str(ENGINE), os.environ["PATH"]])
    return {**os.environ, **_SETTINGS, "PATH": path}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Server:
    """One machine's exported script, and where its engine answers."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return requests.get(f"{self.url}/health", timeout=2).ok
        except requests.RequestException:
            return False

    def complete(self, name: str, number: int) -> int:
        """Asks for an answer to a request of one of LENGTHS; returns its tokens. Raises RequestException."""
        prompt, answer = LENGTHS[name]
        words = [3 + (7 * number + 11 * at) % 2000 for at in range(prompt)]
        body = {"model": "tiny", "prompt": words, "max_tokens": answer, "ignore_eos": True}
        told = requests.post(f"{self.url}/v1/completions", json=body, timeout=120)
        told.raise_for_status()
        tokens: int = told.json()["usage"]["completion_tokens"]
        return tokens

    def kill(self) -> None:
        """As a machine goes that is lost: at once, with all that runs there."""
        for one in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
            one.kill()
        self.process.wait(STOP_S)


@contextmanager
def started(plan: Path, folder: Path, *, machine: str) -> Iterator[Server]:
    """The script that `sutler export` writes for a machine of the plan, run as it says; ended as an operator does."""
    port, script = free_port(), folder / f"{machine}.sh"
    sutler("export", plan, "-f", "vllm", "--port", port, *ARGUMENTS, "--out", script, folder=folder)
    log = folder / f"{machine}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(["bash", script, machine], env=environment(), stdout=out, stderr=out)
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        yield server
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_S)
            with socket.socket() as again:  # the port is free once more
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(("127.0.0.1", port))
    finally:
        if process.poll() is None:
            server.kill()


def wait_until_up(server: Server) -> None:
    until(server.is_up, patience_s=START_S)


def benchmarked(plan: Path, model: Path, folder: Path, *, clients: int = 4) -> tuple[bool, str]:
    """`vllm bench serve` against the engine of a plan of one machine, and whether `profiles import` takes what it
    saves."""
    router = json.loads(sutler("export", plan, "-f", "router", folder=folder))
    ((_, replica),) = router["replicas"].items()
    asked = written(folder / "benchmarked.yaml", problem(model))
    prompt, answer = LENGTHS["long"]
    saved = folder / "bench.json"
    with started(plan, folder, machine=replica["host"]) as server:
        wait_until_up(server)
        words = ["bench", "serve", "--backend", "vllm", "--base-url", server.url, "--model", "tiny"]
        words += ["--tokenizer", str(model), "--dataset-name", "random", "--random-input-len", str(prompt)]
        words += ["--random-output-len", str(answer), "--max-concurrency", str(clients), "--ignore-eos"]
        words += ["--num-prompts", str(4 * clients), "--save-result", "--result-dir", str(folder)]
        words += ["--result-filename", saved.name, "--disable-tqdm"]
        done = subprocess.run(
            [ENGINE / "vllm", *words], env=environment(), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    told: list[object] = ["--gpu", "core", "--tensor-parallel", 1, "--model", "tiny", "--precision", "bf16"]
    told += ["--engine", "vllm", "--engine-version", f"{VERSION}+bench", "--problem", asked, "--json"]
    imported = json.loads(sutler("profiles", "import", saved, *told, folder=folder))
    rate = f"{json.loads(saved.read_text())['request_throughput']:.1f} requests/s in wall-clock time"
    return imported[0]["kept"] == 1, f"long, {clients} in flight: {rate}, imported"


def offline_run(model: Path, folder: Path, *, count: int = 12) -> float:
    """Plans an application of one model, runs the script of its plan and the documented client; returns the seconds
    that the plan counts on."""
    prompt, answer = LENGTHS["short"]
    application = {
        "name": "engine-check",
        "models": [
            {
                "name": "tiny",
                "model": {"config": json.loads((model / "config.json").read_text()), "hf_id": str(model)},
                "requests": {"count": count, "input_tokens": prompt},
                "output_tokens": answer,
                "max_output_tokens": answer,
            }
        ],
        "hardware": {"gpu": "core", "gpus": 1},
        "gpus": {"core": CORE},
    }
    plan, script = folder / "offline.json", folder / "offline.sh"
    sutler("offline", "plan", written(folder / "application.yaml", application), "--out", plan, folder=folder)
    words = ("offline", "run-plan", plan, "-f", "sh", "--port", free_port(), *ARGUMENTS, "--out", script)
    sutler(*words, folder=folder)
    run, client = folder / "run", folder / "client.py"
    (script_of_client,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    client.write_text(script_of_client)
    prompts = "".join(json.dumps(" ".join(f"w{3 + at}" for at in range(prompt))) + "\n" for _ in range(count))
    with (folder / "offline.log").open("wb") as log:
        process = subprocess.Popen(["bash", script, run], env=environment(), stdout=log, stderr=log)
    try:
        until(lambda: (run / "models.json").exists() or process.poll() is not None)
        done = subprocess.run(
            [sys.executable, client, run, "tiny"],
            input=prompts,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=True,
        )
        assert process.wait(STOP_S) == 0, (folder / "offline.log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_S)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == count
    assert all(answers), answers
    found: float = json.loads(plan.read_text())["makespan_s"]
    return found


def read_by_vllm(folder: Path, *, problems: int = 5) -> str:
    """Has vLLM's own parser read the `vllm serve` lines of plans of random problems; what it said."""
    commands, said = folder / "commands.jsonl", ""
    made = [sys.executable, "-m", "tests.service.export.random_plans", str(problems), str(commands)]
    read = [str(ENGINE / "python"), "tests/service/export/check_vllm.py", str(commands)]
    for command in (made, read):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        said = done.stdout.strip()
    return said
