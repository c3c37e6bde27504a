"""What a plan says of the low end of the bands: its share of the rates, and what the fleet carries there."""

from collections.abc import Iterator

from sutler.solver.plan import RobustAlternative, Robustness
from sutler.solver.verify.carried import most_carried
from sutler.solver.verify.numbers import RATE_TOLERANCE, agrees
from sutler.solver.verify.service import Sustained
from sutler.solver.verify.view import PlanView

_LOAD_TOLERANCE = 1e-5  # of two routings by different programs


def wrong_low_end(view: PlanView, sustained: dict[str, Sustained]) -> Iterator[str]:
    """Figures of `robustness` that do not follow from the bands; of other fleets only their order can be checked."""
    found = view.plan.robustness
    if found is None:
        return
    expected = _low_fraction(view, sustained)
    if expected is None:
        return  # service.py says what is wrong with the routing
    if not agrees(found.low_fraction, expected):
        yield f"robustness.low_fraction: {found.low_fraction!r}, expected {expected!r}"
    yield from _wrong_load(view, found, sustained)
    yield from _wrong_order(view, found)


def _low_fraction(view: PlanView, sustained: dict[str, Sustained]) -> float | None:
    """The mean low end / rate; None where nothing is routed, or something to where it has no rate."""
    routed = [(rate, sustained[r.id]) for r in view.plan.replicas for rate in r.throughput_rps]
    if not routed or any(known.stated_rps.get(rate.workload, 0.0) <= 0 for rate, known in routed):
        return None
    low = sum(rate.rps * known.low_rps[rate.workload] / known.stated_rps[rate.workload] for rate, known in routed)
    return min(1.0, low / sum(rate.rps for rate, _ in routed))


def _wrong_load(view: PlanView, found: Robustness, sustained: dict[str, Sustained]) -> Iterator[str]:
    """Checks that no more is stated than the fleet carries at the low ends, where each replica serves whole requests
    of any provider: up to the loads that the caller allows, latency limits aside, since they depend on the routing
    there."""
    plan, kind = view.plan, view.plan.objective
    is_rate = kind in ("max_throughput", "min_makespan")
    if (found.load_multiple_at_low is None) != is_rate:
        yield f"robustness.load_multiple_at_low: {found.load_multiple_at_low!r} under {kind}"
        return
    if not is_rate and found.value_at_low != plan.value:
        yield f"robustness.value_at_low: {found.value_at_low!r}, expected the value {plan.value!r}"
    apart = any(replica.role != "aggregated" for replica in plan.replicas)
    if apart or view.problem.limits.max_share_per_provider_fraction < 1:
        return
    low = {replica.id: sustained[replica.id].low_rps for replica in plan.replicas}
    multiple = most_carried(view, low, {(m.name, w.name): w.demand for m in view.problem.models for w in m.workloads})
    demand = view.problem.total_demand
    carried = {
        "max_throughput": found.value_at_low / demand,
        "min_makespan": 1 / found.value_at_low if found.value_at_low else float("inf"),
    }.get(kind, found.load_multiple_at_low or 0.0)
    if carried > multiple * (1 + _LOAD_TOLERANCE):
        name = "value_at_low" if is_rate else "load_multiple_at_low"
        stated = getattr(found, name)
        yield f"robustness.{name}: {stated!r}, expected no more than {multiple!r} of the load at the low ends"


def _wrong_order(view: PlanView, found: Robustness) -> Iterator[str]:
    """A fleet named for a fraction of the objective that gives up more of it, or carries no more at the low ends."""
    other, fraction = found.near_optimum, found.near_optimum_fraction
    if other is None:
        return
    value = view.plan.value
    if fraction is None or value is None:
        yield f"robustness.near_optimum_fraction: {fraction!r}, expected what {other.value!r} gives up of {value!r}"
        return
    maximised = view.plan.objective == "max_throughput"
    worst = value * (1 - fraction if maximised else 1 + fraction)
    if (worst - other.value if maximised else other.value - worst) > RATE_TOLERANCE * abs(worst):
        yield f"robustness.near_optimum.value: {other.value!r}, expected no worse than {worst!r}"
    if not _is_more(view, other, found):
        yield "robustness.near_optimum: carries no more at the low end than the plan, expected more"


def _is_more(view: PlanView, other: RobustAlternative, found: Robustness) -> bool:
    if other.load_multiple_at_low is not None and found.load_multiple_at_low is not None:
        return other.load_multiple_at_low > found.load_multiple_at_low
    if view.plan.objective == "max_throughput":
        return other.value_at_low > found.value_at_low
    return other.value_at_low < found.value_at_low
