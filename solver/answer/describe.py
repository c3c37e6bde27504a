"""From an allocation to the plan that people and programs read."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from sutler.solver import throughput
from sutler.solver.answer.caveats import caveats
from sutler.solver.answer.engine_args import checkpoint_of, engine_args, engine_env
from sutler.solver.answer.expected import counted_usd_per_hour, interruptions_of
from sutler.solver.answer.losses import losses_of
from sutler.solver.answer.packing import PackedReplica, Placement, pack
from sutler.solver.answer.pairing import combos_of, handed_over
from sutler.solver.answer.routes import routes_of
from sutler.solver.answer.routing import Routing, balanced
from sutler.solver.arrays import FloatArray
from sutler.solver.candidates.engines import engine_of
from sutler.solver.candidates.enumerate import ROLES, layouts_of
from sutler.solver.candidates.power import power_watts
from sutler.solver.plan import (
    Combo,
    Evidence,
    KvTransfer,
    Loss,
    Plan,
    Rental,
    Replica,
    Route,
    SolveReport,
    Stage,
    WorkloadRate,
    figure_of,
)
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Interruptions, Objective, Problem, ServedModel
from sutler.solver.throughput.base import Layouts, RateBasis, Rates
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.units import SECONDS_PER_HOUR, TOKENS_PER_MILLION


@dataclass(frozen=True, slots=True)
class DescribedFleet:
    """The parts of a plan that describe what is rented, run and routed, with their totals; named as there."""

    rentals: tuple[Rental, ...]
    replicas: tuple[Replica, ...]
    routing: tuple[Route, ...]
    kv_transfers: tuple[KvTransfer, ...]
    combos: tuple[Combo, ...]
    evidence: tuple[Evidence, ...]
    throughput_rps: float
    makespan_s: float | None
    load_multiple: float | None
    cost_usd_per_hour: float
    expected_cost_usd_per_hour: float | None
    power_watts: float | None
    usd_per_million_tokens: float | None
    losses: tuple[Loss, ...]
    interruptions: tuple[Interruptions, ...]

    @property
    def counted_usd_per_hour(self) -> float:
        """What it counts for: the expected cost, where interruptions count."""
        expected = self.expected_cost_usd_per_hour
        return self.cost_usd_per_hour if expected is None else expected

    def value(self, objective: Objective) -> float:
        """The objective's value: requests/s, seconds, $/h or watts."""
        value: float | None = getattr(self, figure_of(objective))
        if value is None:
            raise ValueError(f"{objective.kind} has no value: checks.py lets no problem with unknown watts through")
        return value


def placed_anew(polytope: Polytope, allocation: Allocation) -> Placement:
    """Packed without regard to what runs."""
    rentals, placed = pack(polytope, allocation)
    return Placement(rentals, placed, tuple(_replica_names(polytope, placed)))


def describe(
    polytope: Polytope,
    allocation: Allocation,
    routing: Routing,
    placement: Placement | None = None,
    *,
    in_full: bool = True,
) -> DescribedFleet:
    """Pack (unless it is given), name and add up an allocation under its routing; `in_full`: with the evidence for
    its rates and what is left after a loss."""
    problem = polytope.problem
    placement = placement or placed_anew(polytope, allocation)
    rentals, placed, names = placement.rentals, placement.replicas, placement.names
    lam_rps = routing.lam * polytope.scale_rps
    whole_rps = lam_rps if problem.objective.maximises_rate else problem.total_demand
    position = {int(c): index for index, c in enumerate(allocation.candidate)}
    replicas, evidence = [], []
    given = {c: _rates_of(polytope, routing, at, whole_rps / allocation.replicas[at]) for c, at in position.items()}
    known = _what_is_known(polytope, given, with_sources=in_full)
    for name, replica in zip(names, placed, strict=True):
        rates = given[replica.candidate]
        described, found = _describe_replica(name, replica, rates, known[replica.candidate])
        replicas.append(described)
        evidence += found
    cost = sum(rental.price_usd_per_hour * rental.count for rental in rentals)
    routes = routes_of(polytope, allocation, routing, placement)
    transfers = handed_over(polytope, allocation, routing, placement)
    losses = losses_of(polytope, allocation, placement, routing.lam) if in_full else ()
    return DescribedFleet(
        rentals=rentals,
        replicas=tuple(replicas),
        routing=routes,
        kv_transfers=transfers,
        combos=combos_of(problem, rentals, replicas),
        evidence=tuple(evidence),
        throughput_rps=whole_rps,
        makespan_s=problem.total_demand / lam_rps if problem.objective.kind == "min_makespan" else None,
        load_multiple=None if problem.objective.maximises_rate else load_multiple(replicas) * (lam_rps > 0),
        cost_usd_per_hour=cost,
        expected_cost_usd_per_hour=(
            counted_usd_per_hour(problem, rentals) if problem.objective.count_interruptions else None
        ),
        power_watts=power_watts(problem, rentals, replicas),
        losses=losses,
        interruptions=interruptions_of(problem, rentals),
        usd_per_million_tokens=cost / (_tokens_per_hour(polytope, whole_rps) / TOKENS_PER_MILLION),
    )


def as_split(polytope: Polytope, allocation: Allocation, fraction: FloatArray) -> Routing:
    """The routing with these fractions [D, n], and the largest lam at which all replicas keep their limits with what
    they are given: by their operating points, or each by the ceiling of its own mixture."""
    routing = balanced(polytope, allocation, fraction)
    if not fraction.any(axis=1).all():
        return routing
    given = {
        int(c): _rates_of(polytope, routing, at, polytope.scale_rps / allocation.replicas[at])
        for at, c in enumerate(allocation.candidate)
    }
    lam = np.inf
    for c, known in _what_is_known(polytope, given, with_sources=False).items():
        served = np.flatnonzero(given[c])
        with np.errstate(divide="ignore"):
            load = float((given[c][served] / known.rates.rps[known.row, served]).sum())
        lam = min(lam, known.ceiling / load if load > 0 else np.inf)
    return replace(routing, lam=max(lam, routing.lam))


def load_multiple(replicas: Sequence[Replica]) -> float:
    """The multiple to which the load may grow, its mix and routing the same, until the first replica is at its
    ceiling."""
    room = [
        (replica.max_load_fraction or 0.0) / replica.utilisation_fraction
        for replica in replicas
        if replica.utilisation_fraction > 0
    ]
    return min(room, default=0.0)


def plan_of(
    problem: Problem,
    fleet: DescribedFleet,
    *,
    bound: float | None,
    solver: SolveReport,
    optimum_value: float | None = None,
) -> Plan:
    """The plan of a fleet; `bound` in the objective's unit is what is proven of every plan, None if nothing is.

    `optimum_value`: of which a fraction was given up.
    """
    kind, value = problem.objective.kind, fleet.value(problem.objective)
    proven = value if optimum_value is None else optimum_value
    bound = proven if bound is None else bound
    bound = max(bound, proven, value) if kind == "max_throughput" else min(bound, proven, value)
    options = problem.options
    allowed = options.tolerance_fraction if options.method == "binary_search" else options.relative_gap
    return Plan(
        status="optimal" if _gap(bound, proven) <= allowed + 1e-9 else "feasible",
        objective=kind,
        value=value,
        bound=bound,
        relative_gap=_gap(bound, value),
        **{each.name: getattr(fleet, each.name) for each in fields(fleet)},
        warnings=caveats(problem, fleet.rentals, fleet.replicas),
        solver=solver,
        optimum_value=optimum_value,
    )


def _gap(bound: float, value: float) -> float:
    return abs(bound - value) / abs(value) if value else 0.0


def in_unit(polytope: Polytope, value: float) -> float | None:
    """A minimised primary objective in the unit that plans state; None: it says nothing. Cost and power are never
    below 0, whatever an LP's rounding makes of the bound of a fleet that is free."""
    if not np.isfinite(value):
        return None
    if not polytope.problem.objective.maximises_rate:
        return max(value, 0.0)
    rps = -value * polytope.scale_rps
    if polytope.problem.objective.kind == "max_throughput":
        return rps
    return polytope.problem.total_demand / rps if rps > 0 else None


def _replica_names(polytope: Polytope, placed: Sequence[PackedReplica]) -> list[str]:
    numbers: dict[int, int] = {}
    names = []
    for replica in placed:
        model = int(polytope.candidates.model[replica.candidate])
        number = numbers.get(model, 0)
        numbers[model] = number + 1
        names.append(f"{polytope.problem.models[model].name}-{number}")
    return names


def _rates_of(polytope: Polytope, routing: Routing, at: int, rps: float) -> FloatArray:
    """[W] requests/s of each workload of its model that one replica of the candidate gets."""
    rates = np.zeros(polytope.rate.shape[1])
    for row, demand in enumerate(polytope.demands):
        if routing.fraction[row, at] > 0:
            rates[demand.workload] = routing.fraction[row, at] * demand.fraction * rps
    return rates


@dataclass(frozen=True, slots=True)
class _Known:
    """What the throughput layer says of one candidate, a row of `layouts` and of the rates [num_layouts, W] with all
    sequences busy, as they count and as they are stated; what they rest on for each workload that it is given, where
    that is asked for, and the load up to which those keep their limits, as it is found and as plans state it."""

    model: ServedModel
    layouts: Layouts
    row: int
    rates: Rates
    stated: Rates
    sources: dict[int, RateBasis]
    max_batch: int | None
    ceiling: float
    max_load_fraction: float


def _what_is_known(polytope: Polytope, given: dict[int, FloatArray], *, with_sources: bool) -> dict[int, _Known]:
    """What is known, by candidate; `given` [W]: requests/s of one replica. Those alike in what layouts share are
    rated at once."""
    of = polytope.candidates
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for c in given:
        has_layers = bool(of.layers[c].any())
        alike[of.model[c], of.precision[c], of.role[c], of.power_cap_fraction[c], has_layers].append(c)
    return {
        c: known
        for group in alike.values()
        for c, known in zip(group, _known_of(polytope, group, given, with_sources), strict=True)
    }


def _known_of(
    polytope: Polytope, group: list[int], given: dict[int, FloatArray], with_sources: bool
) -> Iterator[_Known]:
    problem, some = polytope.problem, polytope.candidates.take(np.array(group))
    model, role, cap = some.served(problem, 0), ROLES[int(some.role[0])], float(some.power_cap_fraction[0])
    layouts = layouts_of(problem, polytope.supply.pools, some, some.layers if some.layers.any() else None, role, cap)
    caps = np.where(some.max_batch > 0, some.max_batch, MAX_SEQUENCES)
    stated, measured = throughput.stated_rates(problem, model, layouts, caps=caps)
    rates = throughput.counted(problem, stated)
    own = np.array([given[c][: len(model.workloads)] for c in group])
    ceilings = throughput.ceilings(problem, model, layouts, caps=caps, rps=own)
    utilisation = np.divide(own, rates.rps, out=np.zeros_like(own), where=own > 0).sum(axis=1)
    first: dict[bytes, int] = {}
    alike = [first.setdefault(_bytes_of(layouts, stated, row), row) for row in range(len(group))]
    found: dict[tuple[int, int], RateBasis] = {}
    for row in range(len(group)):
        sources = {}
        for w in np.flatnonzero(own[row] > 0).tolist() if with_sources else ():
            key = alike[row], w
            if key not in found:
                found[key] = throughput.evidence(problem, model, layouts, stated, measured, row, w)
            sources[w] = found[key]
        ceiling = float(ceilings[row])
        most = throughput.stated_ceiling(problem, ceiling, float(utilisation[row]))
        yield _Known(model, layouts, row, rates, stated, sources, int(some.max_batch[row]) or None, ceiling, most)


def _bytes_of(layouts: Layouts, rates: Rates, row: int) -> bytes:
    """What a row holds of everything that is told by rows: replicas that share it rest on the same."""
    arrays = (getattr(of, field.name) for of in (layouts, rates) for field in fields(of))
    return b"/".join(array[row].tobytes() for array in arrays if isinstance(array, np.ndarray))


def _describe_replica(
    name: str, placed: PackedReplica, rates: FloatArray, known: _Known
) -> tuple[Replica, list[Evidence]]:
    """A replica with its load `rates` [W], and the evidence behind each rate it is counted on for."""
    model, sustained, row = known.model, known.rates, known.row
    routed = [w for w in range(len(model.workloads)) if rates[w] > 0]
    evidence = [
        Evidence(
            name,
            model.workloads[w].name,
            source=known.sources[w].source,
            detail=known.sources[w].detail,
            rps=float(known.stated.rps[row, w]),
            low_rps=float(known.stated.low_rps[row, w]),
            high_rps=float(known.stated.high_rps[row, w]),
            version=known.sources[w].version,
        )
        for w in known.sources
    ]
    degrees, ranks = tuple(stage.tensor_parallel for stage in placed.stages), int(known.layouts.ranks[row])
    replica = Replica(
        id=name,
        model=model.name,
        role=known.layouts.role,
        stages=_with_links(placed.stages, known),
        max_batch=known.max_batch,
        utilisation_fraction=float(sum(rates[w] / sustained.rps[row, w] for w in routed)),
        throughput_rps=tuple(WorkloadRate(model.workloads[w].name, float(rates[w])) for w in routed),
        engine_args=engine_args(
            model,
            tensor_parallel=degrees,
            max_batch=known.max_batch,
            role=known.layouts.role,
            data_parallel=ranks,
        ),
        engine_env=engine_env(tuple(stage.layers or 0 for stage in placed.stages)),
        max_load_fraction=known.max_load_fraction,
        engine=engine_of(model, known.layouts.role, degrees),
        data_parallel=ranks,
        expert_parallel=degrees[0] * ranks if ranks > 1 else 1,
        precision=model.precision,
        checkpoint=checkpoint_of(model),
        sustained_rps=tuple(
            WorkloadRate(workload.name, rps)
            for workload, rps in zip(model.workloads, sustained.rps[row].tolist(), strict=True)
            if rps > 0
        ),
    )
    return replica, evidence


def _with_links(stages: Sequence[Stage], known: _Known) -> tuple[Stage, ...]:
    """The stages with the bandwidths of the layout, and what its GPUs are capped to."""
    layouts, row = known.layouts, known.row
    links = zip(layouts.intra_gb_per_s[row].tolist(), layouts.hop_gb_per_s[row].tolist(), strict=True)
    tdp_watts = {gpu.slug: gpu.tdp_watts for gpu in layouts.gpus}  # of capped GPUs what they are capped to
    is_capped = layouts.power_cap_fraction < 1
    return tuple(
        replace(
            stage,
            intra_gb_per_s=intra if intra > 0 else None,
            hop_gb_per_s=hop if 0 < hop < np.inf else None,
            power_cap_watts=tdp_watts[stage.gpu] if is_capped else None,
        )
        for stage, (intra, hop) in zip(stages, links, strict=False)  # layouts are padded
    )


def _tokens_per_hour(polytope: Polytope, rps: float) -> float:
    models = polytope.problem.models
    per_request = 0.0
    for demand in polytope.demands:
        workload = models[demand.model].workloads[demand.workload]
        per_request += demand.fraction * (workload.input_tokens + workload.output_tokens)
    return rps * per_request * SECONDS_PER_HOUR
