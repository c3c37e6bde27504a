"""The closed-loop benchmark by which engines are measured, run on the simulator: what TTFT and TPOT come out of it.

As many clients as are asked for start at once and send their next request when the last one ends, ten each. So the
first token of the first wave waits for half of the others' prompts, and what comes later depends on how far the
clients have drifted apart, which is a matter of how much lengths vary and of how the engine mixes prompts with
decoding. No formula has to guess that here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.calibration.factors import REFERENCE_ENGINE, EngineFactors
from sutler.solver.problem import ServedModel
from sutler.solver.simulation.engine import EngineSettings, Scheduling
from sutler.solver.simulation.fleet import SimulatedReplica, closed_loop, simulate
from sutler.solver.simulation.requests import RequestKind, Requests
from sutler.solver.simulation.step_times import Lengths, step_times
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.roofline import Roofline


@dataclass(frozen=True, slots=True)
class Protocol:
    """How an engine schedules, how much the lengths of a benchmark's requests vary around their mean, and how many
    each client sends: the first of them meet an idle engine, with ten a tenth. `request_rate_rps`: arrivals at random
    so often, in place of clients; None: there are clients."""

    scheduling: Scheduling
    max_batched_tokens: int
    spread_fraction: float = 0.1
    requests_per_client: int = 10
    request_rate_rps: float | None = None


# Defaults of the engines' servers: vLLM fills steps of 2,048 tokens with chunks of prompts (max_num_batched_tokens,
# docs.vllm.ai); SGLang lets new prompts go first, 8,192 tokens at a time (chunked_prefill_size, docs.sglang.ai), and
# its runs at hand are those of requests of one length, which stay in step; TensorRT-LLM batches in flight with 8,192
# tokens (max_num_tokens, nvidia.github.io/TensorRT-LLM).
PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "vllm": Protocol("chunked", 2048),
    "sglang": Protocol("prefill_first", 8192, 0.0),
    "trtllm": Protocol("chunked", 8192),
}


def protocol_of(engine: EngineFactors) -> Protocol:
    """Returns how the engine schedules; the reference one's where that is not known. An engine that does not mix lets
    new prompts go first."""
    known = PROTOCOLS.get(engine.engine, PROTOCOLS[REFERENCE_ENGINE])
    return known if engine.mixes else replace(known, scheduling="prefill_first")


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """Means over all requests; req_per_s = concurrency / (ttft_s + (output - 1) tpot_s), as reports state it."""

    req_per_s: float
    ttft_s: float
    tpot_s: float


def benchmarked(
    roofline: Roofline, model: ServedModel, layouts: Layouts, *, concurrency: int, protocol: Protocol | None = None
) -> Benchmarked:
    """The first workload of `model` on the one layout, whose layers are given.

    NaN where the cache does not hold a single request.
    Raises InvalidProblemError where the model's architecture is unknown.
    """
    protocol = protocol or protocol_of(roofline.engine(model))
    workload = model.workloads[0]
    requests = _requests(model, protocol.requests_per_client * concurrency, protocol)
    longest_tokens = float((requests.input_tokens + requests.output_tokens).max())
    lengths = Lengths(longest_tokens, workload.input_tokens + workload.output_tokens / 2)
    times = step_times(model, layouts, roofline.simulation_stages(model), lengths, max_sequences=concurrency)
    times = times.slowed(roofline.slower(model, layouts, max_batch=times.max_sequences).tolist())
    settings = EngineSettings(concurrency, protocol.max_batched_tokens, protocol.scheduling)
    replica = SimulatedReplica("benchmark", times, settings, roofline.first_token(model).base_s)
    if protocol.request_rate_rps is None:
        outcome = closed_loop(replica, requests, concurrency=concurrency)
    else:
        outcome = simulate([replica], np.ones((1, 1)), requests)
    if not outcome.is_served.any():
        return Benchmarked(float("nan"), float("nan"), float("nan"))
    ttft, written = float(np.nanmean(outcome.ttft_s)), outcome.requests.output_tokens > 1
    if (written & outcome.is_served).any():
        tpot = float(np.nanmean(outcome.tpot_s))
    else:  # what a second token would take
        tpot = times.line(concurrency, workload.input_tokens).at(workload.input_tokens)
    return Benchmarked(concurrency / (ttft + max(workload.output_tokens - 1, 0) * tpot), ttft, tpot)


def with_all_layers(layouts: Layouts, layers: int) -> Layouts:
    """A layout of one stage with all layers on it."""
    return replace(layouts, layers=np.array([[layers]]))


def _requests(model: ServedModel, count: int, protocol: Protocol) -> Requests:
    """Lengths even within the spread around the mean; the same for the same model."""
    workload, draw, spread_fraction = model.workloads[0], np.random.default_rng(0), protocol.spread_fraction

    def lengths(mean: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
        drawn = mean * draw.uniform(1.0 - spread_fraction, 1.0 + spread_fraction, count)
        return np.maximum(np.round(drawn), 1.0).astype(np.int64)

    tokens = (workload.input_tokens, workload.output_tokens)
    kind = RequestKind(model.name, workload.name, *tokens, 1.0, model.cached_fraction(workload))
    inputs, outputs = lengths(workload.input_tokens), lengths(workload.output_tokens)
    arrival_s = np.zeros(count)
    if protocol.request_rate_rps is not None:
        arrival_s = np.cumsum(draw.exponential(1.0 / protocol.request_rate_rps, count))
    return Requests((kind,), np.zeros(count, dtype=np.int64), arrival_s, inputs, outputs)
