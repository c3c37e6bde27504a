"""The simulation against the closed form of the throughput layer, on real layouts in a steady state."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.estimate import one_layout
from sutler.solver.problem import Role, ServedModel, Speculation, Workload
from sutler.solver.simulation.engine import EngineSettings
from sutler.solver.simulation.fleet import KvRoute, SimulatedReplica, closed_loop, simulate
from sutler.solver.simulation.replicas import sustained_rps
from sutler.solver.simulation.requests import RequestKind, Requests
from sutler.solver.simulation.step_times import Lengths, step_times
from sutler.solver.throughput.roofline import Roofline

WITHIN = 0.03
WAVES = 12


@pytest.mark.parametrize("tokens", [(512, 128), (1000, 1000), (2455, 18), (4000, 200)], ids=str)
@pytest.mark.parametrize(
    ("gpu", "model", "tensor_parallel", "pipeline_parallel"),
    [
        ("h100-sxm", "llama-3-8b", 1, 1),
        ("l40", "llama-3-8b", 1, 2),
        ("h100-sxm", "llama-3-70b", 4, 1),
        ("h100-sxm", "llama-3-70b", 2, 2),
        ("a100-sxm4-80gb", "llama-3-70b", 2, 4),
    ],
)
@pytest.mark.parametrize("speculation", [None, Speculation(3, 0.7, 0.05, "eagle3")], ids=["plain", "speculation"])
def test_a_full_replica_sustains_the_rate_of_the_closed_form(
    gpu: str,
    model: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    tokens: tuple[int, int],
    speculation: Speculation | None,
) -> None:
    """As many clients as sequences, requests of about one size; the rate between the first waves and the last."""
    input_tokens, output_tokens = tokens
    served = ServedModel(
        "chat",
        load_models()[model],
        "bf16",
        "bf16",
        (Workload("w", input_tokens, output_tokens, 1.0),),
        speculation=speculation,
    )
    layouts = one_layout(load_gpus()[gpu], tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel)
    roofline = Roofline()
    rates = roofline.rates(served, layouts)
    batch, count = int(rates.batch[0, 0]), WAVES * int(rates.batch[0, 0])
    assert batch > 0
    times = step_times(
        served,
        replace(layouts, layers=rates.layers),
        roofline.stages(served),
        Lengths(input_tokens + 1.2 * output_tokens, input_tokens + output_tokens / 2),
        max_sequences=batch,
    )
    asked = Requests(
        (RequestKind("chat", "w", input_tokens, output_tokens, 1.0),),
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
        np.full(count, input_tokens),
        np.round(output_tokens * np.random.default_rng(0).uniform(0.8, 1.2, count)).astype(np.int64),
    )
    outcome = closed_loop(SimulatedReplica("chat-0", times, EngineSettings(batch)), asked, concurrency=batch)
    ends_s = np.sort(outcome.finish_s)
    first, last = count // 4, count * 5 // 6
    rate_rps = (last - first) / (ends_s[last] - ends_s[first])
    assert outcome.is_served.all()
    assert rate_rps == pytest.approx(float(rates.rps[0, 0]), rel=WITHIN)


@pytest.mark.parametrize("tokens", [(512, 128), (4000, 200)], ids=str)
@pytest.mark.parametrize("full", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("gpu", "model", "tensor_parallel", "pipeline_parallel"),
    [("h100-sxm", "llama-3-8b", 1, 1), ("l40", "llama-3-8b", 1, 2), ("h100-sxm", "llama-3-70b", 4, 1)],
)
def test_a_full_replica_of_one_phase_sustains_the_rate_of_its_closed_form(
    gpu: str, model: str, tensor_parallel: int, pipeline_parallel: int, full: Role, tokens: tuple[int, int]
) -> None:
    """A prompt per slowest stage, or a batch per steps of an answer; the other phase has time to spare."""
    input_tokens, output_tokens = tokens
    workload = Workload("w", input_tokens, output_tokens, 1.0)
    served = ServedModel("chat", load_models()[model], "bf16", "bf16", (workload,))
    layouts = one_layout(load_gpus()[gpu], tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel)
    roofline = Roofline()
    rates = roofline.rates(served, layouts)
    batch = int(rates.batch[0, 0])
    times = step_times(
        served,
        replace(layouts, layers=rates.layers),
        roofline.stages(served),
        Lengths(input_tokens + output_tokens, input_tokens + output_tokens / 2),
        max_sequences=batch,
    )
    spare = replace(times.scaled(1e-3), kv_tokens=10**9)
    phases: tuple[Role, ...] = ("prefill", "decode")
    replicas = [
        SimulatedReplica(role, times if role == full else spare, EngineSettings(batch, role=role)) for role in phases
    ]
    count = 12 * batch
    asked = Requests(
        (RequestKind("chat", "w", input_tokens, output_tokens, 1.0),),
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
        np.full(count, input_tokens),
        np.full(count, output_tokens),
    )
    outcome = simulate(replicas, np.array([[1.0, 0.0]]), asked, kv_routes=[KvRoute(0, 0, 1, 1.0, 0.0)])
    ends_s = np.sort(outcome.finish_s)
    first, last = count // 4, count * 5 // 6
    rate_rps = (last - first) / (ends_s[last] - ends_s[first])
    assert outcome.is_served.all()
    assert rate_rps == pytest.approx(sustained_rps(times, full, batch, workload), rel=WITHIN)
