"""Offers of a market as people look through them: words sought, in an order, with counts of what there is. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.market.selection import OfferFilter, usd_per_gpu_hour
from sutler.service.translation.stored_market import StoredMarket

# What offers can be sorted by; None: it is not known of the offer, which then comes last either way.
ORDERS: Final[Mapping[str, Callable[[OfferDocument], Any]]] = {
    "usd_per_gpu_hour": usd_per_gpu_hour,
    "usd_per_hour": lambda offer: offer.price_usd_per_hour,
    "gpu": lambda offer: offer.gpu,
    "gpus": lambda offer: offer.gpus,
    "available": lambda offer: offer.available,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region and offer.region.upper(),
    "reliability": lambda offer: offer.reliability_fraction,
    "seen": lambda offer: offer.observed_at,
}
UNKNOWN_REGION: Final = "?"
FACETS: Final[Mapping[str, Callable[[OfferDocument], str]]] = {
    "gpu": lambda offer: offer.gpu,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: (offer.region or UNKNOWN_REGION).partition("-")[0].upper(),
    "contract": lambda offer: offer.contract,
}
_FIELDS: Final = {"gpu": "gpus", "provider": "providers", "region": "regions", "contract": "contracts"}
MOST_VALUES: Final = 100  # chosen: of a facet; a choice among more is no choice


@dataclass(frozen=True, slots=True)
class Listing:
    """The offers that are wanted, in order, and by facet how many there were of each value, the most first, if only
    that facet asked for nothing."""

    offers: tuple[OfferDocument, ...]
    facets: Mapping[str, Mapping[str, int]]


def listed(
    market: StoredMarket,
    wanted: OfferFilter,
    *,
    words: str = "",
    order: str = "usd_per_gpu_hour",
    facets: bool = False,
) -> Listing:
    """Looks through a market, which for facets is to have the offers of all providers, those not wanted too.

    What is alike in the order asked for is in that of prices, then of names. Raises DocumentError for an order that
    there is not.
    """
    by, is_descending = order_of(order)
    sought = words.lower().split()
    named = replace(market, offers=tuple(offer for offer in market.offers if _has(offer, sought)))
    found = wanted.of_market(named).offers
    counts = {name: _counts(named, wanted, name, found) for name in (FACETS if facets else ())}
    return Listing(_sorted(found, ORDERS[by], is_descending=is_descending), counts)


def order_of(text: str) -> tuple[str, bool]:
    """What offers are sorted by, and whether the largest comes first (`-gpus`). Raises DocumentError."""
    name = text.removeprefix("-")
    if name not in ORDERS:
        raise DocumentError.of("sort", f"must be {', '.join(ORDERS)}, or one of these after a minus", value=text)
    return name, text != name


def _sorted(
    offers: Sequence[OfferDocument], by: Callable[[OfferDocument], Any], *, is_descending: bool
) -> tuple[OfferDocument, ...]:
    known = [offer for offer in offers if by(offer) is not None]
    unknown = [offer for offer in offers if by(offer) is None]
    return (*sorted(known, key=by, reverse=is_descending), *unknown)  # stable, also where reversed


def _counts(
    named: StoredMarket, wanted: OfferFilter, facet: str, found: Iterable[OfferDocument]
) -> Mapping[str, int]:
    field = _FIELDS[facet]
    others = wanted.without(field).among(named) if getattr(wanted, field) else found
    counts = Counter(map(FACETS[facet], others))
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_VALUES])


def _has(offer: OfferDocument, sought: Sequence[str]) -> bool:
    """Whether each word stands somewhere in what names the offer."""
    if not sought:
        return True
    named = (offer.provider, offer.offer_id, offer.gpu, offer.region, offer.contract, offer.machine_id, offer.site)
    text = " ".join(filter(None, named)).lower()
    return all(word in text for word in sought)
