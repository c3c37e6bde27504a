"""HexGen (Jiang et al., ICML 2024) as the MILP paper compares with it (arXiv 2502.00722, section 5.2, Figure 7): the
GPUs are given, their deployment is optimised, and neither deployment nor routing knows kinds of requests.

The deployment is the one that carries the most requests of mean length, found by sutler's own search with every
workload rated as that request (measured tables know no other lengths: there the mean over the mix of the time per
request), for an engine like its own, which runs stages of any degree on any GPUs. Every workload is then routed in
proportion to the replicas' rates of the mean request. A replica that cannot serve some workload of its model would be
sent it all the same, so none such is deployed.

`even` is given the uniform composition (composition.py); `ours` GPUs of the types and in the numbers that sutler
rents, for no more money. For the least cost or power the composition grows until the load is carried under these
rules.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sutler.solver import planner, throughput
from sutler.solver.arrays import FloatArray
from sutler.solver.candidates.dominance import undominated
from sutler.solver.candidates.engines import ANY_LAYOUT
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates, layouts_of
from sutler.solver.catalog.entries import PRECISIONS
from sutler.solver.market.pools import Pool
from sutler.solver.market.supply import build_supply
from sutler.solver.polytope.objectives import cost_of
from sutler.solver.polytope.preparation import of_possible, prepare
from sutler.solver.problem import MeasuredRate, Problem, ServedModel, Workload
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import composition, straight_line
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.rules import by_weight
from sutler.solver.strategies.straight_line import Ruled
from sutler.solver.throughput.memory import MAX_SEQUENCES

_MEAN = "mean"
_REMEDY = "its replicas take every kind of request, whatever they are good at: add offers or raise the budget"


def plan_even(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Plans on the uniform composition. Raises NotApplicableError."""
    straight_line.refuse_conditions(problem)
    problem = _on_its_engine(problem)
    own = straight_line.aggregated(problem)
    run, carried = straight_line.started(problem, seconds_left), 0.0

    def deployed(k: int) -> Ruled | None:
        return _deployed(run, composition.with_at_most(own, composition.uniform(own, k)))

    if problem.objective.maximises_rate:
        most = composition.most_affordable(problem)
        if most == 0:
            return composition.unaffordable(problem, seconds_left)
        found = deployed(most)
    else:
        found, carried = composition.smallest_that_carries(own, deployed)
    return straight_line.answered(run, problem, "hexgen/even", found, remedy=_REMEDY, carried=carried)


def plan_ours(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Plans on the GPUs that sutler rents. Raises NotApplicableError."""
    straight_line.refuse_conditions(problem)
    own = straight_line.aggregated(problem)
    run, polytope = straight_line.started(problem, seconds_left), prepare(own)

    def deployed(load: float) -> Ruled | None:
        fleet = straight_line.bought(run, replace(polytope, problem=own.with_headroom(load - 1.0)))
        return None if fleet is None else _deployed(run, _on_its_engine(_on_the_gpus_of(own, fleet)))

    found, carried = straight_line.raised_until_carried(run, own, deployed)
    return straight_line.answered(run, _on_its_engine(problem), "hexgen/ours", found, remedy=_REMEDY, carried=carried)


def _on_its_engine(problem: Problem) -> Problem:
    return replace(problem, models=tuple(replace(model, engine=ANY_LAYOUT) for model in problem.models))


def _on_the_gpus_of(problem: Problem, fleet: Ruled) -> Problem:
    """The market cut down to the GPUs and the money of a fleet."""
    polytope, supply, allocation = fleet.polytope, fleet.polytope.supply, fleet.allocation
    gpus = dict.fromkeys(problem.gpus, 0)
    for offer_class, machines in zip(supply.classes, allocation.rented.tolist(), strict=True):
        gpus[supply.pools[offer_class.pool].gpu] += offer_class.gpus * machines
    used = polytope.candidates.take(allocation.candidate)
    for pools, sizes, replicas in zip(used.piece_pool, used.piece_size, allocation.replicas.tolist(), strict=True):
        for pool, size in zip(pools.tolist(), sizes.tolist(), strict=True):
            if pool in supply.gpu_price_usd_per_hour:
                gpus[supply.pools[pool].gpu] += size * replicas
    return composition.with_at_most(problem, gpus, cost_of(polytope, allocation) * (1 + 1e-9))


def _deployed(run: planner.SolveRun, problem: Problem) -> Ruled | None:
    """All that is for rent deployed for the mean request, and routed by it. None: nothing serves every workload."""
    blind_problem = straight_line.for_the_most_load(problem)
    supply = build_supply(blind_problem)
    enumerated = enumerate_candidates(blind_problem, supply)
    rps = _mean_rps(blind_problem, supply.pools, enumerated)
    useful = np.flatnonzero(rps > 0)
    blind = replace(enumerated.take(useful), rps=_as_every_workload(blind_problem, enumerated, rps)[useful])
    polytope = of_possible(blind_problem, supply, enumerated.take(useful[undominated(blind)]))
    run.candidates = max(run.candidates, len(polytope.candidates))
    rps = _mean_rps(blind_problem, supply.pools, polytope.candidates)
    deployed = straight_line.best_fleet(
        run, replace(polytope, rate=_as_every_workload(blind_problem, polytope.candidates, rps))
    )
    if deployed is None:
        return None
    seen = replace(polytope.scaled(deployed.polytope.scale_rps), problem=problem)
    routing = by_weight(seen, deployed.allocation, rps[deployed.allocation.candidate])
    return Ruled(seen, deployed.allocation, routing) if routing.lam > 0 else None


def _as_every_workload(problem: Problem, candidates: Candidates, rps: FloatArray) -> FloatArray:
    """[C, W] the rates [C] of the mean request for every workload of the candidate's model."""
    counts = np.array([len(model.workloads) for model in problem.models])
    own = np.arange(candidates.rps.shape[1])[None, :] < counts[candidates.model][:, None]
    return np.where(own, rps[:, None], 0.0)


def _mean_rps(problem: Problem, pools: Sequence[Pool], candidates: Candidates) -> FloatArray:
    """[C] requests/s of mean length within all limits; 0 where some workload of the model cannot be served."""
    mean = replace(
        problem,
        models=tuple(_of_mean_length(model) for model in problem.models),
        measured=tuple(_of_the_mix(problem, row) for row in problem.measured),
    )
    rps = np.zeros(len(candidates))
    each = [(index, one) for index, model in enumerate(mean.models) for one in model.at_each_precision]
    for index, model in each:
        is_at = candidates.precision == PRECISIONS.index(model.precision)
        rows = np.flatnonzero((candidates.model == index) & is_at)
        if len(rows) == 0:
            continue
        part = candidates.take(rows)
        layers = part.layers if part.layers.any() else None
        layouts = layouts_of(mean, pools, part, layers)
        points = throughput.points(mean, model, layouts, caps=np.where(part.max_batch, part.max_batch, MAX_SEQUENCES))
        serves_all = (part.rps[:, : len(problem.models[index].workloads)] > 0).all(axis=1)
        rps[rows] = np.where(serves_all, points.rps[:, 0], 0.0)
    return rps


def _of_mean_length(model: ServedModel) -> ServedModel:
    total = sum(workload.demand for workload in model.workloads)
    mean = Workload(
        _MEAN,
        sum(w.input_tokens * w.demand for w in model.workloads) / total,
        sum(w.output_tokens * w.demand for w in model.workloads) / total,
        total,
    )
    return replace(model, workloads=(mean,))


def _of_the_mix(problem: Problem, row: MeasuredRate) -> MeasuredRate:
    """A row's rate of the mix: requests over the time that they take."""
    workloads = next((m.workloads for m in problem.models if m.name == row.model), ())
    rates = [row.rps.get(w.name, 0.0) for w in workloads]
    if not rates or min(rates) <= 0:
        return replace(row, rps={})
    busy = sum(w.demand / rate for w, rate in zip(workloads, rates, strict=True))
    return replace(row, rps={_MEAN: sum(w.demand for w in workloads) / busy})
