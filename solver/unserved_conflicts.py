"""Why a workload has no replica that serves it on a market: network, latency limits, disk, context or memory.

Flow: conflicts.py, for workloads that nothing serves whatever the budget -> here -> disaggregation_conflicts.py.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from solver.allocation import Demand, Polytope, build_polytope
from solver.candidates import enumerate_candidates
from solver.catalog.entries import ModelSpec
from solver.disaggregation_conflicts import why_not_apart
from solver.dominance import prune_dominated
from solver.plan import Conflict
from solver.pools import PIECE_SIZES, checkpoint_gb, disk_needed_gb
from solver.problem import LatencyLimit, Limits, Problem, ServedModel
from solver.supply import build_supply
from solver.throughput import QUEUED_UTILISATION_FRACTION

_LOOSENED = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 30.0, 1e2, 1e3, 1e4, 1e6, 1e9)
_WITHOUT_LIMIT = 1e9
_MOST_EXPLAINED = 6  # workloads: every one takes up to some dozen enumerations


def why_unserved(problem: Problem, unserved: Sequence[Demand]) -> tuple[Conflict, ...]:
    """What has to give for the longest of the workloads that nothing serves; one entry per constraint, the one that
    asks for the most."""
    explained = _longest(problem, unserved)
    causes: dict[str, Conflict] = {}
    for demand in explained:
        found = _why_unserved(problem, demand)
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
    """The same market with nothing that a caller set: no budget, no limits. GPUs may be capped as before."""
    limits = Limits(
        max_gpus=dict.fromkeys(problem.limits.max_gpus, int(_WITHOUT_LIMIT)),
        max_gpus_per_provider=dict.fromkeys(problem.limits.max_gpus_per_provider, int(_WITHOUT_LIMIT)),
        max_utilisation_fraction=problem.limits.max_utilisation_fraction,
        max_power_watts=None if problem.limits.max_power_watts is None else _WITHOUT_LIMIT,
    )
    return replace(problem, budget_usd_per_hour=None, limits=limits)


def polytope_of(problem: Problem) -> Polytope:
    """All candidates of a market, lam in requests/s."""
    supply = build_supply(problem)
    candidates = prune_dominated(enumerate_candidates(problem, supply))
    return build_polytope(problem, supply, candidates)


def demands_of(problem: Problem) -> list[Demand]:
    """With requests/s, or requests, in place of fractions."""
    return [
        Demand(f"demand/{model.name}/{workload.name}", m, w, workload.demand)
        for m, model in enumerate(problem.models)
        for w, workload in enumerate(model.workloads)
    ]


def unserved_among(polytope: Polytope, demands: Sequence[Demand]) -> list[Demand]:
    """Those that nothing serves."""
    served = {d.name for d, able in zip(polytope.demands, polytope.servable(), strict=True) if able}
    return [d for d in demands if d.name not in served]


def _why_unserved(problem: Problem, demand: Demand) -> Conflict:
    """No configuration on this market can serve the workload: the latency limits or the hardware."""
    model = problem.models[demand.model]
    free = without_limits(problem)
    apart = why_not_apart(free, demand, _can_serve)
    if apart is not None:
        return apart
    if model.slo and _serves(free, demand, ()):
        return _latency_conflict(free, demand, model)
    if problem.measured_only or model.spec is None:
        return Conflict(
            demand.name,
            1.0,
            0.0,
            "configurations with a measured rate",
            f"add a throughput.table row that serves {demand.name} on GPUs that are for rent, or set "
            f"throughput.only to false with a catalogue model{_of_roles(problem, model)}",
        )
    return _hardware_conflict(free, demand, model, model.spec)


def _of_roles(problem: Problem, model: ServedModel) -> str:
    """What rows of one phase still need to count."""
    if not any(row.model == model.name and row.role != "aggregated" for row in problem.measured):
        return ""
    if problem.search.disaggregation == "off":
        return "; rows with a role of prefill or decode count with search.disaggregation: auto or only"
    return "; a prefill row counts beside a decode row for a GPU on the same network, and the other way round"


def _hardware_conflict(problem: Problem, demand: Demand, model: ServedModel, spec: ModelSpec) -> Conflict:
    """Disk, context length or memory: the first whose lifting makes the workload servable."""
    roomy = replace(problem, offers=tuple(replace(offer, disk_gb=None) for offer in problem.offers))
    if _serves(roomy, demand, ()):
        needed = disk_needed_gb(problem)[demand.model]
        most = max(offer.disk_gb or 0.0 for offer in problem.offers)
        remedy = f"every piece of {model.name} keeps its whole checkpoint on disk: use offers with more disk_gb"
        return Conflict(demand.name, needed, most, "GB of disk", remedy)
    workload = model.workloads[demand.workload]
    tokens = workload.input_tokens + workload.output_tokens
    if tokens > spec.max_context_tokens:
        remedy = f"longer than the context of {spec.id}: shorten the requests of {demand.name} or use another model"
        return Conflict(demand.name, tokens, float(spec.max_context_tokens), "tokens per request", remedy)
    shorter = [replace(w, input_tokens=1.0, output_tokens=1.0) for w in model.workloads]
    models = list(problem.models)
    models[demand.model] = replace(model, workloads=tuple(shorter))
    if _serves(replace(problem, models=tuple(models)), demand, ()):
        most_tokens = _most_tokens(problem, demand, tokens)
        remedy = "the KV cache of one such request fits no replica here: shorten it, or offer more GPU memory"
        return Conflict(demand.name, tokens, most_tokens, "tokens per request", remedy)
    needed = checkpoint_gb(spec, model.precision)
    largest = max(
        problem.gpus[offer.gpu].memory_gb * max((s for s in PIECE_SIZES if s <= offer.gpus), default=1)
        for offer in problem.offers
    )
    remedy = (
        f"no replica of {model.name} at {model.precision} can run on this market (weights and runtime must fit 90 % "
        "of the memory, GPUs that work together need a link): use a smaller precision, larger offers, or sites with "
        "a network between machines"
    )
    return Conflict(demand.name, needed, largest, "GB of GPU memory in one machine", remedy)


def _most_tokens(problem: Problem, demand: Demand, tokens: float) -> float:
    """About how many tokens per request the market can still serve, by halving."""
    model = problem.models[demand.model]
    while tokens > 2:
        tokens /= 2
        shrunk = [replace(w, input_tokens=tokens / 2, output_tokens=tokens / 2) for w in model.workloads]
        models = list(problem.models)
        models[demand.model] = replace(model, workloads=tuple(shrunk))
        if _serves(replace(problem, models=tuple(models)), demand, ()):
            break
    return tokens


def _serves(problem: Problem, demand: Demand, slo: tuple[LatencyLimit, ...]) -> bool:
    models = list(problem.models)
    models[demand.model] = replace(models[demand.model], slo=slo)
    return _can_serve(replace(problem, models=tuple(models)), demand)


def _can_serve(problem: Problem, demand: Demand) -> bool:
    return not unserved_among(polytope_of(problem), [demand])


def _latency_conflict(problem: Problem, demand: Demand, model: ServedModel) -> Conflict:
    """The first limit whose removal makes the workload servable, and the loosening that would do; the utilisation,
    where no loosening would."""
    culprits = [limit for limit in model.slo if _serves(problem, demand, tuple(o for o in model.slo if o != limit))]
    loosened = culprits[:1] or list(model.slo)

    def is_enough(factor: float) -> bool:
        slo = tuple(replace(o, seconds=o.seconds * factor) if o in loosened else o for o in model.slo)
        return _serves(problem, demand, slo)

    names = " and ".join(f"{o.metric}_p{o.percentile}_s" for o in loosened)
    if not is_enough(_LOOSENED[-1]) and (problem.limits.max_utilisation_fraction or 0.0) >= 1:
        remedy = (
            f"replicas that are used to the full let {demand.name} wait without end, whatever {names} allows: lower "
            f"limits.max_utilisation_fraction, to {QUEUED_UTILISATION_FRACTION:g} say"
        )
        return Conflict("limit/max_utilisation_fraction", QUEUED_UTILISATION_FRACTION, 1.0, "fraction", remedy)
    factor = _LOOSENED[min(bisect_left(_LOOSENED, True, key=is_enough), len(_LOOSENED) - 1)]
    limit = loosened[0]
    return Conflict(
        f"limit/slo/{model.name}/{limit.metric}_p{limit.percentile}_s",
        limit.seconds * factor,
        limit.seconds,
        "s",
        f"no configuration on this market serves {demand.name} within {names}: allow about {factor:g} times as long, "
        "lower limits.max_utilisation_fraction (shorter queues), or offer faster GPUs",
    )
