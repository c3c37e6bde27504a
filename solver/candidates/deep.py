"""Pipelines that are too many to be listed, built stage by stage by what their stages cost.

A pipeline is as fast as its slowest stage. So for a number of sequences and the seconds that a request may keep a
stage busy, every stage holds a known number of layers, and the cheapest stages that hold all of them are a shortest
path over the layers, one step for each stage. Sequences and seconds on a grid give pipelines from the cheapest to the
fastest. What they carry is estimated as of those that are listed: here only what is worth that is found.

Flow: shapes.py says what it leaves out -> DeepSearch (here), asked by polytope/preparation.py at the prices of a
relaxation -> enumerate.py rates what is found.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sutler.solver import throughput
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import (
    Candidates,
    Pipeline,
    candidates_of_pipelines,
    candidates_of_shapes,
    layouts_of,
)
from sutler.solver.candidates.shapes import DeepPipelines, Shapes, deep_pipelines, pieces_alone
from sutler.solver.market.pools import checkpoint_disk_gb
from sutler.solver.market.supply import Supply
from sutler.solver.problem import Problem, ServedModel
from sutler.solver.throughput.prepare import StageCosts

_SLOWEST: Final = 2  # times as long as an even pipeline of the slowest stages: nothing that is worth it is slower
_STEPS: Final = 32  # of seconds, chosen: with half as many a hundredth of what relaxations gain is missed


@dataclass(frozen=True, slots=True)
class DeepSearch:
    """The deep pipelines of one model, number `index` of the problem at a precision, on one site; `found` before."""

    problem: Problem
    supply: Supply
    index: int
    model: ServedModel
    pipelines: DeepPipelines
    costs: StageCosts
    found: set[tuple[int, ...]] = field(default_factory=set)

    def stages(self) -> Candidates:
        """A candidate on the piece of each stage [T], whatever its rates."""
        alone = [Pipeline(((*stage, 0),), one_piece=False) for stage in self.pipelines.stages]
        candidates, owner = candidates_of_pipelines(self.problem, self.supply, self.index, alone)
        return candidates.take(np.unique(owner, return_index=True)[1])

    def better(self, price: FloatArray, used: Candidates, *, shift: float) -> Candidates:
        """Pipelines that were not found before: those that are cheap for how fast they are at these prices of the
        stages [T]; and those that differ from one of `used` in a stage or have one more, since the grid of seconds
        does not tell apart what is nearly alike. `shift`: of the grid, in [0, 1) of its steps."""
        near, new = self._next_to(used.take(used.model == self.index)), []
        for depth in range(self.pipelines.first, self.pipelines.last + 1):
            each = zip(self.costs.layer_s[:, :, depth - 1], self.costs.room_layers, strict=True)
            chosen = [cheapest_covers(s, room, price, self.costs.layers, depth, shift=shift) for s, room in each]
            chosen.append(np.array(near[depth], dtype=np.int64).reshape(-1, depth))
            rows = map(tuple, np.sort(np.concatenate(chosen), axis=1).tolist())
            unknown = [row for row in dict.fromkeys(rows) if row not in self.found]
            self.found.update(unknown)
            stages = np.array(unknown, dtype=np.int64).reshape(-1, depth)
            new.append(self.pipelines.shapes(stages, self.problem, self.supply, self.model))
        return candidates_of_shapes(self.problem, self.supply, self.index, self.model, Shapes.joined(new))

    def _next_to(self, others: Candidates) -> defaultdict[int, list[list[int]]]:
        """By depth."""
        number = {stage: index for index, stage in enumerate(self.pipelines.stages)}
        rows = zip(others.pool.tolist(), others.tensor_parallel.tolist(), strict=True)
        known = [[number.get(stage, -1) for stage in zip(*row, strict=True) if stage[0] >= 0] for row in rows]
        found = defaultdict[int, list[list[int]]](list)
        for one in known:
            if -1 not in one and len(one) >= self.pipelines.first - 1:
                rests = [one[:place] + one[place + 1 :] for place in range(len(one))]
                for rest in [*rests, one]:
                    found[len(rest) + 1] += [[*rest, other] for other in number.values()]
        return found


def deep_searches(problem: Problem, supply: Supply) -> list[DeepSearch]:
    """One for everything that is not listed."""
    return [
        DeepSearch(problem, supply, index, one, deep, _stage_costs(problem, supply, one, deep))
        for index, model in enumerate(problem.models)
        if problem.search.disaggregation != "only"
        for one in model.at_each_precision
        for deep in deep_pipelines(problem, supply, one, checkpoint_disk_gb(one))
    ]


def _stage_costs(problem: Problem, supply: Supply, model: ServedModel, deep: DeepPipelines) -> StageCosts:
    layouts = layouts_of(problem, supply.pools, pieces_alone(deep.stages), None)
    return throughput.stage_costs(problem, model, layouts, deepest=deep.last)


def cheapest_covers(
    layer_s: FloatArray, room: IntArray, price: FloatArray, layers: int, depth: int, *, shift: float
) -> IntArray:
    """The `depth` stages [n, depth], ascending, that together hold `layers` at the least price, for each number of
    sequences and each of a grid of seconds per request, where there are any.

    `layer_s`, `room` [T, B]: seconds of a request in a layer, and layers at most, for B numbers of sequences;
    `price` [T]; `shift`: of the grid, in [0, 1) of its steps.
    """
    types = np.flatnonzero((room > 0).any(axis=1))
    if not len(types):
        return np.zeros((0, depth), dtype=np.int64)
    layer_s, room = layer_s[types], room[types]
    fastest, slowest = layer_s.min(axis=0), layer_s.max(axis=0)
    share = (np.arange(_STEPS)[:, None] + shift) / _STEPS
    busy_s = fastest * np.ceil(layers / depth) * (_SLOWEST * slowest / fastest) ** share  # [steps, B]
    holds = np.minimum(np.floor(busy_s[None] / layer_s[:, None] * (1 + 1e-9)), room[:, None]).astype(np.int64)
    return types[covers(holds.reshape(len(types), -1), price[types], layers, depth)]


def covers(holds: IntArray, price: FloatArray, layers: int, depth: int) -> IntArray:
    """The `depth` types [n, depth], ascending, that hold `layers` at the least price [T], for each column of `holds`
    [T, K], the layers that each holds, in which any do."""
    columns, held = holds.shape[1], np.arange(layers + 1)
    first = np.arange(columns)[:, None] * (layers + 1)
    paid = np.full((columns, layers + 1), np.inf)  # at least, for so many layers by as many stages as were added
    paid[:, 0] = 0.0
    added = []
    for _ in range(depth):
        least, chosen = np.full(paid.shape, np.inf), np.zeros(paid.shape, dtype=np.int64)
        for number, (one, each) in enumerate(zip(holds, price, strict=True)):
            total = paid.reshape(-1).take(first + np.maximum(held - one[:, None], 0)) + each
            total[one == 0] = np.inf
            better = total < least
            np.copyto(least, total, where=better)
            np.copyto(chosen, number, where=better)
        added.append(chosen)
        paid = least
    able = np.flatnonzero(np.isfinite(paid[:, layers]))
    left, stages = np.full(len(able), layers), np.zeros((len(able), depth), dtype=np.int64)
    for step in range(depth - 1, -1, -1):
        stages[:, step] = added[step][able, left]
        left = np.maximum(left - holds[stages[:, step], able], 0)
    return np.unique(np.sort(stages, axis=1), axis=0)
