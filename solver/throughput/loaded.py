"""What a replica does while some of its sequences run: step times, rates and shares of time, by workload.

Flow: prepare.py -> Loaded, Capped, Running (here) -> latency.py says what waits -> points.py, ceilings.py.

An engine has one cap b on its sequences; a workload has b_v of them, the cap or what the memory holds of its
requests if that is less. Where a share x of its sequences runs on average, n = x b_v, a request takes the engine's
time for its prompt and for a share of its steps, so that a replica with that workload alone carries

    rate(n) = 1 / (delay + steps D(n) / n)

with D(n) the seconds of a step of n sequences, and `delay` what a prompt adds to the steps of others, in which it
rides along (stage_times.py). At n = b_v that is the composer's rate. Workloads on one replica share all of this in
proportion: sum_v rate_v / rate_v(x b_v) <= 1 are the mixtures within x.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.prepare import PreparedLayouts
from sutler.solver.throughput.stage_times import CHUNK_TOKENS

# Sequences at which step times are asked for; between them they are interpolated.
GRID: Final = np.array([1, 2, 3, 4, 5, 7, 9, 11, 14, 18, 22, 28, 36, 44, 56, 72, 88, 112, 136, 168, 208, 256])


@dataclass(frozen=True, slots=True)
class Loaded:
    """Layouts of one model and role, arrays [num_layouts, W]; or pairs of a layout and a workload, [num_pairs, 1].

    rows [num_layouts]: of what is prepared; workload: which one; most: sequences that fit (0: none); prefill_s: a
    prompt through all stages; slot_s: on the slowest one; chunks: steps that a prompt takes part in; decode_steps;
    chunk_s: of a step that is full of prompts; handover_s: exposed of a hand-over; table: the row of step_s and
    riding_s [num_tables, len(GRID)].
    """

    prepared: PreparedLayouts
    rows: IntArray
    workload: IntArray
    most: IntArray
    prefill_s: FloatArray
    slot_s: FloatArray
    chunks: FloatArray
    decode_steps: FloatArray
    chunk_s: FloatArray
    handover_s: FloatArray
    table: IntArray
    step_s: FloatArray
    riding_s: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def able(self) -> BoolArray:
        """Whether a request of the workload fits at all [num_layouts, W]."""
        return np.asarray(self.most > 0)

    def take(self, chosen: IntArray) -> "Loaded":
        """Cuts it to some of the layouts."""
        return self._indexed(self.rows[chosen], (chosen,))

    def of(self, layout: IntArray, workloads: IntArray) -> "Loaded":
        """Cuts it to these layouts [n], each with some of the workloads [n, size]."""
        return self._indexed(self.rows[layout], (layout[:, None], workloads))

    def pairs(self) -> "Loaded":
        """Returns the replicas of each layout as they are when each workload comes to them alone."""
        layout, workload = np.divmod(np.arange(self.most.size), self.most.shape[1])
        return self.of(layout, workload[:, None])

    def _indexed(self, rows: IntArray, chosen: tuple[IntArray, ...]) -> "Loaded":
        each = {name: getattr(self, name)[chosen] for name in _PER_PAIR}
        return Loaded(prepared=self.prepared, rows=rows, step_s=self.step_s, riding_s=self.riding_s, **each)

    def capped(self, cap: IntArray) -> "Capped":
        """Returns the replicas with a cap on the sequences that run at once, one for each layout [num_layouts]."""
        slots = np.maximum(np.minimum(cap[:, None], self.most), 1).astype(np.float64)
        composed = compose(self.prepared.pipes, _pairs(self.rows, self.workload), slots.ravel())
        full_rps = np.where(self.able, composed.rate_rps.reshape(slots.shape), 0.0)
        return Capped(self, slots, full_rps, composed.step_s.reshape(slots.shape))


@dataclass(frozen=True, slots=True)
class Capped:
    """Under one cap per layout, arrays [num_layouts, W]: slots (sequences at most), full_rps (with all of them busy;
    0 where none fits), step_s (of all of them)."""

    loaded: Loaded
    slots: FloatArray
    full_rps: FloatArray
    step_s: FloatArray

    def take(self, chosen: IntArray) -> "Capped":
        """Cuts it to some of the layouts."""
        return Capped(self.loaded.take(chosen), self.slots[chosen], self.full_rps[chosen], self.step_s[chosen])

    def running(self, share: FloatArray) -> "Running":
        """Returns what a replica does with this share of its slots busy [num_layouts]."""
        loaded = self.loaded
        n = self.slots * share[:, None]
        (step_s, slope_s), (delay_s, _) = self._at(n, loaded.step_s), self._at(n, loaded.riding_s)
        together = self.loaded.prepared.layouts.role == "aggregated"
        written_s = n * self.step_s / self.slots * together  # what a token of each costs in a step with a prompt
        with np.errstate(divide="ignore", invalid="ignore"):
            rps = 1.0 / (delay_s + loaded.decode_steps * step_s / n)
        rps = np.minimum(np.where(np.isfinite(rps), rps, np.inf), self.full_rps)
        rps = np.where(share[:, None] < 1, rps, self.full_rps)  # as composed, not as interpolated
        if loaded.prepared.layouts.role == "prefill":  # a share of the time, since prompts alone do not decode
            rps = self.full_rps * share[:, None]
        return Running(self, n, step_s, slope_s, written_s, delay_s, np.where(loaded.able, rps, 0.0))

    def _at(self, n: FloatArray, seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds with n sequences, of a table over GRID, and how much they grow with n; below one sequence as for
        one."""
        at = np.clip(np.searchsorted(GRID, n, side="right") - 1, 0, len(GRID) - 2)
        first, seconds = self.loaded.table * len(GRID) + at, seconds.ravel()
        low, high = seconds[first], seconds[first + 1]
        slope = (high - low) / (GRID[at + 1] - GRID[at])
        return low + slope * np.maximum(n - GRID[at], 0.0), np.where(n < 1, 0.0, slope)


@dataclass(frozen=True, slots=True)
class Running:
    """Arrays [num_layouts, W], each for its workload alone: n sequences run, a step takes step_s and slope_s more for
    each further sequence; written_s: a token of all of them beside a prompt; delay_s and rps as above."""

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


_WHOLE: Final = ("prepared", "rows", "step_s", "riding_s")
_PER_PAIR: Final = tuple(name for name in Loaded.__slots__ if name not in _WHOLE)


def loaded_of(prepared: PreparedLayouts, rows: IntArray, *, grid: IntArray = GRID) -> Loaded:
    """Prepares the layouts `rows` to be loaded; what does not fit counts as a single sequence and is not `able`.
    `grid`: a part of GRID where only full rates are asked for."""
    shape = (len(rows), prepared.max_batch.shape[1])
    workload = np.broadcast_to(np.arange(shape[1]), shape)
    pairs = _pairs(rows, workload)
    with np.errstate(invalid="ignore"):  # nothing over no link, where a layout cannot run anyway
        each = [compose(prepared.pipes, pairs, np.full(len(pairs), float(n))) for n in grid]
    slot_s = each[0].slowest_prefill_s.reshape(shape)
    new_tokens = prepared.pipes.traffic.new_tokens
    return Loaded(
        prepared=prepared,
        rows=rows,
        workload=workload,
        most=prepared.max_batch[rows],
        prefill_s=each[0].prefill_s.reshape(shape),
        slot_s=slot_s,
        chunks=np.broadcast_to(np.ceil(new_tokens / CHUNK_TOKENS), shape),
        decode_steps=np.broadcast_to(prepared.pipes.traffic.decode_steps, shape),
        chunk_s=slot_s * CHUNK_TOKENS / new_tokens,
        handover_s=prepared.handover.exposed_s[rows],
        table=np.arange(len(pairs)).reshape(shape),
        step_s=np.stack([one.step_s for one in each], axis=-1),
        riding_s=np.stack([one.riding_s for one in each], axis=-1),
    )


def _pairs(rows: IntArray, workload: IntArray) -> Pairs:
    return Pairs(np.repeat(rows, workload.shape[1]), workload.ravel())
