"""Totals of the plan: cost, power, throughput, makespan, load multiple, price per token, objective value."""

from collections import Counter
from collections.abc import Iterator

from sutler.solver.plan import Rental, figure_of
from sutler.solver.problem import Interruptions, Problem
from sutler.solver.units import SECONDS_PER_HOUR, TOKENS_PER_MILLION
from sutler.solver.verify.numbers import RATE_TOLERANCE, agrees, same
from sutler.solver.verify.view import PlanView


def wrong_totals(view: PlanView) -> Iterator[str]:
    """Totals that do not follow from rentals, replicas and demand."""
    plan = view.plan
    expected = {
        "cost_usd_per_hour": cost_usd_per_hour(view),
        "expected_cost_usd_per_hour": counted_usd_per_hour(view) if _counts_interruptions(view) else None,
        "power_watts": power_watts(view),
        "throughput_rps": sum(view.rates_rps.values()),
        "makespan_s": plan.value if plan.objective == "min_makespan" else None,
        "usd_per_million_tokens": _usd_per_million_tokens(view),
    }
    yield from (
        f"{name}: {getattr(plan, name)!r}, expected {figure!r}"
        for name, figure in expected.items()
        if not _matches(getattr(plan, name), figure)
    )
    yield from _wrong_interruptions(view)
    yield from _wrong_value(view)
    yield from _wrong_alternative(view)
    yield from _wrong_load_multiple(view)


def _wrong_alternative(view: PlanView) -> Iterator[str]:
    """Checks the comparison with a fleet at another precision, which is all of it that can be checked."""
    plan, found = view.plan, view.plan.precision_alternative
    best = plan.optimum_value if view.problem.objective.give_up_fraction else plan.value
    if found is None or not best:
        return
    ratio = found.value / best
    better = ratio - 1 if plan.objective == "max_throughput" else 1 - ratio
    if better <= 0 or not agrees(found.better_by_fraction, better):
        stated = found.better_by_fraction
        yield f"precision_alternative.better_by_fraction: {stated!r}, expected {better!r}, above 0"
    models = {model.name for model in view.problem.models}
    if not found.checkpoints or not {name for name, _ in found.checkpoints} <= models:
        yield f"precision_alternative.checkpoints: {found.checkpoints!r}, expected some of {sorted(models)}"


def _matches(value: float | None, expected: float | None) -> bool:
    return value is expected if value is None or expected is None else same(value, expected)


def cost_usd_per_hour(view: PlanView) -> float:
    return sum(rental.price_usd_per_hour * rental.count for rental in view.plan.rentals)


def counted_usd_per_hour(view: PlanView) -> float:
    """The cost; where interruptions count, machines are paid as well while they start in place of others."""
    problem, cost = view.problem, cost_usd_per_hour(view)
    if not _counts_interruptions(view):
        return cost
    for rental in view.plan.rentals:
        bare = (rental.price_usd_per_hour - rental.storage_usd_per_hour) * rental.count
        rates = (rate for rate in problem.interruptions if _is_of(rate, rental))
        times = next((rate.per_hour for rate in rates), 0.0)
        cost += times * problem.objective.restart_s / SECONDS_PER_HOUR * bare
    return cost


def _counts_interruptions(view: PlanView) -> bool:
    return view.problem.objective.count_interruptions


def _wrong_interruptions(view: PlanView) -> Iterator[str]:
    stated, counts = view.plan.interruptions, _counts_interruptions(view)
    known = [rate for rate in view.problem.interruptions if counts]
    firsts = [next((rate for rate in known if _is_of(rate, rental)), None) for rental in view.plan.rentals]
    expected = {rate for rate in firsts if rate is not None}
    if set(stated) != expected or len(stated) != len(expected):
        yield f"interruptions: {stated!r}, expected those of its rentals, {sorted(expected, key=repr)!r}"


def _is_of(rate: Interruptions, rental: Rental) -> bool:
    """Whether a rate is that of a rental's kind."""
    return (
        rate.contract == rental.contract
        and rate.provider in (None, rental.provider)
        and rate.gpu in (None, rental.gpu)
    )


def power_watts(view: PlanView) -> float | None:
    """Caps, or TDP, of all rented GPUs; None where one of them is unknown. GPUs that run nothing count as set to the
    lowest cap that the problem allows."""
    lowest = min((1.0, *cap_fractions(view.problem)))
    used: Counter[str] = Counter()
    watts = 0.0
    for replica in view.plan.replicas:
        for stage in replica.stages:
            used[stage.gpu] += stage.gpus
            cap_watts = stage.power_cap_watts or view.problem.gpus[stage.gpu].tdp_watts
            watts += (cap_watts or 0.0) * stage.gpus
    for rental in view.plan.rentals:
        tdp_watts = view.problem.gpus[rental.gpu].tdp_watts
        if tdp_watts is None:
            return None
        watts += tdp_watts * lowest * rental.gpus * rental.count
    return watts - sum((view.problem.gpus[gpu].tdp_watts or 0.0) * lowest * count for gpu, count in used.items())


def cap_fractions(problem: Problem) -> tuple[float, ...]:
    """Caps count where watts do: as the objective, or as a limit."""
    matters = problem.objective.kind == "min_power" or problem.limits.max_power_watts is not None
    return problem.search.power_caps_fraction if matters else ()


def _usd_per_million_tokens(view: PlanView) -> float | None:
    tokens_per_s = sum(
        view.rates_rps.get((model.name, workload.name), 0.0) * (workload.input_tokens + workload.output_tokens)
        for model in view.problem.models
        for workload in model.workloads
    )
    if tokens_per_s == 0:
        return None
    return cost_usd_per_hour(view) / (tokens_per_s * SECONDS_PER_HOUR / TOKENS_PER_MILLION)


def _wrong_value(view: PlanView) -> Iterator[str]:
    plan = view.plan
    figure = figure_of(view.problem.objective)
    if plan.value is None or plan.value != getattr(plan, figure):
        yield f"value: {plan.value!r}, expected {figure} {getattr(plan, figure)!r}"


def _wrong_load_multiple(view: PlanView) -> Iterator[str]:
    plan, objective = view.plan, view.problem.objective
    if objective.kind not in ("min_cost", "min_power"):
        if plan.load_multiple is not None:
            yield f"load_multiple: {plan.load_multiple!r}, expected None for {objective.kind}"
        return
    multiples = [
        (replica.max_load_fraction or 0.0) / replica.utilisation_fraction
        for replica in plan.replicas
        if replica.utilisation_fraction > 0
    ]
    expected = min(multiples, default=None)
    if not view.problem.models and plan.load_multiple is None:
        return  # nothing is nothing, however often
    if plan.load_multiple is None or expected is None or not agrees(plan.load_multiple, expected):
        yield f"load_multiple: {plan.load_multiple!r}, expected {expected!r}"
    elif not view.is_standing and plan.load_multiple < objective.carried_load * (1 - RATE_TOLERANCE):
        yield f"load_multiple: {plan.load_multiple!r}, expected at least {objective.carried_load!r}"
