"""From an offer of the market document to one that the solver plans with."""

from sutler.service.documents.market import OfferDocument
from sutler.service.translation.mapping import mapped
from sutler.solver.problem import Offer


def to_offer(offer: OfferDocument) -> Offer:
    """The offer in the solver's words."""
    return mapped(Offer, offer, disk_usd_per_gb_month=offer.disk_usd_per_gb_month or 0.0)
