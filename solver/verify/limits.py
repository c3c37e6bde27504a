"""Budget and limits of the problem against the plan's totals."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sutler.solver.verify.numbers import RATE_TOLERANCE, at_most
from sutler.solver.verify.totals import counted_usd_per_hour, power_watts
from sutler.solver.verify.view import PlanView


def broken_limits(view: PlanView) -> Iterator[str]:
    """Limits that the plan exceeds; utilisation is checked where it is recomputed (service.py)."""
    limits, budget = view.problem.limits, view.problem.budget_usd_per_hour
    cost, watts = counted_usd_per_hour(view), power_watts(view)
    if budget is not None and not at_most(cost, budget):
        name = "expected_cost_usd_per_hour" if view.problem.objective.count_interruptions else "cost_usd_per_hour"
        yield f"{name}: {cost!r}, expected at most the budget {budget!r}"
    if limits.max_power_watts is not None and watts is None:
        yield f"power_watts: unknown for a rented GPU, expected at most max_power_watts {limits.max_power_watts!r}"
    elif limits.max_power_watts is not None and not at_most(watts or 0.0, limits.max_power_watts):
        yield f"power_watts: {watts!r}, expected at most max_power_watts {limits.max_power_watts!r}"
    by_gpu: Counter[str] = Counter()
    by_provider: Counter[str] = Counter()
    by_host: Counter[str] = Counter()
    for rental, offer in zip(view.plan.rentals, view.offers, strict=True):
        if offer.host is not None:
            by_host[f"{offer.provider}/{offer.host}"] += rental.count
        by_gpu[rental.gpu] += rental.gpus * rental.count
        by_provider[rental.provider] += rental.gpus * rental.count
    yield from _too_many("max_gpus", by_gpu, limits.max_gpus)
    yield from _too_many("max_gpus_per_provider", by_provider, limits.max_gpus_per_provider)
    most = limits.max_machines_per_host
    for host, machines in by_host.items():
        if most is not None and machines > most:
            yield f"rentals: {machines} machines on host {host!r}, expected at most max_machines_per_host {most}"
    yield from _lopsided(view)
    yield from _too_few(view)


def _too_many(name: str, rented: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[str]:
    for key, gpus in rented.items():
        if gpus > limits.get(key, gpus):
            yield f"rentals: {gpus} GPUs of {key!r}, expected at most {name} {limits[key]}"


def _lopsided(view: PlanView) -> Iterator[str]:
    """Providers and contracts that take more of the requests than their shares; a replica on machines of several
    contracts counts for each."""
    limits = view.problem.limits
    of_providers: dict[str, float] = defaultdict(float)
    of_contracts: dict[str, float] = defaultdict(float)
    for replica in view.plan.replicas:
        if replica.role == "prefill":  # its requests are counted where they are decoded, on the same site
            continue
        rentals = [view.plan.rentals[stage.rental] for stage in replica.stages]
        rps = sum(rate.rps for rate in replica.throughput_rps)
        of_providers[rentals[0].provider] += rps
        for contract in {rental.contract for rental in rentals}:
            of_contracts[contract] += rps
    total = sum(of_providers.values())
    by_provider: Mapping[str, float] = dict.fromkeys(of_providers, limits.max_share_per_provider_fraction)
    by_contract: Mapping[str, float] = {str(k): share for k, share in limits.max_share_per_contract_fraction.items()}
    for name, carried, allowed in (
        ("max_share_per_provider_fraction", of_providers, by_provider),
        ("max_share_per_contract_fraction", of_contracts, by_contract),
    ):
        for key, rps in carried.items():
            if not at_most(rps, allowed.get(key, 1.0) * total, RATE_TOLERANCE):
                share = f"{rps / total:.6f} of the requests, expected at most {name} {allowed[key]!r}"
                yield f"routing: {key!r} takes {share}"


def _too_few(view: PlanView) -> Iterator[str]:
    """Models with fewer replicas than they are to have."""
    answering = [replica for replica in view.plan.replicas if replica.role != "prefill"]
    contracts = {r.id: {view.plan.rentals[stage.rental].contract for stage in r.stages} for r in answering}
    everywhere = Counter(r.model for r in answering)
    on_demand = Counter(r.model for r in answering if "interruptible" not in contracts[r.id])
    for model in view.problem.models if not view.is_standing else ():
        for name, found, least in (
            ("min_replicas", everywhere[model.name], model.min_replicas),
            ("min_on_demand_replicas", on_demand[model.name], model.min_on_demand_replicas),
        ):
            if found < least:
                yield f"replicas: {found} of {model.name!r}, expected at least {name} {least}"
