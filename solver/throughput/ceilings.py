"""How far a replica may be loaded with the mixture that it is given: the largest load at which all limits hold.

Flow: a cap and requests/s by workload -> behaviour.of_mixture -> latency.py, by looking. The operating points of
points.py promise less than this or the same: those of sets hold for every mixture, those of fixed mixes are found by
fewer looks.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.throughput.behaviour import busy_share, decays, highest, of_mixture, own_of
from sutler.solver.throughput.latency import QUEUED_SHARE, LimitOfEach, decay_needed, longest_wait_s
from sutler.solver.throughput.loaded import Capped

_STEPS: Final = 25  # of the share, then of one such step, and again: to 6e-5
_LEAST_LOAD: Final = 1e-3  # chosen: a replica that carries less is as good as none
_HALVINGS: Final = 12  # of the logarithm of the share: to 0.2 % of it


def load_ceilings(
    capped: Capped, rps: FloatArray, limits: Sequence[LimitOfEach], *, base_s: float, most_load: float
) -> FloatArray:
    """Returns the largest load, of what the cap carries of mixtures `rps` [num_layouts, W]; 0 where no load keeps the
    limits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(rps > 0, rps / capped.full_rps, 0.0).sum(axis=1)
        unit = np.where(np.isfinite(whole) & (whole > 0), 1.0 / whole, 0.0)[:, None] * rps
    served = unit.any(axis=1)
    if not limits:
        return np.where(served, most_load, 0.0)
    _, any_queue = _keeps(capped, unit, np.ones(len(rps)), limits, base_s)
    asked = unit / np.where(any_queue, 1.0, QUEUED_SHARE)[:, None]

    rows = np.arange(len(rps))

    def kept(share: FloatArray) -> FloatArray:
        """Returns the load with these shares of the sequences busy [num_layouts, n]; 0 where it misses a limit."""
        each = np.repeat(rows, share.shape[1])
        load, keeps = _keeps(capped.take(each), asked[each], share.ravel(), limits, base_s)
        return np.where(keeps, np.minimum(load, most_load), 0.0).reshape(share.shape)

    # Where step times bend, limits may be kept at a load and missed at a lower one, in the closed form alone: what
    # points of mixes and those of sets have found is looked at again.
    asked_for = [asked * most_load, asked * np.minimum(whole, most_load)[:, None]]
    found = kept(np.stack([busy_share(capped, one) for one in asked_for], axis=1)).max(axis=1)
    found = np.maximum(found, _by_halving(capped, asked, limits, base_s, most_load))
    low = np.zeros((len(rps), 1))
    for step in (1 / _STEPS, 1 / _STEPS**2, 1 / _STEPS**3):
        share = low + step * np.arange(1, _STEPS + 1)
        load = kept(np.minimum(share, 1.0))
        found = np.maximum(found, load.max(axis=1))
        low += step * (np.arange(1, _STEPS + 1) * (load > 0)).max(axis=1, keepdims=True)
    return np.where(served & (found > _LEAST_LOAD), found, 0.0)


def mix_ceilings(
    capped: Capped, mix: FloatArray, limits: Sequence[LimitOfEach], *, base_s: float, most_load: float
) -> FloatArray:
    """Returns the requests/s [num_layouts] of all workloads of a mix, shares [num_layouts, W], that keep all limits;
    0: none."""
    with np.errstate(divide="ignore"):
        full_rps = 1.0 / (mix / capped.full_rps).sum(axis=1)
    unit = full_rps[:, None] * mix
    _, any_queue = _keeps(capped, unit, np.ones(len(mix)), limits, base_s)
    asked = unit / np.where(any_queue, 1.0, QUEUED_SHARE)[:, None]
    found = np.where(any_queue, most_load, _by_halving(capped, asked, limits, base_s, most_load))
    return np.asarray(np.where(found > _LEAST_LOAD, found, 0.0) * full_rps)


def _by_halving(
    capped: Capped, asked: FloatArray, limits: Sequence[LimitOfEach], base_s: float, most_load: float
) -> FloatArray:
    """Returns the largest load that is found to keep the limits by halving the logarithm of the busy share."""
    found = np.zeros(len(asked))
    low, high = np.full(len(asked), np.log(_LEAST_LOAD)), np.zeros(len(asked))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        load, keeps = _keeps(capped, asked, np.exp(middle), limits, base_s)
        found = np.maximum(found, np.where(keeps, np.minimum(load, most_load), 0.0))
        low, high = np.where(keeps, middle, low), np.where(keeps, high, middle)
    return found


def _keeps(
    capped: Capped, rps: FloatArray, share: FloatArray, limits: Sequence[LimitOfEach], base_s: float
) -> tuple[FloatArray, BoolArray]:
    """Returns how many times `rps` are served with this share busy, and whether all keep their limits then."""
    times, behaviour = of_mixture(capped, rps, share)
    own, decay = own_of(capped, base_s), np.zeros(len(rps))
    for limit in limits:
        needed = decay_needed(behaviour, longest_wait_s(behaviour, own, limit), limit.tail)
        decay = np.maximum(decay, highest(np.where(rps > 0, needed, 0.0)))
    kept = np.isfinite(decay)
    return times, kept & decays(capped, times[:, None] * rps, behaviour, np.where(kept, decay, 0.0))
