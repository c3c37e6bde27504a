"""Which stage gets how many layers: equal stage times under each stage's memory.

Flow: prepare.py -> balanced_layers (here) -> composer.py. Splitting by memory alone, as the MILP paper does
(arXiv 2502.00722 §4.3, "non-uniform layer partitioning"), leaves the slow GPUs of a mixed pipeline with the same
share as the fast ones. Here the split is chosen together with the batch it leaves room for: for each batch of a
short list, layers go where they finish soonest among the stages whose memory still holds that batch, and the batch
whose slowest stage is fastest wins.
"""

from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray, take_rows

# Batches tried per layout; between two of them the split hardly changes.
BATCHES = (1, 8, 32, 96, 256)
ROWS_PER_BLOCK = 4096  # layouts at a time, so that arrays stay in the processor's cache


@dataclass(frozen=True, slots=True)
class SplitCosts:
    """What a layer costs on each stage for one typical request, arrays [num_layouts, max_stages].

    riding_s (per request and layer), decode_s (per token and layer) and head_s (per request, last stage only) have a
    third axis, the batches of BATCHES. free_bytes is per GPU; layer_bytes are its weights; sequence_bytes the KV
    cache of one typical sequence per layer, longest_bytes and shortest_bytes that of the longest and shortest of any
    workload.
    """

    is_stage: BoolArray
    riding_s: FloatArray
    decode_s: FloatArray
    head_s: FloatArray
    decode_steps: float
    free_bytes: FloatArray
    layer_bytes: FloatArray
    sequence_bytes: FloatArray
    longest_bytes: FloatArray
    shortest_bytes: FloatArray


def balanced_layers(costs: SplitCosts, layers: int) -> IntArray:
    """Layers per stage [num_layouts, max_stages]; all 0 where they do not fit, or are fewer than the stages."""
    blocks = [slice(start, start + ROWS_PER_BLOCK) for start in range(0, len(costs.is_stage), ROWS_PER_BLOCK)]
    parts = [_balanced_block(take_rows(costs, block), layers) for block in blocks]
    return np.concatenate(parts or [costs.is_stage * 0])


def _balanced_block(costs: SplitCosts, layers: int) -> IntArray:
    best = np.zeros(costs.is_stage.shape, dtype=np.int64)
    best_s = np.full(len(best), np.inf)
    possible = costs.is_stage.sum(axis=1) <= layers

    def offer(index: int, sequence_bytes: FloatArray, rows: BoolArray) -> None:
        per_layer = costs.riding_s[:, :, index] + costs.decode_steps * costs.decode_s[:, :, index]
        head_s = costs.head_s[:, :, index]
        split = _split(per_layer, head_s, _capacity(costs, sequence_bytes), costs.is_stage, layers)
        slowest = np.where(costs.is_stage, split * per_layer + head_s, 0.0).max(axis=1)
        better = rows & (split.sum(axis=1) == layers) & (slowest < best_s)
        best[better], best_s[better] = split[better], slowest[better]

    # The longest sequence has to fit wherever it can, or a split that suits the mean would exclude a workload.
    for index, batch in enumerate(BATCHES):
        offer(index, np.maximum(batch * costs.sequence_bytes, costs.longest_bytes), possible)
    for sequence_bytes in (costs.sequence_bytes, costs.shortest_bytes):
        offer(0, sequence_bytes, possible & np.isinf(best_s))
    return best


def _capacity(costs: SplitCosts, sequence_bytes: FloatArray) -> IntArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.floor(costs.free_bytes / (costs.layer_bytes + sequence_bytes))
    room = np.where(costs.is_stage & np.isfinite(room), room, 0.0)
    return np.clip(room, 0.0, 1e6).astype(np.int64)


def _split(
    per_layer_s: FloatArray, fixed_s: FloatArray, capacity: IntArray, is_stage: BoolArray, layers: int
) -> IntArray:
    """Layers so that layers x per_layer_s + fixed_s is as level as whole layers and `capacity` allow."""
    room = np.where(is_stage, np.maximum(capacity, 1), 0)
    level = _level(per_layer_s, fixed_s, room, is_stage, layers)
    split = np.clip(np.floor(level), is_stage, room).astype(np.int64)
    _move(split, np.where(is_stage, per_layer_s, np.inf), fixed_s, room, layers)
    fits = np.all(split <= capacity, axis=1, keepdims=True)
    return np.asarray(np.where(fits, split, 0))


def _level(
    per_layer_s: FloatArray, fixed_s: FloatArray, room: IntArray, is_stage: BoolArray, layers: int
) -> FloatArray:
    """Fractional layers at the common finishing time, with full stages set aside (three rounds settle all but
    contrived cases; _move places the rest)."""
    speed = np.where(is_stage, 1.0 / np.where(is_stage, per_layer_s, 1.0), 0.0)
    open_ = is_stage
    ideal = np.zeros(speed.shape)
    for _ in range(3):
        placed = np.where(open_, 0, room).sum(axis=1)
        total = np.where(open_, speed, 0.0).sum(axis=1)
        offset = np.where(open_, fixed_s * speed, 0.0).sum(axis=1)
        finish = np.divide(layers - placed + offset, total, out=np.zeros(len(total)), where=total > 0)
        ideal = np.where(open_, (finish[:, None] - fixed_s) * speed, room)
        full = open_ & (ideal >= room)
        if not full.any():
            break
        open_ = open_ & ~full
    return np.asarray(ideal)


def _move(split: IntArray, per_layer_s: FloatArray, fixed_s: FloatArray, room: IntArray, layers: int) -> None:
    """Adds missing layers one by one where they finish soonest, and takes surplus ones from the last to finish."""
    missing = layers - split.sum(axis=1)
    # A stage holds at most all layers, so this many rounds are enough for any row that can be completed.
    for _ in range(layers):
        rows = np.flatnonzero(missing)
        if not len(rows):
            return
        sign = np.sign(missing[rows])[:, None]
        now, cost = split[rows], per_layer_s[rows]
        movable = np.where(sign > 0, now < room[rows], now > 1) & np.isfinite(cost)
        after = (now + (sign > 0)) * np.where(movable, cost, 0.0) + fixed_s[rows]
        key = np.where(movable, sign * after, np.inf)
        chosen = key.argmin(axis=1)
        possible = movable[np.arange(len(rows)), chosen]
        moved = rows[possible]
        split[moved, chosen[possible]] += sign[possible, 0]
        missing[moved] -= sign[possible, 0]
        missing[rows[~possible]] = 0
