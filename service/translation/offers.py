"""From an offer of the market document to one that the solver plans with."""

from sutler.service.documents.market import OfferDocument
from sutler.service.translation.mapping import mapped
from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import Offer


def to_offer(offer: OfferDocument, unfit_for: frozenset[tuple[str, Precision]] | None = None) -> Offer:
    """The offer in the solver's words; `unfit_for`: models, by name and precision, that it cannot serve."""
    return mapped(
        Offer, offer, disk_usd_per_gb_month=offer.disk_usd_per_gb_month or 0.0, unfit_for=unfit_for or frozenset()
    )
