"""The pipelines that a model could run as on this market, before anything is known of their rates.

Flow: supply.py -> shapes (here) -> candidates.py rates them.

Two kinds exist: the whole replica inside one machine (one piece of 1, 2, 4 or 8 GPUs), and pipelines across the
machines of a networked site (every stage a piece of its own). Tensor parallelism never leaves a machine. Pipelines of
three stages inside one machine would waste a GPU of their piece and are only considered where the caller measured
them. Prefill and decode replicas stand on sites with a network, and their pipelines have equal stages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.catalog.entries import ModelSpec
from solver.pools import PIECE_SIZES, Pool
from solver.problem import MeasuredRate, Problem, Role, ServedModel
from solver.supply import Supply
from solver.throughput.base import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Shapes:
    """Pipelines without a model: pool, tensor_parallel [N, S]; one_piece [N]."""

    pool: IntArray
    tensor_parallel: IntArray
    one_piece: BoolArray

    def take(self, rows: BoolArray) -> "Shapes":
        return Shapes(self.pool[rows], self.tensor_parallel[rows], self.one_piece[rows])


def pipeline_shapes(problem: Problem, supply: Supply, model: ServedModel, need_gb: float, role: Role) -> Shapes:
    """Pipelines worth rating for a model, and those that the caller measured, in the caller's stage order."""
    measured = [row for row in problem.measured if (row.model, row.role) == (model.name, role)]
    parts: list[Shapes] = []
    if not problem.measured_only and model.spec is not None:
        stages = _stage_types(problem, supply, model.spec)
        parts.append(_in_one_machine(problem, supply, model.spec, stages, need_gb))
        if role == "aggregated":
            parts += _across_machines(problem, supply, model, stages, need_gb)
        else:
            parts.append(_equal_across_machines(problem, supply, model.spec, stages, need_gb))
        parts = [_without_measured(part, measured, supply.pools) for part in parts]
    parts += [_shapes_of_measured(row, supply, need_gb) for row in _one_per_stages(measured)]
    if role != "aggregated":
        has_network = np.array([pool.network is not None for pool in supply.pools])
        parts = [part.take(has_network[part.pool[:, 0]]) for part in parts]
    stages_of_longest = max((part.pool.shape[1] for part in parts), default=1)
    return Shapes(
        np.concatenate([widened(part.pool, stages_of_longest, -1) for part in parts] or [np.zeros((0, 1), np.int64)]),
        np.concatenate(
            [widened(part.tensor_parallel, stages_of_longest, 0) for part in parts] or [np.zeros((0, 1), np.int64)]
        ),
        np.concatenate([part.one_piece for part in parts] or [np.zeros(0, np.bool_)]),
    )


def _shapes_from(rows: Sequence[Sequence[tuple[int, int]]], *, one_piece: bool) -> Shapes:
    """Pipelines from (pool, tensor_parallel) stages; rows may differ in length."""
    longest = max((len(row) for row in rows), default=1)
    padded = [[*row, *[(-1, 0)] * (longest - len(row))] for row in rows]
    block = np.array(padded, dtype=np.int64).reshape(len(rows), longest, 2)
    return Shapes(block[:, :, 0], block[:, :, 1], np.full(len(rows), one_piece))


def _stage_types(problem: Problem, supply: Supply, spec: ModelSpec) -> list[tuple[int, int]]:
    """(pool, tensor_parallel) pairs that some machine can host."""
    return [
        (index, degree)
        for index in range(len(supply.pools))
        for degree in sorted(set(problem.search.tensor_parallel))
        if spec.heads % degree == 0 and degree <= supply.most_gpus(index, degree)
    ]


def _in_one_machine(
    problem: Problem, supply: Supply, spec: ModelSpec, stages: Iterable[tuple[int, int]], need_gb: float
) -> Shapes:
    rows = [
        [(pool, degree)] * depth
        for pool, degree in stages
        for depth in range(1, min(problem.search.max_pipeline_stages, spec.layers) + 1)
        if degree * depth in PIECE_SIZES
        and degree * depth <= supply.most_gpus(pool, degree * depth)
        and supply.pools[pool].holds_checkpoint(need_gb, degree * depth)
    ]
    return _shapes_from(rows, one_piece=True)


def _equal_across_machines(
    problem: Problem, supply: Supply, spec: ModelSpec, stages: Sequence[tuple[int, int]], need_gb: float
) -> Shapes:
    """Pipelines of equal stages on the machines of a networked site."""
    deepest = min(problem.search.max_pipeline_stages, spec.layers)
    rows = [
        [(pool, degree)] * depth
        for pool, degree in stages
        if supply.pools[pool].network is not None and supply.pools[pool].holds_checkpoint(need_gb, degree)
        for depth in range(2, deepest + 1)
        if degree * depth <= supply.most_gpus(pool, degree)
    ]
    return _shapes_from(rows, one_piece=False)


def _across_machines(
    problem: Problem, supply: Supply, model: ServedModel, stages: Sequence[tuple[int, int]], need_gb: float
) -> list[Shapes]:
    """Pipelines of two or more stages on each networked site, as multisets of stage types.

    Grown stage by stage; a prefix is dropped as soon as its GPUs alone cost more than the budget.
    """
    parts = []
    deepest = min(problem.search.max_pipeline_stages, model.spec.layers if model.spec else 1)
    networks = sorted({pool.network for pool in supply.pools if pool.network is not None})
    cheapest = supply.cheapest_gpu_usd_per_hour()
    for network in networks:
        local = [
            (p, tp)
            for p, tp in stages
            if supply.pools[p].network == network and supply.pools[p].holds_checkpoint(need_gb, tp)
        ]
        if not local:
            continue
        pool, degree = (np.array(column, dtype=np.int64) for column in zip(*local, strict=True))
        price = np.array([cheapest[p] * tp for p, tp in local])
        budget = np.inf if problem.budget_usd_per_hour is None else problem.budget_usd_per_hour * (1 + 1e-9)
        chosen = np.arange(len(local))[:, None]
        spent = price
        for _ in range(1, deepest):
            chosen, spent = _grow(chosen, spent, price, budget)
            if not problem.search.mixed_gpu_pipelines:
                kind = np.unique([supply.pools[p].gpu for p in pool], return_inverse=True)[1][chosen]
                same = (kind == kind[:, :1]).all(axis=1)
                chosen, spent = chosen[same], spent[same]
            kept = _within_room(chosen, pool, degree, supply)
            chosen, spent = chosen[kept], spent[kept]
            parts.append(Shapes(pool[chosen], degree[chosen], np.zeros(len(chosen), dtype=np.bool_)))
    return parts


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
        kept &= ~(keys == padded).all(axis=1)
    return Shapes(shapes.pool[kept], shapes.tensor_parallel[kept], shapes.one_piece[kept])


def _one_per_stages(measured: Sequence[MeasuredRate]) -> Iterable[MeasuredRate]:
    return {row.stages: row for row in measured}.values()


def _shapes_of_measured(row: MeasuredRate, supply: Supply, need_gb: float) -> Shapes:
    """Where a measured pipeline can stand: inside one machine of its GPU type, or across a networked site."""
    gpus = sum(stage.tensor_parallel for stage in row.stages)
    size = rounded_piece(gpus)
    inside = [
        [(index, stage.tensor_parallel) for stage in row.stages]
        for index, pool in enumerate(supply.pools)
        if all(stage.gpu == pool.gpu for stage in row.stages)
        and size is not None
        and size <= supply.most_gpus(index, size)
        and pool.holds_checkpoint(need_gb, size)
    ]
    parts = [_shapes_from(inside, one_piece=True)]
    networks = sorted({pool.network for pool in supply.pools if pool.network is not None})
    if len(row.stages) > 1:
        parts += [_shapes_from(_on_network(row, network, supply, need_gb), one_piece=False) for network in networks]
    longest = len(row.stages)
    return Shapes(
        np.concatenate([widened(part.pool, longest, -1) for part in parts]),
        np.concatenate([widened(part.tensor_parallel, longest, 0) for part in parts]),
        np.concatenate([part.one_piece for part in parts]),
    )


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


def rounded_piece(gpus: int) -> int | None:
    """GPUs that a piece takes up: the next of PIECE_SIZES; None above the largest."""
    return next((size for size in PIECE_SIZES if size >= gpus), None)


def widened(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """Pad a [N, columns] array to [N, width]."""
    missing = width - array.shape[1]
    if missing == 0:
        return array
    return np.concatenate([array, np.full((array.shape[0], missing), filler, dtype=array.dtype)], axis=1)
