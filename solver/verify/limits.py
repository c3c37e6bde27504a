"""Budget and limits of the problem against the plan's totals."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sutler.solver.verify.numbers import RATE_TOLERANCE, at_most
from sutler.solver.verify.totals import cost_usd_per_hour, power_watts
from sutler.solver.verify.view import PlanView


def broken_limits(view: PlanView) -> Iterator[str]:
    """Limits that the plan exceeds; utilisation is checked where it is recomputed (service.py)."""
    limits, budget = view.problem.limits, view.problem.budget_usd_per_hour
    cost, watts = cost_usd_per_hour(view), power_watts(view)
    if budget is not None and not at_most(cost, budget):
        yield f"cost_usd_per_hour: {cost!r}, expected at most the budget {budget!r}"
    if limits.max_power_watts is not None and watts is None:
        yield f"power_watts: unknown for a rented GPU, expected at most max_power_watts {limits.max_power_watts!r}"
    elif limits.max_power_watts is not None and not at_most(watts or 0.0, limits.max_power_watts):
        yield f"power_watts: {watts!r}, expected at most max_power_watts {limits.max_power_watts!r}"
    by_gpu: Counter[str] = Counter()
    by_provider: Counter[str] = Counter()
    for rental in view.plan.rentals:
        by_gpu[rental.gpu] += rental.gpus * rental.count
        by_provider[rental.provider] += rental.gpus * rental.count
    yield from _too_many("max_gpus", by_gpu, limits.max_gpus)
    yield from _too_many("max_gpus_per_provider", by_provider, limits.max_gpus_per_provider)
    yield from _lopsided(view)


def _too_many(name: str, rented: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[str]:
    for key, gpus in rented.items():
        if gpus > limits.get(key, gpus):
            yield f"rentals: {gpus} GPUs of {key!r}, expected at most {name} {limits[key]}"


def _lopsided(view: PlanView) -> Iterator[str]:
    """Providers that take more of the requests than `max_share_per_provider_fraction`."""
    most = view.problem.limits.max_share_per_provider_fraction
    carried: dict[str, float] = defaultdict(float)
    for replica in view.plan.replicas:
        if replica.role == "prefill":  # its requests are counted where they are decoded, on the same site
            continue
        provider = view.plan.rentals[replica.stages[0].rental].provider
        carried[provider] += sum(rate.rps for rate in replica.throughput_rps)
    total = sum(carried.values())
    for provider, rps in carried.items():
        if not at_most(rps, most * total, RATE_TOLERANCE):
            yield (
                f"routing: {provider!r} takes {rps / total:.6f} of the requests, expected at most "
                f"max_share_per_provider_fraction {most!r}"
            )
