"""What one configuration does with one workload at a given concurrency: the question of `sutler estimate`.

Flow: service/cli/estimate.py -> estimate (here) -> simulation/benchmark.py. Planning asks instead what a replica
sustains under random arrivals (throughput/roofline.py); here, as in engine benchmarks, `concurrency` clients send
their next request when the last one ends. That is simulated: first tokens depend on how the clients' prompts meet.
"""

from dataclasses import dataclass, replace
from math import nan
from typing import Any, Final

import numpy as np

from sutler.solver.catalog.entries import Gpu
from sutler.solver.problem import ServedModel
from sutler.solver.simulation.benchmark import benchmarked, protocol_of
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.evidence import RateEvidence
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.prepare import prepare, stated_bands
from sutler.solver.throughput.roofline import Roofline

# Whoever runs a given concurrency starts the engine for it; beyond this no engine's default goes (vLLM's
# max_num_seqs on large cards, docs.vllm.ai).
MOST_SEQUENCES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """req_per_s = concurrency / (ttft_s + (output - 1) tpot_s). `running` of the `concurrency` requests decode at
    once; the others wait, and their wait is in ttft_s. low and high state the error. `error` is set where the
    configuration cannot serve the workload; then every number is 0 or NaN."""

    req_per_s: float = 0.0
    ttft_s: float = nan
    tpot_s: float = nan
    low_req_per_s: float = 0.0
    high_req_per_s: float = 0.0
    concurrency: int
    running: int = 0
    source: str = "roofline"
    detail: str = ""
    error: str | None = None


def one_layout(gpu: Gpu, *, tensor_parallel: int, pipeline_parallel: int, data_parallel: int = 1) -> Layouts:
    """Equal stages of `gpu` inside one machine, linked as the catalogue says; `data_parallel`: ranks of attention."""
    shape = (1, pipeline_parallel)
    link = gpu.link_gb_per_s or 0.0
    hop = np.full(shape, link)
    hop[0, -1] = np.inf
    return Layouts(
        gpus=(gpu,),
        gpu=np.zeros(shape, dtype=np.int64),
        tensor_parallel=np.full(shape, tensor_parallel, dtype=np.int64),
        intra_gb_per_s=np.full(shape, link),
        hop_gb_per_s=hop,
        cross_machine=np.zeros(shape, dtype=np.bool_),
        data_parallel=np.array([data_parallel]),
    )


def estimate(
    roofline: Roofline,
    model: ServedModel,
    layouts: Layouts,
    *,
    concurrency: int | None,
    length_spread_fraction: float | None = None,
    requests_per_client: int | None = None,
) -> Estimate:
    """The first workload of `model` on the first layout. No `concurrency`: the largest batch whose full-length
    sequences fit. How the benchmark goes that is simulated: by how much lengths vary around their means, and how many
    requests each client sends; None: as with the engine's published runs. Raises InvalidProblemError where the
    architecture of the model is unknown."""
    planned = roofline.rates(model, layouts)
    if planned.batch[0, 0] < 1:
        return Estimate(concurrency=concurrency or 0, error=roofline.basis(model, layouts, planned, 0, 0).detail)
    clients = int(planned.batch[0, 0]) if concurrency is None else concurrency
    most = max(MAX_SEQUENCES, min(clients, MOST_SEQUENCES))
    stages = roofline.planning_stages(model)
    prepared = prepare(model, layouts, stages, max_sequences=most, paged=concurrency is not None)
    running = min(clients, max(int(prepared.max_batch[0, 0]), 1))
    stated = {"spread_fraction": length_spread_fraction, "requests_per_client": requests_per_client}
    own: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    protocol = replace(protocol_of(roofline.engine(model)), **own)
    layers = replace(layouts, layers=planned.layers)
    found = benchmarked(roofline, model, layers, concurrency=clients, protocol=protocol)
    batch = np.array([[running]])
    band = float(stated_bands(prepared, stages, batch)[0, 0])
    evidence = RateEvidence(model, layouts, replace(planned, batch=batch), 0, 0, stages)
    detail = evidence.served(roofline.engine_title(model), is_planned=False)
    if running < clients:
        detail += f"; {clients - running} of {clients} requests wait for memory"
    return Estimate(
        req_per_s=found.req_per_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        low_req_per_s=found.req_per_s / band,
        high_req_per_s=found.req_per_s * band,
        concurrency=clients,
        running=running,
        source=evidence.source()[0],
        detail=detail,
    )
