"""Why prefill and decode cannot run apart where they have to: the network, the split of a limit, or one of the two.

Flow: unserved_conflicts.py, for a workload that nothing serves under `disaggregation: only` -> here.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sutler.solver.candidates.enumerate import ROLES, candidates_in_role
from sutler.solver.explanation.granting import with_bandwidth
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Conflict
from sutler.solver.polytope.rows import Demand
from sutler.solver.problem import Problem
from sutler.solver.throughput.roles import prefill_share

CanServe = Callable[[Problem, Demand], bool]

# An enumeration each: doublings up to what networks could become, then whether bandwidth is the reason at all.
_FASTER = (2.0, 4.0, 8.0, 16.0, 32.0, 100.0, 1000.0, 1e5)
_SHARES = tuple(np.linspace(0.05, 0.95, 19))


def why_not_apart(problem: Problem, demand: Demand, can_serve: CanServe) -> Conflict | None:
    """Says what keeps them together; None where the reason has nothing to do with that. `problem`: without budget and
    limits."""
    if problem.search.disaggregation != "only":
        return None
    fastest = max((offer.inter_machine_gb_per_s or 0.0 for offer in problem.offers if offer.site), default=0.0)
    if all(pool.hands_over_on is None for pool in build_supply(problem).pools):
        remedy = (
            "search.disaggregation: only hands keys and values over a network between the machines of a site, or "
            "inside one machine: offer sites with inter_machine_gb_per_s or machines of several GPUs, or set it to "
            "auto or off"
        )
        return Conflict("network", 1.0, 0.0, "sites with a network between machines", remedy)
    return (
        _thin_network(problem, demand, can_serve, fastest)
        or _contradictory_split(problem, demand, can_serve)
        or _missing_role(problem, demand, can_serve)
    )


def _thin_network(problem: Problem, demand: Demand, can_serve: CanServe, fastest: float) -> Conflict | None:
    """A faster network alone would do."""

    def is_enough(factor: float) -> bool:
        return can_serve(with_bandwidth(problem, factor), demand)

    if fastest <= 0 or not is_enough(_FASTER[-1]):
        return None
    factor = _FASTER[bisect_left(_FASTER, True, key=is_enough)]
    remedy = (
        f"handing over the keys and values of {demand.name} takes too long for its limits: about {factor:g} "
        "times the bandwidth between machines would do; or set search.disaggregation to auto"
    )
    return Conflict("network", fastest * factor, fastest, "gb_per_s between machines", remedy)


def _contradictory_split(problem: Problem, demand: Demand, can_serve: CanServe) -> Conflict | None:
    """Another share of the end-to-end limit would do."""
    model = problem.models[demand.model]
    if all(limit.metric != "e2e" for limit in model.limits_of(model.workloads[demand.workload])):
        return None
    present = float(prefill_share(model)[demand.workload])
    for share in sorted(_SHARES, key=lambda share: abs(share - present)):
        split = replace(model, prefill_share_fraction=float(share))
        if can_serve(problem.with_model(demand.model, split), demand):
            remedy = (
                f"prefill and KV transfer get {present:.2g} of the end-to-end limit of {model.name}, which leaves "
                f"{demand.name} without a replica for one of the two: set prefill_share_fraction to about {share:.2g}"
            )
            return Conflict(f"limit/slo_split/{model.name}", float(share), present, "fraction", remedy)
    return None


def _missing_role(problem: Problem, demand: Demand, can_serve: CanServe) -> Conflict | None:
    """One of the two has no replica on any network, or not on the other's, whatever the limits."""
    model = problem.models[demand.model]
    workloads = tuple(replace(workload, slo=None) for workload in model.workloads)
    free = problem.with_model(demand.model, replace(model, slo=(), workloads=workloads))
    if can_serve(free, demand):
        return None
    supply = build_supply(free)
    remedy = "offer GPUs with more memory there, use a smaller precision, or set search.disaggregation to auto"
    for role in ROLES[1:]:
        if problem.measured_only or model.spec is None:
            remedy = f"add a throughput.table row with role: {role}"
        able = candidates_in_role(free, supply, demand.model, role)
        if not (able.rps[:, demand.workload] > 0).any():
            where = "on a site with a network, or beside others in one machine,"
            why = f"no GPU {where} can {role} {demand.name}: {remedy}"
            return Conflict(f"{demand.name}/{role}", 1.0, 0.0, f"{role} replicas", why)
    why = (
        f"what can prefill {demand.name} and what can decode it are on different networks or machines: offer both "
        "kinds of GPU on one site, or set search.disaggregation to auto"
    )
    return Conflict("network", 1.0, 0.0, f"networks with prefill and decode for {demand.name}", why)
