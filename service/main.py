"""The composition root: from settings to working parts. Nothing else puts them together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from service.plans.stored_market import StoredMarket
from service.settings import market_settings, store_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from service.market.service import MarketService


@contextmanager
def opened_database(*, upgrade: bool = True) -> "Iterator[Engine]":
    """The database of this process's settings; at the end, the last to leave a private one stops it.

    Raises SettingsError, DatabaseError.
    """
    from service.db import embedded
    from service.db.engine import open_engine

    settings = store_settings()
    try:
        engine = open_engine(settings, upgrade=upgrade)
        try:
            yield engine
        finally:
            engine.dispose()
    finally:
        if settings.database_url is None:
            embedded.stop(settings.data_dir)


@contextmanager
def opened_market() -> "Iterator[MarketService]":
    """The market on the store of this process's settings. Raises SettingsError, DatabaseError."""
    from service.market.polling import Poller
    from service.market.service import MarketService

    settings = market_settings()
    with opened_database() as engine:
        poller = Poller(engine, settings.configs, settings.poll_interval_s, settings.paces)
        yield MarketService(engine, settings, poller)


class StoreWhenNeeded:
    """A market store that is opened by a question: problems with a snapshot of their own need none."""

    def stored(self) -> StoredMarket:
        """Nothing, rather than a new database, where nobody has ever polled."""
        settings = store_settings()
        if settings.database_url is None and not settings.has_private_database:
            return StoredMarket(datetime.now(UTC), (), {})
        with opened_market() as market:
            return market.stored()

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        with opened_market() as market:
            return market.polled(providers)
