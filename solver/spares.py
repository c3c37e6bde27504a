"""Which offers can take a rental's place, for whoever comes to rent it and finds it gone.

A spare is as good as what it stands in for: it is in the same pool (the GPU type, the contract, links, disk and,
where they matter, site and provider), of the same number of GPUs, and as often for rent. Replicas then run on it as
they were planned, and `verify` accepts the plan with the rental replaced. No machine serves twice: none that the plan
rents itself, none that is a spare already. Each offer is a spare of one rental, and whichever spares are taken
together, the plan stays within its budget, its power and its limits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sutler.solver.answer.expected import counted_price, counted_usd_per_hour
from sutler.solver.market.pools import PIECE_SIZES, Pool, disk_of, group_offers
from sutler.solver.plan import Rental
from sutler.solver.problem import Offer, Problem

MOST_SPARES: Final = 5  # chosen: beyond, what is there has changed so much that planning again is better
BUDGET_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Spare:
    """An offer that can take a rental's place; `rental` is what it would be."""

    offer: Offer
    rental: Rental


Preference = Callable[[Spare], float]
"""Of the spares of a rental the smallest is taken first."""


def by_price(spare: Spare) -> float:
    """The cheapest is taken first."""
    return spare.rental.price_usd_per_hour


def spares_of(
    problem: Problem, rentals: Sequence[Rental], *, preference: Preference = by_price, most: int = MOST_SPARES
) -> tuple[tuple[Spare, ...], ...]:
    """Of every rental of a plan its spares, in order of preference; what is held needs none.

    They are dealt out in turns: every rental gets its best of what is left before any gets its second.
    """
    known = _Known(problem, rentals)
    ranked = [known.candidates(rental, preference) for rental in rentals]
    found: list[list[Spare]] = [[] for _ in rentals]
    used: set[object] = set()
    left = known.budget_left_usd_per_hour
    dearest = [counted_price(problem, rental) for rental in rentals]
    for _ in range(most):
        for index, rental in enumerate(rentals):
            for spare in ranked[index]:
                price = counted_price(problem, spare.rental)
                extra = max(0.0, price - dearest[index]) * rental.count
                if extra <= left and used.isdisjoint(_identities(spare.offer)):
                    found[index].append(spare)
                    used.update(_identities(spare.offer))
                    left -= extra
                    dearest[index] = max(dearest[index], price)
                    break
    return tuple(tuple(own) for own in found)


class _Known:
    """A plan's market: the pools of its offers, and what the plan uses of it."""

    def __init__(self, problem: Problem, rentals: Sequence[Rental]) -> None:
        gpus = {rental.gpu for rental in rentals}
        problem = replace(problem, offers=tuple(offer for offer in problem.offers if offer.gpu in gpus))
        self.problem, self.rentals = problem, rentals
        pools, pool_of = group_offers(problem)
        self.pools: tuple[Pool, ...] = pools
        self.place = {_key(offer): i for i, offer in enumerate(problem.offers)}
        self.pool_of = pool_of
        self.of_pool: dict[int, list[Offer]] = {}
        for offer, pool in zip(problem.offers, pool_of, strict=True):
            if not offer.held:
                self.of_pool.setdefault(pool, []).append(offer)
        known = (self.place.get(_key(rental)) for rental in rentals)
        rented = [problem.offers[place] for place in known if place is not None]
        self.rented = {identity for offer in rented for identity in _identities(offer)}

    @property
    def budget_left_usd_per_hour(self) -> float:
        budget = self.problem.budget_usd_per_hour
        cost = counted_usd_per_hour(self.problem, self.rentals)
        return float("inf") if budget is None else budget * (1 + BUDGET_SLACK) - cost

    def candidates(self, rental: Rental, preference: Preference) -> list[Spare]:
        """Everything that could take the rental's place, the best first."""
        index = self.place.get(_key(rental))
        if rental.held or index is None:
            return []
        before, pool = self.problem.offers[index], self.pool_of[index]
        found = [
            Spare(offer, _instead(rental, offer))
            for offer in self.of_pool.get(pool, ())
            if self._fits(rental, before, offer, self.pools[pool]) and self.rented.isdisjoint(_identities(offer))
        ]
        return sorted(found, key=lambda spare: (preference(spare), _key(spare.offer)))

    def _fits(self, rental: Rental, before: Offer, offer: Offer, pool: Pool) -> bool:
        is_cut = offer.divisible and rental.gpus in PIECE_SIZES and rental.gpus <= offer.gpus
        if not (is_cut or (not offer.divisible and rental.gpus == offer.gpus)):
            return False
        if offer.machine_gpus is not None and rental.gpus > offer.machine_gpus:
            return False
        machines = offer.available * (offer.gpus // rental.gpus if offer.divisible else 1)
        limited = self.problem.limits.max_gpus_per_provider
        stays_at_provider = offer.provider == before.provider or not limited.keys() & {offer.provider}
        return machines >= rental.count and stays_at_provider and _stores(rental, before, offer, pool)


def _stores(rental: Rental, before: Offer, offer: Offer, pool: Pool) -> bool:
    """Whether it bills as much storage: what a full disk cut short may be more on a larger one."""
    if pool.storage_usd_per_gb_month == 0 or disk_of(before) == disk_of(offer):
        return True
    return rental.storage_gb < disk_of(before) and rental.storage_gb <= disk_of(offer)


def _instead(rental: Rental, offer: Offer) -> Rental:
    """The rental as this offer would be it; storage is priced by the pool, which is the same."""
    return Rental(
        offer_id=offer.offer_id,
        provider=offer.provider,
        site=offer.site,
        gpu=offer.gpu,
        gpus=rental.gpus,
        count=rental.count,
        price_usd_per_hour=offer.price_usd_per_hour * rental.gpus / offer.gpus + rental.storage_usd_per_hour,
        contract=offer.contract,
        storage_gb=rental.storage_gb,
        storage_usd_per_hour=rental.storage_usd_per_hour,
    )


def _key(one: Offer | Rental) -> tuple[str, str, str, bool]:
    return one.provider, one.offer_id, one.contract, one.held


def _identities(offer: Offer) -> tuple[object, ...]:
    """What no two of a plan's rentals and spares share: the offer, and its machine whatever the contract."""
    machine = () if offer.machine_id is None else ((offer.provider, offer.machine_id),)
    return (_key(offer), *machine)
