"""Machines that the problem states (`market.stock`), as looks see them: no poll shows that they come or go.

An entry says how many machines there are in all. Those that are held are part of it, under the stated offer's id or
under that of an offer that was polled; the rest is for rent, whatever polls show of it from one time to the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import OfferKey, key_of
from sutler.service.documents.market import OfferDocument
from sutler.service.translation.offers import to_offer
from sutler.service.translation.stated_supply import in_regions
from sutler.solver.problem import Offer


@dataclass(frozen=True, slots=True)
class StatedMachines:
    """By offer: those that are not held, shown by polls elsewhere or not."""

    offers: Mapping[OfferKey, Offer]

    def for_rent(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The market in which no more of them are for rent than are not held."""
        found = (self._at_most(offer) for offer in offers)
        return tuple(offer for offer in found if offer.available > 0)

    def promised(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The market in which all of them are, so that what a plan counts on is not gone because a poll shows it
        under another id."""
        return (*(offer for offer in offers if key_of(offer) not in self.offers), *self.offers.values())

    def _at_most(self, offer: Offer) -> Offer:
        stated = self.offers.get(key_of(offer))
        return offer if stated is None else replace(offer, available=min(offer.available, stated.available))


def stated_machines(
    stock: Sequence[OfferDocument], holdings: Iterable[HoldingDocument], known: Mapping[OfferKey, Offer]
) -> StatedMachines:
    """What is stated less what is held of it. `known`: offers that were rented, as they were for rent."""
    held = tuple(holdings)
    return StatedMachines({one.key: _left(one, held, known) for one in stock})


def _left(stated: OfferDocument, held: Iterable[HoldingDocument], known: Mapping[OfferKey, Offer]) -> Offer:
    gpus = sum(one.gpus * one.count for one in held if _is_part_of(stated, one, known.get(one.key[:3])))
    machines = -(-gpus // stated.gpus)
    return replace(to_offer(stated), available=max(0, stated.available - machines))


def _is_part_of(stated: OfferDocument, held: HoldingDocument, offer: Offer | None) -> bool:
    if held.key[:3] == stated.key:
        return True
    is_alike = (held.provider, held.gpu, held.contract) == (stated.provider, stated.gpu, stated.contract)
    is_there = stated.region is None or (offer is not None and in_regions(offer.region, [stated.region.lower()]))
    return is_alike and held.gpus == stated.gpus and is_there and not held.offer_id.startswith("stated/")
