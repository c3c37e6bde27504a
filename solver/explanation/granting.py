"""A problem with what its conflicts ask for: what a caller would set, wait for or give up, all of it together.

Flow: conflicts.py finds what has to give -> here, to see whether it is enough; callers may ask the same.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sutler.solver.market.pools import group_offers
from sutler.solver.plan import Conflict
from sutler.solver.problem import LatencyLimit, Offer, Problem, ServedModel, Workload

_ROUNDING = 1e-6  # of a GPU: what counts as a whole number of them


def granted(problem: Problem, conflicts: Iterable[Conflict]) -> Problem | None:
    """`problem` with every limit raised to what is needed, and load and requests lowered to what there is room for.

    None where something is lacking that is no number of the problem: memory, a network, a measured rate.
    """
    conflicts = sorted(conflicts, key=lambda conflict: not conflict.constraint.startswith("supply/"))
    for conflict in conflicts:  # supply first: its names change with the limits
        changed = _with(problem, conflict)
        if changed is None:
            return None
        problem = changed
    return problem


def _with(problem: Problem, conflict: Conflict) -> Problem | None:
    kind, _, key = conflict.constraint.partition("/")
    changed: Problem | None = None
    if kind == "budget":
        changed = replace(problem, budget_usd_per_hour=conflict.needed)
    elif kind == "headroom":
        changed = problem.with_headroom(conflict.available)
    elif kind == "limit":
        changed = _with_limit(problem, key, conflict.needed)
    elif kind == "resilience":
        survived = problem.resilience.survive if conflict.available > 0 else ()
        asked = replace(problem.resilience, survive=survived, load_fraction=conflict.available)
        changed = replace(problem, resilience=asked)
    elif kind == "supply":
        changed = _with_supply(problem, key, conflict)
    elif conflict.unit == "gb_per_s between machines":
        changed = with_bandwidth(problem, conflict.needed / conflict.available)
    elif kind == "demand" and conflict.unit == "GB of disk":
        changed = _with_disk(problem, conflict.needed)
    elif kind == "demand" and conflict.unit in ("rps", "tokens per request"):
        changed = _with_workload(problem, conflict)
    return changed


def _with_limit(problem: Problem, name: str, needed: float) -> Problem:
    kind, _, key = name.partition("/")
    if kind == "slo":
        owner, _, limit = key.rpartition("/")
        return _with_models(problem, lambda model: _with_seconds(model, owner, limit, needed))
    if kind == "slo_split":
        return _with_models(problem, lambda m: replace(m, prefill_share_fraction=needed) if m.name == key else m)
    if kind in ("min_replicas", "min_on_demand_replicas"):
        return _with_models(problem, lambda m: m.without_least_replicas() if m.name == key else m)
    limits = problem.limits
    value = needed if kind.endswith("_fraction") else _whole(needed)
    if kind == "max_machines_per_host":  # one for all hosts, of which conflicts name those in the way
        most = max(_whole(needed), limits.max_machines_per_host or 0)
        return replace(problem, limits=replace(limits, max_machines_per_host=most))
    raised: dict[str, Any] = {kind: {**getattr(limits, kind), key: value} if key else needed}
    return replace(problem, limits=replace(limits, **raised))


def _with_models(problem: Problem, change: Callable[[ServedModel], ServedModel]) -> Problem:
    return replace(problem, models=tuple(change(model) for model in problem.models))


def _with_seconds(model: ServedModel, owner: str, name: str, seconds: float) -> ServedModel:
    """Loosens a limit of `owner`: the model, or one of its workloads."""

    def loosened(slo: tuple[LatencyLimit, ...]) -> tuple[LatencyLimit, ...]:
        return tuple(
            replace(limit, seconds=seconds) if f"{limit.metric}_p{limit.percentile}_s" == name else limit
            for limit in slo
        )

    if owner == model.name:
        return replace(model, slo=loosened(model.slo))
    workloads = tuple(
        workload
        if workload.slo is None or owner != f"{model.name}/{workload.name}"
        else replace(workload, slo=loosened(workload.slo))
        for workload in model.workloads
    )
    return replace(model, workloads=workloads)


def _with_workload(problem: Problem, conflict: Conflict) -> Problem:
    """Fewer requests of a workload, or shorter ones."""
    factor = conflict.available / conflict.needed

    def less(model: ServedModel, workload: Workload) -> Workload:
        if conflict.constraint != f"demand/{model.name}/{workload.name}":
            return workload
        if conflict.unit == "rps":
            return replace(workload, demand=workload.demand * factor)
        shorter = (workload.input_tokens * factor, workload.output_tokens * factor)
        return replace(workload, input_tokens=shorter[0], output_tokens=shorter[1])

    return _with_models(problem, lambda m: replace(m, workloads=tuple(less(m, w) for w in m.workloads)))


def _with_disk(problem: Problem, least_gb: float) -> Problem:
    offers = (
        offer if offer.disk_gb is None else replace(offer, disk_gb=max(offer.disk_gb, least_gb))
        for offer in problem.offers
    )
    return replace(problem, offers=tuple(offers))


def with_bandwidth(problem: Problem, factor: float) -> Problem:
    """Networks that are so many times as fast."""
    offers = (
        replace(offer, inter_machine_gb_per_s=(offer.inter_machine_gb_per_s or 0.0) * factor)
        for offer in problem.offers
    )
    return replace(problem, offers=tuple(offers))


def _with_supply(problem: Problem, key: str, conflict: Conflict) -> Problem | None:
    """More machines like the cheapest of the pool that have as many GPUs."""
    pool, _, gpus = key.rpartition("/")
    pools, pool_of = group_offers(problem)
    alike = [
        offer
        for offer, index in zip(problem.offers, pool_of, strict=True)
        if pools[index].name == pool and offer.gpus == int(gpus)
    ]
    if not alike:
        return None
    machines = math.ceil((conflict.needed - conflict.available) / int(gpus) - _ROUNDING)
    return replace(problem, offers=(*problem.offers, more_of(alike, machines)))


def more_of(alike: Iterable[Offer], machines: int) -> Offer:
    """An offer of so many more machines like the cheapest of some offers, whole and on their own."""
    cheapest = min(alike, key=lambda offer: offer.price_usd_per_hour)
    name = f"{cheapest.offer_id} (more)"
    alone = replace(cheapest.on_its_own(), host_id=None)
    return replace(alone, offer_id=name, available=machines, divisible=False, held=False)


def _whole(gpus: float) -> int:
    return math.ceil(gpus - _ROUNDING)
