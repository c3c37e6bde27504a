"""Why a workload has no replica that serves it on a market: fitness, network, latency limits, disk, context, memory.

Flow: conflicts.py, for workloads that nothing serves whatever the budget -> here -> role_conflicts.py.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sutler.solver.candidates.dominance import prune_dominated
from sutler.solver.candidates.enumerate import enumerate_candidates
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.explanation.layout_conflicts import why_not_laid_out
from sutler.solver.explanation.role_conflicts import why_not_apart
from sutler.solver.market.pools import PIECE_SIZES, checkpoint_disk_gb, checkpoint_gb
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Conflict
from sutler.solver.polytope.rows import Demand, Polytope, build_polytope
from sutler.solver.problem import LatencyLimit, Problem, ServedModel
from sutler.solver.progress import SecondsLeft

# An enumeration each: close together where limits are nearly met, then to where none is one.
_FACTORS = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 1e2, 1e3, 1e4, 1e6, 1e9)
_CLOSE = 1.01  # how near the least that is enough a stated limit has to be
_WITHOUT_LIMIT = 1e9  # GPUs or watts: more than any market has
_MOST_EXPLAINED = 6  # workloads: every one takes up to some dozen enumerations


def why_unserved(problem: Problem, unserved: Sequence[Demand], seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """What has to give for the longest of the workloads that nothing serves; one entry per constraint, the one that
    asks for the most."""
    explained = _longest(problem, unserved)
    causes: dict[str, Conflict] = {}
    for demand in explained:
        for found in _why_unserved(problem, demand, seconds_left):
            if found.constraint not in causes or causes[found.constraint].needed < found.needed:
                causes[found.constraint] = found
    others = len(unserved) - len(explained)
    if not others:
        return tuple(causes.values())
    more = f" (nothing serves {others} other workload{'' if others == 1 else 's'}, either)"
    return tuple(replace(conflict, remedy=conflict.remedy + more) for conflict in causes.values())


def _longest(problem: Problem, unserved: Sequence[Demand]) -> list[Demand]:
    """The longest of every model, and besides those with the most tokens; longest first."""

    def tokens(demand: Demand) -> float:
        workload = problem.models[demand.model].workloads[demand.workload]
        return workload.input_tokens + workload.output_tokens

    by_length = sorted(unserved, key=tokens, reverse=True)
    chosen = list({demand.model: demand for demand in reversed(by_length)}.values())
    others = [demand for demand in by_length if demand not in chosen]
    chosen += others[: max(0, _MOST_EXPLAINED - len(chosen))]
    return sorted(chosen, key=tokens, reverse=True)


def without_limits(problem: Problem) -> Problem:
    """The same market with nothing that a caller set on resources: no budget, no limits on GPUs and watts.

    The share per provider stands, as it says which hosts are alike, and so do caps of GPUs and utilisation.
    """
    limits = replace(
        problem.limits,
        max_gpus=dict.fromkeys(problem.limits.max_gpus, int(_WITHOUT_LIMIT)),
        max_gpus_per_provider=dict.fromkeys(problem.limits.max_gpus_per_provider, int(_WITHOUT_LIMIT)),
        max_machines_per_host=None if problem.limits.max_machines_per_host is None else int(_WITHOUT_LIMIT),
        max_power_watts=None if problem.limits.max_power_watts is None else _WITHOUT_LIMIT,
    )
    return replace(problem, budget_usd_per_hour=None, limits=limits)


def polytope_of(problem: Problem) -> Polytope:
    """All candidates of a market, lam in requests/s."""
    supply = build_supply(problem)
    candidates = prune_dominated(enumerate_candidates(problem, supply))
    return build_polytope(problem, supply, candidates)


def demands_of(problem: Problem) -> list[Demand]:
    """The demands of a problem, with requests/s, or requests, in place of fractions."""
    return [
        Demand(f"demand/{model.name}/{workload.name}", m, w, workload.demand)
        for m, model in enumerate(problem.models)
        for w, workload in enumerate(model.workloads)
    ]


def unserved_among(polytope: Polytope, demands: Sequence[Demand]) -> list[Demand]:
    """The demands that nothing serves."""
    served = {d.name for d, able in zip(polytope.demands, polytope.servable(), strict=True) if able}
    return [d for d in demands if d.name not in served]


def _why_unserved(problem: Problem, demand: Demand, seconds_left: SecondsLeft) -> list[Conflict]:
    """No configuration on this market can serve the workload: the latency limits or the hardware."""
    model = problem.models[demand.model]
    free = without_limits(problem)
    unfit = _unfit_conflict(free, demand)
    if unfit is not None:
        return [unfit]
    apart = why_not_apart(free, demand, _can_serve)
    if apart is not None:
        return [apart]
    if model.limits_of(model.workloads[demand.workload]) and _serves(free, demand, ()):
        return _latency_conflicts(free, demand, model, seconds_left)
    laid_out = why_not_laid_out(free, demand, _can_serve)
    if laid_out is not None:
        return [laid_out]
    if problem.measured_only or model.spec is None:
        remedy = (
            f"add a throughput.table row that serves {demand.name} on GPUs that are for rent, or set "
            f"throughput.only to false with a catalogue model{_of_roles(problem, model)}"
        )
        return [Conflict(demand.name, 1.0, 0.0, "configurations with a measured rate", remedy)]
    return [_hardware_conflict(free, demand, model.spec, seconds_left)]


def _unfit_conflict(problem: Problem, demand: Demand) -> Conflict | None:
    """Offers that are unfit for the model would serve it."""
    model = problem.models[demand.model]
    unfit = [offer for offer in problem.offers if any(name == model.name for name, _ in offer.unfit_for)]
    judged_fit = tuple(replace(offer, unfit_for=frozenset()) for offer in problem.offers)
    if not unfit or not _can_serve(replace(problem, offers=judged_fit), demand):
        return None
    remedy = (
        f"{len(unfit)} of {len(problem.offers)} offers are unfit for {model.name} by a rule of market.filter.fit "
        "(the plan's market.fit says which): offer others, use another engine or precision, or switch that rule off"
    )
    return Conflict(demand.name, 1.0, 0.0, "replicas on fit offers", remedy)


def _of_roles(problem: Problem, model: ServedModel) -> str:
    """What rows of one phase still need to count."""
    if not any(row.model == model.name and row.role != "aggregated" for row in problem.measured):
        return ""
    if problem.search.disaggregation == "off":
        return "; rows with a role of prefill or decode count with search.disaggregation: auto or only"
    return "; a prefill row counts beside a decode row for a GPU on the same network, and the other way round"


def _hardware_conflict(problem: Problem, demand: Demand, spec: ModelSpec, seconds_left: SecondsLeft) -> Conflict:
    """Disk, context length or memory: the first whose lifting makes the workload servable."""
    model = problem.models[demand.model]
    roomy = replace(problem, offers=tuple(replace(offer, disk_gb=None) for offer in problem.offers))
    if _serves(roomy, demand, ()):
        needed = min(map(checkpoint_disk_gb, model.at_each_precision))
        most = max(offer.disk_gb or 0.0 for offer in problem.offers)
        remedy = f"every piece of {model.name} keeps its whole checkpoint on disk: use offers with more disk_gb"
        return Conflict(demand.name, needed, most, "GB of disk", remedy)
    workload = model.workloads[demand.workload]
    tokens = workload.input_tokens + workload.output_tokens
    if tokens > spec.max_context_tokens:
        remedy = f"longer than the context of {spec.id}: shorten the requests of {demand.name} or use another model"
        return Conflict(demand.name, tokens, float(spec.max_context_tokens), "tokens per request", remedy)
    shorter = tuple(replace(w, input_tokens=1.0, output_tokens=1.0) for w in model.workloads)
    if _serves(problem.with_model(demand.model, replace(model, workloads=shorter)), demand, ()):
        most_tokens = tokens * _shortest_cut(problem, demand, seconds_left)
        remedy = "the KV cache of one such request fits no replica here: shorten it, or offer more GPU memory"
        return Conflict(demand.name, tokens, most_tokens, "tokens per request", remedy)
    smallest = min(model.precisions, key=lambda precision: checkpoint_gb(spec, precision))
    needed = checkpoint_gb(spec, smallest)
    largest = max(
        problem.gpus[offer.gpu].memory_gb
        * (offer.gpus if not offer.divisible else max((s for s in PIECE_SIZES if s <= offer.gpus), default=1))
        for offer in problem.offers
    )
    remedy = (
        f"no replica of {model.name} at {smallest} can run on this market (weights and runtime must fit 90 % "
        "of the memory, GPUs that work together need a link): use a smaller precision, larger offers, or sites with "
        "a network between machines"
    )
    return Conflict(demand.name, needed, largest, "GB of GPU memory in one machine", remedy)


def _shortest_cut(problem: Problem, demand: Demand, seconds_left: SecondsLeft) -> float:
    """The share of its tokens, on both sides, with which the market can still serve a request."""
    model = problem.models[demand.model]
    present = model.workloads[demand.workload]

    def is_enough(cut: float) -> bool:
        tokens = (present.input_tokens / cut, present.output_tokens / cut)
        short = replace(present, input_tokens=tokens[0], output_tokens=tokens[1])
        return _serves(problem.with_model(demand.model, model.with_workload(demand.workload, short)), demand, ())

    return 1 / (_least_factor(is_enough, seconds_left) or np.inf)


def _serves(problem: Problem, demand: Demand, slo: tuple[LatencyLimit, ...]) -> bool:
    """Whether the market serves the workload within these limits."""
    model = problem.models[demand.model]
    limited = model.with_workload(demand.workload, replace(model.workloads[demand.workload], slo=slo))
    return _can_serve(problem.with_model(demand.model, limited), demand)


def _can_serve(problem: Problem, demand: Demand) -> bool:
    return not unserved_among(polytope_of(problem), [demand])


def _latency_conflicts(
    problem: Problem, demand: Demand, model: ServedModel, seconds_left: SecondsLeft
) -> list[Conflict]:
    """The first limit whose removal makes the workload servable, or else all, and the loosening that would do."""
    workload = model.workloads[demand.workload]
    limits = model.limits_of(workload)
    culprits = [limit for limit in limits if _serves(problem, demand, tuple(o for o in limits if o != limit))]
    loosened = culprits[:1] or list(limits)
    names = [f"{limit.metric}_p{limit.percentile}_s" for limit in loosened]
    within = f"no configuration on this market serves {demand.name} within {' and '.join(names)}, at any load"
    owner = model.name if workload.slo is None else f"{model.name}/{workload.name}"

    def serves(factors: Mapping[LatencyLimit, float]) -> bool:
        return _serves(problem, demand, tuple(replace(o, seconds=o.seconds * factors.get(o, 1.0)) for o in limits))

    common = _least_factor(lambda factor: serves(dict.fromkeys(loosened, factor)), seconds_left)
    if common is None:
        remedy = f"{within}, however long is allowed: leave it out, or offer faster GPUs"
        return [Conflict(demand.name, 1.0, 0.0, "configurations within the limits", remedy)]
    factors = dict.fromkeys(loosened, common)
    for limit in loosened if len(loosened) > 1 else ():
        is_enough = partial(lambda one, factor: serves({**factors, one: factor}), limit)
        factors[limit] = _least_factor(is_enough, seconds_left, most=common) or common
    return [
        Conflict(
            f"limit/slo/{owner}/{name}",
            limit.seconds * factors[limit],
            limit.seconds,
            "s",
            f"{within}: allow about {factors[limit]:.3g} times as long, or offer faster GPUs",
        )
        for name, limit in zip(names, loosened, strict=True)
    ]


def _least_factor(
    is_enough: Callable[[float], bool], seconds_left: SecondsLeft, *, most: float = np.inf
) -> float | None:
    """The least factor that is enough, 1 % above it at most if there is time; None: none is.

    `most`: known to be enough.
    """
    steps = [factor for factor in _FACTORS if factor < most]
    step = bisect_left(steps, True, key=is_enough)
    if step == len(steps) and not np.isfinite(most):
        return None
    short, factor = steps[step - 1] if step else 1.0, steps[step] if step < len(steps) else most
    while factor > short * _CLOSE and seconds_left() > 0:
        middle = (short * factor) ** 0.5
        short, factor = (short, middle) if is_enough(middle) else (middle, factor)
    return factor
