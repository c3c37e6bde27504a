"""The largest batch at which every latency limit of a model holds.

Flow: roofline.py -> batches_within_limits (here) -> composer.py and latency.py. Rates grow with the batch, so the
largest batch is the best. A limit has a part that grows with the batch and the wait for a free sequence, which
falls: bisection finds the largest batch that the growing parts allow, and from there on smaller batches are tried
until the sum holds or the wait alone has become too long.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from solver.problem import LatencyLimit
from solver.throughput.base import BoolArray, FloatArray, IntArray
from solver.throughput.composer import Pairs, compose
from solver.throughput.latency import FirstToken, LimitParts, Load, limit_parts
from solver.throughput.prepare import Prepared

# Tried below what memory allows. The steps are the same for every limit: a tighter one leaves fewer of them, so it
# never raises a rate. Between neighbours the rate changes by a few percent.
BATCH_STEPS: Final = np.array([1, 2, 3, 4, 5, 7, 9, 11, 14, 18, 22, 28, 36, 44, 56, 72, 88, 112, 136, 168, 208, 256])


def load_at(prepared: Prepared, pairs: Pairs, batch: IntArray) -> Load:
    """`pairs` at `batch` [num_pairs]."""
    sequences = batch.astype(np.float64)
    return Load(
        composed=compose(prepared.pipes, pairs, sequences),
        batch=sequences,
        decode_steps=prepared.pipes.traffic.decode_steps[pairs.workload],
        role=prepared.layouts.role,
        handover_s=prepared.handover.exposed_s[pairs.layout, pairs.workload],
        share=prepared.share[pairs.workload],
    )


def batches_within_limits(
    prepared: Prepared,
    pairs: Pairs,
    largest: IntArray,
    limits: tuple[LatencyLimit, ...],
    first: FirstToken,
    utilisation_fraction: float,
) -> IntArray:
    """The largest batch up to `largest` [num_pairs] at which every limit holds; 0 where none does."""
    batch = np.zeros(len(pairs), dtype=np.int64)

    def parts(chosen: IntArray, trial: IntArray) -> tuple[LimitParts, ...]:
        load = load_at(prepared, pairs.only(chosen), trial)
        return tuple(limit_parts(load, first, limit, utilisation_fraction) for limit in limits)

    open_ = np.flatnonzero(largest)
    alone = parts(open_, np.ones(len(open_), dtype=np.int64))
    reachable = _within(alone, limits)
    open_, least = open_[reachable], tuple(part.growing[reachable] for part in alone)
    top = parts(open_, largest[open_])
    trial = largest[open_].copy()
    growing = np.flatnonzero(~_within(top, limits))
    trial[growing] = _bisected(open_[growing], trial[growing], limits, parts)
    while len(open_):
        now = parts(open_, trial)
        holds = _within(now, limits, with_slot=True)
        batch[open_[holds]] = trial[holds]
        rest = ~holds & (trial > 1) & _hopeful(now, least, limits)
        open_, trial = open_[rest], _smaller(trial[rest])
        least = tuple(one[rest] for one in least)
    return batch


def _within(parts: tuple[LimitParts, ...], limits: tuple[LatencyLimit, ...], *, with_slot: bool = False) -> BoolArray:
    each = [
        (part.growing + part.slot if with_slot else part.growing) <= limit.seconds
        for part, limit in zip(parts, limits, strict=True)
    ]
    return np.asarray(np.logical_and.reduce(each), dtype=np.bool_)


def _hopeful(
    now: tuple[LimitParts, ...], least: tuple[FloatArray, ...], limits: tuple[LatencyLimit, ...]
) -> BoolArray:
    """Whether the present wait, which smaller batches only lengthen, still leaves room for the rest at its least."""
    each = [part.slot + growing <= limit.seconds for part, growing, limit in zip(now, least, limits, strict=True)]
    return np.asarray(np.logical_and.reduce(each), dtype=np.bool_)


def _bisected(
    chosen: IntArray,
    largest: IntArray,
    limits: tuple[LatencyLimit, ...],
    parts: Callable[[IntArray, IntArray], tuple[LimitParts, ...]],
) -> IntArray:
    """The largest of BATCH_STEPS below `largest` whose growing parts are within the limits; a batch of 1 is."""
    low = np.zeros(len(chosen), dtype=np.int64)
    high = np.searchsorted(BATCH_STEPS, largest)
    while True:
        open_ = np.flatnonzero(high - low > 1)
        if not len(open_):
            return np.asarray(BATCH_STEPS[low])
        middle = (low[open_] + high[open_]) // 2
        good = _within(parts(chosen[open_], BATCH_STEPS[middle]), limits)
        low[open_[good]] = middle[good]
        high[open_[~good]] = middle[~good]


def _smaller(batch: IntArray) -> IntArray:
    return np.asarray(BATCH_STEPS[np.searchsorted(BATCH_STEPS, batch) - 1])
