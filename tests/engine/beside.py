"""What both sides share: vLLM on its clock, the product's command line, the problem that describes the machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from sutler.solver.arrays import FloatArray

ENGINE: Final = Path("build/engine/bin").resolve()
SUTLER: Final = Path(sys.executable).parent / "sutler"
VERSION: Final = "0.32.0"
# On the clock. Without instructions for numbers of 16 bits, those of 32 bits take a half to a quarter of the time.
DTYPE: Final = "bfloat16" if "avx512_bf16" in Path("/proc/cpuinfo").read_text() else "float32"
LENGTHS: Final = {"short": (64, 32), "long": (512, 64)}  # tokens of prompts and answers
MIX: Final = {"short": 4.0, "long": 1.0}
# A core as its owner would describe it: what a product of matrices reaches in PyTorch, and what reading memory does,
# of 32 bits half of that, since plans count weights of 16.
CORE: Final = {
    "memory_gb": 1.6,
    "memory_bandwidth_gb_per_s": 10.0,
    "peak_tflops_bf16_dense": {"bfloat16": 0.3, "float32": 0.09}[DTYPE],
    "architecture": "cpu",
}


@dataclass(frozen=True, slots=True)
class Served:
    """What requests saw, arrays [num_requests] in seconds; `seconds` until the last ended; `steps`: sequences, tokens
    of prompts and seconds of each."""

    ttft_s: FloatArray
    tpot_s: FloatArray
    e2e_s: FloatArray
    seconds: float
    steps: list[list[float]]

    @property
    def req_per_s(self) -> float:
        return len(self.ttft_s) / self.seconds


def joined(runs: Sequence[Served]) -> Served:
    """One after the other."""
    ttft_s, tpot_s, e2e_s = (
        np.concatenate([getattr(run, name) for run in runs]) for name in ("ttft_s", "tpot_s", "e2e_s")
    )
    return Served(
        ttft_s, tpot_s, e2e_s, sum(run.seconds for run in runs), [step for run in runs for step in run.steps]
    )


class Clocked:
    """clock.py in a process of its own, asked for one job after the other."""

    def __init__(self, model: Path, errors: Path) -> None:
        command = [str(ENGINE / "python"), "tests/engine/clock.py", str(model), DTYPE]
        with errors.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the engine ended with {self.process.wait()}: look at its log"
        found: dict[str, Any] = json.loads(line)
        return found

    def serve(self, requests: Sequence[tuple[float, int, int]], *, clients: int | None = None) -> Served:
        """`requests`: when each arrives, tokens of its prompt and of its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"requests": requests, "clients": clients}) + "\n")
        self.process.stdin.flush()
        found = self._answer()
        sent, first, last = (np.array(found[name]) for name in ("sent_s", "first_s", "last_s"))
        tokens = np.array([answer - 1 for _, _, answer in requests])
        tpot = np.divide(last - first, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0)
        return Served(first - sent, tpot, last - sent, found["seconds"], found["steps"])


@contextmanager
def clocked(model: Path, errors: Path) -> Iterator[Clocked]:
    """The engine until the end of the block."""
    engine = Clocked(model, errors)
    try:
        yield engine
    finally:
        engine.process.stdin.close()  # type: ignore[union-attr]
        engine.process.wait(timeout=60)


def sutler(*words: object, folder: Path, status: int = 0) -> str:
    """What the command line answers; its private store is in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SUTLER_")}
    environment["SUTLER_DATA_DIR"] = str(folder / "data")
    done = subprocess.run(
        [SUTLER, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == status, f"sutler {' '.join(map(str, words))}: {done.returncode}\n{done.stderr}"
    return done.stdout


def problem(model: Path, **changes: Any) -> dict[str, Any]:
    """The made-up model on one core, for the mix; `changes` on top."""
    workloads = [
        {"name": name, "input_tokens": prompt, "output_tokens": answer, "rate_rps": MIX[name]}
        for name, (prompt, answer) in LENGTHS.items()
    ]
    offer = {"provider": "here", "offer_id": "core", "contract": "on_demand", "gpu": "core", "gpus": 1}
    taken = {"schema": "sutler/market/v1", "taken_at": "2026-11-28T00:00:00Z"}
    return {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 1,
        "engine": "vllm",
        "engine_version": VERSION,
        "models": [
            {
                "name": "tiny",
                "model": {"config": json.loads((model / "config.json").read_text()), "hf_id": str(model)},
                "max_context_tokens": 4096,
                "workloads": workloads,
            }
        ],
        "gpus": {"core": CORE},
        "market": {"offers": {**taken, "offers": [{**offer, "available": 1, "price_usd_per_hour": 1.0}]}},
        **changes,
    }


def written(path: Path, document: dict[str, Any]) -> Path:
    """The document as YAML."""
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
