"""From what each workload does alone to what a replica does with several: at worst over all mixtures, and for one.

Flow: loaded.py -> here -> latency.py. A mixture that fills a share of the sequences lies between the workloads alone
in everything that counts (steps, waits, interruptions), since each is a sum over what is served; so the worst of the
workloads alone bounds every mixture of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.throughput.latency import (
    Behaviour,
    LimitOfEach,
    decay_needed,
    longest_wait_s,
    spread,
    waiting_probability,
)
from sutler.solver.throughput.loaded import Capped, Running

# Shares are looked at in _STEPS steps, then in as many of one such step, _PARTS times: to 18^-4, or 1e-5.
_STEPS = 18
_PARTS = 4
_LEAST_RPS = 1e-12  # against division by zero
MOST_EXPONENT: Final = 64.0  # of e: beyond, nothing is kept anyway, and sums must not overflow


def at_worst(running: Running) -> Behaviour:
    """Over all mixtures of the workloads in which as many sequences run."""
    capped, loaded, rps = running.capped, running.capped.loaded, running.rps
    written_s, delay = _worst(running.written_s), _worst(rps * running.delay_s)
    prompts = rps * loaded.own.prefill_s  # that hold a sequence before they decode
    deviation = spread(running.n, running.elasticity, delay)
    load = _worst(_ratio(rps, capped.full_rps))
    waits = waiting_probability(capped.slots - running.n - prompts, np.hypot(deviation, np.sqrt(prompts)), load)
    differ = len(rps) > 1  # answers of one length interrupt each other as regularly as a clock
    return Behaviour(
        step_s=_worst(running.step_s),
        written_s=written_s,
        chunk_s=_worst(loaded.chunk_s) + written_s,
        full_s=_worst(capped.full_s),
        delay=delay,
        queue=_worst(rps * (loaded.slot_s + loaded.own.chunks * written_s)),
        interruption_s=_worst(rps * loaded.slot_s**2),
        full_interruption_s=_worst(capped.at_random_s) * differ,
        spread_s=_worst(running.slope_s * deviation),
        most_spread_s=_worst(np.maximum(capped.step_s - running.step_s, 0.0)),
        waits=_worst(waits),
        drain_rps=capped.full_rps.min(axis=0) * np.maximum(1.0 - load, 0.0),
        through_s=_worst(loaded.own.through_s),
    )


@dataclass(frozen=True, slots=True)
class Mixture:
    """Replicas, as capped, that are given requests in the proportions of `rps` [W, num_layouts].

    Arrays [num_layouts]: at `rps` load (of what the cap carries), requests (requests/s in all), prompts (sequences
    that a prompt holds), busy_s (the sum of rate x s), interruption_s, chunks (of prompts, per second); at any load
    through_s and, where all sequences run, full_s and full_interruption_s, as of latency.Behaviour.
    """

    capped: Capped
    rps: FloatArray
    load: FloatArray
    requests: FloatArray
    prompts: FloatArray
    busy_s: FloatArray
    interruption_s: FloatArray
    chunks: FloatArray
    through_s: FloatArray
    full_s: FloatArray
    full_interruption_s: FloatArray

    @classmethod
    def of(cls, capped: Capped, rps: FloatArray) -> "Mixture":
        """Computes what does not depend on how many sequences run."""
        loaded, own = capped.loaded, capped.loaded.own
        load = _ratio(rps, capped.full_rps).sum(axis=0)
        full_s, full_interruption_s = _full_of_mixture(capped, _ratio(rps, load))
        return cls(
            capped=capped,
            rps=rps,
            load=load,
            requests=rps.sum(axis=0),
            prompts=(rps * own.prefill_s).sum(axis=0),
            busy_s=(rps * loaded.slot_s).sum(axis=0),
            interruption_s=(rps * loaded.slot_s**2).sum(axis=0),
            chunks=(rps * own.chunks).sum(axis=0),
            through_s=np.where(rps > 0, own.through_s, 0.0).max(axis=0),
            full_s=full_s,
            full_interruption_s=full_interruption_s,
        )

    def take(self, chosen: IntArray) -> "Mixture":
        """Cuts it to some of the layouts."""
        each = (getattr(self, name).take(chosen, axis=-1) for name in Mixture.__slots__[1:])
        return Mixture(self.capped.take(chosen), *each)

    def times(self, share: FloatArray) -> FloatArray:
        """How many times `rps` keep this share of the sequences busy [num_layouts]."""
        busy = summed(_ratio(self.rps, self.capped.running(share).rps))
        return _ratio(np.ones(len(busy)), busy)

    def at(self, share: FloatArray) -> tuple[FloatArray, Behaviour]:
        """Returns how many times `rps` keep this share of the sequences busy [num_layouts], and how a replica behaves
        then."""
        capped, running = self.capped, self.capped.running(share)
        part = _ratio(self.rps, running.rps)
        busy = summed(part)
        times, part = _ratio(np.ones(len(busy)), busy), part / np.maximum(busy, _LEAST_RPS)

        def mean(values: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("wn,wn->n", part, values))

        written_s, delay = mean(running.written_s), times * (self.rps * running.delay_s).sum(axis=0)
        slots, load, prompts = mean(capped.slots), times * self.load, times * self.prompts
        deviation = spread(share * slots, mean(running.elasticity), delay)
        free = (1.0 - share) * slots - prompts
        behaviour = Behaviour(
            step_s=mean(running.step_s),
            written_s=written_s,
            chunk_s=mean(capped.loaded.chunk_s) + written_s,
            full_s=self.full_s,
            delay=delay,
            queue=times * (self.busy_s + self.chunks * written_s),
            interruption_s=times * self.interruption_s,
            full_interruption_s=self.full_interruption_s,
            spread_s=mean(running.slope_s) * deviation,
            most_spread_s=mean(np.maximum(capped.step_s - running.step_s, 0.0)),
            waits=waiting_probability(free, np.hypot(deviation, np.sqrt(prompts)), load),
            drain_rps=_ratio(self.requests, self.load) * np.maximum(1.0 - load, 0.0),
            through_s=self.through_s,
        )
        return times, behaviour

    def keeps(self, share: FloatArray, limits: Sequence[LimitOfEach]) -> tuple[FloatArray, BoolArray]:
        """Returns how many times `rps` keep this share of the sequences busy [num_layouts], and whether all keep
        their limits then."""
        times, behaviour = self.at(share)
        loaded, decay = self.capped.loaded, np.zeros(len(times))
        for limit in limits:
            longest_s = longest_wait_s(behaviour, loaded.own, limit)
            longest_s = np.where(self.rps > 0, longest_s, np.inf)
            decay = np.maximum(decay, decay_needed(behaviour, longest_s, limit.tail))
        kept = np.isfinite(decay)
        # The wait for prompts decays at least as fast as that where sum rate (e^(decay s) - 1) <= decay, since the
        # left side is convex and both are 0 at 0.
        slot_s = loaded.slot_s + loaded.own.chunks * behaviour.written_s
        exponent = np.minimum(np.where(kept, decay, 0.0) * slot_s, MOST_EXPONENT)
        return times, kept & (times * (self.rps * np.expm1(exponent)).sum(axis=0) <= decay)

    def busy_share(self, times: FloatArray) -> FloatArray:
        """The share of the sequences that run with so many times `rps`, where they can, at most 1e-5 too high
        [num_layouts]."""
        rows, steps = np.repeat(np.arange(len(times)), _STEPS), np.arange(_STEPS)
        each, low = self.take(rows), np.zeros(len(times))
        for part in range(1, _PARTS + 1):
            share = low[:, None] + steps / _STEPS**part
            carries = (each.times(share.ravel()) >= times[rows]).reshape(share.shape)
            step = np.where(carries.any(axis=1), np.maximum(carries.argmax(axis=1), 1) - 1, _STEPS - 1)
            low += step / _STEPS**part
        return np.asarray(np.minimum(low + 1 / _STEPS**_PARTS, 1.0))


def summed(values: FloatArray) -> FloatArray:
    """Sums over the workloads [num_layouts], of which loads are made: layout by layout, so that their last digits are
    those of the versions before."""
    return np.asarray(np.ascontiguousarray(values.T).sum(axis=1))


def _worst(values: FloatArray) -> FloatArray:
    return np.asarray(values.max(axis=0))


def _full_of_mixture(capped: Capped, full_rps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seconds per token where all sequences run, and the variance of interruptions per second (renewal reward: what a
    sequence interrupts others by beyond its share of the time, none where all are alike; at most as if at random)."""
    loaded, steps = capped.loaded, full_rps * capped.loaded.own.decode_steps
    full_s = _ratio((steps * capped.full_s).sum(axis=0), steps.sum(axis=0))
    whole_s = loaded.own.decode_steps * full_s + loaded.slot_s
    share = _ratio((full_rps * loaded.slot_s).sum(axis=0), (full_rps * whole_s).sum(axis=0))
    beyond_s = loaded.slot_s - share * whole_s
    at_random_s = np.where(full_rps > 0, capped.at_random_s, 0.0).max(axis=0)
    return full_s, np.minimum((full_rps * beyond_s**2).sum(axis=0), at_random_s)


def _ratio(over: FloatArray, under: FloatArray) -> FloatArray:
    """0 where it has no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(under > 0, over / under, 0.0)
