"""Configurations that a replica can have on this market, with their rates.

Flow: shapes.py -> layouts (here) -> throughput.rates -> candidates (here) -> dominance.py -> polytope/rows.py.

A candidate is a model, a pipeline of stages (pool and tensor-parallel degree each), of one stage perhaps on several
ranks of attention (data_parallel) between which the experts are spread, the way its stages fall into
*pieces*, the sets of GPUs that must share one machine (shapes.py), and an operating point: the most sequences of its
engine, the workloads that it admits, and what it is counted on for within their limits. With disaggregation it also
has a role, whole requests, prompts or answers alone, where power counts a cap on what its GPUs may draw, and where
the model lists several precisions one of them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from sutler.solver import throughput
from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.shapes import FILLERS, Pipelines, Shapes, pipeline_shapes, widened
from sutler.solver.catalog.entries import PRECISIONS, Precision
from sutler.solver.catalog.power_caps import capped
from sutler.solver.market.pools import MOST_GPUS_OF_PIECE, Pool, checkpoint_disk_gb
from sutler.solver.market.supply import Supply
from sutler.solver.problem import Problem, Role, ServedModel
from sutler.solver.threads import TwoAtOnce
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.mixes import most_columns

ROLES: tuple[Role, ...] = ("aggregated", "prefill", "decode")
AGGREGATED, PREFILL, DECODE = range(len(ROLES))
# Chosen: arrays of fewer leave the interpreter to others for too short a time, those of more leave the cache.
_LEAST_PART, _SHAPES_OF_PART = 3000, 7200
_DIGITS = 10  # chosen: bisections that lead to rates end well before, and no rate is known nearly as well
_TENS = np.array([float(f"1e{exponent}") for exponent in range(40)])  # numpy's powers have last bits of their own


@dataclass(frozen=True, slots=True)
class Candidates(Pipelines):
    """C candidates of all models; arrays are padded to the longest pipeline S and the most columns of rates V, one
    for each workload and then for each fixed mix of a model (throughput/mixes.py).

    model [C]; role [C]: index into ROLES; power_cap_fraction [C]: of the TDP of all its GPUs, 1: not capped
    pool [C, S] (-1: no such stage); tensor_parallel, layers [C, S] (0 in padding)
    one_piece [C]: the whole replica is one piece, else every stage is one
    piece_pool, piece_size [C, S]: pool of each piece and GPUs that it keeps to itself (-1 and 0 in padding)
    rps [C, V]: requests/s of one replica that serves nothing else, within all limits; 0 where it is not admitted
    low_rps [C, V]: the same at the low end of the stated band
    storage_usd_per_hour [C]
    max_batch [C]: sequences at most, 0 where that is unknown
    data_parallel [C]: ranks of attention, each tensor_parallel GPUs
    precision [C]: of the weights, index into PRECISIONS
    """

    model: IntArray
    role: IntArray
    power_cap_fraction: FloatArray
    layers: IntArray
    piece_pool: IntArray
    piece_size: IntArray
    rps: FloatArray
    low_rps: FloatArray
    storage_usd_per_hour: FloatArray
    max_batch: IntArray
    precision: IntArray

    def __len__(self) -> int:
        return len(self.model)

    @property
    def gpus(self) -> IntArray:
        """[C, S] the GPUs of each stage."""
        return self.tensor_parallel * self.data_parallel[:, None]

    @property
    def shapes(self) -> Shapes:
        """What was rated of each."""
        size = np.where(self.one_piece, self.piece_size[:, 0], 0)
        return Shapes(self.pool, self.tensor_parallel, self.one_piece, self.data_parallel, size)

    @property
    def is_one_stage(self) -> BoolArray:
        """[C] whether it is no pipeline."""
        return np.asarray((self.pool >= 0).sum(axis=1) == 1)

    def summed(self, per_gpu_of_pool: Sequence[float] | FloatArray) -> FloatArray:
        """[C] what all pieces of each come to, at so much for a GPU of each pool."""
        each = np.array([*per_gpu_of_pool, 0.0])  # the last is for padding
        return np.asarray((each[self.piece_pool] * self.piece_size).sum(axis=1))

    def is_mix(self, problem: Problem) -> BoolArray:
        """[C] whether all that it serves comes in fixed proportions."""
        workloads = np.array([len(model.workloads) for model in problem.models])[self.model]
        alone = (self.rps > 0) & (np.arange(self.rps.shape[1]) < workloads[:, None])
        return np.asarray(~alone.any(axis=1) & (self.rps > 0).any(axis=1))

    def served(self, problem: Problem, candidate: int) -> ServedModel:
        """The model of a candidate at its precision."""
        return problem.models[int(self.model[candidate])].at(PRECISIONS[int(self.precision[candidate])])


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as it stands. `stages`: (pool, tensor_parallel, layers) of each, layers 0 where they are unknown;
    `one_piece` as above. `max_batch`: of the engine, 0 where that is unknown. `data_parallel`: as above; `size`: as
    of Shapes. `precision` None: the first of its model."""

    stages: tuple[tuple[int, int, int], ...]
    one_piece: bool
    role: Role = "aggregated"
    power_cap_fraction: float = 1.0
    max_batch: int = 0
    data_parallel: int = 1
    size: int = 0
    precision: Precision | None = None


def enumerate_candidates(
    problem: Problem, supply: Supply, *, unlimited_networks: Collection[str] = (), is_hoped: bool = False
) -> Candidates:
    """All candidates of all models that fit their memory and disk, before dominance. May be empty.

    `unlimited_networks`: those that keys and values go over in no time. `is_hoped`: of each layout one that is no
    worse than any of its operating points, at the rates themselves, in a fraction of the time.
    """
    parts = [
        part
        for index, model in enumerate(problem.models)
        for one in model.at_each_precision
        for role in roles_of(problem)
        for cap in power_cap_fractions(problem)
        for part in _at_precision(problem, supply, index, one, role, cap, unlimited_networks, is_hoped)
    ]
    return paired(_all_of(parts, problem), supply)


def candidates_in_role(problem: Problem, supply: Supply, index: int, role: Role) -> Candidates:
    """Returns all candidates of one model, whether there is anything to hand over to or not."""
    precisions = problem.models[index].at_each_precision
    return _all_of([part for one in precisions for part in _at_precision(problem, supply, index, one, role)], problem)


def _at_precision(
    problem: Problem,
    supply: Supply,
    index: int,
    model: ServedModel,
    role: Role,
    cap: float = 1.0,
    unlimited_networks: Collection[str] = (),
    is_hoped: bool = False,
) -> list[Callable[[], Candidates]]:
    """Returns what makes the candidates of `model`, which is number `index` of the problem at one of its
    precisions."""
    if cap < 1 and (problem.measured_only or model.spec is None):
        return []
    shapes = pipeline_shapes(problem, supply, model, checkpoint_disk_gb(model), role)
    networks, count = unlimited_networks, len(shapes.one_piece)

    def of(some: slice) -> Candidates:
        chosen = shapes.take(some)
        found = _rated(
            problem, supply, index, model, chosen, role, cap, unlimited_networks=networks, is_hoped=is_hoped
        )
        return found[0]

    parts = _parts_of(count) if model.is_limited and not is_hoped else [slice(0, count)] if count else []
    return [partial(of, some) for some in parts]


def _parts_of(count: int) -> list[slice]:
    """So many layouts in two parts at least, where that pays: two threads find their points."""
    size = max(min(_SHAPES_OF_PART, -(-count // 2)), _LEAST_PART)
    return [slice(start, start + size) for start in range(0, count, size)]


def candidates_of_layouts(problem: Problem, supply: Supply, layouts: Candidates) -> Candidates:
    """All operating points of these layouts, each of which is there once."""
    owner = np.column_stack([layouts.model, layouts.precision, layouts.role, layouts.power_cap_fraction])

    def of(one: FloatArray, rows: IntArray) -> Candidates:
        model, precision, role = one[:3].astype(int).tolist()
        served, shapes = problem.models[model].at(PRECISIONS[precision]), layouts.take(rows).shapes
        return _rated(problem, supply, model, served, shapes, ROLES[role], float(one[3]))[0]

    parts = []
    for one in np.unique(owner, axis=0):
        rows = np.flatnonzero((owner == one).all(axis=1))
        parts += [partial(of, one, rows[some]) for some in _parts_of(len(rows))]
    return _all_of(parts, problem)


def _all_of(parts: Sequence[Callable[[], Candidates]], problem: Problem) -> Candidates:
    """In their order; operating points, which take long, of two parts at once."""
    if len(parts) > 1 and any(model.is_limited for model in problem.models):
        with TwoAtOnce() as threads:
            found = list(threads.map(lambda part: part(), parts))
    else:
        found = [part() for part in parts]
    return joined([part for part in found if len(part)], problem)


def candidates_of_shapes(
    problem: Problem, supply: Supply, index: int, model: ServedModel, shapes: Shapes
) -> Candidates:
    """Returns what replicas of these shapes do with whole requests of `model`, as above, under every cap."""
    if not len(shapes.one_piece):
        return _no_candidates(problem)
    caps = power_cap_fractions(problem)
    parts = [_rated(problem, supply, index, model, shapes, "aggregated", cap)[0] for cap in caps]
    return joined([part for part in parts if len(part)], problem)


def roles_of(problem: Problem) -> tuple[Role, ...]:
    """What replicas may do, by the search."""
    return {"off": ROLES[:1], "auto": ROLES, "only": ROLES[1:]}[problem.search.disaggregation]


def power_cap_fractions(problem: Problem) -> tuple[float, ...]:
    """Caps worth a look, none of them last: they only matter where watts do."""
    matters = problem.objective.kind == "min_power" or problem.limits.max_power_watts is not None
    return (*sorted(problem.search.power_caps_fraction), 1.0) if matters else (1.0,)


def kv_network(candidates: Candidates, supply: Supply) -> IntArray:
    """[C] number of the network, or of the single machine, in which keys and values are handed over; -1 for
    aggregated candidates."""
    names = sorted({pool.hands_over_on for pool in supply.pools if pool.hands_over_on is not None})
    number = {name: index for index, name in enumerate(names)}
    of_pool = np.array([-1 if p.hands_over_on is None else number[p.hands_over_on] for p in supply.pools])
    network: IntArray = np.where(candidates.role == AGGREGATED, -1, of_pool[candidates.pool[:, 0]])
    return network


def paired(candidates: Candidates, supply: Supply) -> Candidates:
    """Drops prefill of what nothing decodes on the same network, and the other way round."""
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
) -> tuple[Candidates, IntArray]:
    """Candidates of each pipeline of a model as it stands, in their order: every operating point of its engine at its
    cap, at least one, also where it serves nothing. And which pipeline each is of."""
    alike: dict[tuple[Role, float, Precision | None], list[int]] = {}
    for number, one in enumerate(pipelines):
        alike.setdefault((one.role, one.power_cap_fraction, one.precision), []).append(number)
    parts, owners = [], []
    for _, members in sorted(alike.items(), key=str):
        part, owner = _of_pipelines(problem, supply, model, [pipelines[index] for index in members])
        parts.append(part)
        owners.append(np.array(members)[owner])
    owner = np.concatenate([*owners, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    order = np.argsort(owner, kind="stable")
    return joined(parts, problem).take(order), owner[order]


def _of_pipelines(
    problem: Problem, supply: Supply, model: int, pipelines: Sequence[Pipeline]
) -> tuple[Candidates, IntArray]:
    """Rates pipelines that are all in one role, under one cap and at one precision."""
    longest = max(len(pipeline.stages) for pipeline in pipelines)
    shapes = Shapes(
        np.array([_padded([pool for pool, _, _ in p.stages], longest, -1) for p in pipelines], dtype=np.int64),
        np.array([_padded([degree for _, degree, _ in p.stages], longest, 0) for p in pipelines], dtype=np.int64),
        np.array([p.one_piece for p in pipelines], dtype=np.bool_),
        np.array([p.data_parallel for p in pipelines], dtype=np.int64),
        np.array([p.size for p in pipelines], dtype=np.int64),
    )
    layers = np.array([_padded([layers for _, _, layers in p.stages], longest, 0) for p in pipelines], dtype=np.int64)
    caps = np.array([p.max_batch or MAX_SEQUENCES for p in pipelines], dtype=np.int64)
    split, one = layers if layers.any() else None, pipelines[0]
    served, cap = problem.models[model].at(one.precision), one.power_cap_fraction
    found, owner = _rated(problem, supply, model, served, shapes, one.role, cap, layers=split, caps=caps)
    started = np.array([p.max_batch for p in pipelines], dtype=np.int64)[owner]
    # A point of few long requests counts on no more sequences than its memory holds: the engine takes more of others.
    return replace(found, max_batch=np.where(started > 0, started, found.max_batch)), owner


def joined(parts: Sequence[Candidates], problem: Problem) -> Candidates:
    """Returns the candidates of all parts, in order."""
    return Candidates.joined(parts) if parts else _no_candidates(problem)


def layouts_of(
    problem: Problem,
    pools: Sequence[Pool],
    shapes: Pipelines,
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
    of_network = np.array([pool.network is not None for pool in pools] + [False])
    kv = np.where(present & ~of_network[shapes.pool], intra_of_pool[shapes.pool], share)  # Pool.kv_gb_per_s
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
        kv_gb_per_s=None if role == "aggregated" else kv,
        power_cap_fraction=power_cap_fraction,
        data_parallel=shapes.data_parallel,
    )


def _rated(
    problem: Problem,
    supply: Supply,
    index: int,
    model: ServedModel,
    shapes: Shapes,
    role: Role,
    cap: float,
    *,
    layers: IntArray | None = None,
    caps: IntArray | None = None,
    unlimited_networks: Collection[str] = (),
    is_hoped: bool = False,
) -> tuple[Candidates, IntArray]:
    """Returns the operating points of the shapes of one model, number `index` of the problem at a precision, in a
    role; of given ones, at their caps, at least one each. And which shape each is of."""
    layouts = layouts_of(problem, supply.pools, shapes, layers, role, cap)
    if layouts.kv_gb_per_s is not None and unlimited_networks:
        unlimited = np.array([pool.network in unlimited_networks for pool in supply.pools] + [True])
        layouts = replace(layouts, kv_gb_per_s=np.where(unlimited[shapes.pool], np.inf, layouts.kv_gb_per_s))
    points = throughput.points(problem, model, layouts, caps=caps, is_hoped=is_hoped)
    if caps is None:
        points = points.take(np.flatnonzero((points.rps > 0).any(axis=1)))
    kept, columns = points.layout, most_columns(problem)
    ranks = shapes.data_parallel[kept]
    gpus = shapes.tensor_parallel[kept] * ranks[:, None]
    piece_pool, piece_size = _pieces(shapes.pool[kept], gpus, shapes.one_piece[kept], shapes.size[kept])
    candidates = Candidates(
        model=np.full(len(kept), index),
        role=np.full(len(kept), ROLES.index(role)),
        power_cap_fraction=np.full(len(kept), cap),
        pool=shapes.pool[kept],
        tensor_parallel=shapes.tensor_parallel[kept],
        layers=widened(points.layers, shapes.pool.shape[1], 0),
        one_piece=shapes.one_piece[kept],
        piece_pool=piece_pool,
        piece_size=piece_size,
        rps=_without_last_bits(widened(points.rps, columns, 0.0)),
        low_rps=_without_last_bits(widened(points.low_rps, columns, 0.0)),
        storage_usd_per_hour=_storage_usd_per_hour(supply.pools, piece_pool, piece_size, checkpoint_disk_gb(model)),
        max_batch=points.max_batch,
        data_parallel=ranks,
        precision=np.full(len(kept), PRECISIONS.index(model.precision)),
    )
    return candidates, kept


def _without_last_bits(rps: FloatArray) -> FloatArray:
    """To ten digits: beyond, the processor's vectors matter, and the search would choose by them between fleets that
    are as good as each other."""
    decimals = _DIGITS - np.ceil(np.log10(np.where(rps > 0, rps, 1.0))).astype(np.int64)
    scale = _TENS[np.clip(decimals, 0, len(_TENS) - 1)]
    return np.asarray(np.round(rps * scale) / scale)


def _pieces(pool: IntArray, gpus: IntArray, one_piece: BoolArray, size: IntArray) -> tuple[IntArray, IntArray]:
    piece_pool, piece_size = pool.copy(), gpus.copy()
    piece_pool[one_piece, 1:] = -1
    piece_size[one_piece] = 0
    piece_size[one_piece, 0] = size[one_piece]
    return piece_pool, piece_size


def _storage_usd_per_hour(
    pools: Sequence[Pool], piece_pool: IntArray, piece_size: IntArray, need_gb: float
) -> FloatArray:
    table = np.zeros((len(pools) + 1, MOST_GPUS_OF_PIECE + 1))
    for index, pool in enumerate(pools):
        for size in range(1, MOST_GPUS_OF_PIECE + 1):
            table[index, size] = pool.storage_usd_per_hour(need_gb, size)
    charged: FloatArray = table[piece_pool, piece_size].sum(axis=1)
    return charged


def _padded(row: list[int], width: int, filler: int) -> list[int]:
    return row + [filler] * (width - len(row))


def _no_candidates(problem: Problem) -> Candidates:
    integers, rates = np.zeros(0, dtype=np.int64), np.zeros((0, most_columns(problem)))
    arrays: dict[str, Any] = dict.fromkeys((each.name for each in fields(Candidates)), integers)
    arrays |= dict.fromkeys(FILLERS, integers.reshape(0, 1))
    arrays |= dict.fromkeys(("power_cap_fraction", "storage_usd_per_hour"), np.zeros(0))
    return Candidates(**arrays | {"rps": rates, "low_rps": rates, "one_piece": np.zeros(0, dtype=np.bool_)})
