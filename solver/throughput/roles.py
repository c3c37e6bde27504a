"""Prefill and decode on replicas of their own: what each is asked, and what handing over the KV cache takes.

Flow: prepare.py asks for a model in a role -> the same tables and composer as for whole requests -> handing_over
(here) adds the transfer -> latency.py splits the limits.

A prefill replica serves the prompts and the first token: requests of one token of answer. It runs as many at once as
make a batch of 2,048 tokens, beyond which a batch brings nothing (Splitwise, arXiv 2311.18677, Fig. 6 and section
IV.B). Their time is counted prompt by prompt, as in aggregated replicas: that of short ones is overstated a little.
A decode replica serves the other tokens; the prompt's keys and values arrive over the network and take memory, but no
time of its GPUs.

Handing over. Every stage sends the keys and values of its own layers through its share of the machine's link, in t
seconds for the slowest stage. Serially that is t after the prefill p. Layer by layer over L layers it ends

    max(t / L, t - p (1 - 1/L))     after the prefill, and synchronising costs some milliseconds more

(Splitwise, section IV.C and Fig. 14); whichever is shorter is used. No stall means t <= p: Cauchy's condition on the
network (eqs. 17 and 18). The first token goes out with the handed-over cache, as proxies in front of two engines
pass it on, so what is exposed is part of TTFT. A decode replica is charged the serial time of its own link for the
second token: whichever link is the slower, the two together are never less than what the transfer takes.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.calibration.factors import Priors
from sutler.solver.problem import LatencyMetric, Role, ServedModel
from sutler.solver.throughput.architecture import LayerWork
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.latency import LimitOfEach
from sutler.solver.throughput.stage_times import CHUNK_TOKENS
from sutler.solver.units import BYTES_PER_GB

# Not hidden of a transfer by layers, whatever its size (Splitwise, section VI.A: about 8 ms on A100, 5 ms on H100).
LAYERWISE_SYNC_S: Final = 0.008
# Prompt tokens that take as long as one decode step: 1,500 take as long as six (Splitwise, Insight III).
PROMPT_TOKENS_PER_STEP: Final = 250.0
LEAST_SHARE: Final = 0.1  # of an end-to-end limit; chosen: neither role can do with nothing


@dataclass(frozen=True, slots=True)
class Handover:
    """What handing over takes of the prompts of one model; arrays [num_layouts, W].

    kv_gb [W]: 10^9 bytes of a prompt's keys and values. prefill_s: one prompt alone; 0 for decode. kv_s: seconds of
    the keys and values on the slowest stage's link; link_s: the same with what else a pipeline sends over it, the
    least time between two requests. exposed_s: what latency limits are charged with.
    """

    kv_gb: FloatArray
    prefill_s: FloatArray
    kv_s: FloatArray
    link_s: FloatArray
    exposed_s: FloatArray

    def take(self, rows: IntArray) -> "Handover":
        """Cuts it to some layouts."""
        return Handover(self.kv_gb, self.prefill_s[rows], self.kv_s[rows], self.link_s[rows], self.exposed_s[rows])


def asked_of(model: ServedModel, role: Role) -> ServedModel:
    """The model as replicas of a role see it."""
    if role != "prefill":
        return model
    return replace(model, workloads=tuple(replace(workload, output_tokens=1.0) for workload in model.workloads))


def prompts_in_flight(new_tokens: FloatArray, stages: IntArray) -> FloatArray:
    """The prompts [num_layouts, W] that keep every stage of a prefill replica busy with a batch of up to
    CHUNK_TOKENS; in a pipeline one more, on its way from stage to stage."""
    in_a_batch = np.maximum(np.floor(CHUNK_TOKENS / new_tokens), 1.0)
    return np.asarray(stages[:, None] * in_a_batch + (stages > 1)[:, None])


def limits_in(model: ServedModel, role: Role) -> tuple[LimitOfEach, ...]:
    """The limits that a role can break: TTFT is prefill's, TPOT decode's, an end-to-end limit is shared."""
    others = {"aggregated": None, "prefill": "tpot", "decode": "ttft"}[role]
    seconds: dict[tuple[LatencyMetric, int], FloatArray] = {}
    for index, workload in enumerate(model.workloads):
        for limit in model.limits_of(workload):
            if limit.metric != others:
                row = seconds.setdefault((limit.metric, limit.percentile), np.full(len(model.workloads), np.inf))
                row[index] = min(row[index], limit.seconds)
    return tuple(LimitOfEach(metric, percentile, row) for (metric, percentile), row in seconds.items())


def share_of_limit(model: ServedModel, role: Role) -> FloatArray:
    """Returns what a role may take of an end-to-end limit [W]."""
    if role == "aggregated":
        return np.ones(len(model.workloads))
    prefill = prefill_share(model)
    return prefill if role == "prefill" else 1.0 - prefill


def prefill_share(model: ServedModel) -> FloatArray:
    """The share of prefill [W]: as the caller says, or by how long prefill and decode take, at least a tenth for
    either."""
    if model.prefill_share_fraction is not None:
        return np.full(len(model.workloads), model.prefill_share_fraction)
    steps: FloatArray = np.array([max(workload.output_tokens - 1.0, 0.0) for workload in model.workloads])
    prompts = np.array([workload.input_tokens for workload in model.workloads]) / PROMPT_TOKENS_PER_STEP
    return np.asarray(np.clip(prompts / (prompts + steps), LEAST_SHARE, 1.0 - LEAST_SHARE))


def handing_over(
    model: ServedModel,
    layouts: Layouts,
    layers: IntArray,
    work: LayerWork,
    priors: Priors,
    *,
    prefill_s: FloatArray,
    activation_s: FloatArray,
) -> Handover:
    """prefill_s [num_layouts, W]: one prompt alone; activation_s [num_layouts, W]: what a request's activations take
    on the same links. Aggregated replicas hand nothing over."""
    tokens = work.held_context(np.array([max(workload.input_tokens, 1.0) for workload in model.workloads]))
    bytes_per_layer = float(work.kv_bytes_per_token(np.array([1]))[0]) * tokens + work.state_bytes
    kv_gb = bytes_per_layer * work.layers / BYTES_PER_GB
    if layouts.role == "aggregated" or layouts.kv_gb_per_s is None:
        nothing = np.zeros((len(layouts), len(model.workloads)))
        return Handover(kv_gb, prefill_s, nothing, nothing, nothing)
    present = layouts.gpu >= 0
    even = np.where(present, work.layers / present.sum(axis=1, keepdims=True), 0.0)
    held = np.where(layers.any(axis=1, keepdims=True), layers, even)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_byte = np.where(held > 0, held / (layouts.kv_gb_per_s * BYTES_PER_GB), 0.0).max(axis=1)
    kv_s = np.asarray(per_byte[:, None] * bytes_per_layer)
    latency_s = priors.cross_machine_hop_latency_s
    serial_s = kv_s + latency_s
    exposed_s = exposed(kv_s, prefill_s, work.layers, latency_s) if layouts.role == "prefill" else serial_s
    return Handover(kv_gb, prefill_s, kv_s, kv_s + activation_s, exposed_s)


def exposed(transfer_s: FloatArray, prefill_s: FloatArray, layers: int, latency_s: float) -> FloatArray:
    """What is left of a transfer when the prefill ends; arrays of one shape."""
    hidden_s = prefill_s * (1.0 - 1.0 / layers)
    by_layers = np.maximum(transfer_s / layers, transfer_s - hidden_s) + LAYERWISE_SYNC_S
    return np.asarray(np.minimum(transfer_s, by_layers) + latency_s)
