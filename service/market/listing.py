"""Offers of a market as people look through them: words sought, in an order, with counts of what there is. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.market.selection import OfferFilter, usd_per_gpu_hour
from sutler.service.translation.stored_market import StoredMarket

ORDERS: Final[Mapping[str, Callable[[OfferDocument], Any]]] = {
    "usd_per_gpu_hour": usd_per_gpu_hour,
    "usd_per_hour": lambda offer: offer.price_usd_per_hour,
    "gpu": lambda offer: offer.gpu,
    "gpus": lambda offer: offer.gpus,
    "available": lambda offer: offer.available,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region or "",
    "reliability": lambda offer: offer.reliability_fraction or 0.0,
}
FACETS: Final[Mapping[str, Callable[[OfferDocument], str]]] = {
    "gpu": lambda offer: offer.gpu,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: (offer.region or "?").partition("-")[0],
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
    """Looks through a market. Raises DocumentError for an order that there is not."""
    by, is_descending = order_of(order)
    sought = words.lower().split()
    found = [offer for offer in wanted.of_market(market).offers if _has(offer, sought)]
    found.sort(key=ORDERS[by], reverse=is_descending)  # stable: what is alike stays in the order of prices
    counts = {}
    for name in FACETS if facets else ():
        counts[name] = _counts(market, wanted, name, sought, found)
    return Listing(tuple(found), counts)


def order_of(text: str) -> tuple[str, bool]:
    """What offers are sorted by, and whether the largest comes first (`-gpus`). Raises DocumentError."""
    name = text.removeprefix("-")
    if name not in ORDERS:
        raise DocumentError.of("sort", f"must be {', '.join(ORDERS)}, or one of these after a minus", value=text)
    return name, text != name


def _counts(
    market: StoredMarket, wanted: OfferFilter, facet: str, sought: Sequence[str], found: Sequence[OfferDocument]
) -> Mapping[str, int]:
    field = _FIELDS[facet]
    others: Iterable[OfferDocument] = found
    if getattr(wanted, field):
        free = wanted.without(field)
        others = (offer for offer in free.of_market(market).offers if _has(offer, sought))
    return dict(Counter(map(FACETS[facet], others)).most_common(MOST_VALUES))


def _has(offer: OfferDocument, sought: Sequence[str]) -> bool:
    """Whether each word stands somewhere in what names the offer."""
    if not sought:
        return True
    named = (offer.provider, offer.offer_id, offer.gpu, offer.region, offer.contract, offer.machine_id, offer.site)
    text = " ".join(filter(None, named)).lower()
    return all(word in text for word in sought)
