"""The plan as it is issued: what of it is held, what is to be rented, and at which prices. Pure.

It was chosen at the highest price that each offer has had of late, since a price that has only just fallen must not
lure; but who carries it out pays what the market asks now. And it was chosen with machines that are held and machines
that are only counted on, as being for rent still, in one rental at their mean price.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from sutler.service.deployments.replanning.facts import OfferKey, key_of
from sutler.service.deployments.replanning.standing_machines import Assessed, Storage
from sutler.solver.answer.expected import counted_usd_per_hour
from sutler.solver.plan import Plan, Rental, Replica
from sutler.solver.problem import Offer, Problem
from sutler.solver.replanning import holding_key

SAME: Final = 1e-9  # relative: prices that differ by less do so by rounding
NO_STORAGE: Final = Storage(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some machines of the rental number `of`, from its machine `first` on, as a rental of their own."""

    rental: Rental
    of: int
    first: int


def as_issued(plan: Plan, problem: Problem, assessed: Assessed, today: Sequence[Offer]) -> Plan:
    """The plan as it is issued: what is held costs what is paid for it, all else what is asked `today`.

    `problem` has the offers that the plan was chosen from. The bound of a cost falls with the price that has fallen
    most: no fleet has become cheaper by more. Other bounds stay what they are: of the offers at the prices that they
    were considered at.
    """
    if plan.value is None:
        return plan
    fallen = fallen_prices(problem, today)
    parts = [part for index, rental in enumerate(plan.rentals) for part in _parts(rental, index, assessed, fallen)]
    rentals = tuple(part.rental for part in parts)
    if rentals == plan.rentals and not fallen:
        return plan
    cheapest = min([1.0, *fallen.values(), *_below_the_mean(assessed)])
    replicas = tuple(_moved(replica, parts) for replica in plan.replicas)
    return _priced(replace(plan, replicas=replicas), rentals, problem, cheapest=cheapest)


def fallen_prices(problem: Problem, today: Sequence[Offer]) -> dict[OfferKey, float]:
    """Today's price of an offer that was considered, as a fraction of the one that it was considered at; below 1."""
    prices = {key_of(offer): offer.price_usd_per_hour for offer in today}
    return {
        key_of(offer): prices[key_of(offer)] / offer.price_usd_per_hour
        for offer in problem.offers
        if not offer.held and prices.get(key_of(offer), inf) < offer.price_usd_per_hour * (1 - SAME)
    }


def _below_the_mean(assessed: Assessed) -> Iterator[float]:
    """Of machines considered at the mean of what is paid and what is asked: the lower of both, divided by that."""
    for holding in assessed.standing:
        wished = assessed.wished.get(holding.key)
        if wished is not None and holding.price_usd_per_hour > 0:
            paid = assessed.paid_usd_per_hour.get(holding.key, wished.price_usd_per_hour)
            yield min(paid, wished.price_usd_per_hour) / holding.price_usd_per_hour


def _parts(rental: Rental, index: int, assessed: Assessed, fallen: Mapping[OfferKey, float]) -> Iterator[_Part]:
    """Splits a rental into what is held and what is to be rented; of machines that are alike the first are held."""
    if not rental.held:
        ratio = fallen.get(key_of(rental), 1.0)
        bare = rental.price_usd_per_hour - rental.storage_usd_per_hour
        yield _Part(replace(rental, price_usd_per_hour=bare * ratio + rental.storage_usd_per_hour), index, 0)
        return
    wished = assessed.wished.get(holding_key(rental))
    storage = assessed.storage.get(holding_key(rental), NO_STORAGE)
    rental = replace(rental, storage_gb=storage.gb)
    if wished is None:
        yield _Part(rental, index, 0)
        return
    standing = next(holding for holding in assessed.standing if holding.key == wished.key)
    here = min(standing.count - wished.count, rental.count)
    if here:
        paid = assessed.paid_usd_per_hour[wished.key]
        yield _Part(replace(rental, count=here, price_usd_per_hour=paid), index, 0)
    if rental.count > here:
        to_rent = replace(
            rental,
            count=rental.count - here,
            price_usd_per_hour=wished.price_usd_per_hour,
            storage_usd_per_hour=storage.usd_per_hour,
            held=False,
        )
        yield _Part(to_rent, index, here)


def _moved(replica: Replica, parts: Sequence[_Part]) -> Replica:
    """The replica on the rentals as they are now."""
    stages = []
    for stage in replica.stages:
        at, part = next(
            (at, part)
            for at, part in enumerate(parts)
            if part.of == stage.rental and part.first <= stage.machine < part.first + part.rental.count
        )
        stages.append(replace(stage, rental=at, machine=stage.machine - part.first))
    return replace(replica, stages=tuple(stages))


def _priced(plan: Plan, rentals: tuple[Rental, ...], problem: Problem, *, cheapest: float) -> Plan:
    cost = sum(rental.price_usd_per_hour * rental.count for rental in rentals)
    ratio = cost / plan.cost_usd_per_hour if plan.cost_usd_per_hour else 1.0
    tokens = None if plan.usd_per_million_tokens is None else plan.usd_per_million_tokens * ratio
    counted = counted_usd_per_hour(problem, rentals)
    expected = counted if problem.objective.count_interruptions else None
    priced = replace(
        plan,
        rentals=rentals,
        cost_usd_per_hour=cost,
        expected_cost_usd_per_hour=expected,
        usd_per_million_tokens=tokens,
    )
    if plan.objective != "min_cost":
        return priced
    if plan.bound is None:
        return replace(priced, value=counted)
    bound = plan.bound * cheapest
    gap = (counted - bound) / counted if counted else 0.0
    proven = replace(priced, value=counted, bound=bound, relative_gap=gap)
    return proven if gap <= problem.options.relative_gap + SAME else replace(proven, status="feasible")
