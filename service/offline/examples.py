"""Example applications and a report for the OpenAPI document; a test plans each of them."""

from typing import Any, Final

_MODELS: Final = [
    {
        "name": "mistral",
        "model": "mistral-7b",
        "requests": {"count": 400, "input_tokens": {"uniform": {"low": 50, "high": 400}}},
        "output_tokens": {"lognormal": {"mean": 190, "standard_deviation": 120, "high": 256}},
    },
    {
        "name": "llama",
        "model": "llama-2-13b",
        "precision": "fp16",
        "requests": {"count": 400, "input_tokens": {"uniform": {"low": 50, "high": 400}}},
        "output_tokens": 180,
    },
    {"name": "judge", "model": "llama-3.1-8b", "prompt_tokens": 60, "output_tokens": 40},
]

_EDGES: Final = [
    {"from": "mistral", "to": "judge", "fan_in": "concatenate"},
    {"from": "llama", "to": "judge", "fan_in": "concatenate"},
]

ENSEMBLE: Final[dict[str, Any]] = {
    "name": "ensemble",
    "models": _MODELS,
    "edges": _EDGES,
    "hardware": {"gpu": "a100-sxm4-80gb", "gpus": 4},
    "search": {"time_limit_s": 5, "seed": 1},
}

ENSEMBLE_ON_THE_STORE: Final[dict[str, Any]] = {
    "name": "ensemble",
    "models": _MODELS,
    "edges": _EDGES,
    "market": {"filter": {"contracts": ["on_demand"]}},
    "objective": {"kind": "min_time", "budget_usd": 20},
    "search": {"time_limit_s": 5, "seed": 1},
}

PROGRESS: Final[dict[str, Any]] = {
    "at_s": 20,
    "models": [{"model": "mistral", "finished_requests": 100}, {"model": "llama", "finished_requests": 60}],
}
