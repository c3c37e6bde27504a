"""The fleet that runs, as an allocation of the polytope in which every replica is a candidate of its own.

With the fleet fixed, what it carries under a given routing is a ratio, and the best routing is an LP
(answer/routing.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from sutler.solver.answer.describe import DescribedFleet, as_split, describe
from sutler.solver.answer.engine_args import bends
from sutler.solver.answer.packing import PackedReplica, Pin, PinnedReplica, Placement
from sutler.solver.answer.routing import Routing, is_in_proportion, route
from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.candidates.engines import ANY_LAYOUT
from sutler.solver.candidates.enumerate import (
    AGGREGATED,
    DECODE,
    Candidates,
    Pipeline,
    candidates_of_pipelines,
    joined,
    power_cap_fractions,
    roles_of,
)
from sutler.solver.candidates.power import power_cap_fraction
from sutler.solver.errors import InvalidProblemError
from sutler.solver.market.pools import reserved_gpus
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.plan import KvTransfer, Rental, Replica, Route
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope, build_polytope
from sutler.solver.problem import Problem, Role, ServedModel
from sutler.solver.throughput.mixes import mixes_of, most_columns
from sutler.solver.verify.view import is_measured, offer_key

OTHER_PHASE: Final[dict[Role, Role]] = {"prefill": "decode", "decode": "prefill"}


@dataclass(frozen=True, slots=True)
class StandingDeployment:
    """What runs on machines that are still there. Every rental is a held offer of the problem.

    `names_used`: of replicas that are gone, so that no new one is taken for them.
    """

    rentals: tuple[Rental, ...]
    replicas: tuple[Replica, ...]
    routing: tuple[Route, ...]
    kv_transfers: tuple[KvTransfer, ...] = ()
    names_used: frozenset[str] = frozenset()

    def without_idle_machines(self) -> "StandingDeployment":
        """Rentals on which nothing runs are left out; those that stay keep their order."""
        used = sorted({stage.rental for replica in self.replicas for stage in replica.stages})
        renumbered = {rental: index for index, rental in enumerate(used)}
        replicas = tuple(
            replace(r, stages=tuple(replace(s, rental=renumbered[s.rental]) for s in r.stages)) for r in self.replicas
        )
        return replace(self, rentals=tuple(self.rentals[rental] for rental in used), replicas=replicas)


@dataclass(frozen=True, slots=True)
class StandingFleet:
    """The polytope of the running replicas, in the order of `replicas`; `able` [replicas, V]: what they can serve."""

    polytope: Polytope
    allocation: Allocation
    placement: Placement
    replicas: tuple[Replica, ...]
    able: BoolArray

    def under(self, routing: Routing) -> DescribedFleet:
        """What it does under a routing; engines keep the arguments that they were started with."""
        return as_started(describe(self.polytope, self.allocation, routing, self.placement), self.replicas)

    def as_routed(self, routes: Sequence[Route], transfers: Sequence[KvTransfer] = ()) -> Routing:
        """The routing that is in force, where shares of replicas that are gone fall to the others: decode replicas
        keep their parts of what is prefilled on their network."""
        names = [replica.id for replica in self.replicas]
        shares = {
            (route.model, route.workload): {share.replica: share.fraction for share in route.shares}
            for route in routes
        }
        fraction = np.zeros((len(self.polytope.demands), len(names)))
        for row, demand in enumerate(self.polytope.demands):
            model = self.polytope.problem.models[demand.model]
            workload = model.workloads[demand.workload].name
            given = shares.get((model.name, workload), {})
            taken = dict.fromkeys(names, 0.0)
            for transfer in transfers:
                if (transfer.model, transfer.workload) == (model.name, workload) and transfer.decode in taken:
                    taken[transfer.decode] += transfer.fraction
            fraction[row] = self._in_force(row, given, taken)
        return as_split(self.polytope, self.allocation, fraction)

    def _in_force(self, row: int, given: Mapping[str, float], taken: Mapping[str, float]) -> FloatArray:
        """[replicas] the fractions of a demand; `given`: shares of aggregated and prefill replicas, `taken`: of
        decode ones."""
        names = [replica.id for replica in self.replicas]
        role, flow = self.polytope.candidates.role, self.polytope.flow_of[:, self.polytope.demands[row].workload]
        able = self.able[:, self.polytope.demands[row].workload]
        decoded = np.where(able & (role == DECODE), [taken[name] for name in names], 0.0)
        reached = (role == AGGREGATED) | np.isin(flow, flow[decoded > 0])
        fraction = np.where(able & reached & (role != DECODE), [given.get(name, 0.0) for name in names], 0.0)
        if fraction.sum() <= 0:
            return fraction
        fraction /= fraction.sum()
        for network in np.unique(flow[fraction > 0]):
            here = decoded * (flow == network)
            if network >= 0:
                fraction += here / here.sum() * fraction[flow == network].sum()
        return fraction

    def rerouted(self) -> Routing:
        """The routing under which it carries the most."""
        return route(self.polytope, self.allocation)


def as_started(fleet: DescribedFleet, running: Sequence[Replica]) -> DescribedFleet:
    """The fleet whose replicas have the arguments of the running engines of their names, where there are some."""
    engines = {replica.id: replica for replica in running}
    return replace(fleet, replicas=tuple(_as_started(r, engines.get(r.id, r)) for r in fleet.replicas))


def _as_started(replica: Replica, engine: Replica) -> Replica:
    takes_either = bends(engine.role, engine.engine, dict(engine.engine_args))
    return replace(
        replica,
        max_batch=replica.max_batch if takes_either else engine.max_batch,
        engine_args=engine.engine_args,
        engine_env=engine.engine_env,
        engine=engine.engine,
        precision=engine.precision or replica.precision,
        checkpoint=engine.checkpoint,
    )


@dataclass(frozen=True, slots=True)
class StandingCandidates:
    """One candidate per replica, by model, on the supply of a problem: the operating point at its cap that suits the
    requests best that it is given.

    `others`: the same engines at their other points, under every other power cap, which `nvidia-smi -pl` sets while
    they run, and in the other phase for models that are `bending` (by index): their replicas of one phase take either
    by routing. `able` [replicas, V]: the columns of rates that some point of each admits.
    """

    supply: Supply
    candidates: Candidates
    replicas: tuple[Replica, ...]
    others: Candidates
    able: BoolArray
    bending: frozenset[int] = frozenset()


def standing_fleet(problem: Problem, standing: StandingDeployment, found: StandingCandidates) -> StandingFleet | None:
    """The polytope of what runs; None where nothing does."""
    replicas = found.replicas
    if not replicas:
        return None
    polytope = build_polytope(problem, found.supply, found.candidates)
    count = len(replicas)
    allocation = Allocation(
        np.arange(count),
        np.ones(count, dtype=np.int64),
        np.zeros(len(found.supply.classes), dtype=np.int64),
        0.0,
    )
    placed = tuple(PackedReplica(index, replica.stages, stays=True) for index, replica in enumerate(replicas))
    names = tuple(replica.id for replica in replicas)
    placement = Placement(standing.rentals, placed, names, standing.kv_transfers)
    return StandingFleet(polytope, allocation, placement, replicas, found.able)


def standing_candidates(problem: Problem, standing: StandingDeployment) -> StandingCandidates:
    """Replicas of models that the problem no longer has are left out.

    Raises InvalidProblemError where it runs on offers that the problem does not hold.
    """
    supply = build_supply(problem)
    offers, first = _offers_of_rentals(problem, standing), _first_copies(standing)
    pools = [
        [supply.pool_at(index, start + machine) for machine in range(rental.count)]
        for index, start, rental in zip(offers, first, standing.rentals, strict=True)
    ]
    bending: set[int] = set()
    parts, others, replicas, able = [], [], [], [np.zeros((0, most_columns(problem)), dtype=np.bool_)]
    for index, model in enumerate(problem.models):
        members = [replica for replica in standing.replicas if replica.model == model.name]
        if members:
            pipelines = [_pipeline(replica, pools, standing.rentals, problem) for replica in members]
            found, owner = candidates_of_pipelines(problem, supply, index, pipelines)
            suited = _suited(model, members, standing.routing, found, owner)
            parts.append(found.take(suited))
            others.append(found.take(np.setdiff1d(np.arange(len(found)), suited)))
            able.append(np.stack([(found.rps[owner == at] > 0).any(axis=0) for at in range(len(members))]))
            if _bend(members):
                bending.add(index)
                pipelines += [
                    replace(one, role=OTHER_PHASE[one.role]) for one in pipelines if one.role in OTHER_PHASE
                ]
            otherwise = _not_as_they_run(problem, model, pipelines, len(members))
            if otherwise:
                others.append(candidates_of_pipelines(problem, supply, index, otherwise)[0])
            replicas += members
    return StandingCandidates(
        supply,
        joined(parts, problem),
        tuple(replicas),
        joined(others, problem),
        np.concatenate(able),
        frozenset(bending),
    )


def _suited(
    model: ServedModel, members: Sequence[Replica], routing: Sequence[Route], found: Candidates, owner: IntArray
) -> IntArray:
    """Chooses of the points of each replica the one that is the least busy with what it is given, among those that
    admit all of that; where none does, the one that admits the most."""
    mixes, fractions = mixes_of(model), _fractions(model, members, routing)
    offered = np.array([workload.demand for workload in model.workloads])
    chosen = np.zeros(len(members), dtype=np.int64)
    for index, replica in enumerate(members):
        rows = np.flatnonzero(owner == index)
        given = {rate.workload: rate.rps for rate in replica.throughput_rps}
        asked = np.array([given.get(workload.name, 0.0) for workload in model.workloads])
        rps = found.rps[rows][:, : len(mixes)]
        alone, mixed = rps[:, : len(asked)], rps[:, len(asked) :]
        unserved = np.where(alone > 0, 0.0, asked).sum(axis=1)
        busy = np.divide(asked, alone, out=np.zeros_like(alone), where=alone > 0).sum(axis=1)
        for column, mix in enumerate(mixes[len(asked) :]):
            own, of_mix = fractions[index] * offered, mixed[:, column] > 0
            unserved[of_mix] = 0.0 if own.any() and is_in_proportion(own, mix) else np.inf
            busy[of_mix] = asked.sum() / mixed[of_mix, column]
        chosen[index] = rows[np.lexsort((-alone.sum(axis=1), busy, unserved))[0]]
    return chosen


def _fractions(model: ServedModel, members: Sequence[Replica], routing: Sequence[Route]) -> FloatArray:
    """[members, W] the share of each workload that goes to each of those that are left."""
    found = np.zeros((len(members), len(model.workloads)))
    column = {workload.name: index for index, workload in enumerate(model.workloads)}
    for one in routing:
        if one.model == model.name and one.workload in column:
            shares = {share.replica: share.fraction for share in one.shares}
            found[:, column[one.workload]] = [shares.get(replica.id, 0.0) for replica in members]
    return np.asarray(found / np.where(found.any(axis=0), found.sum(axis=0), 1.0))


def within_search(problem: Problem, standing: StandingDeployment) -> StandingDeployment:
    """Drops replicas that the search leaves out by now: they run, but no change of the fleet keeps them.

    So it is with those on another engine or at a precision that is not listed any more, and those that accept too
    little context. No layout is left out because of its engine: it runs.
    """
    models = {model.name: model for model in problem.models}
    sought = (r for r in standing.replicas if _is_sought(problem, r) and _is_as_wanted(models.get(r.model), r))
    return replace(standing, replicas=tuple(sought))


def _is_as_wanted(model: ServedModel | None, replica: Replica) -> bool:
    if model is None:
        return True
    if replica.precision not in (None, *model.precisions):
        return False
    if ANY_LAYOUT in (model.engine, replica.engine):
        return True
    accepts = dict(replica.engine_args).get("max_model_len")
    is_too_short = isinstance(accepts, int) and accepts < (model.max_context_tokens or 0)
    return model.engine == replica.engine and not is_too_short


def _is_sought(problem: Problem, replica: Replica) -> bool:
    if replica.role not in roles_of(problem):
        return False
    search, gpus = problem.search, {stage.gpu for stage in replica.stages}
    is_searched = (
        all(stage.tensor_parallel in search.tensor_parallel for stage in replica.stages)
        and len(replica.stages) <= search.max_pipeline_stages
        and (len(gpus) == 1 or search.mixed_gpu_pipelines is not False)
        and (replica.data_parallel == 1 or search.expert_parallel)
    )
    return is_searched or is_measured(problem, replica)


def pinned(standing: StandingDeployment, problem: Problem, replicas: Sequence[Replica]) -> list[PinnedReplica]:
    """The places where the replicas stand; `candidate` is their position."""
    offers = _offers_of_rentals(problem, standing)
    first = _first_copies(standing)
    return [PinnedReplica(index, tuple(_pins(replica, offers, first))) for index, replica in enumerate(replicas)]


def _pins(replica: Replica, offers: Sequence[int], first: Sequence[int]) -> list[Pin]:
    pins = []
    for _, stages in groupby(replica.stages, key=lambda stage: stage.piece):
        members = list(stages)
        gpus = tuple(gpu for stage in members for gpu in stage.gpu_indices)
        pins.append(Pin(offers[members[0].rental], first[members[0].rental] + members[0].machine, gpus))
    return pins


def _first_copies(standing: StandingDeployment) -> list[int]:
    """Two rentals of one offer count its machines on."""
    seen: dict[object, int] = {}
    first = []
    for rental in standing.rentals:
        key = offer_key(rental)
        first.append(seen.get(key, 0))
        seen[key] = first[-1] + rental.count
    return first


def _offers_of_rentals(problem: Problem, standing: StandingDeployment) -> list[int]:
    held = {offer_key(offer): index for index, offer in enumerate(problem.offers) if offer.held}
    found = []
    for number, rental in enumerate(standing.rentals):
        index = held.get(offer_key(rental))
        if index is None:
            remedy = "add the machines that run to the problem's offers, with held=True"
            raise InvalidProblemError(f"standing.rentals[{number}]", rental.offer_id, remedy)
        found.append(index)
    return found


def _pipeline(
    replica: Replica, pools: Sequence[Sequence[int]], rentals: Sequence[Rental], problem: Problem
) -> Pipeline:
    """`pools`: of each machine of each rental."""
    stages = tuple(
        (pools[stage.rental][stage.machine], stage.tensor_parallel, stage.layers or 0) for stage in replica.stages
    )
    one_piece = len({stage.piece for stage in replica.stages}) == 1
    gpus = sum(stage.gpus for stage in replica.stages)
    size = reserved_gpus(gpus, rentals[replica.stages[0].rental].gpus) if one_piece else 0
    power_cap = power_cap_fraction(replica, problem)
    takes_either = bends(replica.role, replica.engine, dict(replica.engine_args))
    batch, ranks = 0 if takes_either else replica.max_batch or 0, replica.data_parallel
    return Pipeline(stages, one_piece, replica.role, power_cap, batch, ranks, size, replica.precision)


def _bend(members: Sequence[Replica]) -> bool:
    """Whether a model's replicas of one phase take the other by routing alone. Replicas of one layout are not told
    apart where fleets are sought, so one that cannot holds for all."""
    apart = [replica for replica in members if replica.role != "aggregated"]
    return bool(apart) and all(bends(one.role, one.engine, dict(one.engine_args)) for one in apart)


def _not_as_they_run(
    problem: Problem, model: ServedModel, pipelines: Sequence[Pipeline], running: int
) -> list[Pipeline]:
    """The pipelines under every cap, each once, without those that run, the first so many. What GPUs do under a cap
    is only known of estimates."""
    is_estimated = not problem.measured_only and model.spec is not None
    caps = [cap for cap in power_cap_fractions(problem) if cap == 1 or is_estimated]
    others = [replace(one, power_cap_fraction=cap) for one in pipelines for cap in caps]
    return [one for one in dict.fromkeys((*pipelines, *others)) if one not in pipelines[:running]]


def shapes_of(candidates: Candidates) -> list[tuple[object, ...]]:
    """What candidates have in common that are the same replica: their engine, power cap and operating point."""
    caps, points = candidates.power_cap_fraction.tolist(), candidates.rps.tolist()
    engines = engines_of(candidates)
    return [(cap, tuple(point), *engine) for cap, point, engine in zip(caps, points, engines, strict=True)]


def engines_of(candidates: Candidates, bending: frozenset[int] = frozenset()) -> list[tuple[object, ...]]:
    """What candidates have in common that need no other engine: model, role, stages, pieces, sequences at most and
    precision. Of models that are `bending`, both phases are one role, with any number of sequences."""
    of = candidates
    takes_either = np.isin(of.model, list(bending)) & (of.role != AGGREGATED)
    role, most = np.where(takes_either, DECODE, of.role), np.where(takes_either, 0, of.max_batch)
    layouts = (of.pool, of.tensor_parallel, of.layers, of.one_piece, of.data_parallel, of.piece_size)
    columns = np.column_stack([of.model, role, *layouts, most, of.precision])
    return [tuple(row) for row in columns.tolist()]


def capacity_rps(fleet: DescribedFleet, demand_rps: float) -> float:
    """The requests/s that it carries: of the whole mix, or of a load that is to be carried."""
    if fleet.load_multiple is None:
        return fleet.throughput_rps
    return demand_rps * min(1.0, fleet.load_multiple)
