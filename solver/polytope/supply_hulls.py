"""Inequalities that whole replicas keep in each supply row by itself, and fractions of them break.

Replicas that take k GPUs of a row, E_k in all, fit into its limit in so many ways: sum_k a[k] E_k <= 1 holds for
every fleet where it does for each way to fill the row (a knapsack's). Those that a point breaks most are an LP over
a, whose ways are found by dynamic programming as they are needed (Boyd, "Fenchel cutting planes for integer
programs", Operations Research 42, 1994).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.polytope.linear import LinearProgram, solve_lp
from sutler.solver.polytope.rows import Polytope

_LEAST_TAKEN = 1e-6  # as far as replicas are whole to HiGHS and the tree
_BROKEN = 1e-4  # inequalities that are broken by less move no bound


@dataclass(slots=True)
class SupplyHulls:
    """The inequalities found so far, and the rows that more are sought for."""

    gpus: IntArray  # [rows, C] GPUs that a replica takes of each supply row
    limit: IntArray  # [rows]
    found: list[FloatArray] = field(default_factory=list)  # each [C], at most 1

    def separate(self, candidate: IntArray, replicas: FloatArray) -> list[FloatArray]:
        """Adds the inequalities, each [C], that the point breaks; at most one of a row."""
        new = []
        for gpus, limit in zip(self.gpus, self.limit.tolist(), strict=True):
            taken = np.bincount(gpus[candidate], replicas, minlength=limit + 1)[1 : limit + 1].astype(np.float64)
            sizes = np.flatnonzero(taken > _LEAST_TAKEN) + 1
            if len(sizes) == 0 or np.abs(taken - np.round(taken)).max() < _LEAST_TAKEN:
                continue
            weights = _most_broken(sizes, taken[sizes - 1], limit)
            if weights @ taken[sizes - 1] > 1.0 + _BROKEN:
                of_size = np.zeros(int(self.gpus.max()) + 1)
                of_size[sizes] = weights
                new.append(of_size[gpus])
        self.found += new
        return new


def supply_hulls(polytope: Polytope) -> SupplyHulls:
    """Of the rows of whole GPUs that bind, where no machine that is rented adds to them."""
    is_rented = np.diff(polytope.rent.indptr) > 0
    names = enumerate(polytope.resources)
    rows = [row for row, name in names if name.startswith("supply/") and not is_rented[row]]
    gpus, limit = polytope.use[rows].toarray(), np.floor(polytope.limit[rows] + _LEAST_TAKEN)
    whole = (gpus == np.round(gpus)).all(axis=1) & (gpus >= 0).all(axis=1) & (limit >= 1) & (gpus.sum(axis=1) > limit)
    return SupplyHulls(gpus[whole].astype(np.int64), limit[whole].astype(np.int64))


def _most_broken(sizes: IntArray, taken: FloatArray, limit: int) -> FloatArray:
    """[sizes] the weights at which no way to fill `limit` weighs more than 1, and what is taken the most."""
    ways = [np.where(sizes == size, limit // size, 0).astype(np.float64) for size in sizes.tolist()]
    while True:
        found = solve_lp(
            LinearProgram(
                cost=-taken,
                matrix=csr_array(np.array(ways)),
                row_lower=np.full(len(ways), -np.inf),
                row_upper=np.ones(len(ways)),
                lower=np.zeros(len(sizes)),
                upper=np.ones(len(sizes)),
                integer=np.zeros(len(sizes), dtype=np.bool_),
            )
        )
        assert found.x is not None
        weights = np.maximum(found.x, 0.0)
        most, way = _heaviest(sizes, weights, limit)
        if most <= 1.0 + _LEAST_TAKEN:
            return np.asarray(weights / max(most, 1.0))
        ways.append(way)


def _heaviest(sizes: IntArray, weights: FloatArray, limit: int) -> tuple[float, FloatArray]:
    """The weight of the heaviest way to fill `limit`, and how many of each size it has."""
    best, last = np.zeros(limit + 1), np.full(limit + 1, -1)
    for room in range(1, limit + 1):
        best[room] = best[room - 1]
        for place, size in enumerate(sizes.tolist()):
            if size <= room and best[room - size] + weights[place] > best[room]:
                best[room], last[room] = best[room - size] + weights[place], place
    way, room = np.zeros(len(sizes)), limit
    while room > 0:
        if last[room] < 0:
            room -= 1
        else:
            way[last[room]] += 1
            room -= int(sizes[last[room]])
    return float(best[limit]), way
