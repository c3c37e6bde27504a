"""What an application may rent: the offers of its market, and the figures of their GPUs.

Flow: ApplicationDocument.market -> market_of (here) -> planning.py -> solver/offline/renting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.fitness import rules_of
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.translation.fitness import ANYTHING, Fitness
from sutler.service.translation.gpu_choice import NEEDED_FOR_ESTIMATES
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import read_market
from sutler.service.translation.offers import to_offer
from sutler.service.translation.stored_market import MarketStore
from sutler.solver.catalog import load_gpus
from sutler.solver.catalog.entries import Gpu
from sutler.solver.problem import Offer


@dataclass(frozen=True, slots=True)
class OfflineMarket:
    """Offers, the GPUs that they name by slug, and how the market was read."""

    offers: tuple[Offer, ...]
    gpus: Mapping[str, Gpu]
    notes: tuple[str, ...] = ()


def market_of(
    document: ApplicationDocument, *, folder: Path | None, now: datetime, store: MarketStore | None = None
) -> OfflineMarket | None:
    """The market of an application, None where it has hardware; paths are relative to `folder` (None: refused).

    Raises NoMarketDataError when nothing is left to rent, DocumentError for a snapshot or a GPU that is wrong.
    """
    if document.market is None:
        return None
    known = {
        **load_gpus(document.catalog),
        **{slug: mapped(Gpu, gpu, slug=slug) for slug, gpu in document.gpus.items()},
    }
    fitness = Fitness(rules_of(document.market.filter.fit), (ANYTHING,), known, now)
    view = read_market(document.market, folder=folder, now=now, fitness=fitness, store=store)
    unknown = [(i, offer.gpu) for i, offer in view.offers if offer.gpu not in known]
    if unknown:
        remedy = "is no GPU of the catalogue (`sutler catalog gpus`): describe it under `gpus`"
        raise DocumentError.of(f"{view.path}offers[{unknown[0][0]}].gpu", remedy, value=unknown[0][1])
    usable = [offer for _, offer in view.offers if _has_figures(known[offer.gpu])]
    if not usable:
        raise NoMarketDataError("market: no offer's GPU has the figures that estimates need", "add them under `gpus`")
    offers = tuple(to_offer(offer) for offer in usable)
    left_out = sorted({offer.gpu for _, offer in view.offers if not _has_figures(known[offer.gpu])})
    note = [f"Offers of {', '.join(left_out)} are left out: their GPUs lack figures."] if left_out else []
    return OfflineMarket(offers, {offer.gpu: known[offer.gpu] for offer in offers}, (*view.notes, *note))


def _has_figures(gpu: Gpu) -> bool:
    return all(getattr(gpu, figure) is not None for figure in NEEDED_FOR_ESTIMATES)
