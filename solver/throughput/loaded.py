"""What a replica does while some of its sequences run: step times, rates and shares of time, by workload.

Flow: prepare.py -> Loaded, Capped, Running (here) -> latency.py says what waits -> points.py, ceilings.py.

An engine has one cap b on its sequences; a workload has b_v of them, the cap or what the memory holds of its
requests if that is less. Where a share x of its sequences runs on average, n = x b_v, a request takes the engine's
time for its prompt and for a share of its steps, so that a replica with that workload alone carries

    rate(n) = 1 / (delay + steps D(n) / n)

with D(n) the seconds of a step of n sequences, and `delay` what a prompt adds to the steps of others, in which it
rides along (stage_times.py). At n = b_v that is the composer's rate. Workloads on one replica share all of this in
proportion: sum_v rate_v / rate_v(x b_v) <= 1 are the mixtures within x.

Arrays here and in what follows are [W, num_layouts]: what counts over the workloads of a replica are sums and maxima
of few long rows, and what is one number a replica [num_layouts] goes with them as it is.
"""

from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.problem import Role
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.latency import Own
from sutler.solver.throughput.prepare import PreparedLayouts
from sutler.solver.throughput.stage_times import CHUNK_TOKENS

Number = TypeVar("Number", np.float64, np.int64)
# Sequences at which step times are asked for; between them they are interpolated.
GRID: Final = np.array([1, 2, 3, 4, 5, 7, 9, 11, 14, 18, 22, 28, 36, 44, 56, 72, 88, 112, 136, 168, 208, 256])
# The place on the grid of 0, 1, 2, ... sequences and a part: the last with another one behind it.
_PLACE: Final = np.clip(np.searchsorted(GRID, np.arange(GRID[-1] + 1), side="right") - 1, 0, len(GRID) - 2)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Layouts of one model and role, arrays [W, num_layouts]; or pairs of a layout and a workload, [1, num_pairs].

    rows [num_layouts]: of what is prepared; own: what the requests take; workload: which one; most: sequences that
    fit (0: none); slot_s: a prompt on the slowest stage; chunk_s: a step that is full of prompts; table: the first
    row of table_s [num_tables * len(GRID), 4], which has a step, what it grows by per sequence, what a prompt rides
    along for, and what that grows by: beside each other, since what is looked up lies anywhere.
    """

    prepared: PreparedLayouts
    rows: IntArray
    own: Own
    workload: IntArray
    most: IntArray
    slot_s: FloatArray
    chunk_s: FloatArray
    table: IntArray
    table_s: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def able(self) -> BoolArray:
        """Whether a request of the workload fits at all [W, num_layouts]."""
        return np.asarray(self.most > 0)

    @property
    def role(self) -> Role:
        return self.own.role

    @property
    def most_slots(self) -> IntArray:
        """The sequences that fit of what takes the least memory [num_layouts]; at least 1."""
        return np.asarray(self.most.max(axis=0, initial=1))

    def take(self, chosen: IntArray) -> "Loaded":
        """Cuts it to some of the layouts."""
        each = {name: getattr(self, name).take(chosen, axis=-1) for name in _PER_PAIR}
        return replace(self, rows=self.rows[chosen], own=self.own.take(chosen), **each)

    def of(self, layout: IntArray, workloads: IntArray) -> "Loaded":
        """Cuts it to these layouts [n], each with some of the workloads [size, n]."""
        chosen = workloads * len(self) + layout
        each = {name: getattr(self, name).take(chosen) for name in _PER_PAIR}
        return replace(self, rows=self.rows[layout], own=self.own.of(chosen), **each)

    def pairs(self) -> "Loaded":
        """Returns the replicas of each layout as they are when each workload comes to them alone."""
        layout, workload = np.divmod(np.arange(self.most.size), len(self.most))
        return self.of(layout, workload[None, :])

    def capped(self, cap: IntArray) -> "Capped":
        """Returns the replicas with a cap on the sequences that run at once, one for each layout [num_layouts]."""
        slots = np.maximum(np.minimum(self.most, cap), 1).astype(np.float64)
        rate_rps, step_s = _composed(self.prepared, self.rows, self.workload, slots)
        full_rps, own = np.where(self.able, rate_rps, 0.0), self.own
        turns_s = (slots - 1.0) * self.slot_s / np.maximum(own.decode_steps, 1.0)
        at_random_s = full_rps * self.slot_s**2 * (1.0 - 1.0 / slots)
        return Capped(self, slots, full_rps, step_s, step_s + turns_s, at_random_s)


@dataclass(frozen=True, slots=True)
class Capped:
    """Under one cap per layout, arrays [W, num_layouts]: slots (sequences at most) and, with all of them busy,
    full_rps (0 where none fits), step_s, full_s (a token, the others taking their turns at interrupting) and
    at_random_s (the variance of interruptions per second where the others come at random)."""

    loaded: Loaded
    slots: FloatArray
    full_rps: FloatArray
    step_s: FloatArray
    full_s: FloatArray
    at_random_s: FloatArray

    def take(self, chosen: IntArray) -> "Capped":
        """Cuts it to some of the layouts."""
        each = (getattr(self, name).take(chosen, axis=1) for name in Capped.__slots__[1:])
        return Capped(self.loaded.take(chosen), *each)

    def running(self, share: FloatArray) -> "Running":
        """Returns what a replica does with this share of its slots busy [num_layouts]."""
        loaded, n = self.loaded, self.slots * share
        at = _PLACE.take(n.astype(np.int64))
        table_s = loaded.table_s.take(loaded.table + at, axis=0)
        step_s, slope_s, delay_s, delay_slope_s = (table_s[..., part] for part in range(4))
        beyond = np.maximum(n - GRID.take(at), 0.0)  # below one sequence as for one
        step_s, delay_s = step_s + slope_s * beyond, delay_s + delay_slope_s * beyond
        written_s = n * self.step_s / self.slots * (loaded.role == "aggregated")
        if loaded.role == "prefill":  # a share of the time, since prompts alone do not decode
            rps = self.full_rps * share
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                rps = np.fmin(1.0 / (delay_s + loaded.own.decode_steps * step_s / n), self.full_rps)
            rps = np.where(share < 1, rps, self.full_rps)  # as composed, not as interpolated
        return Running(self, n, step_s, np.where(n < 1, 0.0, slope_s), written_s, delay_s, rps)


@dataclass(frozen=True, slots=True)
class Running:
    """Arrays [W, num_layouts], each for its workload alone: n sequences run, a step takes step_s and slope_s more for
    each further sequence; written_s: a token of all of them in a step with a prompt; delay_s and rps as above."""

    capped: Capped
    n: FloatArray
    step_s: FloatArray
    slope_s: FloatArray
    written_s: FloatArray
    delay_s: FloatArray
    rps: FloatArray

    @property
    def elasticity(self) -> FloatArray:
        """Per cent that a step takes longer per cent more sequences."""
        return np.asarray(np.minimum(self.slope_s * self.n / self.step_s, 0.95))


_PER_PAIR: Final = ("workload", "most", "slot_s", "chunk_s", "table")


def loaded_of(prepared: PreparedLayouts, rows: IntArray, *, base_s: float) -> Loaded:
    """Prepares the layouts `rows` to be loaded; what does not fit counts as a single sequence and is not `able`.
    `base_s`: as of latency.FirstToken."""
    traffic = prepared.pipes.traffic
    shape = (len(traffic.new_tokens), len(rows))
    workload = np.broadcast_to(np.arange(shape[0])[:, None], shape)
    pairs = _pairs(rows, workload)
    with np.errstate(invalid="ignore"):  # nothing over no link, where a layout cannot run anyway
        each = [compose(prepared.pipes, pairs, np.full(len(pairs), float(n))) for n in GRID]
    prefill_s, slot_s = (_by_workload(of, shape) for of in (each[0].prefill_s, each[0].slowest_prefill_s))
    step_s = np.stack([one.step_s for one in each], axis=-1)
    riding_s = np.stack([one.riding_s for one in each], axis=-1)
    own = Own(
        role=prepared.layouts.role,
        base_s=base_s,
        prefill_s=prefill_s,
        handover_s=np.ascontiguousarray(prepared.handover.exposed_s[rows].T),
        chunks=np.ceil(traffic.new_tokens / CHUNK_TOKENS)[workload],
        through_s=prefill_s - slot_s,
        decode_steps=traffic.decode_steps[workload],
        share=prepared.share[workload],
    )
    return Loaded(
        prepared=prepared,
        rows=rows,
        own=own,
        workload=workload,
        most=np.ascontiguousarray(prepared.max_batch[rows].T),
        slot_s=slot_s,
        chunk_s=slot_s * CHUNK_TOKENS / traffic.new_tokens[:, None],
        table=_by_workload(np.arange(len(pairs)) * len(GRID), shape),
        table_s=np.stack([step_s, _slopes(step_s), riding_s, _slopes(riding_s)], axis=-1).reshape(-1, 4),
    )


def _slopes(seconds: FloatArray) -> FloatArray:
    """What seconds [num_tables, len(GRID)] grow by per sequence up to the next place of the grid; 0 at the last."""
    return np.pad(np.diff(seconds, axis=1) / np.diff(GRID), ((0, 0), (0, 1)))


def _composed(
    prepared: PreparedLayouts, rows: IntArray, workload: IntArray, batch: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Requests/s and seconds of a step with `batch` [W, num_layouts] sequences, of the same shape."""
    composed = compose(prepared.pipes, _pairs(rows, workload), batch.T.ravel())
    return _by_workload(composed.rate_rps, batch.shape), _by_workload(composed.step_s, batch.shape)


def _pairs(rows: IntArray, workload: IntArray) -> Pairs:
    return Pairs(np.repeat(rows, len(workload)), workload.T.ravel())


def _by_workload(values: NDArray[Number], shape: tuple[int, ...]) -> NDArray[Number]:
    """What is one after the other for each layout, as [W, num_layouts]."""
    return np.ascontiguousarray(values.reshape(shape[::-1]).T)
