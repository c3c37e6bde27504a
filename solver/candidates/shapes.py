"""The pipelines that a model could run as on this market, before anything is known of their rates.

Flow: market/supply.py -> shapes (here) -> enumerate.py rates them.

Two kinds exist: the whole replica inside one machine (one piece of 1, 2, 4 or 8 GPUs, or of all that the machine
has), and pipelines across the machines of a networked site (every stage a piece of its own). Tensor parallelism never
leaves a machine, nor does attention data parallelism, which mixtures of experts may have in a replica of one stage.
Pipelines of three stages on part of a machine would waste a GPU of their piece and are only considered where the
caller measured them. Prefill and decode replicas stand on sites with a network or together on one machine, and their
pipelines have equal stages. What the model's engine cannot run is left out (engines.py), but for what was measured.

Pipelines of different stages grow in number with every stage, to millions: they are listed as deep as that is few,
deeper ones are built by what their stages cost (deep.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import comb
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.engines import ABILITIES, has_pipelines, mixes_gpus, shares_experts, spreads_experts
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.market.pools import MOST_GPUS_OF_PIECE, PIECE_SIZES, Pool, reserved_gpus
from sutler.solver.market.supply import Supply
from sutler.solver.problem import MeasuredRate, Problem, Role, ServedModel
from sutler.solver.throughput.measured import measured_rows

MOST_LISTED: Final = 300_000  # pipelines of one model on one site; chosen: some three seconds, and half a gigabyte

FILLERS = {"pool": -1, "piece_pool": -1, "tensor_parallel": 0, "layers": 0, "piece_size": 0}
"""What arrays by stage are padded with beyond a pipeline's own stages."""


@dataclass(frozen=True, slots=True)
class Pipelines:
    """N pipelines: pool, tensor_parallel [N, S]; one_piece, data_parallel [N]."""

    pool: IntArray
    tensor_parallel: IntArray
    one_piece: BoolArray
    data_parallel: IntArray

    def take(self, rows: IntArray | BoolArray | slice) -> Self:
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All of the parts, in order, padded to the longest."""
        longest, columns = max(part.pool.shape[1] for part in parts), []
        for name in (each.name for each in fields(cls)):
            arrays = [getattr(part, name) for part in parts]
            if name in FILLERS:
                arrays = [widened(array, longest, FILLERS[name]) for array in arrays]
            columns.append(np.concatenate(arrays))
        return cls(*columns)


@dataclass(frozen=True, slots=True)
class Shapes(Pipelines):
    """Pipelines without a model. size [N]: GPUs that the piece of a replica inside one machine keeps to itself; 0 of
    others."""

    size: IntArray


def pipeline_shapes(problem: Problem, supply: Supply, model: ServedModel, need_gb: float, role: Role) -> Shapes:
    """Pipelines worth rating for a model, and those that the caller measured, in the caller's stage order."""
    measured = [row for row in measured_rows(problem, model) if row.role == role]
    parts: list[Shapes] = []
    if not problem.measured_only and model.spec is not None:
        stages = _stage_types(problem, supply, model, model.spec)
        is_whole = role == "aggregated"
        deepest = _deepest(problem, model, model.spec, role)
        parts.append(_in_one_machine(supply, deepest, stages, need_gb))
        if spreads_experts(problem, model, role):
            parts.append(_with_ranks(problem, supply, stages, need_gb))
        if is_whole:
            parts += _across_machines(problem, supply, model, deepest, stages, need_gb)
        else:
            parts.append(_equal_across_machines(supply, deepest, stages, need_gb))
        parts = [_without_measured(part, measured, supply.pools) for part in parts]
    parts += [_shapes_of_measured(row, supply, need_gb) for row in _one_per_stages(measured)]
    if role != "aggregated":
        hands_over = np.array([pool.hands_over_on is not None for pool in supply.pools])
        parts = [part.take(hands_over[part.pool[:, 0]]) for part in parts]
    if any(pool.unfit_for for pool in supply.pools):
        serves = np.array([*((model.name, model.precision) not in pool.unfit_for for pool in supply.pools), True])
        parts = [part.take(np.flatnonzero(serves[part.pool].all(axis=1))) for part in parts]
    return Shapes.joined(parts or [_shapes_from([], one_piece=True)])


@dataclass(frozen=True, slots=True)
class DeepPipelines:
    """Pipelines that are too many to be listed: multisets of `first` to `last` of these stages (pool,
    tensor_parallel), all on one site."""

    stages: tuple[tuple[int, int], ...]
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many there are, whatever they cost."""
        return sum(_multisets(len(self.stages), depth) for depth in range(self.first, self.last + 1))

    def shapes(self, chosen: IntArray, problem: Problem, supply: Supply, model: ServedModel) -> Shapes:
        """The pipelines of stages `chosen` [num_pipelines, depth] for which there is room, and that nobody
        measured."""
        pool, degree = (np.array(column, dtype=np.int64) for column in zip(*self.stages, strict=True))
        chosen = chosen[_within_room(chosen, pool, degree, supply)]
        measured = [row for row in measured_rows(problem, model) if row.role == "aggregated"]
        return _without_measured(_apart(pool[chosen], degree[chosen]), measured, supply.pools)


def deep_pipelines(problem: Problem, supply: Supply, model: ServedModel, need_gb: float) -> tuple[DeepPipelines, ...]:
    """What `pipeline_shapes` leaves out of whole requests' pipelines on the market's sites, since it is too much."""
    if problem.measured_only or model.spec is None:
        return ()
    deepest = _deepest(problem, model, model.spec, "aggregated")
    together = _that_go_together(problem, supply, model, _stage_types(problem, supply, model, model.spec), need_gb)
    listed = ((local, _listed_depth(len(local), deepest)) for local in together)
    return tuple(DeepPipelines(tuple(local), depth + 1, deepest) for local, depth in listed if depth < deepest)


def _deepest(problem: Problem, model: ServedModel, spec: ModelSpec, role: Role) -> int:
    return min(problem.search.max_pipeline_stages, spec.layers) if has_pipelines(model, role) else 1


def _listed_depth(types: int, deepest: int) -> int:
    """The most stages of pipelines that are listed, of so many types of stages."""
    total = 0
    for depth in range(2, deepest + 1):
        total += _multisets(types, depth)
        if total > MOST_LISTED:
            return depth - 1
    return deepest


def _multisets(types: int, size: int) -> int:
    return comb(types + size - 1, size)


def _inside(
    rows: Sequence[Sequence[tuple[int, int]]], sizes: Sequence[int], ranks: Sequence[int] | None = None
) -> Shapes:
    """Shapes inside one machine each, on a piece of so many GPUs."""
    alone = replace(_shapes_from(rows, one_piece=True), size=np.array(sizes, dtype=np.int64))
    return alone if ranks is None else replace(alone, data_parallel=np.array(ranks, dtype=np.int64))


def _shapes_from(rows: Sequence[Sequence[tuple[int, int]]], *, one_piece: bool) -> Shapes:
    """Pipelines from (pool, tensor_parallel) stages; rows may differ in length."""
    longest = max((len(row) for row in rows), default=1)
    padded = [[*row, *[(-1, 0)] * (longest - len(row))] for row in rows]
    block = np.array(padded, dtype=np.int64).reshape(len(rows), longest, 2)
    alone, no_size = np.ones(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    return Shapes(block[:, :, 0], block[:, :, 1], np.full(len(rows), one_piece), alone, no_size)


def _stage_types(problem: Problem, supply: Supply, model: ServedModel, spec: ModelSpec) -> list[tuple[int, int]]:
    """(pool, tensor_parallel) pairs that some machine fit for the model can host."""
    return [
        (index, degree)
        for index, pool in enumerate(supply.pools)
        if (model.name, model.precision) not in pool.unfit_for
        for degree in sorted(set(problem.search.tensor_parallel))
        if spec.heads % degree == 0 and degree <= supply.most_gpus(index, degree)
    ]


def _in_one_machine(supply: Supply, deepest: int, stages: Iterable[tuple[int, int]], need_gb: float) -> Shapes:
    rows = [
        [(pool, degree)] * depth
        for pool, degree in stages
        for depth in range(1, deepest + 1)
        if degree * depth <= min(supply.most_gpus(pool, degree * depth), MOST_GPUS_OF_PIECE)
        and supply.pools[pool].holds_checkpoint(need_gb, degree * depth)
    ]
    return _inside(rows, [len(row) * row[0][1] for row in rows])


def _with_ranks(problem: Problem, supply: Supply, stages: Iterable[tuple[int, int]], need_gb: float) -> Shapes:
    """Attention on several ranks of one machine, where the search allows as many GPUs to share a layer."""
    found = [
        (pool, degree, gpus)
        for pool, degree in stages
        for gpus in range(2 * degree, MOST_GPUS_OF_PIECE + 1, degree)
        if shares_experts(problem, gpus)
        and gpus <= supply.most_gpus(pool, gpus)
        and supply.pools[pool].holds_checkpoint(need_gb, gpus)
    ]
    rows = [[(pool, degree)] for pool, degree, _ in found]
    return _inside(rows, [gpus for *_, gpus in found], [gpus // degree for _, degree, gpus in found])


def _equal_across_machines(supply: Supply, deepest: int, stages: Sequence[tuple[int, int]], need_gb: float) -> Shapes:
    """Pipelines of equal stages on the machines of a networked site."""
    rows = [
        [(pool, degree)] * depth
        for pool, degree in stages
        if supply.pools[pool].network is not None and supply.pools[pool].holds_checkpoint(need_gb, degree)
        for depth in range(2, deepest + 1)
        if degree * depth <= supply.most_gpus(pool, degree)
    ]
    return _shapes_from(rows, one_piece=False)


def _across_machines(
    problem: Problem,
    supply: Supply,
    model: ServedModel,
    deepest: int,
    stages: Sequence[tuple[int, int]],
    need_gb: float,
) -> list[Shapes]:
    """Pipelines of two or more stages on each networked site, as multisets of the stage types that go together, as
    deep as they are listed.

    Grown stage by stage; a prefix is dropped as soon as its GPUs alone cost more than the budget.
    """
    parts = []
    cheapest = supply.cheapest_gpu_usd_per_hour()
    for local in _that_go_together(problem, supply, model, stages, need_gb):
        pool, degree = (np.array(column, dtype=np.int64) for column in zip(*local, strict=True))
        price = np.array([cheapest[p] * tp for p, tp in local])
        budget = np.inf if problem.budget_usd_per_hour is None else problem.budget_usd_per_hour * (1 + 1e-9)
        chosen = np.arange(len(local))[:, None]
        spent = price
        for _ in range(1, _listed_depth(len(local), deepest)):
            chosen, spent = _grow(chosen, spent, price, budget)
            kept = _within_room(chosen, pool, degree, supply)
            chosen, spent = chosen[kept], spent[kept]
            parts.append(_apart(pool[chosen], degree[chosen]))
    return parts


def pieces_alone(stages: Sequence[tuple[int, int]]) -> Shapes:
    """Each stage (pool, tensor_parallel) as a pipeline of its own."""
    return _shapes_from([[stage] for stage in stages], one_piece=False)


def _apart(pool: IntArray, degree: IntArray) -> Shapes:
    """Shapes whose stages are pieces of their own."""
    alone, nothing = np.ones(len(pool), dtype=np.int64), np.zeros(len(pool), dtype=np.int64)
    return Shapes(pool, degree, nothing > 0, alone, nothing)


def _that_go_together(
    problem: Problem, supply: Supply, model: ServedModel, stages: Sequence[tuple[int, int]], need_gb: float
) -> list[list[tuple[int, int]]]:
    """Stage types that one pipeline may have: of one network, and of one degree and one GPU type where the engine or
    the search wants that."""
    one_degree, one_gpu = not ABILITIES[model.engine].unequal_degrees, not mixes_gpus(problem, model)
    groups: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
    for index, degree in stages:
        pool = supply.pools[index]
        if pool.network is not None and pool.holds_checkpoint(need_gb, degree):
            key = (pool.network, degree if one_degree else 0, pool.gpu if one_gpu else "")
            groups.setdefault(key, []).append((index, degree))
    return [groups[key] for key in sorted(groups)]


def _grow(chosen: IntArray, spent: FloatArray, price: FloatArray, budget: float) -> tuple[IntArray, FloatArray]:
    """All multisets with one more stage: every row is extended by stage types not below its last."""
    last = chosen[:, -1]
    repeats = len(price) - last
    rows = np.repeat(np.arange(len(chosen)), repeats)
    starts = np.cumsum(repeats) - repeats
    added = np.arange(len(rows)) - starts[rows] + last[rows]
    total = spent[rows] + price[added]
    affordable = total <= budget
    rows, added = rows[affordable], added[affordable]
    return np.column_stack([chosen[rows], added]), total[affordable]


def _within_room(chosen: IntArray, pool: IntArray, degree: IntArray, supply: Supply) -> BoolArray:
    """Rows whose GPUs of each pool are for rent at all."""
    kept = np.ones(len(chosen), dtype=np.bool_)
    for one in np.unique(pool):
        used = np.where(pool[chosen] == one, degree[chosen], 0).sum(axis=1)
        kept &= used <= supply.most_gpus(int(one), 1)
    return kept


def _without_measured(shapes: Shapes, measured: Sequence[MeasuredRate], pools: Sequence[Pool]) -> Shapes:
    """Drop estimated pipelines that are a measured row in another stage order: the measurement wins."""
    gpu_codes = {slug: code for code, slug in enumerate(dict.fromkeys(pool.gpu for pool in pools))}
    code_of_pool = np.array([gpu_codes[pool.gpu] for pool in pools] + [-1])
    keys = np.sort(code_of_pool[shapes.pool] * 64 + shapes.tensor_parallel, axis=1)
    kept = np.ones(len(shapes.one_piece), dtype=np.bool_)
    for row in measured:
        if len(row.stages) > shapes.pool.shape[1]:
            continue
        key = [gpu_codes.get(s.gpu, -2) * 64 + s.tensor_parallel for s in row.stages]
        padded = np.sort(np.array(key + [-64] * (shapes.pool.shape[1] - len(key))))
        kept &= ~(keys == padded).all(axis=1) | (shapes.data_parallel > 1)
    return shapes.take(kept)


def _one_per_stages(measured: Sequence[MeasuredRate]) -> Iterable[MeasuredRate]:
    return {row.stages: row for row in measured}.values()


def _shapes_of_measured(row: MeasuredRate, supply: Supply, need_gb: float) -> Shapes:
    """Where a measured pipeline can stand: inside one machine of its GPU type, or across a networked site."""
    gpus = sum(stage.tensor_parallel for stage in row.stages)
    inside = [
        (size, [(index, stage.tensor_parallel) for stage in row.stages])
        for index, pool in enumerate(supply.pools)
        for size in sorted({gpus, reserved_gpus(gpus, 0)})
        if all(stage.gpu == pool.gpu for stage in row.stages)
        and size <= min(supply.most_gpus(index, size), MOST_GPUS_OF_PIECE)
        and pool.holds_checkpoint(need_gb, size)
    ]
    parts = [_inside([stages for _, stages in inside], [size for size, _ in inside])]
    networks = sorted({pool.network for pool in supply.pools if pool.network is not None})
    if len(row.stages) > 1:
        parts += [_shapes_from(_on_network(row, network, supply, need_gb), one_piece=False) for network in networks]
    return Shapes.joined(parts)


def _on_network(row: MeasuredRate, network: str, supply: Supply, need_gb: float) -> list[tuple[tuple[int, int], ...]]:
    """Every choice of pools of one site for the stages of a measured row; equal stages are interchangeable."""
    choices: list[tuple[tuple[int, int], ...]] = [()]
    for stage in row.stages:
        hosts = [
            index
            for index, pool in enumerate(supply.pools)
            if pool.network == network
            and pool.gpu == stage.gpu
            and stage.tensor_parallel in PIECE_SIZES
            and stage.tensor_parallel <= supply.most_gpus(index, stage.tensor_parallel)
            and pool.holds_checkpoint(need_gb, stage.tensor_parallel)
        ]
        choices = [(*choice, (host, stage.tensor_parallel)) for choice in choices for host in hosts]
    return list(dict.fromkeys(choices))


def widened(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """Pad a [N, columns] array to [N, width]."""
    missing = width - array.shape[1]
    if missing == 0:
        return array
    return np.concatenate([array, np.full((array.shape[0], missing), filler, dtype=array.dtype)], axis=1)
