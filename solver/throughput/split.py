"""Which stage gets how many layers: equal stage times under each stage's memory.

Flow: prepare.py -> balanced_layers (here) -> composer.py. Splitting by memory alone, as the MILP paper does
(arXiv 2502.00722 §4.3, "non-uniform layer partitioning"), leaves the slow GPUs of a mixed pipeline with the same
share as the fast ones. Here the split is chosen together with the batch it leaves room for: for each batch of a
short list, layers go where they finish soonest among the stages whose memory still holds that batch, and the batch
whose slowest stage is fastest wins.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray

# Batches tried per layout; between two of them the split hardly changes.
BATCHES = (1, 8, 32, 96, 256)
_ROUNDED = 1 + 1e-12  # sums of a few floats may be off by that much
ROWS_PER_BLOCK = 4096  # layouts at a time, so that arrays stay in the processor's cache


@dataclass(frozen=True)
class SplitCosts:
    """What a layer costs on each kind of stage for one typical request, arrays [num_kinds + 1], 0 last (padding).

    layer_s (per request and layer) and head_s (per request, on the last stage) are [num_kinds + 1, max_stages,
    len(BATCHES)], by the stages that a pipeline has, less 1, and by the batch that they share. Bytes are per GPU:
    layer_bytes are the weights of a layer, sequence_bytes the KV cache of one typical sequence per layer,
    longest_bytes and shortest_bytes that of the longest and shortest of any workload.
    """

    layer_s: FloatArray
    head_s: FloatArray
    layer_bytes: FloatArray
    sequence_bytes: FloatArray
    longest_bytes: FloatArray
    shortest_bytes: FloatArray

    @cached_property
    def is_slower_in_smaller_batches(self) -> bool:
        """Whether no layer and no head takes less of a request's time in a smaller batch."""
        return all(
            bool((costs[..., 1:] <= costs[..., :-1] * _ROUNDED).all()) for costs in (self.layer_s, self.head_s)
        )


def balanced_layers(
    costs: SplitCosts, kind: IntArray, stages: IntArray, free_bytes: FloatArray, layers: int
) -> IntArray:
    """Layers per stage [num_layouts, max_stages]; all 0 where they do not fit, or are fewer than the stages. `kind`,
    `free_bytes` (per GPU) [num_layouts, max_stages]; `stages` [num_layouts] counts them."""
    blocks = [slice(start, start + ROWS_PER_BLOCK) for start in range(0, len(kind), ROWS_PER_BLOCK)]
    parts = [_balanced_block(costs, kind[at].T, stages[at], free_bytes[at].T, layers).T for at in blocks]
    return np.concatenate(parts or [kind * 0])


def _balanced_block(
    costs: SplitCosts, kind: IntArray, stages: IntArray, free_bytes: FloatArray, layers: int
) -> IntArray:
    """Here and below arrays are [max_stages, num_layouts]: what counts over the stages of a pipeline are sums and
    maxima of few long rows."""
    kind, free_bytes = np.ascontiguousarray(kind), np.ascontiguousarray(free_bytes)
    place = np.arange(len(kind))[:, None]
    is_stage, is_last = place < stages, place == stages - 1
    best = np.zeros(kind.shape, dtype=np.int64)
    best_s = np.full(len(stages), np.inf)

    def offer(index: int, sequence_bytes: FloatArray, rows: IntArray) -> IntArray:
        """Returns the rows whose split memory leaves less level than it could be."""
        which, count, there = kind.take(rows, axis=1), stages[rows], is_stage.take(rows, axis=1)
        layer_s = costs.layer_s[:, :, index][which, count - 1]
        head_s = costs.head_s[:, :, index][which, count - 1] * is_last.take(rows, axis=1)
        capacity = _capacity(free_bytes.take(rows, axis=1), (costs.layer_bytes + sequence_bytes)[which], there)
        split = _split(layer_s, head_s, capacity, there, layers)
        slowest = np.where(there, split * layer_s + head_s, 0.0).max(axis=0)
        better = np.flatnonzero((split.sum(axis=0) == layers) & (slowest <= best_s[rows]))
        best[:, rows[better]], best_s[rows[better]] = split[:, better], slowest[better]
        return rows[((split >= capacity) & there).any(axis=0)]

    # The longest sequence has to fit wherever it can, or a split that suits the mean would exclude a workload.
    possible = left = np.flatnonzero(stages <= layers)
    for index, batch in reversed(list(enumerate(BATCHES))):
        bound = offer(index, np.maximum(batch * costs.sequence_bytes, costs.longest_bytes), left)
        if costs.is_slower_in_smaller_batches:  # then more memory is all that another batch could be better for
            left = bound
    for sequence_bytes in (costs.sequence_bytes, costs.shortest_bytes):
        offer(0, sequence_bytes, possible[np.isinf(best_s[possible])])
    return best


def _capacity(free_bytes: FloatArray, bytes_of_layer: FloatArray, is_stage: BoolArray) -> IntArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.floor(free_bytes / bytes_of_layer)
    room = np.where(is_stage & np.isfinite(room), room, 0.0)
    return np.clip(room, 0.0, 1e6).astype(np.int64)


def _split(
    per_layer_s: FloatArray, fixed_s: FloatArray, capacity: IntArray, is_stage: BoolArray, layers: int
) -> IntArray:
    """Layers so that layers x per_layer_s + fixed_s is as level as whole layers and `capacity` allow."""
    room = np.where(is_stage, np.maximum(capacity, 1), 0)
    level = _level(per_layer_s, fixed_s, room, is_stage, layers)
    split = np.clip(np.floor(level), is_stage, room).astype(np.int64)
    _move(split, np.where(is_stage, per_layer_s, np.inf), fixed_s, room, layers)
    return np.asarray(np.where((split <= capacity).all(axis=0), split, 0))


def _level(
    per_layer_s: FloatArray, fixed_s: FloatArray, room: IntArray, is_stage: BoolArray, layers: int
) -> FloatArray:
    """Fractional layers at the common finishing time, with full stages set aside (three rounds settle all but
    contrived cases; _move places the rest)."""
    speed = np.where(is_stage, 1.0 / np.where(is_stage, per_layer_s, 1.0), 0.0)
    open_ = is_stage
    ideal = np.zeros(speed.shape)
    for _ in range(3):
        placed = np.where(open_, 0, room).sum(axis=0)
        total = np.where(open_, speed, 0.0).sum(axis=0)
        offset = np.where(open_, fixed_s * speed, 0.0).sum(axis=0)
        finish = np.divide(layers - placed + offset, total, out=np.zeros(len(total)), where=total > 0)
        ideal = np.where(open_, (finish - fixed_s) * speed, room)
        full = open_ & (ideal >= room)
        if not full.any():
            break
        open_ = open_ & ~full
    return np.asarray(ideal)


def _move(split: IntArray, per_layer_s: FloatArray, fixed_s: FloatArray, room: IntArray, layers: int) -> None:
    """Adds missing layers one by one where they finish soonest, and takes surplus ones from the last to finish."""
    missing = layers - split.sum(axis=0)
    # A stage holds at most all layers, so this many rounds are enough for any row that can be completed.
    for _ in range(layers):
        rows = np.flatnonzero(missing)
        if not len(rows):
            return
        sign = np.sign(missing[rows])
        now, cost = split.take(rows, axis=1), per_layer_s.take(rows, axis=1)
        movable = np.where(sign > 0, now < room.take(rows, axis=1), now > 1) & np.isfinite(cost)
        after = (now + (sign > 0)) * np.where(movable, cost, 0.0) + fixed_s.take(rows, axis=1)
        key = np.where(movable, sign * after, np.inf)
        chosen = key.argmin(axis=0)
        possible = movable[chosen, np.arange(len(rows))]
        moved = rows[possible]
        split[chosen[possible], moved] += sign[possible]
        missing[moved] -= sign[possible]
        missing[rows[~possible]] = 0
