"""Short ways to say what is timed."""

from typing import Any

from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.profiling.shapes import Measurement
from tests.solver.throughput.builders import a_dense_spec

TORCH_NEEDED = "torch is not installed: pip install 'sutler[profile]', or any CPU build of torch from 2.5 on"


def a_tiny_spec(**changes: Any) -> ModelSpec:
    """8 query heads of 16, 4 key/value heads; small enough to be compared in full precision."""
    sizes = {"hidden_size": 64, "heads": 8, "kv_heads": 4, "head_dim": 16, "intermediate_size": 96}
    params = 4 * (64 * 16 * (2 * 8 + 2 * 4) + 3 * 64 * 96) + 2 * 1000 * 64
    return a_dense_spec(**{**sizes, "total_params": params, "active_params": params, **changes})


def a_point(**changes: Any) -> Measurement:
    facts: dict[str, Any] = {
        "model": "tiny",
        "precision": "bf16",
        "kv_precision": "bf16",
        "tensor_parallel": 1,
        "phase": "prefill",
        "new_tokens": 16,
        "batch": 1,
        "context_tokens": 16,
        "with_attention": True,
    }
    return Measurement(**{**facts, **changes})


def a_decode(*, batch: int, context: int, **changes: Any) -> Measurement:
    return a_point(phase="decode", new_tokens=1, batch=batch, context_tokens=context, **changes)
