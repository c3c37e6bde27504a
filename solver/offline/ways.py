"""A model's way through a stage: when it gets how far, and how far it is when.

Flow: curves.py -> Way (here) -> forecast.py.
"""

from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.offline.curves import GRID


@dataclass(frozen=True, slots=True)
class Way:
    """Along one curve from `progress` on: `offset_s` later than on the curve."""

    progress: float
    offset_s: float
    curve_s: FloatArray

    @property
    def finish_s(self) -> float:
        return self.offset_s + float(self.curve_s[-1])

    def by(self, at_s: float) -> float:
        """The progress at that time."""
        return max(self.progress, float(np.interp(at_s - self.offset_s, self.curve_s, GRID)))

    def at_s(self, progress: FloatArray) -> FloatArray:
        """When each progress from the first on is reached."""
        return np.asarray(self.offset_s + np.interp(progress, GRID, self.curve_s))


def way_from(progress: float, begin_s: float, curve_s: FloatArray) -> Way:
    """Goes along the curve from `begin_s` on, from where it has this progress."""
    return Way(progress, begin_s - float(np.interp(progress, GRID, curve_s)), curve_s)


@dataclass(frozen=True, slots=True)
class GrowingWay:
    """Along one way until more replicas are ready, then along another."""

    before: Way
    after: Way
    ready_s: float

    @property
    def progress(self) -> float:
        return self.before.progress

    @property
    def finish_s(self) -> float:
        return min(self.before.finish_s, max(self.after.finish_s, self.ready_s))

    def by(self, at_s: float) -> float:
        return self.before.by(at_s) if at_s < self.ready_s else self.after.by(at_s)

    def at_s(self, progress: FloatArray) -> FloatArray:
        return np.where(progress <= self.after.progress, self.before.at_s(progress), self.after.at_s(progress))


@dataclass(frozen=True, slots=True)
class HeldWay:
    """Point by point, for a model that waits for others: both arrays ascend."""

    points: FloatArray
    times_s: FloatArray

    @property
    def progress(self) -> float:
        return float(self.points[0])

    @property
    def finish_s(self) -> float:
        return float(self.times_s[-1])

    def by(self, at_s: float) -> float:
        return float(np.interp(at_s, self.times_s, self.points))

    def at_s(self, progress: FloatArray) -> FloatArray:
        return np.asarray(np.interp(progress, self.points, self.times_s))


AnyWay = Way | GrowingWay | HeldWay


def held(way: AnyWay, available_s: FloatArray, points: FloatArray) -> HeldWay:
    """The same way where its inputs for `points` are there at `available_s` only: with T its seconds and A those, it
    reaches p at  max over q <= p of  A(q) + T(p) - T(q)."""
    times = way.at_s(points)
    late = np.maximum.accumulate(np.maximum(available_s - times, 0.0))
    return HeldWay(points, times + late)
