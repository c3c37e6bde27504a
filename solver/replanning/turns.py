"""In which order engines make room for others, so that those that run carry as much of a load as they can.

Flow: service/deployments/diff knows which engines run and which have to stop before which can start -> in_turn (here)
-> a step for each.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from typing import Final

import numpy as np
import scipy

from sutler.solver.problem import Role

MOST_STATES: Final = 1_000  # chosen: all orders are compared within a second; beyond, turns are chosen one by one
MOST_COMPARED: Final = (
    10  # chosen: kinds of turns that one is chosen among, where each would leave less than the load
)
Load = Mapping[tuple[str, str], float]
"""Requests/s by (model, workload)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What counts of a replica that runs.

    `rates_rps`: of each workload of its model that it serves, with all its time; `most_load_fraction`: how much of
    that time may be spent.
    """

    model: str
    role: Role
    most_load_fraction: float
    rates_rps: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """Engines that have to stop before others can start in their place."""

    stops: tuple[Engine, ...]
    starts: tuple[Engine, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A turn, by its position in what was asked, and the share of the load that is carried while it is taken."""

    turn: int
    carried_fraction: float


@dataclass(slots=True)
class Capacity:
    """What engines carry of a load; what has been worked out before is remembered."""

    load_rps: Load
    _known: dict[tuple[str, frozenset[tuple[Engine, int]]], float] = field(default_factory=dict)

    def carried_fraction(self, running: Counter[Engine]) -> float:
        """The share of every workload's requests that some routing has these engines serve; at most 1."""
        return min(
            (self._of_model(name, running) for name in dict.fromkeys(m for m, _ in self.load_rps)), default=1.0
        )

    def _of_model(self, model: str, running: Counter[Engine]) -> float:
        own = frozenset((one, count) for one, count in running.items() if one.model == model and count > 0)
        if (model, own) not in self._known:
            load = {name: rps for (of, name), rps in self.load_rps.items() if of == model and rps > 0}
            self._known[model, own] = _most_carried(load, sorted(own, key=repr)) if load else 1.0
        return self._known[model, own]


def _most_carried(load_rps: Mapping[str, float], engines: Sequence[tuple[Engine, int]]) -> float:
    """Solves: maximise the share, at most 1, where every prompt is prefilled and every answer decoded.

    An aggregated engine does both. Per workload, in units of its load: aggregated + prefill >= share and aggregated +
    decode >= share; per kind of engine the time spent is at most count * most_load_fraction.
    """
    rows = {name: row for row, name in enumerate(load_rps)}
    serves = [(k, name, rps) for k, (one, _) in enumerate(engines) for name, rps in one.rates_rps if name in rows]
    upper = np.zeros((2 * len(rows) + len(engines), 1 + len(serves)))
    upper[: 2 * len(rows), 0] = 1.0
    for column, (kind, name, rps) in enumerate(serves, start=1):
        for half, other in enumerate(("decode", "prefill")):
            if engines[kind][0].role != other:
                upper[half * len(rows) + rows[name], column] = -rps / load_rps[name]
        upper[2 * len(rows) + kind, column] = 1.0
    room = [count * one.most_load_fraction for one, count in engines]
    most = np.array([*np.zeros(2 * len(rows)), *room])
    bounds = [(0.0, 1.0), *[(0.0, None)] * len(serves)]
    solved = scipy.optimize.linprog(
        [-1.0, *np.zeros(len(serves))], A_ub=upper, b_ub=most, bounds=bounds, method="highs"
    )
    return float(min(1.0, solved.x[0])) if solved.status == 0 else 0.0


def in_turn(running: Counter[Engine], turns: Sequence[Turn], capacity: Capacity) -> list[Step]:
    """The turns in the order whose lowest carried share is highest; of equal orders the one that asks first.

    Turns that stop nothing come first: they only add. Up to MOST_STATES states between the first and the last turn,
    turns that are alike counted together, all orders are compared; beyond, next is a turn that leaves all of the load
    carried, or else the one that leaves most.
    """
    adding = [number for number, turn in enumerate(turns) if not turn.stops]
    alike: dict[Turn, list[int]] = {}
    for number, turn in enumerate(turns):
        if turn.stops:
            alike.setdefault(turn, []).append(number)
    order = _Order(_after(running, [turns[number] for number in adding]), tuple(alike), capacity)
    left = tuple(map(len, alike.values()))
    first = [Step(number, capacity.carried_fraction(running)) for number in adding]
    waiting = [iter(numbers) for numbers in alike.values()]
    steps = order.best(left) if prod(count + 1 for count in left) <= MOST_STATES else order.greedy(left)
    return [*first, *(Step(next(waiting[kind]), carried) for kind, carried in steps)]


def _after(running: Counter[Engine], taken: Sequence[Turn]) -> Counter[Engine]:
    found = running.copy()
    for turn in taken:
        found.subtract(turn.stops)
        found.update(turn.starts)
    return found


@dataclass(frozen=True, slots=True)
class _Order:
    """Kinds of turns, and the engines that run before the first. A state is how many of each kind are left."""

    running: Counter[Engine]
    kinds: tuple[Turn, ...]
    capacity: Capacity

    def _while_taken(self, total: tuple[int, ...], left: tuple[int, ...], kind: int) -> float:
        """The share that is carried while a turn of this kind is taken."""
        taken = [turn for turn, all_, rest in zip(self.kinds, total, left, strict=True) for _ in range(all_ - rest)]
        now = _after(self.running, taken)
        now.subtract(self.kinds[kind].stops)
        return self.capacity.carried_fraction(now)

    def best(self, total: tuple[int, ...]) -> Iterator[tuple[int, float]]:
        """By dynamic programming from the last turn back."""
        lowest: dict[tuple[int, ...], tuple[float, int, float]] = {}
        for left in sorted(product(*(range(count + 1) for count in total)), key=sum):
            options = [
                (min(carried, lowest[rest][0] if any(rest) else 1.0), -kind, carried)
                for kind, rest in _next(left)
                for carried in [self._while_taken(total, left, kind)]
            ]
            if options:
                worst, kind, carried = max(options)
                lowest[left] = worst, -kind, carried
        left = total
        while any(left):
            _, kind, carried = lowest[left]
            yield kind, carried
            left = dict(_next(left))[kind]

    def greedy(self, total: tuple[int, ...]) -> Iterator[tuple[int, float]]:
        left = total
        while any(left):
            kind, carried = self._next_best(total, left)
            yield kind, carried
            left = dict(_next(left))[kind]

    def _next_best(self, total: tuple[int, ...], left: tuple[int, ...]) -> tuple[int, float]:
        found = []
        for kind, _ in islice(_next(left), MOST_COMPARED):
            carried = self._while_taken(total, left, kind)
            found.append((kind, carried))
            if carried >= 1.0:
                break
        return max(found, key=lambda option: (option[1], -option[0]))


def _next(left: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The states after one more turn, by its kind."""
    for kind, count in enumerate(left):
        if count:
            yield kind, (*left[:kind], count - 1, *left[kind + 1 :])
