"""One GPU type for everything: what most rent, and what the MILP paper compares with (arXiv 2502.00722, section 5.1).

Deployment and routing are optimised as ever. With unlimited supply (App. K: "we assume an unlimited number of GPUs")
every offer of the type can be rented as often as anybody could pay for it, at its own price and place.
"""

import math
from dataclasses import replace

import numpy as np

from sutler.solver.polytope.preparation import prepare
from sutler.solver.problem import Contract, Offer, Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan
from sutler.solver.strategies.straight_line import optimum, solved, started

_MOST_REPLICAS = 2000  # are packed, described and verified in about a second, twice as many in three
_REMEDY = "no number of GPUs of the type carries the load: use another type as well"
_ENOUGH_TO_RATE = 64  # machines of an offer with which every configuration is possible


def plan_limited(gpu: str, problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Plans on the caller's offers of one GPU type."""
    own = tuple(offer for offer in problem.offers if offer.gpu == gpu)
    return StrategyPlan(solved(replace(problem, offers=own), seconds_left), problem)


def plan_unlimited(gpu: str, problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """Plans on the same offers with more machines than budget and limits could pay for.

    Raises NotApplicableError where nothing bounds what an unlimited market carries, or only what is too many to list.
    """
    own = replace(problem, offers=_one_of_each(problem, gpu))
    most_gpus = _most_gpus(own, gpu)
    offers = tuple(replace(offer, available=math.ceil(most_gpus / offer.gpus) + 1) for offer in own.offers)
    own = replace(problem, offers=offers)
    run = started(own, seconds_left)
    name = f"homogeneous-unlimited/{gpu}"
    return optimum(run, prepare(own), name, remedy=_REMEDY, most_replicas=_MOST_REPLICAS)


def _one_of_each(problem: Problem, gpu: str) -> tuple[Offer, ...]:
    """The offers of a type as kinds of machines, each by itself: slices of one machine, or of it alone, cannot be
    replicated, and what is held is no better than what is for rent."""
    kinds: dict[tuple[str, str, Contract], Offer] = {}
    for offer in sorted((o for o in problem.offers if o.gpu == gpu), key=lambda o: o.held):
        free = replace(offer.on_its_own(), held=False)
        kinds.setdefault((offer.provider, offer.offer_id, offer.contract), free)
    return tuple(kinds.values())


def _most_gpus(problem: Problem, gpu: str) -> float:
    """More GPUs than any plan rents."""
    limits, tdp_watts = problem.limits, problem.gpus[gpu].tdp_watts
    cheapest = min(offer.price_usd_per_hour / offer.gpus for offer in problem.offers)
    caps = [float(limits.max_gpus[gpu])] if gpu in limits.max_gpus else []
    if problem.budget_usd_per_hour is not None and cheapest > 0:
        caps.append(problem.budget_usd_per_hour / cheapest)
    if limits.max_power_watts is not None and tdp_watts:
        caps.append(limits.max_power_watts / tdp_watts)
    if caps:
        return min(caps)
    if problem.objective.maximises_rate:
        remedy = "set budget_usd_per_hour" if cheapest > 0 else f"they cost nothing, so set limits.max_gpus.{gpu}"
        raise NotApplicableError(f"unlimited {gpu} serve any load where nothing bounds them: {remedy}")
    return _gpus_of_a_plain_fleet(problem, cheapest)


def _gpus_of_a_plain_fleet(problem: Problem, cheapest_usd_per_hour: float) -> float:
    """What a fleet with replicas of its own for every workload, each piece on a machine of its own, could rent.

    It carries the load, so that the best plan costs no more (or draws no more), and rents no more than that buys.
    """
    offers = tuple(replace(offer, available=_ENOUGH_TO_RATE) for offer in problem.offers)
    polytope = prepare(replace(problem, offers=offers))
    pieces = (polytope.candidates.piece_size > 0).sum(axis=1)
    by_gpus = problem.objective.kind == "min_power" or cheapest_usd_per_hour == 0
    if by_gpus:
        worth = pieces * float(max(offer.gpus for offer in offers))
    else:
        dearest = max(offer.price_usd_per_hour for offer in offers)
        worth = (pieces * dearest + polytope.candidates.storage_usd_per_hour) / cheapest_usd_per_hour
    wanted_rps = problem.objective.carried_load * problem.total_demand
    most_gpus = 0.0
    for demand in polytope.demands:
        rate = np.where(polytope.candidates.model == demand.model, polytope.rate[:, demand.workload], 0.0)
        if (rate > 0).any():
            replicas = np.ceil(demand.fraction * wanted_rps / rate[rate > 0])
            most_gpus += float((replicas * worth[rate > 0]).min())
    return most_gpus
