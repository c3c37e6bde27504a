"""What a plan achieves, how that is proven, what it costs, on which market it rests: a sentence each."""

from typing import Final

from sutler.service.documents.plan import MarketUsed, PlanDocument
from sutler.service.wording.words import age, counted, number, objective_unit, percent, price

LEAST_SHOWN_USD: Final = 0.001  # what prices are rounded to


def market_words(market: MarketUsed) -> str:
    """When the market was looked at, and how large it is."""
    return f"Market of {market.taken_at:%Y-%m-%d %H:%M} UTC ({age(market.age_s)} old), {market.offers:,} offers"


def achievement(plan: PlanDocument) -> str:
    """The first thing to know of it."""
    value, expected = number(plan.objective.value, digits=5), plan.expected_cost_usd_per_hour
    if plan.status == "infeasible":
        return "Infeasible: no plan meets every limit"
    if plan.objective.value is None:
        return "No plan found before the time limit: raise it with --time-limit-s"
    if plan.sleeping and not plan.replicas:
        return "All models sleep: nothing is rented"
    return {
        "max_throughput": f"{value} requests/s at the given mix",
        "min_makespan": f"All requests done in {value} s",
        "min_cost": f"{value} $/h {'carries' if expected is None else 'on average, with restarts, carries'} the load",
        "min_power": f"{value} W carry the load",
    }[plan.objective.kind]


def proof(plan: PlanDocument) -> str:
    """How sure it is that there is none better."""
    bound, gap = plan.objective.bound, plan.objective.relative_gap
    unit = objective_unit(plan.objective.kind)
    known = "" if bound is None else f"; proven: no plan is better than {number(bound, digits=5)} {unit}"
    by = "" if gap is None else f" (gap {percent(gap)})"
    if plan.status == "optimal":
        return f"Optimal{known}{by}"
    limit = plan.solver.limit or "a limit"
    if plan.status == "feasible" and plan.solver.limit is None and plan.revision > 1:
        return f"Not proven optimal, since what a change costs counts, too{known}{by}"
    return {
        "feasible": f"Not proven optimal, {limit} ended the search{known}{by}",
        "unknown": f"Neither a plan nor a proof that there is none: {limit} ended the search{known}",
        "infeasible": "Proven; the table says what has to give, and by how much",
    }[plan.status]


def optimum(plan: PlanDocument) -> str:
    """What was given up of the optimum, or what would be the best if the rates were sure."""
    best, value = plan.objective.optimum_value, plan.objective.value
    if best is None or value is None:
        return ""
    given_up = f" ({percent(abs(value / best - 1))} given up)" if best else ""
    amount = f"{number(best, digits=5)} {objective_unit(plan.objective.kind)}"
    return f"Planned for low rates: the optimum at the rates themselves is {amount}{given_up}"


def money(plan: PlanDocument) -> str:
    """What it costs, and what comes for that."""
    if plan.cost_usd_per_hour is None:
        return ""
    cost, expected = f"{price(plan.cost_usd_per_hour)} $/h", plan.expected_cost_usd_per_hour
    if expected is not None:
        parts = [f"{cost} while nothing is taken away, {price(expected)} $/h with restarts"]
    else:
        parts = [] if plan.objective.kind == "min_cost" else [cost]
    traffic = sum(rental.traffic_usd_per_hour or 0.0 for rental in plan.rentals)
    if traffic >= LEAST_SHOWN_USD:
        parts.append(f"traffic {price(traffic)} $/h besides")
    start = sum(rental.start_usd or 0.0 for rental in plan.rentals)
    if start >= LEAST_SHOWN_USD:
        parts.append(f"downloads {price(start)} $ once")
    if plan.usd_per_million_tokens is not None:
        parts.append(f"{number(plan.usd_per_million_tokens)} $ per million tokens")
    if plan.throughput_rps is not None and plan.objective.kind != "max_throughput":
        parts.append(f"{number(plan.throughput_rps)} req/s")
    if plan.load_multiple is not None:
        parts.append(f"carries up to {number(plan.load_multiple)} × the load")
    if plan.power_watts is not None and plan.objective.kind != "min_power":
        parts.append(f"{number(plan.power_watts)} W")
    return " · ".join(parts)


def solve(plan: PlanDocument) -> str:
    """How it was found."""
    method = plan.solver.method.replace("_", " ")
    return f"Solved in {plan.solver.seconds:.2f} s ({method}, {counted(plan.solver.candidates, 'candidate')})"
