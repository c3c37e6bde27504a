"""Which replica a request goes to: by the plan's fractions, in one of the ways that gateways know.

- smooth weighted round robin: every replica's credit grows by its fraction, the one with the most gets the request
  and pays 1 (nginx's upstream module): the shares are met as evenly as whole requests allow;
- weighted random: drawn by the fractions, whatever the replicas are doing;
- least loaded: of the replicas that have a share, the one with the fewest requests for its share.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from sutler.solver.arrays import FloatArray

RoutingPolicy = Literal["round_robin", "random", "least_loaded"]


class Router(Protocol):
    """Chooses for the requests of one workload, in order of arrival."""

    def choose(self, loads: Sequence[int]) -> int:
        """A position among the replicas that have a share; `loads`: requests that each of them has now."""
        ...


class RoundRobin:
    def __init__(self, fractions: FloatArray) -> None:
        self._fractions = (fractions / fractions.sum()).tolist()
        self._credit = [0.0] * len(self._fractions)

    def choose(self, loads: Sequence[int]) -> int:
        credit = self._credit = [c + f for c, f in zip(self._credit, self._fractions, strict=True)]
        chosen = max(range(len(credit)), key=credit.__getitem__)
        credit[chosen] -= 1.0
        return chosen


class Random:
    def __init__(self, fractions: FloatArray, draw: np.random.Generator) -> None:
        self._up_to = np.cumsum(fractions / fractions.sum())
        self._draw = draw

    def choose(self, loads: Sequence[int]) -> int:
        return min(int(np.searchsorted(self._up_to, self._draw.random(), side="right")), len(self._up_to) - 1)


class LeastLoaded:
    def __init__(self, fractions: FloatArray) -> None:
        self._fractions = (fractions / fractions.sum()).tolist()

    def choose(self, loads: Sequence[int]) -> int:
        each = [(load + 1) / share for load, share in zip(loads, self._fractions, strict=True)]
        return min(range(len(each)), key=each.__getitem__)


def router(policy: RoutingPolicy, fractions: FloatArray, draw: np.random.Generator) -> Router:
    """Makes the router between replicas that have a share; `draw` is used by `random` alone."""
    if policy == "random":
        return Random(fractions, draw)
    return RoundRobin(fractions) if policy == "round_robin" else LeastLoaded(fractions)
