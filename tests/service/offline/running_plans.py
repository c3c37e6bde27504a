"""Offline plans made by hand for tests of the running phase."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sutler.service.offline.plan_schema import OfflinePlanDocument

REQUESTS: Final = 100
Gpus = Sequence[int | tuple[int, int]]
Placed = Mapping[str, Sequence[Gpus]]

ARCHITECTURE: Final = {
    "layers": 32,
    "hidden_size": 4096,
    "heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_context_tokens": 4096,
    "hf_id": "meta-llama/Llama-2-7b-hf",
}


def a_stage(
    start_s: float,
    end_s: float,
    placed: Placed,
    *,
    finished: Mapping[str, int] | None = None,
    until: tuple[str, float] | None = None,
) -> dict[str, Any]:
    """`placed`: by model the GPUs of each replica: numbers, or (host, number)."""
    counts = finished or {}
    return {
        "start_s": start_s,
        "end_s": end_s,
        "models": [
            {
                "model": model,
                "data_parallel": len(replicas),
                "tensor_parallel": len(replicas[0]),
                "replicas": [_replica(number, gpus, start_s) for number, gpus in enumerate(replicas)],
                "finished_requests": counts.get(model, 0),
                "written_tokens": 0,
            }
            for model, replicas in placed.items()
        ],
        "until": None if until is None else {"model": until[0], "fraction": until[1]},
        "busy_gpu_s": 0.0,
        "loading_gpu_s": 0.0,
    }


def a_plan(
    *stages: dict[str, Any],
    islands: Sequence[tuple[int, tuple[int, ...]]] = ((0, (0, 1, 2, 3)),),
    across_gb_per_s: float = 0.0,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    **others: Any,
) -> OfflinePlanDocument:
    """Of the models that the stages name; `models` replaces fields of them by name."""
    names = list(dict.fromkeys(one["model"] for stage in stages for one in stage["models"])) or ["a"]
    return OfflinePlanDocument.model_validate(
        {
            "schema": "sutler/offline-plan/v1",
            "id": UUID(int=8),
            "created_at": datetime(2026, 11, 20, tzinfo=UTC),
            "status": "feasible",
            "strategy": "sutler",
            "objective": {"kind": "min_time", "value": 300.0, "bound": 200.0, "relative_gap": 1 / 3},
            "makespan_s": stages[-1]["end_s"] if stages else None,
            "cost_usd": None,
            "lower_bound": None,
            "seed": 0,
            "application": {
                "name": "an application",
                "models": [
                    {
                        "name": name,
                        "model": "llama-2-7b",
                        "requests": {"count": REQUESTS, "input_tokens": 100},
                        "output_tokens": 10,
                    }
                    for name in names
                ],
                "hardware": {"gpu": "a100-sxm4-80gb", "gpus": 4},
            },
            "hardware": {
                "gpu": "a100-sxm4-80gb",
                "islands": tuple({"host": host, "gpus": gpus, "gb_per_s": 300.0} for host, gpus in islands),
                "across_gb_per_s": across_gb_per_s,
                "loading": {},
                "figures": {"memory_gb": 80.0},
            },
            "rentals": (),
            "schedule": (),
            "stages": _tuples(stages),
            "models": tuple(
                {
                    "name": name,
                    "model": "llama-2-7b",
                    "architecture": ARCHITECTURE,
                    "precision": "bf16",
                    "kv_precision": "bf16",
                    "requests": REQUESTS,
                    "input_tokens": 1000,
                    "output_tokens": 1000,
                    "finish_s": 100.0,
                    "load_s": {"1": 20.0, "2": 15.0},
                    **(models or {}).get(name, {}),
                }
                for name in names
            ),
            "compared": (),
            "frontier": (),
            "conflicts": (),
            "solver": {"seconds": 1.0, "evaluated_schedules": 1, "hit_time_limit": False, "version": "0"},
            "warnings": (),
            **others,
        }
    )


def _replica(number: int, gpus: Gpus, start_s: float) -> dict[str, Any]:
    places = [gpu if isinstance(gpu, tuple) else (0, gpu) for gpu in gpus]
    placed = [{"host": host, "gpu": gpu} for host, gpu in places]
    return {"number": number, "gpus": placed, "ready_s": start_s + 20.0, "loaded": True}


def _tuples(value: Any) -> Any:
    """Strict documents in Python want tuples where JSON has lists."""
    if isinstance(value, list | tuple):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
