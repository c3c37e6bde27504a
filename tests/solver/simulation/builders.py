"""Replicas whose steps take round numbers, and requests for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sutler.solver.simulation.engine import EngineSettings, Scheduling
from sutler.solver.simulation.fleet import SimulatedReplica
from sutler.solver.simulation.requests import RequestKind, Requests
from sutler.solver.simulation.step_times import Line, StepTimes

KIND = RequestKind("chat", "w", 100.0, 10.0, 1.0)


def toy_times(
    *,
    step_s: float = 0.01,
    per_sequence_s: float = 0.001,
    per_token_s: float = 1e-6,
    prefill_s_per_token: float = 1e-4,
    max_sequences: int = 8,
    kv_tokens: int = 100_000,
) -> StepTimes:
    """A step of b sequences with mean context c: step_s + b (per_sequence_s + per_token_s c)."""
    decode = tuple((Line(step_s + b * per_sequence_s, b * per_token_s),) for b in range(max_sequences + 1))
    return StepTimes(decode, **linear_prompts(prefill_s_per_token), kv_tokens=kv_tokens)


def linear_prompts(*s_per_token: float, hops_s_per_token: float = 0.0) -> dict[str, Any]:
    """Parts of StepTimes where prompts take so long on each stage, and between them, and nothing once."""
    none = (0.0, 0.0)
    return {
        "tokens": (0.0, 1e7),
        "products_s": tuple((0.0, 1e7 * each) for each in s_per_token),
        "attention_s": (none,) * len(s_per_token),
        "once_s": (0.0,) * len(s_per_token),
        "hops_s": (0.0, 1e7 * hops_s_per_token),
    }


def toy_replica(
    times: StepTimes | None = None,
    *,
    name: str = "chat-0",
    max_batched_tokens: int = 2048,
    scheduling: Scheduling = "chunked",
    outside_s: float = 0.0,
) -> SimulatedReplica:
    times = times or toy_times()
    settings = EngineSettings(times.max_sequences, max_batched_tokens, scheduling)
    return SimulatedReplica(name, times, settings, outside_s)


def requests(rows: Sequence[tuple[float, int, int]], kinds: tuple[RequestKind, ...] = (KIND,)) -> Requests:
    """(arrival_s, input_tokens, output_tokens) in order, all of the first kind."""
    arrival_s, inputs, outputs = (np.array(column) for column in zip(*rows, strict=True))
    return Requests(kinds, np.zeros(len(rows), dtype=np.int64), arrival_s.astype(np.float64), inputs, outputs)


def random_requests(
    seed: int, count: int, *, rate_rps: float, longest_input: int = 400, longest_output: int = 60
) -> Requests:
    draw = np.random.default_rng(seed)
    arrival_s = np.cumsum(draw.exponential(1.0 / rate_rps, count))
    inputs, outputs = draw.integers(1, longest_input + 1, count), draw.integers(1, longest_output + 1, count)
    return Requests((KIND,), np.zeros(count, dtype=np.int64), arrival_s, inputs, outputs)


def everything_to(replicas: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """[1, replicas] equal fractions."""
    return np.full((1, replicas), 1.0 / replicas)
