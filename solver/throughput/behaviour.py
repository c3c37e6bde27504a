"""From what each workload does alone to what a replica does with several: at worst over all mixtures, and for one.

Flow: loaded.py -> here -> latency.py. A mixture that fills a share of the sequences lies between the workloads alone
in everything that counts (steps, waits, interruptions), since each is a sum over what is served; so the worst of the
workloads alone bounds every mixture of them.
"""

from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.throughput.latency import Behaviour, Own, spread, waiting_probability
from sutler.solver.throughput.loaded import Capped, Running

# Shares are looked at in _STEPS steps, then in as many of one such step, _PARTS times: to 18^-4, or 1e-5.
_STEPS = 18
_PARTS = 4
_LEAST_RPS = 1e-12  # against division by zero
MOST_EXPONENT: Final = 64.0  # of e: beyond, nothing is kept anyway, and sums must not overflow


def own_of(capped: Capped, base_s: float) -> Own:
    """The requests themselves."""
    loaded = capped.loaded
    return Own(
        role=loaded.prepared.layouts.role,
        base_s=base_s,
        prefill_s=loaded.prefill_s,
        handover_s=loaded.handover_s,
        chunks=loaded.chunks,
        through_s=loaded.prefill_s - loaded.slot_s,
        decode_steps=loaded.decode_steps,
        share=loaded.prepared.share[loaded.workload],
    )


def highest(values: FloatArray) -> FloatArray:
    """The largest of each row [num_layouts] of [num_layouts, W]; faster than numpy's for few workloads."""
    found = values[:, 0]
    for column in range(1, values.shape[1]):
        found = np.maximum(found, values[:, column])
    return found


def at_worst(running: Running, rps: FloatArray) -> Behaviour:
    """Over all mixtures of the workloads in which as many sequences run, each alone at `rps` [num_layouts, W] at
    most."""
    capped, loaded, worst = running.capped, running.capped.loaded, highest
    written_s = worst(running.written_s)
    slot_s = loaded.slot_s + loaded.chunks * written_s[:, None]
    delay = worst(rps * running.delay_s)
    prompts = rps * loaded.prefill_s  # that hold a sequence before they decode
    deviation = spread(running.n, running.elasticity, delay[:, None])
    load = worst(_ratio(rps, capped.full_rps))
    waits = waiting_probability(
        capped.slots - running.n - prompts, np.hypot(deviation, np.sqrt(prompts)), load[:, None]
    )
    differ = len(running.n[0]) > 1  # answers of one length interrupt each other as regularly as a clock
    return Behaviour(
        step_s=worst(running.step_s),
        written_s=written_s,
        chunk_s=worst(loaded.chunk_s) + written_s,
        full_s=worst(_full_s(capped)),
        delay=delay,
        queue=worst(rps * slot_s),
        interruption_s=worst(rps * loaded.slot_s**2),
        full_interruption_s=worst(_at_random(capped)) * differ,
        spread_s=worst(running.slope_s * deviation),
        most_spread_s=worst(np.maximum(capped.step_s - running.step_s, 0.0)),
        waits=worst(waits),
        drain_rps=-highest(-capped.full_rps) * np.maximum(1.0 - load, 0.0),
        through_s=worst(loaded.prefill_s - loaded.slot_s),
    )


def of_mixture(capped: Capped, rps: FloatArray, share: FloatArray) -> tuple[FloatArray, Behaviour]:
    """How a replica behaves with as many requests/s in the proportions of `rps` [num_layouts, W] as keep this share
    of the sequences busy [num_layouts], and how many times `rps` those are."""
    running = capped.running(share)
    loaded = capped.loaded
    times = _times(rps, running.rps)
    rps = times[:, None] * rps
    part = _ratio(rps, running.rps)
    part = part / np.maximum(part.sum(axis=1, keepdims=True), _LEAST_RPS)

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray((part * values).sum(axis=1))

    def most(values: FloatArray) -> FloatArray:
        return np.asarray(np.where(rps > 0, values, 0.0).max(axis=1))

    written_s, delay = mean(running.written_s), (rps * running.delay_s).sum(axis=1)
    slot_s = loaded.slot_s + loaded.chunks * written_s[:, None]
    prompts = (rps * loaded.prefill_s).sum(axis=1)
    deviation = spread(mean(running.n), mean(running.elasticity), delay)
    load = _ratio(rps, capped.full_rps).sum(axis=1)
    free = mean(capped.slots - running.n) - prompts
    with np.errstate(divide="ignore", invalid="ignore"):
        carried = np.nan_to_num(rps.sum(axis=1) / load)
        full_s, full_interruption_s = _full_of_mixture(capped, np.nan_to_num(rps / load[:, None]))
    behaviour = Behaviour(
        step_s=mean(running.step_s),
        written_s=written_s,
        chunk_s=mean(loaded.chunk_s) + written_s,
        full_s=full_s,
        delay=delay,
        queue=(rps * slot_s).sum(axis=1),
        interruption_s=(rps * loaded.slot_s**2).sum(axis=1),
        full_interruption_s=full_interruption_s,
        spread_s=mean(running.slope_s) * deviation,
        most_spread_s=mean(np.maximum(capped.step_s - running.step_s, 0.0)),
        waits=waiting_probability(free, np.hypot(deviation, np.sqrt(prompts)), load),
        drain_rps=carried * np.maximum(1.0 - load, 0.0),
        through_s=most(loaded.prefill_s - loaded.slot_s),
    )
    return times, behaviour


def decays(capped: Capped, rps: FloatArray, behaviour: Behaviour, decay: FloatArray) -> BoolArray:
    """Whether the wait for prompts of `rps` [num_layouts, W] decays at least as fast as that: sum rate
    (e^(decay s) - 1) <= decay, since the left side is convex and both are 0 at 0."""
    loaded = capped.loaded
    slot_s = loaded.slot_s + loaded.chunks * behaviour.written_s[:, None]
    exponent = np.minimum(np.where(rps > 0, decay[:, None] * slot_s, 0.0), MOST_EXPONENT)
    return np.asarray((rps * np.expm1(exponent)).sum(axis=1) <= decay)


def _full_s(capped: Capped) -> FloatArray:
    """Seconds per token where all sequences run, the others taking their turns at interrupting."""
    loaded = capped.loaded
    turns_s = np.maximum(capped.slots - 1.0, 0.0) * loaded.slot_s / np.maximum(loaded.decode_steps, 1.0)
    return np.asarray(capped.step_s + turns_s)


def _full_of_mixture(capped: Capped, full_rps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seconds per token where all sequences run, and the variance of interruptions per second (renewal reward: what a
    sequence interrupts others by beyond its share of the time, none where all are alike; at most as if at random)."""
    loaded = capped.loaded
    steps = full_rps * loaded.decode_steps
    full_s = _ratio((steps * _full_s(capped)).sum(axis=1), steps.sum(axis=1))
    whole_s = loaded.decode_steps * full_s[:, None] + loaded.slot_s
    share = _ratio((full_rps * loaded.slot_s).sum(axis=1), (full_rps * whole_s).sum(axis=1))
    beyond_s = loaded.slot_s - share[:, None] * whole_s
    at_random = np.where(full_rps > 0, _at_random(capped), 0.0).max(axis=1)
    return full_s, np.minimum((full_rps * beyond_s**2).sum(axis=1), at_random)


def _at_random(capped: Capped) -> FloatArray:
    """The variance of interruptions per second where the other sequences come at random [num_layouts, W]."""
    return np.asarray(capped.full_rps * capped.loaded.slot_s**2 * (1.0 - 1.0 / capped.slots))


def busy_share(capped: Capped, rps: FloatArray) -> FloatArray:
    """The share of the sequences that run with these requests/s, where they can, at most 1e-5 too high
    [num_layouts]."""
    rows, steps = np.repeat(np.arange(len(rps)), _STEPS), np.arange(_STEPS)
    each, asked = capped.take(rows), rps[rows]
    low = np.zeros(len(rps))
    for part in range(1, _PARTS + 1):
        share = low[:, None] + steps / _STEPS**part
        carries = (_times(asked, each.running(share.ravel()).rps) >= 1).reshape(share.shape)
        low += np.where(carries.any(axis=1), np.maximum(carries.argmax(axis=1), 1) - 1, _STEPS - 1) / _STEPS**part
    return np.asarray(np.minimum(low + 1 / _STEPS**_PARTS, 1.0))


def _times(rps: FloatArray, most_rps: FloatArray) -> FloatArray:
    """Returns how many times these requests/s are carried by who carries each workload alone at `most_rps`."""
    busy = _ratio(rps, most_rps).sum(axis=1)
    return _ratio(np.ones(len(busy)), busy)


def _ratio(over: FloatArray, under: FloatArray) -> FloatArray:
    return np.divide(over, under, out=np.zeros(np.broadcast_shapes(over.shape, under.shape)), where=under > 0)
