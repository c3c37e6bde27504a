"""The market as looks need it: read once per change for all deployments, with what of it has settled."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sutler.service.db.engine import connected
from sutler.service.deployments.replanning.facts import OfferKey, Settled
from sutler.service.market.service import MarketService
from sutler.service.market.settled import last_known, settled
from sutler.service.translation.stored_market import StoredMarket
from sutler.solver.problem import Offer

FRESH_S: Final = 5.0
MOST_SETTLE_TIMES: Final = 8


@dataclass(frozen=True, slots=True)
class SeenMarket:
    """A market that was read: a look polls nothing, whatever the problem says."""

    market: StoredMarket

    def stored(self) -> StoredMarket:
        return self.market

    def polled(self, _providers: Sequence[str]) -> StoredMarket:
        return self.market


class SharedMarket:
    """For several threads at once: the first reads, the others wait for it."""

    def __init__(self, market: MarketService) -> None:
        self._market = market
        self._lock = threading.Lock()
        self._version: int | None = None
        self._read_at: datetime | None = None
        self._seen: SeenMarket | None = None
        self._settled: dict[float, Mapping[OfferKey, Settled]] = {}

    def seen(self, *, version: int, settle_s: float, now: datetime) -> tuple[SeenMarket, Mapping[OfferKey, Settled]]:
        """The market, at least as new as this version, and its offers that have held for `settle_s`.

        Raises DatabaseError.
        """
        with self._lock:
            if self._is_old(version, now):
                self._seen, self._version, self._read_at = SeenMarket(self._market.read()), version, now
                self._settled.clear()
            assert self._seen is not None
            if settle_s not in self._settled:
                if len(self._settled) >= MOST_SETTLE_TIMES:
                    self._settled.clear()
                self._settled[settle_s] = self._read_settled(settle_s, now)
            return self._seen, self._settled[settle_s]

    def known(self, offers: Collection[OfferKey]) -> dict[OfferKey, Offer]:
        """Offers as they were when they were last for rent. Raises DatabaseError."""
        with connected(self._market.engine) as connection:
            documents = last_known(connection, offers)
        return {key: Offer(**d.model_dump(include=set(Offer.__slots__))) for key, d in documents.items()}

    def _is_old(self, version: int, now: datetime) -> bool:
        if self._seen is None or self._read_at is None or version != self._version:
            return True
        return abs((now - self._read_at).total_seconds()) > FRESH_S

    def _read_settled(self, settle_s: float, now: datetime) -> dict[OfferKey, Settled]:
        if settle_s == 0:
            settle_s = 1.0
        with connected(self._market.engine) as connection:
            found = settled(connection, since=now - timedelta(seconds=settle_s), until=now)
        return {key: Settled(*values) for key, values in found.items()}
