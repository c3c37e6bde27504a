"""How many of the requests that arrive are served: the plan's routing, and what spills over from full engines.

An engine carries at most its capacity for the mix it gets. What exceeds it is offered to the engines that have room,
as a load-balancing gateway does, those first that are fastest with it; what finds no room is lost: nothing queues.
Engines that do not serve get nothing: their part goes to the others in proportion.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_LEAST_RPS = 1e-9


@dataclass(frozen=True, slots=True)
class Served:
    """Requests/s of all buckets that are served, and the part of the engines' room that this takes."""

    rps: float
    busy_fraction: float

    @property
    def capacity_rps(self) -> float:
        """What the engines would serve with all of their room, of traffic like this."""
        return self.rps / self.busy_fraction if self.busy_fraction > 0 else 0.0


def serve(
    arriving_rps: FloatArray, shares: FloatArray, rates_rps: FloatArray, *, utilisation_fraction: float
) -> Served:
    """What becomes of the requests that arrive.

    arriving_rps [buckets]; shares [engines, buckets] of the routing in force; rates_rps [engines, buckets]: what an
    engine sustains of one bucket alone, 0 where it cannot serve it. An engine's load is the sum of rate / sustained
    rate, and at most `utilisation_fraction`: 1 where the rates are those within its latency limits.
    """
    if not len(shares):
        return Served(0.0, 0.0)
    usable = np.where(rates_rps > 0, shares, 0.0)
    total = usable.sum(axis=0)
    routed = np.divide(usable, total, out=np.zeros_like(usable), where=total > 0) * arriving_rps
    cost = np.divide(1.0, rates_rps, out=np.zeros_like(rates_rps), where=rates_rps > 0)
    load = (routed * cost).sum(axis=1)
    kept = np.minimum(1.0, np.divide(utilisation_fraction, load, out=np.ones_like(load), where=load > 0))
    carried = (routed * kept[:, None]).sum(axis=0)
    room = np.maximum(utilisation_fraction - load * kept, 0.0)
    spilled = _spilled(arriving_rps - carried, rates_rps, room)
    return Served(float((carried + spilled).sum()), 1.0 - float(room.sum()) / (utilisation_fraction * len(room)))


def _spilled(left_rps: FloatArray, rates_rps: FloatArray, room: FloatArray) -> FloatArray:
    """[buckets] requests/s of what is left that engines with room take; changes `room`."""
    taken = np.zeros_like(left_rps)
    for bucket in np.flatnonzero(left_rps > _LEAST_RPS):
        for engine in np.argsort(-rates_rps[:, bucket], kind="stable"):
            fits = min(left_rps[bucket] - taken[bucket], room[engine] * rates_rps[engine, bucket])
            if fits > 0:
                taken[bucket] += fits
                room[engine] -= fits / rates_rps[engine, bucket]
    return taken
