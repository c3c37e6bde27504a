"""Many small deployments, each a problem of its own, that report what they hold and their traffic."""

import time
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.replanning_latency_service import Service, Tell, checked
from tests.service.running import until

MODELS: Final = (
    "llama-3.1-8b",
    "qwen3-8b",
    "qwen2.5-7b",
    "mistral-7b",
    "qwen3-14b",
    "gemma-2-9b",
    "phi-4",
    "mistral-nemo-12b",
)
WORKLOADS: Final = (("question", 400, 200, 0.7), ("document", 2000, 300, 0.3))  # tokens, share of the rate
LEAST_RPS, MOST_RPS = 2.0, 20.0
OBSERVED_S: Final = 1800.0
TELL_EVERY_S: Final = 10.0
SETUP_PATIENCE_S: Final = 600.0


def deployment(number: int, of: int) -> dict[str, Any]:
    """Small, and each a problem of its own; of every second, a look has to say what a change would bring."""
    rate_rps = LEAST_RPS + (MOST_RPS - LEAST_RPS) * number / of
    workloads = [
        {"name": name, "input_tokens": inputs, "output_tokens": outputs, "rate_rps": rate_rps * share}
        for name, inputs, outputs, share in WORKLOADS
    ]
    model = {
        "name": "chat",
        "model": MODELS[number % len(MODELS)],
        "slo": {"ttft_p90_s": 3.0, "tpot_p90_s": 0.08},
        "workloads": workloads,
    }
    problem = {
        "objective": {"kind": "min_cost", "headroom_fraction": 0.2},
        "models": [model],
        "market": {"filter": {"min_reliability_fraction": 0.9}},
    }
    policy = {"cooldown_s": 0.0} if number % 2 else {}
    return {"name": f"chat-{number}", "problem": problem, "policy": policy}


def set_up(service: Service, deployments: int, tell: Tell) -> tuple[int, int]:
    """How many report what they hold, and how many their traffic."""
    for number in range(deployments):
        checked(service.running.post("/v1/deployments", deployment(number, deployments)))
    _wait_for_plans(service, deployments, tell)
    holding = [number for number in range(deployments) if number % 5]
    observed = [number for number in range(deployments) if number % 2]
    for number in holding:
        checked(service.running.post(f"/v1/deployments/chat-{number}/holdings/ack"))
    for number in observed:
        checked(service.running.post(f"/v1/deployments/chat-{number}/observations", observation(number, deployments)))
    tell(f"{len(holding)} report what they hold, {len(observed)} their traffic ...")
    service.until_at_rest(patience_s=SETUP_PATIENCE_S)
    return len(holding), len(observed)


def _wait_for_plans(service: Service, deployments: int, tell: Tell) -> None:
    """Raises RuntimeError for a plan that serves nothing, AssertionError where it takes too long."""
    told_at = time.monotonic()

    def are_there() -> bool:
        nonlocal told_at
        planned = int(service.one("SELECT count(*) FROM deployment WHERE plan_id IS NOT NULL"))
        if time.monotonic() - told_at > TELL_EVERY_S:
            told_at = time.monotonic()
            tell(f"{planned} of {deployments} first plans ...")
        return planned == deployments

    until(are_there, patience_s=SETUP_PATIENCE_S)
    useless = service.one("SELECT count(*) FROM plan WHERE status NOT IN ('optimal', 'feasible')")
    if useless:
        raise RuntimeError(f"{useless} first plans serve nothing")


def observation(number: int, of: int) -> dict[str, Any]:
    """Half an hour of traffic as planned."""
    workloads = deployment(number, of)["problem"]["models"][0]["workloads"]
    buckets = [
        {
            "input_tokens": workload["input_tokens"],
            "output_tokens": workload["output_tokens"],
            "requests": round(workload["rate_rps"] * OBSERVED_S),
        }
        for workload in workloads
    ]
    ended_at = datetime.now(UTC).isoformat()
    return {"model": "chat", "observed_at": ended_at, "window_s": OBSERVED_S, "buckets": buckets}


def carry_out(service: Service, tell: Tell) -> None:
    """Who reports holdings carries the newest plan out."""
    service.until_at_rest(patience_s=SETUP_PATIENCE_S)
    behind = service.rows(
        "SELECT d.name FROM deployment d JOIN watch w ON w.deployment_id = d.id JOIN plan p ON p.id = d.plan_id "
        "WHERE w.holdings IS NOT NULL AND p.finished_at > w.holdings_at"
    )
    for (name,) in behind:
        checked(service.running.post(f"/v1/deployments/{name}/holdings/ack"))
    tell(f"{len(behind)} carry out a new plan ...")
