"""From an offer of the market document to one that the solver plans with."""

from typing import Final

from sutler.service.documents.market import OfferDocument
from sutler.service.translation.mapping import mapped
from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import Offer

# Chosen: between the 0.1 USD that large clouds ask for network disks and the 0.2 of dear hosts at marketplaces.
USUAL_DISK_USD_PER_GB_MONTH: Final = 0.15


def has_unknown_storage_price(offer: OfferDocument) -> bool:
    """Whether it states a disk that its price does not hold, and not what that costs."""
    return offer.disk_usd_per_gb_month is None and (offer.disk_gb or 0.0) > offer.disk_included_gb


def to_offer(offer: OfferDocument, unfit_for: frozenset[tuple[str, Precision]] | None = None) -> Offer:
    """The offer in the solver's words; `unfit_for`: models, by name and precision, that it cannot serve.

    Storage of unknown price counts as usual, which a plan's notes say.
    """
    usual = USUAL_DISK_USD_PER_GB_MONTH if has_unknown_storage_price(offer) else 0.0
    stated = offer.disk_usd_per_gb_month
    return mapped(
        Offer, offer, disk_usd_per_gb_month=usual if stated is None else stated, unfit_for=unfit_for or frozenset()
    )
