"""How far a replica may be loaded with the mixture that it is given: the largest load at which all limits hold.

Flow: a cap and requests/s by workload -> behaviour.of_mixture -> latency.py, by halving. The operating points of
points.py promise less than this or the same, since they hold for every mixture of what they admit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from solver.throughput.base import BoolArray, FloatArray
from solver.throughput.behaviour import busy_share, of_mixture, own_of
from solver.throughput.latency import QUEUED_SHARE, LimitOfEach, decay_needed, longest_wait_s
from solver.throughput.loaded import Capped

_HALVINGS: Final = 14
_LEAST_LOAD: Final = 1e-3


def load_ceilings(
    capped: Capped, rps: FloatArray, limits: Sequence[LimitOfEach], *, base_s: float, most_load: float
) -> FloatArray:
    """[num_layouts] of what the cap carries of mixtures `rps` [num_layouts, W]; 0 where no load keeps the limits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(rps > 0, rps / capped.full_rps, 0.0).sum(axis=1)
        unit = np.where(np.isfinite(whole) & (whole > 0), 1.0 / whole, 0.0)[:, None] * rps
    served = unit.any(axis=1)
    if not limits:
        return np.where(served, most_load, 0.0)
    _, any_queue = _keeps(capped, unit, np.ones(len(rps)), limits, base_s)
    asked = unit / np.where(any_queue, 1.0, QUEUED_SHARE)[:, None]

    def kept(share: FloatArray) -> FloatArray:
        """[num_layouts] the load with this share of the sequences busy; 0 where it misses a limit."""
        load, keeps = _keeps(capped, asked, share, limits, base_s)
        return np.where(keeps, np.minimum(load, most_load), 0.0)

    found = kept(busy_share(capped, asked * most_load))
    low, high = np.zeros(len(rps)), np.ones(len(rps))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        load = kept(middle)
        found = np.maximum(found, load)
        low, high = np.where(load > 0, middle, low), np.where(load > 0, high, middle)
    # Where step times bend, limits may be kept at a load and missed at a lower one, in the closed form alone.
    found = np.maximum(found, kept(busy_share(capped, asked * np.minimum(whole, most_load)[:, None])))
    return np.where(served & (found > _LEAST_LOAD), found, 0.0)


def _keeps(
    capped: Capped, rps: FloatArray, share: FloatArray, limits: Sequence[LimitOfEach], base_s: float
) -> tuple[FloatArray, BoolArray]:
    """[num_layouts] how many times `rps` are served with this share busy, and whether all keep their limits then."""
    times, behaviour, decay = of_mixture(capped, rps, share)
    own = own_of(capped, base_s)
    keeps = np.ones(len(rps), dtype=np.bool_)
    for limit in limits:
        needed = decay_needed(behaviour, longest_wait_s(behaviour, own, limit), limit.tail)
        keeps &= (np.where(rps > 0, needed, 0.0) <= decay[:, None]).all(axis=1)
    return times, keeps
