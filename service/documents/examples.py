"""Example problems for the OpenAPI document; a test plans each of them."""

from typing import Any, Final

_MODELS: Final = [
    {
        "name": "chat",
        "model": "llama-3.1-8b",
        "slo": {"ttft_p90_s": 2.0, "tpot_p90_s": 0.05},
        "workloads": [
            {"name": "question", "input_tokens": 500, "output_tokens": 250, "rate_rps": 20},
            {"name": "document", "input_tokens": 3000, "output_tokens": 300, "rate_rps": 2},
        ],
    }
]

_OFFERS: Final = [
    {
        "provider": "acme",
        "offer_id": name,
        "gpu": gpu,
        "gpus": 1,
        "available": available,
        "price_usd_per_hour": usd,
        "contract": "on_demand",
    }
    for name, gpu, available, usd in (("small", "rtx-4090", 8, 0.4), ("large", "h100-sxm", 2, 2.2))
]

CHAT: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost", "headroom_fraction": 0.2},
    "models": _MODELS,
    "market": {
        "offers": {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": _OFFERS},
    },
}

CHAT_ON_THE_STORE: Final[dict[str, Any]] = {
    "objective": {"kind": "max_throughput"},
    "budget_usd_per_hour": 15,
    "models": _MODELS,
    "market": {"filter": {"contracts": ["on_demand"], "min_reliability_fraction": 0.95}},
}
