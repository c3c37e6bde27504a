"""What planning needs of the market's store, without knowing that there is a database behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Protocol

from sutler.service.documents.market import OfferDocument
from sutler.solver.outlook.interruptions import LearntRate


@dataclass(frozen=True, slots=True)
class StoredMarket:
    """Offers as of `taken_at`; `last_seen` has, by provider, the last poll that brought something.

    `taken`: how many offers are fewer machines than clouds show, or none, because other deployments have them.
    `interruptions`: how often rented machines were taken away, the narrowest kinds first.
    """

    taken_at: datetime
    offers: tuple[OfferDocument, ...]
    last_seen: Mapping[str, datetime]
    taken: int = 0
    interruptions: tuple[LearntRate, ...] = ()


class MarketStore(Protocol):
    """Where a problem without a snapshot of its own gets the market from."""

    def stored(self) -> StoredMarket:
        """The market as the store has it now."""
        ...

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        """The market after polling these providers (none: those that are set up) now."""
        ...


class StoreReadOnce:
    """A store of which several problems see one market."""

    def __init__(self, store: MarketStore) -> None:
        self._stored, self._polled = cache(store.stored), cache(store.polled)

    def stored(self) -> StoredMarket:
        """The market as it was when this was asked first."""
        return self._stored()

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        """The market after these providers were polled, once."""
        return self._polled(tuple(providers))
