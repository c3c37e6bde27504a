"""How often machines are taken away, as a problem counts it: as stated, else as seen, else as assumed."""

from collections.abc import Iterator

from sutler.service.documents.market import OfferDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import FilteredMarket
from sutler.solver.outlook.interruptions import LearntRate, learnt
from sutler.solver.problem import Interruptions


def interruptions_of(
    document: ProblemDocument, market: FilteredMarket, notes: list[str]
) -> tuple[Interruptions, ...]:
    """The rates of all kinds, those that win first; none where they do not count."""
    if not document.objective.count_interruptions:
        if document.market.interruptions:
            notes.append("market.interruptions: counts only with objective.count_interruptions, and is left out.")
        return ()
    offers = [offer for _, offer in market.offers]
    return (*_stated(document, offers, notes), *map(_learnt, market.interruptions or learnt((), {})))


def _stated(document: ProblemDocument, offers: list[OfferDocument], notes: list[str]) -> Iterator[Interruptions]:
    """What is stated, the narrowest first, under the names that the market has providers by."""
    names = {offer.provider.lower(): offer.provider for offer in offers}
    kinds = {(offer.provider, offer.contract, offer.gpu) for offer in offers}
    numbered = enumerate(document.market.interruptions)
    for number, entry in sorted(numbered, key=lambda one: (one[1].provider is None, one[1].gpu is None)):
        provider = entry.provider and names.get(entry.provider.lower(), entry.provider)
        rate = mapped(Interruptions, entry, provider=provider)
        if not any(rate.covers(*kind) for kind in kinds):
            notes.append(f"market.interruptions[{number}] is of none of the offers.")
        yield rate


def _learnt(rate: LearntRate) -> Interruptions:
    return mapped(Interruptions, rate, basis="seen" if rate.machine_hours > 0 else "assumed")
