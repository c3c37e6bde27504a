"""The best fleet when every change is charged: the polytope with switching costs spread over the horizon.

    maximise   usd_per_rps * requests/s                     (max_throughput, min_makespan)
    or minimise  USD/h, or watts at what a watt costs now   (min_cost, min_power), with lam >= 1 + headroom
    plus       start_usd(k) / horizon  per machine of class k that is for rent,
    minus      stop_usd(k) / horizon   per machine of class k that is held,
    plus       restart_usd(c) / horizon  per replica of c beyond those that run as they are.

The relaxation of this bounds what any change can bring. The fleet itself is sought over the candidates that the
relaxation finds promising: what it is proven against is the optimum without any switching cost, which plans state as
their bound. The first phase leaves the restarts out; the second, near its answer, has for every running engine
columns of its own, one per power cap and per phase that it can take, that cost no restart and together have as many
replicas as run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.sparse import csr_array, vstack

from sutler.solver.answer.describe import DescribedFleet, describe
from sutler.solver.answer.packing import PinnedReplica, Placement, pack
from sutler.solver.answer.routing import route, without_idle
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import Candidates, joined
from sutler.solver.market.pools import disk_needed_gb
from sutler.solver.market.supply import Supply
from sutler.solver.methods import exact
from sutler.solver.plan import Replica
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import HELD_GAP_SHARE, LEAST_LAM, first_goal
from sutler.solver.polytope.preparation import scaled_to_one, undominated_candidates
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope, build_polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.replanning.standing import (
    StandingCandidates,
    StandingDeployment,
    as_started,
    engines_of,
    pinned,
    shapes_of,
)
from sutler.solver.replanning.steps import StepLimits
from sutler.solver.replanning.switching import Switching

_FINISH_NODES = 60  # chosen: twice those of a plan's finish, since restarts and caps are decided here
_FINISH_GAP = 0.001  # chosen: a third of _TIE, so that ties are seen
_TIE = 0.003  # of its price, chosen: what runs is kept where nothing else speaks for change


@dataclass(frozen=True, slots=True)
class Charges:
    """What changes cost, USD/h over the horizon: start, stop [K], start_per_use, restart [C]."""

    start: FloatArray
    stop: FloatArray
    start_per_use: FloatArray
    restart: FloatArray

    def times(self, factor: float) -> "Charges":
        return Charges(*(getattr(self, each.name) * factor for each in fields(self)))


@dataclass(frozen=True, slots=True)
class SteadyProblem:
    """The polytope over all candidates, those that run included, and what changes cost in it.

    replicas: those that run; of_replica [replicas]: the candidate of each
    engine [V]: the last V candidates are the running engines under every power cap and, where they bend, in either
        phase; equal numbers: the same engine
    least: what no change is cheaper than, of the smallest model over the fastest line, where something starts
    least_alone: the same where nothing does, so that what stops has nothing to wait for
    """

    polytope: Polytope
    replicas: tuple[Replica, ...]
    of_replica: IntArray
    engine: IntArray
    charges: Charges
    usd_per_unit: float
    least: Charges
    least_alone: Charges

    @property
    def variants(self) -> IntArray:
        """[V] the candidates that are a running engine under some cap."""
        return len(self.polytope.candidates) - len(self.engine) + np.arange(len(self.engine))

    def running(self) -> IntArray:
        """[V] how many replicas run so."""
        first = len(self.polytope.candidates) - len(self.engine)
        return np.bincount(self.of_replica - first, minlength=len(self.engine))

    def of_engine(self) -> IntArray:
        """How many replicas of each engine run, under whatever cap."""
        return np.bincount(self.engine, weights=self.running()).astype(np.int64)

    def weighed(self, factor: float) -> "SteadyProblem":
        """The problem with changes that cost so many times as much."""
        charges, least, alone = (one.times(factor) for one in (self.charges, self.least, self.least_alone))
        return replace(self, charges=charges, least=least, least_alone=alone)

    def goal(self) -> Goal:
        """The first phase."""
        base = first_goal(self.polytope)
        lam_weight = base.lam_weight * self.usd_per_unit * (self.polytope.scale_rps if base.lam_weight else 1.0)
        return Goal(
            lam_weight,
            base.use_cost * self.usd_per_unit + self.charges.start_per_use,
            base.rent_cost * self.usd_per_unit + self.charges.start - self.charges.stop,
            base.lam_lower,
        )


def steady_problem(
    problem: Problem, found: StandingCandidates, switching: Switching, *, usd_per_watt: float
) -> SteadyProblem | None:
    """Builds the problem; None where nothing that is for rent or held carries anything."""
    supply = found.supply
    enumerated = undominated_candidates(problem, supply)
    known = joined([part for part in (found.candidates, found.others) if len(part)], problem)
    variant = _distinct(shapes_of(known))
    variants = known.take(np.unique(variant, return_index=True)[1])
    candidates = joined([part for part in (enumerated, variants) if len(part)], problem)
    if not len(candidates):
        return None
    polytope = scaled_to_one(build_polytope(problem, supply, candidates))
    if polytope is None:
        return None
    per_hour = switching.weight / switching.horizon_h
    start_s, least_s = switching.start_s(max(disk_needed_gb(problem))), switching.least_start_s(problem)
    charges = Charges(
        _start_usd(supply, switching, _class_start_s(problem, supply, switching)),
        _stop_usd(supply, switching, overlap_s=start_s if may_start(problem) else 0.0),
        _start_usd_per_use(supply, candidates, switching, start_s),
        _restart_usd(supply, candidates, switching),
    )
    least = Charges(
        _start_usd(supply, switching, [least_s] * len(supply.classes)),
        _stop_usd(supply, switching, overlap_s=least_s),
        _start_usd_per_use(supply, candidates, switching, least_s),
        charges.restart,
    )
    alone = replace(least, stop=_stop_usd(supply, switching, overlap_s=0.0))
    return SteadyProblem(
        polytope=polytope,
        replicas=found.replicas,
        of_replica=len(enumerated) + variant[: len(found.candidates)],
        engine=_distinct(engines_of(variants, found.bending)),
        charges=charges.times(per_hour),
        usd_per_unit=_usd_per_unit(problem, switching, usd_per_watt),
        least=least.times(per_hour),
        least_alone=alone.times(per_hour),
    )


def relaxed(steady: SteadyProblem) -> Relaxation:
    """The relaxation that the search starts from."""
    return solve_relaxation(steady.polytope, steady.goal())


@dataclass(frozen=True, slots=True)
class Least:
    """What a goal and the change come to at least, USD/h, of any fleet: where something starts, by this relaxation,
    and where nothing does; inf: there is none."""

    starting: float
    alone: float
    relaxation: Relaxation

    @property
    def usd_per_hour(self) -> float:
        return min(self.starting, self.alone)


def least_usd_per_hour(steady: SteadyProblem, columns: IntArray) -> Least:
    """Of the goal. `columns`: of a relaxation of it, to start from."""
    return _least([(case, case.goal()) for case in _cases(steady)], columns)


def least_cost_usd_per_hour(steady: SteadyProblem, columns: IntArray, *, rps: float) -> Least:
    """Of what a fleet that carries `rps` costs."""
    polytope = steady.polytope
    lam = rps / polytope.scale_rps
    goals = []
    for case in _cases(steady):
        use = polytope.cost_use + case.charges.start_per_use
        rent = polytope.cost_rent + case.charges.start - case.charges.stop
        goals.append((case, Goal(0.0, use, rent, lam)))
    return _least(goals, columns)


def _cases(steady: SteadyProblem) -> tuple[SteadyProblem, SteadyProblem]:
    """Something starts, or what is held is all there is."""
    polytope = steady.polytope
    held = np.array([c.held for c in polytope.supply.classes], dtype=np.bool_)
    on_held = replace(polytope, rent_upper=np.where(held, polytope.rent_upper, 0))
    return replace(steady, charges=steady.least), replace(steady, charges=steady.least_alone, polytope=on_held)


def _least(goals: Sequence[tuple[SteadyProblem, Goal]], columns: IntArray) -> Least:
    found, usd = [], []
    for case, goal in goals:
        relaxation = solve_relaxation(case.polytope, goal, columns=columns)
        stops = case.charges.stop @ [c.count for c in case.polytope.supply.classes]
        found.append(relaxation)
        usd.append(relaxation.bound + float(stops) if np.isfinite(relaxation.objective) else float("inf"))
    return Least(usd[0], usd[1], found[0])


def steady_fleet(
    steady: SteadyProblem,
    standing: StandingDeployment,
    relaxation: Relaxation,
    *,
    relative_gap: float,
    seconds_left: SecondsLeft,
) -> DescribedFleet | None:
    """The fleet of the two phases; None where none carries what is asked for, or none was found in time."""
    polytope = steady.polytope
    allocation = exact.near_best(
        polytope, steady.goal(), relaxation, relative_gap=relative_gap, seconds=seconds_left()
    )
    if allocation is None or allocation.lam < LEAST_LAM:
        return None
    wide, allocation, kept_from = _with_running_columns(steady, allocation)
    if seconds_left() > 0:
        allocation = exact.finish(
            wide,
            _finish_goal(steady, wide, allocation, kept_from),
            allocation,
            relative_gap=_FINISH_GAP,
            seconds_left=seconds_left,
            node_limit=_FINISH_NODES,
        )
    return _described(steady, standing, wide, allocation, kept_from)


def step_fleet(
    steady: SteadyProblem,
    standing: StandingDeployment,
    columns: IntArray,
    limits: StepLimits,
    *,
    relative_gap: float,
    seconds_left: SecondsLeft,
) -> DescribedFleet | None:
    """The best fleet that changes no more than the limits allow; None where none carries what is asked for.

    `columns`: of the relaxation of all fleets, to start from. Its bound is not as close as one of steps would be, but
    replicas that must not stop may idle, of which that relaxation knows nothing.
    """
    wide, kept_from = _with_engine_columns(steady), len(steady.polytope.candidates)
    first, variants = steady.goal(), steady.variants
    anew = steady.charges.restart + _TIE * _gpu_prices(wide)[:kept_from]
    use = np.concatenate([first.use_cost + anew, first.use_cost[variants]])
    goal = replace(first, use_cost=use)
    allocation = exact.near_best(
        _within_step(steady, wide, limits),
        goal,
        solve_relaxation(wide, goal, columns=columns),
        relative_gap=relative_gap,
        seconds=seconds_left(),
        besides=np.arange(kept_from, len(wide.candidates)),
    )
    if allocation is None or allocation.lam < LEAST_LAM:
        return None
    return _described(steady, standing, wide, allocation, kept_from, may_idle=True)


def _within_step(steady: SteadyProblem, wide: Polytope, limits: StepLimits) -> Polytope:
    """Adds rows for the limits: enough engines run on, on machines that are kept; of what is new there is no more."""
    candidates, supply = wide.candidates, wide.supply
    first = len(candidates) - len(steady.engine)
    held = np.array([c.held for c in supply.classes], dtype=np.bool_)
    new = (~held).astype(np.float64)
    direct = np.array([pool in supply.gpu_price_usd_per_hour for pool in range(len(supply.pools))] + [False])
    kept = np.where(np.arange(len(candidates)) < first, 0.0, candidates.gpus.sum(axis=1))
    most = limits.most_stopped_gpus(steady.replicas)
    rows = [(-kept, np.zeros(len(held)), most - float(kept[first:] @ steady.running()))]
    for pool in {supply.classes[k].pool for k in np.flatnonzero(held)}:
        here = np.where(candidates.pool == pool, candidates.gpus, 0).sum(axis=1) * (kept > 0)
        machines = [float(c.gpus) if c.held and c.pool == pool else 0.0 for c in supply.classes]
        rows.append((here, -np.array(machines), 0.0))
    if limits.started_machines is not None:
        pieces = ((candidates.piece_size > 0) & direct[candidates.piece_pool]).sum(axis=1)  # each is a machine there
        rows.append((pieces, new, float(limits.started_machines)))
    if limits.started_usd_per_hour is not None:
        rows.append((wide.cost_use, wide.cost_rent * new, limits.started_usd_per_hour))
    use, rent, limit = (np.array(part, dtype=np.float64) for part in zip(*rows, strict=True))
    return _with_rows(wide, csr_array(use), csr_array(rent), limit)


def _usd_per_unit(problem: Problem, switching: Switching, usd_per_watt: float) -> float:
    if problem.objective.maximises_rate:
        return switching.usd_per_rps
    return usd_per_watt if problem.objective.kind == "min_power" else 1.0


def _distinct(kinds: Sequence[tuple[object, ...]]) -> IntArray:
    """The same number for what is of the same kind, counted from 0 in order of first appearance."""
    numbers: dict[tuple[object, ...], int] = {}
    return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int64)


def may_start(problem: Problem) -> bool:
    """Whether what stops can have new machines to wait for."""
    return any(offer.available > 0 and not offer.held for offer in problem.offers)


def _class_start_s(problem: Problem, supply: Supply, switching: Switching) -> list[float]:
    """[K] the seconds until the largest model serves, over the slowest line that machines of the class have."""
    weights_gb = max(disk_needed_gb(problem))
    lines = [[problem.offers[index].inet_down_gb_per_s for index, _ in c.offers] for c in supply.classes]
    return [max(switching.start_s(weights_gb, line) for line in each) for each in lines]


def _start_usd(supply: Supply, switching: Switching, start_s: Sequence[float]) -> FloatArray:
    """[K] what it costs to start machines that are for rent."""
    usd = [
        0.0 if c.held else switching.start_usd(c.price_usd_per_hour, seconds)
        for c, seconds in zip(supply.classes, start_s, strict=True)
    ]
    return np.array(usd, dtype=np.float64)


def _stop_usd(supply: Supply, switching: Switching, *, overlap_s: float) -> FloatArray:
    """[K] what it costs to stop machines that are held."""
    usd = [switching.stop_usd(c.price_usd_per_hour, overlap_s) if c.held else 0.0 for c in supply.classes]
    return np.array(usd, dtype=np.float64)


def _start_usd_per_use(supply: Supply, candidates: Candidates, switching: Switching, start_s: float) -> FloatArray:
    """[C] what it costs to start in pools without rental variables; nothing there is held."""
    prices = [supply.gpu_price_usd_per_hour.get(pool, 0.0) for pool in range(len(supply.pools))]
    return candidates.summed([switching.start_usd(price, start_s) for price in prices])


def _restart_usd(supply: Supply, candidates: Candidates, switching: Switching) -> FloatArray:
    """[C] what a restart costs, at the cheapest price of each pool's GPUs."""
    return candidates.summed([switching.restart_usd(price) for price in supply.least_usd_per_gpu_hour()])


def _with_engine_columns(steady: SteadyProblem) -> Polytope:
    """The polytope with a column more per running engine and cap, of which there are no more than run."""
    base = steady.polytope
    kept_from = len(base.candidates)
    candidates = joined([base.candidates, base.candidates.take(steady.variants)], base.problem)
    left = steady.of_engine()
    wide = build_polytope(base.problem, base.supply, candidates).scaled(base.scale_rps)
    upper = wide.use_upper.copy()
    upper[kept_from:] = np.minimum(upper[kept_from:], left[steady.engine])
    return _with_engines(replace(wide, use_upper=upper), steady.engine, left)


def _with_running_columns(steady: SteadyProblem, allocation: Allocation) -> tuple[Polytope, Allocation, int]:
    """The polytope with columns for running engines; its replicas move there, as far as they run."""
    wide, kept_from, variants = _with_engine_columns(steady), len(steady.polytope.candidates), steady.variants
    left = steady.of_engine()
    replicas = np.zeros(len(wide.candidates), dtype=np.int64)
    replicas[allocation.candidate] = allocation.replicas
    for column, (shape, engine) in enumerate(zip(variants, steady.engine, strict=True), start=kept_from):
        moved = min(int(replicas[shape]), int(left[engine]))
        if moved:
            replicas[column] = moved
            replicas[shape] -= moved
            left[engine] -= moved
    used = np.flatnonzero(replicas)
    return wide, replace(allocation, candidate=used, replicas=replicas[used]), kept_from


def _with_engines(wide: Polytope, engine: IntArray, most: IntArray) -> Polytope:
    """Adds a row for each engine of which there are columns under several caps: no more of them than run."""
    several = np.flatnonzero(np.bincount(engine, minlength=len(most)) > 1)
    if not len(several):
        return wide
    row = np.full(len(most), -1)
    row[several] = np.arange(len(several))
    columns = np.flatnonzero(row[engine] >= 0)
    first = len(wide.candidates) - len(engine)
    use = csr_array(
        (np.ones(len(columns)), (row[engine[columns]], first + columns)), shape=(len(several), len(wide.candidates))
    )
    rent = csr_array((len(several), len(wide.cost_rent)))
    return _with_rows(wide, use, rent, most[several].astype(np.float64))


def _with_rows(polytope: Polytope, use: csr_array, rent: csr_array, limit: FloatArray) -> Polytope:
    return replace(
        polytope,
        resources=(*polytope.resources, *[""] * len(limit)),
        use=csr_array(vstack([polytope.use, use], format="csr")),
        rent=csr_array(vstack([polytope.rent, rent], format="csr")),
        limit=np.append(polytope.limit, limit),
    )


def _finish_goal(steady: SteadyProblem, wide: Polytope, allocation: Allocation, kept_from: int) -> Goal:
    """Least cost with restarts charged, at the throughput of the first phase; among equals, what runs."""
    objective = wide.problem.objective
    first, variants, charges = steady.goal(), steady.variants, steady.charges
    prices = _TIE * _gpu_prices(wide)
    tie = _TIE * wide.cost_use[:kept_from] + prices[:kept_from]
    recapped = np.where(steady.running() > 0, 0.0, prices[kept_from:])
    restart = np.concatenate([charges.restart + tie, recapped])
    start = np.concatenate([charges.start_per_use, charges.start_per_use[variants]])
    new = np.array([0.0 if c.held else _TIE * c.price_usd_per_hour for c in wide.supply.classes])
    if objective.maximises_rate:
        held = allocation.lam * (1 - HELD_GAP_SHARE * wide.problem.options.relative_gap)
        return Goal(0.0, wide.cost_use + start + restart, wide.cost_rent + charges.start - charges.stop + new, held)
    use = np.concatenate([first.use_cost, first.use_cost[variants]])
    return Goal(0.0, use + restart, first.rent_cost + new, first.lam_lower)


def _gpu_prices(polytope: Polytope) -> FloatArray:
    """[C] what a replica's GPUs cost at least, USD/h."""
    return polytope.candidates.summed(polytope.supply.least_usd_per_gpu_hour())


def _described(
    steady: SteadyProblem,
    standing: StandingDeployment,
    wide: Polytope,
    allocation: Allocation,
    kept_from: int,
    *,
    may_idle: bool = False,
) -> DescribedFleet | None:
    allocation, routing = (allocation, route(wide, allocation)) if may_idle else without_idle(wide, allocation)
    if routing.lam <= LEAST_LAM:
        return None
    pins = _pins(steady, standing, wide, allocation, kept_from)
    rentals, placed = pack(wide, allocation, [pin for pin, _ in pins])
    names = _names(wide, allocation, standing, pins, [replica.stays for replica in placed])
    fleet = describe(wide, allocation, routing, Placement(rentals, placed, names, standing.kv_transfers))
    return as_started(fleet, steady.replicas)


def _pins(
    steady: SteadyProblem, standing: StandingDeployment, wide: Polytope, allocation: Allocation, kept_from: int
) -> list[tuple[PinnedReplica, str]]:
    """The places of the running replicas, as replicas of the columns that cost no restart, with their names.

    Those of an engine go to the caps and phases that it is to have, as far as they can to their own.
    """
    wanted = np.zeros(len(wide.candidates), dtype=np.int64)
    wanted[allocation.candidate] = allocation.replicas
    wanted = wanted[kept_from:]
    now = steady.of_replica - (len(steady.polytope.candidates) - len(steady.engine))
    becomes = np.full(len(now), -1, dtype=np.int64)
    role = steady.polytope.candidates.role[steady.variants]
    for nearness in (3, 2, 1):
        for replica in np.flatnonzero(becomes < 0):
            own = now[replica]
            near = (steady.engine == steady.engine[own]).astype(np.int64)
            near += near * (role == role[own])
            near[own] = 3
            alike = np.flatnonzero(near >= nearness)
            variant = next((v for v in alike if wanted[v] > 0), -1)
            becomes[replica] = variant
            wanted[variant] -= variant >= 0
    pins = pinned(standing, wide.problem, steady.replicas)
    return [
        (replace(pin, candidate=kept_from + int(variant)), replica.id)
        for pin, variant, replica in zip(pins, becomes, steady.replicas, strict=True)
        if variant >= 0
    ]


def _names(
    polytope: Polytope,
    allocation: Allocation,
    standing: StandingDeployment,
    pins: list[tuple[PinnedReplica, str]],
    stays: list[bool],
) -> tuple[str, ...]:
    """Replicas that stay keep their names; others get numbers that were not used."""
    used = {replica.id for replica in standing.replicas} | standing.names_used
    waiting: dict[int, list[str]] = {}
    for pin, name in pins:
        waiting.setdefault(pin.candidate, []).append(name)
    owners = [int(c) for c, n in zip(allocation.candidate, allocation.replicas, strict=True) for _ in range(n)]
    numbers: dict[str, int] = {}
    names = []
    for candidate, stay in zip(owners, stays, strict=True):
        pinned_name = waiting[candidate].pop(0) if waiting.get(candidate) else None
        model = polytope.problem.models[int(polytope.candidates.model[candidate])].name
        names.append(pinned_name if stay and pinned_name else _next_name(model, numbers, used))
    return tuple(names)


def _next_name(model: str, numbers: dict[str, int], used: set[str] | frozenset[str]) -> str:
    while True:
        number = numbers.get(model, 0)
        numbers[model] = number + 1
        if f"{model}-{number}" not in used:
            return f"{model}-{number}"
