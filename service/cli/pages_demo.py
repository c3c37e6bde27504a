"""`sutler demo --pages`: clouds, traffic and deployments are played, so that there is something to look at."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sutler.service.client.errors import ServiceError
from sutler.service.client.synchronous import Client
from sutler.service.settings import for_a_child

# Of each plan: chosen, so that all are there while somebody still waits.
SOLVER: Final[Mapping[str, float]] = {"time_limit_s": 10.0}
PATIENCE_S: Final = 240.0  # chosen: twice what a machine with four times its load takes to start, poll and plan
SLO: Final = {"ttft_p90_s": 2.0, "tpot_p90_s": 0.05}
CHAT: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost", "headroom_fraction": 0.2},
    "models": [
        {
            "name": "chat",
            "model": "llama-3.1-8b",
            "slo": SLO,
            "workloads": [
                {"name": "question", "input_tokens": 400, "output_tokens": 200, "rate_rps": 12},
                {"name": "document", "input_tokens": 3000, "output_tokens": 300, "rate_rps": 6},
            ],
        }
    ],
}
CODE: Final[dict[str, Any]] = {
    "objective": {"kind": "max_throughput"},
    "budget_usd_per_hour": 20,
    "models": [
        {
            "name": "code",
            "model": "qwen2.5-coder-32b",
            "precision": "fp8",
            "slo": {"ttft_p90_s": 3.0, "tpot_p90_s": 0.06},
            "workloads": [
                {"name": "completion", "input_tokens": 2000, "output_tokens": 150, "rate_rps": 3},
                {"name": "review", "input_tokens": 9000, "output_tokens": 600, "rate_rps": 1},
            ],
        }
    ],
}
POOR: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost"},
    "budget_usd_per_hour": 0.2,
    "models": [
        {
            "name": "large",
            "model": "llama-3.3-70b",
            "workloads": [{"name": "answer", "input_tokens": 2000, "output_tokens": 150, "rate_rps": 3}],
        }
    ],
}
DEPLOYMENTS: Final = {"chat": CHAT, "code": CODE, "no-money": POOR}


@contextmanager
def playing(
    folder: Path, environment: dict[str, str], *arguments: str, port: int, solver: Mapping[str, float] = SOLVER
) -> Iterator[str]:
    """A service with the deployments of the demo, as long as it lasts; yields its URL."""
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "sutler", "serve", "--port", str(port), *arguments]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=for_a_child(**environment), stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        with Client(url, environment.get("SUTLER_KEY"), retries=0) as client:
            # Only what this process has announced is asked: at the port somebody else's service may answer.
            _until(lambda: f"answers on {url}" in _said(folder), process, folder)
            _until(lambda: _is_polled(client), process, folder)
            furnish(client, solver)
            _until(lambda: all(one.plan for one in client.deployments()), process, folder)
            live_in(client)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def furnish(client: Client, solver: Mapping[str, float]) -> None:
    """Makes the deployments; their plans are begun at once."""
    for name, problem in DEPLOYMENTS.items():
        client.apply(name, {**problem, "solver": {**solver}})


def live_in(client: Client) -> None:
    """One deployment is carried out and busier than planned."""
    plan = client.deployment("chat").plan
    if plan is not None:
        client.acknowledge("chat", plan.revision)
    buckets = [
        {"input_tokens": 400, "output_tokens": 200, "requests": 60 * 14},
        {"input_tokens": 3000, "output_tokens": 300, "requests": 60 * 6},
    ]
    told = {"model": "chat", "observed_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "window_s": 60}
    client.observe("chat", {**told, "buckets": buckets})


def _is_polled(client: Client) -> bool:
    try:
        return len(list(client.offers(limit=200))) > 100
    except ServiceError:
        return False


def _until(look: Any, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Waits for a state. Raises TimeoutError with what the service said."""
    give_up_at = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < give_up_at:
        if look():
            return
        time.sleep(0.2)
    raise TimeoutError(f"the service of the demo is not there; it said:\n{_said(folder)[-2_000:]}")


def _said(folder: Path) -> str:
    return (folder / "serve.log").read_text(encoding="utf-8", errors="replace")
