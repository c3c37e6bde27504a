"""A plan's spares, and how likely its offers are still there, as its document states them.

Spares are of the problem's market alone. Chances come from the store's history, for those who plan on its market:
`with_chances` adds them once the plan is issued, and orders spares by price over chance.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from math import prod
from typing import Final, Protocol

from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import (
    AvailabilityDocument,
    ChanceDocument,
    PlanDocument,
    RentalDocument,
    SpareDocument,
)
from sutler.service.translation.mapping import mapped
from sutler.service.translation.to_problem import Translation
from sutler.solver.answer.traffic import traffic_of
from sutler.solver.plan import Plan, Rental
from sutler.solver.problem import Offer
from sutler.solver.spares import Preference, Spare, by_price, spares_of

WITHIN_S: Final = 600.0  # chosen: a provisioner that follows plans comes in seconds, people in minutes
LEAST_CHANCE: Final = 1e-6  # what a price is divided by at least

Key = tuple[str, str, str]


class Outlook(Protocol):
    """What is known of how long offers stay; service/market/outlook.py has it from the store."""

    def chance_of(self, offer: OfferDocument, gpus: int, *, now: datetime, within_s: float) -> ChanceDocument | None:
        """The chance that the offer's machine has as many GPUs still; None where no lives are known."""
        ...


def rental_documents(plan: Plan, translation: Translation) -> tuple[RentalDocument, ...]:
    """The plan's rentals with what their traffic costs, and their spares, the cheapest first."""
    return tuple(
        rental.model_copy(update=asdict(traffic))
        for rental, traffic in zip(
            _documents(plan.rentals, translation, by_price), traffic_of(translation.problem, plan), strict=True
        )
    )


def with_chances(plan: PlanDocument, translation: Translation, outlook: Outlook, now: datetime) -> PlanDocument:
    """The plan with the chance of every rental and spare, and of the whole."""
    known = _Chances(translation, outlook, now)
    planned = tuple(mapped(Rental, rental) for rental in plan.rentals)
    preferred = _documents(planned, translation, known.preference)
    rentals = tuple(
        known.added(rental.model_copy(update={"spares": found.spares}))
        for rental, found in zip(plan.rentals, preferred, strict=True)
    )
    return plan.model_copy(update={"rentals": rentals, "availability": availability(rentals)})


def availability(rentals: tuple[RentalDocument, ...]) -> AvailabilityDocument | None:
    """The chance that of every rental that is not held it or a spare is there, each machine for itself.

    Spares of which no lives are known count for nothing. None where nothing is to be rented, or a first choice has no
    known lives.
    """
    chances = [rental.outlook for rental in rentals if not rental.held]
    known = [outlook for outlook in chances if outlook is not None]
    if not known or len(known) < len(chances):
        return None
    gone = [_all_gone(rental) for rental in rentals if not rental.held]
    return AvailabilityDocument(
        within_s=known[0].within_s,
        chance_fraction=prod(outlook.chance_of_still_there_fraction for outlook in known),
        chance_with_spares_fraction=prod(1.0 - chance for chance in gone),
    )


def _all_gone(rental: RentalDocument) -> float:
    """The chance that neither it nor any spare of which lives are known is there."""
    outlooks = (rental.outlook, *(spare.outlook for spare in rental.spares))
    return prod(1.0 - outlook.chance_of_still_there_fraction for outlook in outlooks if outlook is not None)


def _documents(
    rentals: Sequence[Rental], translation: Translation, preference: Preference
) -> tuple[RentalDocument, ...]:
    machines = {_key(offer): offer.machine_id for offer in translation.problem.offers if not offer.held}
    return tuple(
        mapped(
            RentalDocument,
            rental,
            machine_id=None if rental.held else machines.get(_key(rental)),
            spares=tuple(map(_spare, spares)),
        )
        for rental, spares in zip(
            rentals, spares_of(translation.problem, rentals, preference=preference), strict=True
        )
    )


def _spare(spare: Spare) -> SpareDocument:
    return mapped(SpareDocument, spare.rental, machine_id=spare.offer.machine_id)


class _Chances:
    """The chances of a translation's offers."""

    def __init__(self, translation: Translation, outlook: Outlook, now: datetime) -> None:
        self._offers = {_key(offer): offer for _, offer in translation.market.offers}
        self._outlook, self._now = outlook, now
        self._known: dict[tuple[Key, int], ChanceDocument | None] = {}

    def preference(self, spare: Spare) -> float:
        """Price over chance: what a machine costs for each time that it is really there.

        What no lives are known of comes after all others, the cheapest first.
        """
        found = self.of(_key(spare.offer), spare.rental.gpus)
        chance = 0.0 if found is None else found.chance_of_still_there_fraction
        return spare.rental.price_usd_per_hour / max(chance, LEAST_CHANCE)

    def of(self, key: Key, gpus: int) -> ChanceDocument | None:
        offer = self._offers.get(key)
        if offer is None:
            return None
        if (key, gpus) not in self._known:
            self._known[key, gpus] = self._outlook.chance_of(offer, gpus, now=self._now, within_s=WITHIN_S)
        return self._known[key, gpus]

    def added(self, rental: RentalDocument) -> RentalDocument:
        spares = tuple(
            spare.model_copy(update={"outlook": self.of(_key(spare), spare.gpus)}) for spare in rental.spares
        )
        own = None if rental.held else self.of(_key(rental), rental.gpus)
        return rental.model_copy(update={"outlook": own, "spares": spares})


def _key(one: Offer | OfferDocument | Rental | RentalDocument | SpareDocument) -> Key:
    return one.provider, one.offer_id, one.contract
