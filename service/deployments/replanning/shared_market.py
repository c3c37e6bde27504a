"""The market as looks need it: read once per change for all deployments, with what of it has settled."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sutler.service.db.engine import connected
from sutler.service.deployments.replanning.facts import OfferKey, Settled
from sutler.service.documents.plan import PlanDocument
from sutler.service.market.service import MarketService
from sutler.service.market.settled import last_known, settled
from sutler.service.translation.offers import to_offer
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import Translation
from sutler.solver.problem import Offer

FRESH_S: Final = 5.0
"""How long a reading of the market serves.

Chosen: a poll that finds the same offers changes no version. It only makes them fresh, which can be seen a bit later.
"""
MOST_SETTLE_TIMES: Final = 8  # chosen: nearly all deployments keep the default, and each time holds all offers once


@dataclass(frozen=True, slots=True)
class SeenMarket:
    """A market that was read: a look polls nothing, whatever the problem says."""

    market: StoredMarket

    def stored(self) -> StoredMarket:
        return self.market

    def polled(self, _providers: Sequence[str]) -> StoredMarket:
        return self.market


class SharedMarket:
    """Serves several threads at once: the first reads, the others wait for it."""

    def __init__(self, market: MarketService) -> None:
        self._market = market
        self._lock = threading.Lock()
        self._version: int | None = None
        self._read_at: datetime | None = None
        self._seen: SeenMarket | None = None
        self._settled: dict[float, Mapping[OfferKey, Settled]] = {}
        self._known: dict[OfferKey, Offer | None] = {}

    def seen(
        self, *, version: int, settle_s: float, now: datetime, project: str
    ) -> tuple[SeenMarket, Mapping[OfferKey, Settled]]:
        """The market as a project sees it, at least as new as this version, and offers that have held for `settle_s`.

        Raises DatabaseError.
        """
        with self._lock:
            if self._is_old(version, now):
                self._seen, self._version, self._read_at = SeenMarket(self._market.read()), version, now
                self._settled.clear()
                self._known = {}
            assert self._seen is not None
            if settle_s not in self._settled:
                if len(self._settled) >= MOST_SETTLE_TIMES:
                    self._settled.clear()
                self._settled[settle_s] = self._read_settled(settle_s, now)
            seen = SeenMarket(self._market.of(project).seen(self._seen.market))
            return seen, self._settled[settle_s]

    def known(self, offers: Collection[OfferKey]) -> dict[OfferKey, Offer]:
        """Offers as they were when they were last for rent; read once, as the market is. Raises DatabaseError."""
        known = self._known  # a market that is read meanwhile begins another
        missing = set(offers) - known.keys()
        if missing:
            with connected(self._market.engine) as connection:
                found = last_known(connection, missing)
            known |= dict.fromkeys(missing)
            known |= {key: to_offer(document) for key, document in found.items()}
        return {key: offer for key in offers if (offer := known[key]) is not None}

    def with_chances(self, plan: PlanDocument, translation: Translation) -> PlanDocument:
        """The plan with how likely its offers are still there. Raises DatabaseError."""
        return self._market.with_chances(plan, translation)

    def _is_old(self, version: int, now: datetime) -> bool:
        if self._seen is None or self._read_at is None or version != self._version:
            return True
        return abs((now - self._read_at).total_seconds()) > FRESH_S

    def _read_settled(self, settle_s: float, now: datetime) -> dict[OfferKey, Settled]:
        since = now - timedelta(seconds=settle_s or 1.0)
        with connected(self._market.engine) as connection:
            found = settled(connection, since=since, until=now)
        return {key: Settled(*values) for key, values in found.items()}
