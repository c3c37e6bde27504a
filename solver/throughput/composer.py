"""From stages to replicas: what a pipeline of stages sustains at a batch, for many (layout, workload) pairs at once.

Flow: stages.py answers per stage kind -> Pipelines (here) -> roofline.py chooses batches, latency.py checks limits.

With b sequences on S stages, min(b, S) micro-batches of m = max(b / S, 1) sequences are in flight. A request
occupies stage s for  riding_s(m) + (output - 1) decode_s(m) / m,  with riding_s what its prompt adds to the steps of
others; so the rate is at most 1 / that of the slowest stage; it is at most b / (the time a request takes with no
queue); and a link carries each request's activations once. The least of the three is the rate (performance model of
Megatron-style inference pipelines; the per-request stage cost is the form used by Vidur, arXiv 2405.05465 §4).
"""

from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.throughput.architecture import ACTIVATION_BYTES
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.memory import padded
from sutler.solver.throughput.stages import ModelStages, StageKinds, StageSeconds, Traffic
from sutler.solver.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True)
class Pipelines:
    """Layouts in descending order of stage count, with what composing needs of them.

    kind, layers, hop_s_per_token, hop_latency_s: [max_stages, num_layouts]; stages: [num_layouts]. kind is num_kinds
    in padding; tables have a row of zeros there.
    """

    kind: IntArray
    layers: FloatArray
    hop_s_per_token: FloatArray
    hop_latency_s: FloatArray
    stages: IntArray
    traffic: Traffic
    prefill: StageSeconds
    riding: FloatArray
    decode: StageSeconds


@dataclass(frozen=True, slots=True)
class Pairs:
    """(layout, workload) pairs, arrays [num_pairs], in ascending order of layout."""

    layout: IntArray
    workload: IntArray

    def __len__(self) -> int:
        return len(self.layout)


@dataclass(frozen=True, slots=True)
class Composed:
    """Arrays [num_pairs]. prefill_s: one prompt through the whole pipeline; slowest_prefill_s: through its slowest
    stage; riding_s: what it adds there to the steps of others. step_s: one token of every running sequence, without
    any prefill in between. bottleneck: the stage."""

    rate_rps: FloatArray
    prefill_s: FloatArray
    slowest_prefill_s: FloatArray
    riding_s: FloatArray
    step_s: FloatArray
    bottleneck: IntArray


def pipelines(
    layouts: Layouts,
    *,
    kinds: StageKinds,
    kind: IntArray,
    layers: IntArray,
    traffic: Traffic,
    source: ModelStages,
    max_batch: int,
) -> Pipelines:
    """Tables and per-layout arrays; `layouts` must be in descending order of stage count."""
    priors = source.calibration.priors
    hop_latency = np.where(layouts.cross_machine, priors.cross_machine_hop_latency_s, priors.hop_latency_s)
    with np.errstate(divide="ignore"):
        per_token = ACTIVATION_BYTES * source.work.hidden_size / (layouts.hop_gb_per_s * BYTES_PER_GB)
    return Pipelines(
        kind=np.ascontiguousarray(kind.T),
        layers=np.ascontiguousarray(layers.T, dtype=np.float64),
        hop_s_per_token=np.ascontiguousarray(per_token.T),
        hop_latency_s=np.ascontiguousarray(hop_latency.T),
        stages=(layouts.gpu >= 0).sum(axis=1),
        traffic=traffic,
        prefill=_with_padding(prefill_seconds(source, kinds, traffic)),
        riding=padded(riding_seconds(source, kinds, traffic, max_batch=max_batch)),
        decode=_with_padding(source.decode(kinds, traffic, max_batch=max_batch)),
    )


def riding_seconds(source: ModelStages, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> FloatArray:
    """What a prompt adds per layer to the steps of the others; nothing where prompts are computed elsewhere."""
    if not traffic.prefills:
        return np.zeros((len(kinds), len(traffic.new_tokens), max_batch + 1))
    return source.riding(kinds, traffic, max_batch=max_batch)


def prefill_seconds(source: ModelStages, kinds: StageKinds, traffic: Traffic) -> StageSeconds:
    """One prompt of each workload; nothing where prompts are computed elsewhere."""
    seconds = source.prefill(kinds, traffic)
    if traffic.prefills:
        return seconds
    return StageSeconds(*(np.zeros_like(table) for table in (seconds.per_layer, seconds.per_pass, seconds.head)))


def compose(pipes: Pipelines, pairs: Pairs, batch: FloatArray) -> Composed:
    """What each pair does with `batch` [num_pairs] sequences at a time (at least 1, at most max_batch)."""
    stages = pipes.stages[pairs.layout]
    micro = np.maximum(batch / stages, 1.0)
    totals = _Totals(len(pairs))
    # Pairs are sorted by stage count, so those that have stage s are a prefix and the code needs no masks.
    counts = [int(np.count_nonzero(stages > s)) for s in range(len(pipes.kind) + 1)]
    for s in range(len(pipes.kind)):
        if counts[s]:
            _add_stage(totals, pipes, pairs, micro, s, counts[s], counts[s + 1])
        if counts[s + 1]:
            _add_hop(totals, pipes, pairs, micro, s, counts[s + 1])
    step = np.maximum(totals.decode, np.minimum(batch, stages) * totals.slowest_decode)
    alone = totals.prefill + pipes.traffic.decode_steps[pairs.workload] * totals.decode
    rate = 1.0 / np.maximum(np.maximum(totals.work, alone / batch), totals.link)
    return Composed(rate, totals.prefill, totals.slowest_prefill, totals.riding, step, totals.bottleneck)


class _Totals:
    """Sums and maxima over the stages seen so far, arrays [num_pairs], in seconds (bottleneck: stage)."""

    def __init__(self, pairs: int) -> None:
        self.prefill, self.slowest_prefill, self.riding = np.zeros(pairs), np.zeros(pairs), np.zeros(pairs)
        self.decode, self.slowest_decode = np.zeros(pairs), np.zeros(pairs)
        self.work, self.link = np.zeros(pairs), np.zeros(pairs)
        self.bottleneck = np.zeros(pairs, dtype=np.int64)


def _add_stage(
    totals: _Totals, pipes: Pipelines, pairs: Pairs, micro: FloatArray, s: int, having: int, going_on: int
) -> None:
    """Stage `s` of the first `having` pairs; it is the last of those from `going_on`."""
    here, last = slice(having), slice(going_on, having)
    layout, workload = pairs.layout[here], pairs.workload[here]
    low = micro[here].astype(np.int64)
    share = np.asarray(micro[here] - low)
    kind, layers = pipes.kind[s].take(layout), pipes.layers[s].take(layout)
    row = kind * len(pipes.traffic.decode_steps) + workload
    prefill_s = layers * pipes.prefill.per_layer.reshape(-1).take(row) + pipes.prefill.per_pass.take(kind)
    prefill_s[last] += pipes.prefill.head[kind[last]]
    decode_s = layers * _interpolated(pipes.decode.per_layer, row, low, share) + pipes.decode.per_pass.take(kind)
    head_s = _interpolated(pipes.decode.head, kind[last], low[last], share[last])
    decode_s[last] += head_s
    riding_s = layers * _interpolated(pipes.riding, row, low, share)
    riding_s[last] += head_s / micro[last] * pipes.traffic.prefills  # of its first token
    work = riding_s + pipes.traffic.decode_steps[workload] / micro[here] * decode_s
    slower = work > totals.work[here]
    totals.work[here] = np.where(slower, work, totals.work[here])
    totals.bottleneck[here] = np.where(slower, s, totals.bottleneck[here])
    totals.prefill[here] += prefill_s
    totals.decode[here] += decode_s
    np.maximum(totals.slowest_prefill[here], prefill_s, out=totals.slowest_prefill[here])
    np.maximum(totals.riding[here], riding_s, out=totals.riding[here])
    np.maximum(totals.slowest_decode[here], decode_s, out=totals.slowest_decode[here])


def _add_hop(totals: _Totals, pipes: Pipelines, pairs: Pairs, micro: FloatArray, s: int, going_on: int) -> None:
    """The hop from stage `s` to the next one of the first `going_on` pairs."""
    onward = slice(going_on)
    layout, workload = pairs.layout[onward], pairs.workload[onward]
    per_token, latency = pipes.hop_s_per_token[s].take(layout), pipes.hop_latency_s[s].take(layout)
    tokens = pipes.traffic.prefilled_tokens[workload]
    totals.prefill[onward] += tokens * per_token + latency
    totals.decode[onward] += micro[onward] * per_token + latency
    carried = (tokens + pipes.traffic.decode_steps[workload]) * per_token
    np.maximum(totals.link[onward], carried, out=totals.link[onward])


def _interpolated(table: FloatArray, row: IntArray, low: IntArray, share: FloatArray) -> FloatArray:
    """`table` [..., num_batches] with its leading axes flattened, at row and batch low + share."""
    flat = table.reshape(-1)
    index = row * table.shape[-1] + low
    value = flat.take(index)
    return np.asarray(value + share * (flat.take(index + 1, mode="clip") - value))


def _with_padding(seconds: StageSeconds) -> StageSeconds:
    """The same tables with a row of zeros for padding."""
    return StageSeconds(padded(seconds.per_layer), padded(seconds.per_pass), padded(seconds.head))
