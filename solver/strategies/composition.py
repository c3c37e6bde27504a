"""GPUs rented in equal numbers of every type: the MILP paper without its choice of what to rent (arXiv 2502.00722,
Figure 8 "uniform GPU composition", and what HexGen is given in Figure 7).

k GPUs of every type on the market, or as many of it as there are. With a budget to spend k is the largest that it
pays for, each type bought from its cheapest offers per GPU, whole offers only. For the least cost or power it is the
smallest with which the load is carried, and the GPUs are deployed to carry as much as they can: buying fewer of some
type would be a choice of what to rent. Only GPUs that add nothing to that are not paid for.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sutler.solver import planner
from sutler.solver.market.supply import machine_gpus
from sutler.solver.plan import Conflict
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.problem import Offer, Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import straight_line
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.straight_line import CARRIES, Ruled

_REMEDY = "it rents as many GPUs of every type: take the types that are of no use off the market, or raise the budget"


def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The best plan on the uniform composition."""
    if problem.objective.maximises_rate:
        most = most_affordable(problem)
        if most == 0:
            return unaffordable(problem, seconds_left)
        return StrategyPlan(
            straight_line.solved(with_at_most(problem, uniform(problem, most)), seconds_left), problem
        )
    run, most_load = straight_line.started(problem, seconds_left), straight_line.for_the_most_load(problem)

    def deployed(k: int) -> Ruled | None:
        return straight_line.best_fleet(run, prepare(with_at_most(most_load, uniform(problem, k))))

    found, carried = smallest_that_carries(problem, deployed)
    return straight_line.answered(run, problem, "uniform-composition", found, remedy=_REMEDY, carried=carried)


def uniform(problem: Problem, most: int) -> dict[str, int]:
    """`most` GPUs of every type, or all that there are."""
    return {gpu: min(most, available) for gpu, available in _available(problem).items()}


def with_at_most(problem: Problem, gpus: Mapping[str, int], budget_usd_per_hour: float | None = None) -> Problem:
    """The problem with no more than these GPUs, and no more than this money where it is given."""
    limits = {**problem.limits.max_gpus}
    for gpu, most in gpus.items():
        limits[gpu] = min(most, limits.get(gpu, most))
    budgets = [b for b in (problem.budget_usd_per_hour, budget_usd_per_hour) if b is not None]
    return replace(
        problem,
        limits=replace(problem.limits, max_gpus=limits),
        budget_usd_per_hour=min(budgets, default=None),
    )


def most_affordable(problem: Problem) -> int:
    """The largest k, 0 where the budget does not pay for the smallest offers."""
    most, budget = max(_available(problem).values()), problem.budget_usd_per_hour
    if budget is None:
        return most
    cheapest = min(offer.price_usd_per_hour / offer.gpus for offer in problem.offers)
    if cheapest > 0:
        most = min(most, int(budget / cheapest * (1 + 1e-9)))
    affordable = (k for k in range(most, 0, -1) if _gpus_at(problem, k)[0] > 0)
    return next((k for k in affordable if _gpus_at(problem, k)[1] <= budget * (1 + 1e-9)), 0)


def unaffordable(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Infeasible: even the smallest uniform composition costs more than the budget."""
    most, budget = max(_available(problem).values()), problem.budget_usd_per_hour or 0.0
    costs = (usd_per_hour for gpus, usd_per_hour in (_gpus_at(problem, k) for k in range(1, most + 1)) if gpus > 0)
    conflict = Conflict("budget", next(costs, np.inf), budget, "usd_per_hour", _REMEDY)
    plan = planner.without_fleet(straight_line.started(problem, seconds_left), "infeasible", (conflict,))
    return StrategyPlan(plan, problem)


def smallest_that_carries(problem: Problem, deployed: Callable[[int], Ruled | None]) -> tuple[Ruled | None, float]:
    """The fleet on the smallest composition that carries the demand, and the most load that any of them carried.

    `deployed(k)`: on the composition of k GPUs of each type. What the relaxation rules out is not tried.
    """
    most, carried = max(_available(problem).values()), 0.0
    short = _largest_that_fails(lambda k: _relaxation_carries(problem, k), 0, most)
    best, enough, step = None, most + 1, 1
    while enough - short > 1:
        tried = min(most, short + step) if best is None else (short + enough) // 2
        fleet = deployed(tried)
        load = 0.0 if fleet is None else fleet.load_multiple
        carried = max(carried, load)
        if load >= problem.objective.carried_load * CARRIES:
            best, enough = fleet, tried
        else:
            short, step = tried, 2 * step
    return best, carried


def _largest_that_fails(carries: Callable[[int], bool], fails: int, most: int) -> int:
    above = most + 1
    while above - fails > 1:
        middle = (fails + above) // 2
        fails, above = (fails, middle) if carries(middle) else (middle, above)
    return fails


def _relaxation_carries(problem: Problem, k: int) -> bool:
    scaled = scaled_to_one(prepare(with_at_most(problem, uniform(problem, k))))
    return scaled is not None and bool(np.isfinite(solve_relaxation(scaled, first_goal(scaled)).objective))


def _available(problem: Problem) -> dict[str, int]:
    """GPUs of each type on the market and within the limit on it."""
    found = {
        gpu: sum(offer.gpus * machines for offer, machines in offers) for gpu, offers in _offers(problem).items()
    }
    return {gpu: min(gpus, problem.limits.max_gpus.get(gpu, gpus)) for gpu, gpus in found.items()}


def _offers(problem: Problem) -> dict[str, list[tuple[Offer, int]]]:
    """Returns by GPU type the offers, cheapest per GPU first, and how often each can be rented beside those before
    it."""
    by_gpu: dict[str, list[tuple[Offer, int]]] = defaultdict(list)
    on_machine: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in problem.offers:
        if offer.machine_id is not None:
            on_machine[offer.provider, offer.machine_id].append(offer)
    left = {machine: machine_gpus(offers) for machine, offers in on_machine.items()}
    for offer in sorted(problem.offers, key=lambda o: (o.price_usd_per_hour / o.gpus, o.gpus, o.offer_id)):
        machines = offer.available
        if offer.machine_id is not None:
            machine = (offer.provider, offer.machine_id)
            machines = min(machines, left[machine] // offer.gpus)
            left[machine] -= machines * offer.gpus
        by_gpu[offer.gpu].append((offer, machines))
    return by_gpu


def _gpus_at(problem: Problem, k: int) -> tuple[int, float]:
    """All GPUs of the composition with k of each type, and what they cost."""
    bought = [_bought(offers, k) for offers in _offers(problem).values()]
    return sum(gpus for gpus, _ in bought), sum(usd_per_hour for _, usd_per_hour in bought)


def _bought(offers: Sequence[tuple[Offer, int]], k: int) -> tuple[int, float]:
    """GPUs of one type, at most k, and their $/h; of a divisible offer single GPUs are for rent."""
    gpus, usd_per_hour = 0, 0.0
    for offer, machines in offers:
        if offer.divisible:
            taken = min(k - gpus, offer.gpus * machines)
        else:
            taken = min((k - gpus) // offer.gpus, machines) * offer.gpus
        gpus += taken
        usd_per_hour += taken * offer.price_usd_per_hour / offer.gpus
    return gpus, usd_per_hour
