"""SkyServe's SpotHedge, as a plan (arXiv 2411.01438, section 4): more interruptible replicas than the load needs, all
alike, spread over places.

SkyServe is told which GPU a service runs on. So many replicas as carry the load, and `EXTRA`, are rented of the
interruptible offers of one GPU type, about as many in every place (a provider's region); machines on demand fill up
what places lack, as they do while interruptible ones do not serve. The GPU type is the one with the cheapest such
plan. What is left after a loss is nobody's condition here: `resilience` is left out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Final

from sutler.solver.plan import Plan
from sutler.solver.problem import Offer, Problem, Resilience
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan
from sutler.solver.strategies.straight_line import solved

EXTRA: Final = 2  # spare replicas of each model, as in the paper's experiments


def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The cheapest of one GPU type each. Raises NotApplicableError without a load or without interruptible offers."""
    if problem.objective.kind != "min_cost":
        raise NotApplicableError("rents for a load that is given: use min_cost")
    types = sorted({offer.gpu for offer in problem.offers if offer.contract == "interruptible"})
    if not types:
        raise NotApplicableError("hedges with interruptible machines: add interruptible to market.filter.contracts")
    bare = replace(problem, resilience=Resilience())
    found = [_hedged(bare, gpu, lambda: seconds_left() / len(types)) for gpu in types]
    return min(found, key=lambda one: float("inf") if one.plan.value is None else one.plan.value)


def _hedged(problem: Problem, gpu: str, seconds_left: SecondsLeft) -> StrategyPlan:
    """The plan of one type: first for the load, which says how many replicas carry it, then with those that are
    spare."""
    own = replace(problem, offers=tuple(offer for offer in problem.offers if offer.gpu == gpu))
    needed = solved(own, seconds_left)
    if needed.value is None:
        return StrategyPlan(needed, own)
    answering = [replica.model for replica in needed.replicas if replica.role != "prefill"]
    models = tuple(replace(m, min_replicas=answering.count(m.name) + EXTRA) for m in own.models)
    gpus = sum(stage.gpus for replica in needed.replicas for stage in replica.stages)
    most = gpus * sum(model.min_replicas for model in models) / len(answering)
    hedged = replace(own, models=models, offers=tuple(_spread(own.offers, most)))
    return StrategyPlan(_cheaper_of(hedged, seconds_left), hedged)


def _cheaper_of(problem: Problem, seconds_left: SecondsLeft) -> Plan:
    """On interruptible machines alone, where there are enough of them."""
    spot = tuple(offer for offer in problem.offers if offer.contract == "interruptible")
    found = solved(replace(problem, offers=spot), seconds_left)
    return found if found.value is not None else solved(problem, seconds_left)


def _spread(offers: Iterable[Offer], gpus: float) -> Iterable[Offer]:
    """The offers of which no place has more interruptible GPUs for rent than its part, the cheapest first."""
    places: dict[tuple[str, str | None], list[Offer]] = defaultdict(list)
    for offer in offers:
        if offer.contract == "interruptible" and offer.available:
            places[offer.provider, offer.region].append(offer)
        else:
            yield offer
    for here in places.values():
        left = ceil(gpus / len(places))
        for offer in sorted(here, key=lambda one: one.price_usd_per_hour / one.gpus):
            machines = min(offer.available, ceil(left / offer.gpus))
            if machines > 0:
                yield replace(offer, available=machines)
            left -= machines * offer.gpus
