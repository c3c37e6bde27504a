"""Documents and plans for tests: a small valid one, and ways to change one place of it."""

import copy
from datetime import UTC, datetime
from typing import Any, Final

from sutler.service.documents.examples import CHAT as EXAMPLE
from sutler.service.documents.fitness import ALL_OFF
from sutler.service.translation.fitness import Fitness
from sutler.solver.plan import (
    Alternative,
    Binding,
    Conflict,
    Evidence,
    PhaseSeconds,
    Plan,
    Rental,
    Replica,
    RobustAlternative,
    Robustness,
    Route,
    Share,
    SolveReport,
    Stage,
    WorkloadRate,
)

NOW: Final = datetime(2026, 11, 20, 12, 0, 20, tzinfo=UTC)
DELETE: Final = object()
UNJUDGED: Final = Fitness(ALL_OFF, (), {}, NOW)
Path = tuple[str | int, ...]


def an_offer(**others: Any) -> dict[str, Any]:
    return {
        "provider": "vastai",
        "offer_id": "123",
        "gpu": "h100-sxm",
        "gpus": 4,
        "available": 1,
        "price_usd_per_hour": 9.0,
        "contract": "on_demand",
        **others,
    }


def a_snapshot(*offers: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "sutler/market/v1",
        "taken_at": "2026-11-20T12:00:00Z",
        "offers": list(offers) or [an_offer()],
    }


def a_workload(name: str = "long-short", **others: Any) -> dict[str, Any]:
    return {"name": name, "input_tokens": 2455, "output_tokens": 18, "rate_rps": 2.2, **others}


def a_model(name: str = "chat", **others: Any) -> dict[str, Any]:
    return {"name": name, "model": "llama-3-70b", "precision": "bf16", "workloads": [a_workload()], **others}


def a_problem(**others: Any) -> dict[str, Any]:
    """Measured rates alone, so that it solves in no time."""
    return {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 20,
        "models": [a_model()],
        "throughput": {"only": True, "table": [a_row()]},
        "market": {"offers": a_snapshot()},
        **others,
    }


def a_slow_problem(*, time_limit_s: float = 30.0) -> dict[str, Any]:
    """Many kinds of machine, model and request, to be proven to the last: it takes all the time it is given."""
    gpus = ("h100-sxm", "h200-sxm", "a100-sxm4-80gb", "l40s", "rtx-4090", "a40")
    offers = [
        an_offer(
            offer_id=f"{gpu}-{size}-{tier}",
            gpu=gpu,
            gpus=size,
            price_usd_per_hour=size * (0.7 + 0.37 * i) * (1 + 0.013 * tier),
        )
        for i, gpu in enumerate(gpus)
        for size in (1, 2, 4, 8)
        for tier in range(4)
    ]
    workloads = [
        {"name": f"w{i}", "input_tokens": 200 * 2**i, "output_tokens": 100 + 90 * i, "rate_rps": 1 + 0.3 * i}
        for i in range(5)
    ]
    names = ("llama-3.1-70b", "qwen3-32b", "llama-3.1-8b", "mistral-small-24b", "gemma-3-27b", "phi-4", "qwen3-8b")
    return {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 60,
        "models": [{"name": name, "model": name, "workloads": workloads} for name in names],
        "market": {"offers": a_snapshot(*offers)},
        "solver": {"time_limit_s": time_limit_s, "relative_gap": 1e-6},
    }


def a_row(gpu: str = "h100-sxm", tensor_parallel: int = 4, **others: Any) -> dict[str, Any]:
    stages = [{"gpu": gpu, "tensor_parallel": tensor_parallel}]
    return {"model": "chat", "stages": stages, "rps": {"long-short": 3.0}, **others}


# The example of the API with measured rates alone: the same machines, in a fifth of the time.
CHAT: Final[dict[str, Any]] = {
    **EXAMPLE,
    "throughput": {
        "only": True,
        "table": [
            {"model": "chat", "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": rps}
            for gpu, rps in (
                ("rtx-4090", {"question": 4.8, "document": 1.1}),
                ("h100-sxm", {"question": 31.0, "document": 6.0}),
            )
        ],
    },
}


def an_inline_model(**others: Any) -> dict[str, Any]:
    sizes = {"layers": 4, "hidden_size": 512, "heads": 8, "kv_heads": 2, "intermediate_size": 1024}
    return {**sizes, "vocab_size": 1000, **others}


def changed(document: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """A copy with one value replaced, added or (DELETE) taken away."""
    result = copy.deepcopy(document)
    here: Any = result
    for part in path[:-1]:
        here = here[part]
    if value is DELETE:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return result


def a_rental(**others: Any) -> Rental:
    given: dict[str, Any] = {
        "offer_id": "123",
        "provider": "vastai",
        "site": "vastai/host-9",
        "gpu": "h100-sxm",
        "gpus": 4,
        "count": 1,
        "price_usd_per_hour": 9.05,
        "contract": "on_demand",
    }
    return Rental(**{**given, **others})


def a_stage(gpu: str = "h100-sxm", tensor_parallel: int = 4, layers: int | None = 80, rental: int = 0) -> Stage:
    return Stage(gpu, tensor_parallel, layers, rental, 0, tuple(range(tensor_parallel)))


def a_replica(name: str = "chat-0", *stages: Stage, rps: float = 4.1, busy: float = 0.98) -> Replica:
    rates = (WorkloadRate("long-short", rps),)
    arguments = (("tensor_parallel_size", 4),)
    return Replica(name, "chat", "aggregated", stages or (a_stage(),), 200, busy, rates, arguments, precision="bf16")


def a_plan(**others: Any) -> Plan:
    """One machine, one replica; what a test does not name is plausible."""
    given: dict[str, Any] = {
        "status": "optimal",
        "objective": "max_throughput",
        "value": 4.1,
        "bound": 4.1002,
        "relative_gap": 0.00005,
        "throughput_rps": 4.1,
        "makespan_s": None,
        "load_multiple": None,
        "cost_usd_per_hour": 9.05,
        "power_watts": 2800.0,
        "usd_per_million_tokens": 0.31,
        "rentals": (a_rental(),),
        "replicas": (a_replica(),),
        "routing": (Route("chat", "long-short", (Share("chat-0", 1.0),)),),
        "binding": (Binding("budget", 0.41, "rps per usd_per_hour"),),
        "alternatives": (Alternative("h100-sxm", 3.0, 8.0, (a_rental(gpu="a100-sxm4-80gb", gpus=8),)),),
        "conflicts": (),
        "evidence": (Evidence("chat-0", "long-short", "roofline", "decode bound", 4.2, 2.1, 8.4),),
        "warnings": (),
        "solver": SolveReport("exact", 0.42, 2099, (PhaseSeconds("relaxation", 0.1),), "0.1.0"),
    }
    return Plan(**{**given, **others})


def a_robustness(**others: Any) -> Robustness:
    """Half of 4.1 req/s is left, and another plan would keep 3.0."""
    other = RobustAlternative(3.0, 3.6, None, None, 14.8, (a_rental(gpu="h100-sxm", gpus=4, count=2),))
    given: dict[str, Any] = {
        "low_fraction": 0.5,
        "value_at_low": 2.05,
        "load_multiple_at_low": None,
        "verdict": "better",
        "reason": None,
        "bound_at_low": 3.01,
        "alternative": other,
    }
    return Robustness(**{**given, **others})


def an_infeasible_plan() -> Plan:
    nothing = dict.fromkeys(
        ("value", "bound", "relative_gap", "throughput_rps", "cost_usd_per_hour", "power_watts"), None
    )
    empty: dict[str, Any] = dict.fromkeys(
        ("rentals", "replicas", "routing", "binding", "alternatives", "evidence"), ()
    )
    conflict = Conflict("budget", 9.05, 2.0, "usd_per_hour", "raise budget_usd_per_hour to at least 9.05")
    return a_plan(status="infeasible", usd_per_million_tokens=None, conflicts=(conflict,), **nothing, **empty)
