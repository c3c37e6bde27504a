"""How far a replica may be loaded with the mixture that it is given: the largest load at which all limits hold.

Flow: a cap and requests/s by workload -> behaviour.Mixture -> latency.py, by looking. The operating points of
points.py promise less than this or the same: those of sets hold for every mixture, those of fixed mixes are found by
fewer looks.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.throughput.behaviour import Mixture, summed
from sutler.solver.throughput.latency import QUEUED_SHARE, LimitOfEach
from sutler.solver.throughput.loaded import Capped

_STEPS: Final = 25  # of the share, then of one such step, and again: to 6e-5
_LEAST_LOAD: Final = 1e-3  # chosen: a replica that carries less is as good as none
_HALVINGS: Final = 12  # of the logarithm of the share: to 0.2 % of it


def load_ceilings(capped: Capped, rps: FloatArray, limits: Sequence[LimitOfEach], *, most_load: float) -> FloatArray:
    """Returns the largest load, of what the cap carries of mixtures `rps` [W, num_layouts]; 0 where no load keeps the
    limits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = summed(np.where(rps > 0, rps / capped.full_rps, 0.0))
        unit = np.where(np.isfinite(whole) & (whole > 0), 1.0 / whole, 0.0) * rps
    any_queue = _keeps_any_queue(capped, unit, limits)
    mixture = Mixture.of(capped, unit / np.where(any_queue, 1.0, QUEUED_SHARE))

    def kept(share: FloatArray) -> FloatArray:
        """Returns the load with these shares of the sequences busy [num_layouts, n]; 0 where it misses a limit."""
        each = np.repeat(np.arange(len(share)), share.shape[1])
        load, keeps = mixture.take(each).keeps(share.ravel(), [limit.take(each) for limit in limits])
        return np.where(keeps, np.minimum(load, most_load), 0.0).reshape(share.shape)

    # Where step times bend, limits may be kept at a load and missed at a lower one, in the closed form alone: what
    # points of mixes and those of sets have found is looked at again.
    asked_for = [np.full(len(whole), most_load), np.minimum(whole, most_load)]
    found = kept(np.stack([mixture.busy_share(times) for times in asked_for], axis=1)).max(axis=1)
    found = np.maximum(found, _by_halving(mixture, limits, most_load)[0])
    low = np.zeros((len(found), 1))
    for step in (1 / _STEPS, 1 / _STEPS**2, 1 / _STEPS**3):
        share = low + step * np.arange(1, _STEPS + 1)
        load = kept(np.minimum(share, 1.0))
        found = np.maximum(found, load.max(axis=1))
        low += step * (np.arange(1, _STEPS + 1) * (load > 0)).max(axis=1, keepdims=True)
    return np.where(unit.any(axis=0) & (found > _LEAST_LOAD), found, 0.0)


def mix_ceilings(
    capped: Capped,
    mix: FloatArray,
    limits: Sequence[LimitOfEach],
    *,
    most_load: float,
    known_rps: FloatArray,
    known_share: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns the requests/s [num_layouts] of all workloads of a mix, shares [W, num_layouts], that keep all limits,
    or 0, and the share of the sequences that then runs. 0 as well where `known_share` of them misses a limit, which
    carries no more than `known_rps`: then nothing that carries more keeps them."""
    with np.errstate(divide="ignore"):
        full_rps = 1.0 / summed(mix / capped.full_rps)
    unit = full_rps * mix
    load, share = np.where(_keeps_any_queue(capped, unit, limits), most_load, 0.0), np.ones(len(full_rps))
    asked = Mixture.of(capped, unit / QUEUED_SHARE)
    known_load, keeps = asked.keeps(known_share, limits)
    hopeful = np.flatnonzero((load == 0) & (keeps | (known_load * full_rps > known_rps)))
    left = [limit.take(hopeful) for limit in limits]
    load[hopeful], share[hopeful] = _by_halving(asked.take(hopeful), left, most_load)
    return np.where(load > _LEAST_LOAD, load, 0.0) * full_rps, share


def _keeps_any_queue(capped: Capped, unit: FloatArray, limits: Sequence[LimitOfEach]) -> BoolArray:
    """Whether limits are kept with all sequences running, whatever waits outside [num_layouts]."""
    return Mixture.of(capped, unit).keeps(np.ones(unit.shape[1]), limits)[1]


def _by_halving(mixture: Mixture, limits: Sequence[LimitOfEach], most_load: float) -> tuple[FloatArray, FloatArray]:
    """Returns the largest load that is found to keep the limits by halving the logarithm of the busy share, and that
    share."""
    found, share = np.zeros(len(mixture.load)), np.ones(len(mixture.load))
    low, high = np.full(len(found), np.log(_LEAST_LOAD)), np.zeros(len(found))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        load, keeps = mixture.keeps(np.exp(middle), limits)
        better = keeps & (np.minimum(load, most_load) > found)
        found, share = np.where(better, np.minimum(load, most_load), found), np.where(better, np.exp(middle), share)
        low, high = np.where(keeps, middle, low), np.where(keeps, high, middle)
    return found, share
