"""Configurations that a replica can have on this market, with their rates.

Flow: supply.py -> layouts (here) -> throughput.rates -> candidates (here) -> dominance.py -> allocation.py.

A candidate is a model, a pipeline of stages (pool and tensor-parallel degree each) and the way its stages fall
into *pieces*, the sets of GPUs that must share one machine. Two kinds exist: the whole replica inside one machine
(one piece of 1, 2, 4 or 8 GPUs), and pipelines across the machines of a networked site (every stage a piece of
its own). Tensor parallelism never leaves a machine. Pipelines of three stages inside one machine would waste a
GPU of their piece and are only considered where the caller measured them.

With disaggregation a candidate also has a role: whole requests, prompts or answers alone. Prefill and decode replicas
stand on sites with a network, which is what keys and values go over; their pipelines have equal stages.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver import throughput
from solver.catalog.entries import ModelSpec
from solver.catalog.power_caps import capped
from solver.pools import PIECE_SIZES, Pool, disk_needed_gb
from solver.problem import MeasuredRate, Problem, Role, ServedModel
from solver.supply import Supply
from solver.throughput.base import BoolArray, FloatArray, IntArray, Layouts

ROLES: tuple[Role, ...] = ("aggregated", "prefill", "decode")
AGGREGATED, PREFILL, DECODE = range(len(ROLES))


@dataclass(frozen=True, slots=True)
class Candidates:
    """C candidates of all models; arrays are padded to the longest pipeline S and the most workloads W.

    model [C]; role [C]: index into ROLES; power_cap_fraction [C]: of the TDP of all its GPUs, 1: not capped
    pool [C, S] (-1: no such stage); tensor_parallel, layers [C, S] (0 in padding)
    one_piece [C]: the whole replica is one piece, else every stage is one
    piece_pool, piece_size [C, S]: pool and rounded GPUs of each piece (-1 and 0 in padding)
    rps [C, W]: sustained requests/s of one replica at full utilisation, 0 beyond the model's workloads
    low_rps [C, W]: the same at the low end of the stated band
    storage_usd_per_hour [C]
    """

    model: IntArray
    role: IntArray
    power_cap_fraction: FloatArray
    pool: IntArray
    tensor_parallel: IntArray
    layers: IntArray
    one_piece: BoolArray
    piece_pool: IntArray
    piece_size: IntArray
    rps: FloatArray
    low_rps: FloatArray
    storage_usd_per_hour: FloatArray

    def __len__(self) -> int:
        return len(self.model)

    def take(self, rows: IntArray | BoolArray) -> "Candidates":
        return Candidates(*(getattr(self, name)[rows] for name in Candidates.__slots__))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """(pool, tensor_parallel, layers) of each stage, layers 0 where they are unknown; `one_piece` as above."""

    stages: tuple[tuple[int, int, int], ...]
    one_piece: bool
    role: Role = "aggregated"
    power_cap_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Pipelines without a model: pool, tensor_parallel [N, S]; one_piece [N]."""

    pool: IntArray
    tensor_parallel: IntArray
    one_piece: BoolArray

    def take(self, rows: BoolArray) -> "_Shapes":
        return _Shapes(self.pool[rows], self.tensor_parallel[rows], self.one_piece[rows])


def enumerate_candidates(problem: Problem, supply: Supply, *, unlimited_networks: Collection[str] = ()) -> Candidates:
    """All candidates of all models that fit their memory and disk, before dominance. May be empty.

    `unlimited_networks`: those that keys and values go over in no time.
    """
    parts = [
        candidates_in_role(problem, supply, index, role, cap, unlimited_networks=unlimited_networks)
        for index in range(len(problem.models))
        for role in roles_of(problem)
        for cap in power_cap_fractions(problem)
    ]
    most_workloads = max(len(model.workloads) for model in problem.models)
    return paired(joined([part for part in parts if len(part)], most_workloads), supply)


def candidates_in_role(
    problem: Problem,
    supply: Supply,
    index: int,
    role: Role,
    power_cap_fraction: float = 1.0,
    *,
    unlimited_networks: Collection[str] = (),
) -> Candidates:
    """All of one model, whether there is anything to hand over to or not."""
    if power_cap_fraction < 1 and (problem.measured_only or problem.models[index].spec is None):
        return _no_candidates(max(len(model.workloads) for model in problem.models))
    most_workloads = max(len(model.workloads) for model in problem.models)
    need_gb = disk_needed_gb(problem)[index]
    shapes = _shapes(problem, supply, problem.models[index], need_gb, role)
    if not len(shapes.one_piece):
        return _no_candidates(most_workloads)
    return _rated(
        problem,
        supply,
        index,
        shapes,
        need_gb,
        most_workloads,
        role,
        power_cap_fraction,
        unlimited_networks=unlimited_networks,
    )


def roles_of(problem: Problem) -> tuple[Role, ...]:
    """What replicas may do, by the search."""
    return {"off": ROLES[:1], "auto": ROLES, "only": ROLES[1:]}[problem.search.disaggregation]


def power_cap_fractions(problem: Problem) -> tuple[float, ...]:
    """Caps worth a look, none of them last: they only matter where watts do."""
    matters = problem.objective.kind == "min_power" or problem.limits.max_power_watts is not None
    return (*sorted(problem.search.power_caps_fraction), 1.0) if matters else (1.0,)


def kv_network(candidates: Candidates, supply: Supply) -> IntArray:
    """[C] number of the network that keys and values go over; -1 for aggregated candidates."""
    names = sorted({pool.network for pool in supply.pools if pool.network is not None})
    number = {name: index for index, name in enumerate(names)}
    of_pool = np.array([-1 if pool.network is None else number[pool.network] for pool in supply.pools])
    network: IntArray = np.where(candidates.role == AGGREGATED, -1, of_pool[candidates.pool[:, 0]])
    return network


def paired(candidates: Candidates, supply: Supply) -> Candidates:
    """Without prefill of what nothing decodes on the same network, and the other way round."""
    if (candidates.role == AGGREGATED).all():
        return candidates
    network = kv_network(candidates, supply)
    rps, low_rps = candidates.rps.copy(), candidates.low_rps.copy()
    for model, site in {(int(m), int(n)) for m, n in zip(candidates.model, network, strict=True) if n >= 0}:
        here = (candidates.model == model) & (network == site)
        served = [(rps[here & (candidates.role == role)] > 0).any(axis=0) for role in (PREFILL, DECODE)]
        unserved = ~(served[0] & served[1])
        rps[np.ix_(here, unserved)] = low_rps[np.ix_(here, unserved)] = 0.0
    return replace(candidates, rps=rps, low_rps=low_rps).take(np.flatnonzero((rps > 0).any(axis=1)))


def candidates_of_pipelines(
    problem: Problem, supply: Supply, model: int, pipelines: Sequence[Pipeline]
) -> Candidates:
    """One candidate for each pipeline of a model as it stands, in their order, also where it serves nothing."""
    most_workloads = max(len(m.workloads) for m in problem.models)
    parts, order = [], []
    for role, cap in sorted({(pipeline.role, pipeline.power_cap_fraction) for pipeline in pipelines}):
        members = [i for i, p in enumerate(pipelines) if (p.role, p.power_cap_fraction) == (role, cap)]
        parts.append(_of_pipelines(problem, supply, model, [pipelines[index] for index in members], role, cap))
        order += members
    return joined(parts, most_workloads).take(np.argsort(np.array(order, dtype=np.int64)))


def _of_pipelines(
    problem: Problem, supply: Supply, model: int, pipelines: Sequence[Pipeline], role: Role, power_cap_fraction: float
) -> Candidates:
    longest = max(len(pipeline.stages) for pipeline in pipelines)
    shapes = _Shapes(
        np.array([_padded([pool for pool, _, _ in p.stages], longest, -1) for p in pipelines], dtype=np.int64),
        np.array([_padded([degree for _, degree, _ in p.stages], longest, 0) for p in pipelines], dtype=np.int64),
        np.array([p.one_piece for p in pipelines], dtype=np.bool_),
    )
    layers = np.array([_padded([layers for _, _, layers in p.stages], longest, 0) for p in pipelines], dtype=np.int64)
    most_workloads = max(len(m.workloads) for m in problem.models)
    need_gb = disk_needed_gb(problem)[model]
    known = layers if layers.any() else None
    return _rated(
        problem,
        supply,
        model,
        shapes,
        need_gb,
        most_workloads,
        role,
        power_cap_fraction,
        layers=known,
        keeps_all=True,
    )


def joined(parts: Sequence[Candidates], most_workloads: int) -> Candidates:
    """All of them, in order."""
    return _concatenate(parts) if parts else _no_candidates(most_workloads)


def layouts_of(
    problem: Problem,
    pools: Sequence[Pool],
    shapes: "_Shapes | Candidates",
    layers: IntArray | None,
    role: Role = "aggregated",
    power_cap_fraction: float = 1.0,
) -> Layouts:
    """What the throughput layer needs to know of pipelines on pools, all in one role and under one cap."""
    gpus = tuple(dict.fromkeys(pool.gpu for pool in pools))
    gpu_of_pool = np.array([gpus.index(pool.gpu) for pool in pools] + [-1])
    intra_of_pool = np.array([pool.intra_gb_per_s for pool in pools] + [0.0])
    inter_of_pool = np.array([pool.inter_gb_per_s for pool in pools] + [0.0])
    largest_of_pool = np.array([pool.largest_machine for pool in pools] + [1])
    share = inter_of_pool[shapes.pool] * np.minimum(1.0, shapes.tensor_parallel / largest_of_pool[shapes.pool])
    present = shapes.pool >= 0
    share = np.where(present, share, np.inf)
    follows = np.zeros_like(present)
    follows[:, :-1] = present[:, 1:]
    across = follows & ~shapes.one_piece[:, None]
    hop = np.full(share.shape, np.inf)
    hop[:, :-1] = np.minimum(share[:, :-1], share[:, 1:])
    hop = np.where(across, hop, np.where(follows, intra_of_pool[shapes.pool], np.inf))
    return Layouts(
        gpus=tuple(capped(problem.gpus[slug], power_cap_fraction) for slug in gpus),
        gpu=gpu_of_pool[shapes.pool],
        tensor_parallel=shapes.tensor_parallel,
        intra_gb_per_s=intra_of_pool[shapes.pool],
        hop_gb_per_s=hop,
        cross_machine=across,
        layers=layers,
        role=role,
        kv_gb_per_s=None if role == "aggregated" else share,
        power_cap_fraction=power_cap_fraction,
    )


def _shapes(problem: Problem, supply: Supply, model: ServedModel, need_gb: float, role: Role) -> _Shapes:
    """Pipelines worth rating for a model, and those that the caller measured, in the caller's stage order."""
    measured = [row for row in problem.measured if (row.model, row.role) == (model.name, role)]
    parts: list[_Shapes] = []
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
    return _Shapes(
        np.concatenate([_widen(part.pool, stages_of_longest, -1) for part in parts] or [np.zeros((0, 1), np.int64)]),
        np.concatenate(
            [_widen(part.tensor_parallel, stages_of_longest, 0) for part in parts] or [np.zeros((0, 1), np.int64)]
        ),
        np.concatenate([part.one_piece for part in parts] or [np.zeros(0, np.bool_)]),
    )


def _shapes_from(rows: Sequence[Sequence[tuple[int, int]]], *, one_piece: bool) -> _Shapes:
    """Pipelines from (pool, tensor_parallel) stages; rows may differ in length."""
    longest = max((len(row) for row in rows), default=1)
    padded = [[*row, *[(-1, 0)] * (longest - len(row))] for row in rows]
    block = np.array(padded, dtype=np.int64).reshape(len(rows), longest, 2)
    return _Shapes(block[:, :, 0], block[:, :, 1], np.full(len(rows), one_piece))


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
) -> _Shapes:
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
) -> _Shapes:
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
) -> list[_Shapes]:
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
            parts.append(_Shapes(pool[chosen], degree[chosen], np.zeros(len(chosen), dtype=np.bool_)))
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


def _without_measured(shapes: _Shapes, measured: Sequence[MeasuredRate], pools: Sequence[Pool]) -> _Shapes:
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
    return _Shapes(shapes.pool[kept], shapes.tensor_parallel[kept], shapes.one_piece[kept])


def _one_per_stages(measured: Sequence[MeasuredRate]) -> Iterable[MeasuredRate]:
    return {row.stages: row for row in measured}.values()


def _shapes_of_measured(row: MeasuredRate, supply: Supply, need_gb: float) -> _Shapes:
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
    return _Shapes(
        np.concatenate([_widen(part.pool, longest, -1) for part in parts]),
        np.concatenate([_widen(part.tensor_parallel, longest, 0) for part in parts]),
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


def _rated(
    problem: Problem,
    supply: Supply,
    index: int,
    shapes: _Shapes,
    need_gb: float,
    most_workloads: int,
    role: Role,
    power_cap_fraction: float,
    *,
    layers: IntArray | None = None,
    keeps_all: bool = False,
    unlimited_networks: Collection[str] = (),
) -> Candidates:
    """Rate the shapes of one model in a role and keep those that serve something, or all."""
    layouts = layouts_of(problem, supply.pools, shapes, layers, role, power_cap_fraction)
    if layouts.kv_gb_per_s is not None and unlimited_networks:
        unlimited = np.array([pool.network in unlimited_networks for pool in supply.pools] + [True])
        layouts = replace(layouts, kv_gb_per_s=np.where(unlimited[shapes.pool], np.inf, layouts.kv_gb_per_s))
    rates, _ = throughput.rates(problem, problem.models[index], layouts)
    serves = rates.fits & (rates.rps > 0).any(axis=1)
    kept = np.arange(len(serves)) if keeps_all else np.flatnonzero(serves)
    piece_pool, piece_size = _pieces(shapes.pool[kept], shapes.tensor_parallel[kept], shapes.one_piece[kept])
    return Candidates(
        model=np.full(len(kept), index),
        role=np.full(len(kept), ROLES.index(role)),
        power_cap_fraction=np.full(len(kept), power_cap_fraction),
        pool=shapes.pool[kept],
        tensor_parallel=shapes.tensor_parallel[kept],
        layers=_widen(rates.layers, shapes.pool.shape[1], 0)[kept],
        one_piece=shapes.one_piece[kept],
        piece_pool=piece_pool,
        piece_size=piece_size,
        rps=_widen(np.where(serves[:, None], rates.rps, 0.0)[kept], most_workloads, 0.0),
        low_rps=_widen(np.where(serves[:, None], rates.low_rps, 0.0)[kept], most_workloads, 0.0),
        storage_usd_per_hour=_storage_usd_per_hour(supply.pools, piece_pool, piece_size, need_gb),
    )


def _pieces(pool: IntArray, tensor_parallel: IntArray, one_piece: BoolArray) -> tuple[IntArray, IntArray]:
    sizes = np.array(PIECE_SIZES)
    whole = np.searchsorted(sizes, tensor_parallel.sum(axis=1))
    piece_pool, piece_size = pool.copy(), tensor_parallel.copy()
    piece_pool[one_piece, 1:] = -1
    piece_size[one_piece] = 0
    piece_size[one_piece, 0] = sizes[whole[one_piece]]
    return piece_pool, piece_size


def _storage_usd_per_hour(
    pools: Sequence[Pool], piece_pool: IntArray, piece_size: IntArray, need_gb: float
) -> FloatArray:
    table = np.zeros((len(pools) + 1, PIECE_SIZES[-1] + 1))
    for index, pool in enumerate(pools):
        for size in PIECE_SIZES:
            table[index, size] = pool.storage_usd_per_hour(need_gb, size)
    charged: FloatArray = table[piece_pool, piece_size].sum(axis=1)
    return charged


def _padded(row: list[int], width: int, filler: int) -> list[int]:
    return row + [filler] * (width - len(row))


def _widen(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """Pad a [N, columns] array to [N, width]."""
    missing = width - array.shape[1]
    if missing == 0:
        return array
    return np.concatenate([array, np.full((array.shape[0], missing), filler, dtype=array.dtype)], axis=1)


def _concatenate(parts: Sequence[Candidates]) -> Candidates:
    stages = max(part.pool.shape[1] for part in parts)
    widths = {"pool": -1, "piece_pool": -1, "tensor_parallel": 0, "layers": 0, "piece_size": 0}
    columns = []
    for name in Candidates.__slots__:
        arrays = [getattr(part, name) for part in parts]
        if name in widths:
            arrays = [_widen(array, stages, widths[name]) for array in arrays]
        columns.append(np.concatenate(arrays))
    return Candidates(*columns)


def _no_candidates(most_workloads: int) -> Candidates:
    whole, stages = np.zeros(0, dtype=np.int64), np.zeros((0, 1), dtype=np.int64)
    flags = np.zeros(0, dtype=np.bool_)
    return Candidates(
        model=whole,
        role=whole,
        power_cap_fraction=np.zeros(0),
        pool=stages,
        tensor_parallel=stages,
        layers=stages,
        one_piece=flags,
        piece_pool=stages,
        piece_size=stages,
        rps=np.zeros((0, most_workloads)),
        low_rps=np.zeros((0, most_workloads)),
        storage_usd_per_hour=np.zeros(0),
    )
