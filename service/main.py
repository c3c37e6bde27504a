"""The composition root: from settings to working parts. Nothing else puts them together."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sutler.service.settings import market_settings, service_settings, store_settings
from sutler.service.translation.stored_market import StoredMarket

if TYPE_CHECKING:
    from fastapi import FastAPI
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sutler.service.db.engine import Patience
    from sutler.service.documents.calibration import CalibrationDocument
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.fork_server import ForkServer
    from sutler.service.market.service import MarketService
    from sutler.service.profiles.service import ProfilesService
    from sutler.service.translation.names import Names
    from sutler.service.translation.to_problem import Translation
    from sutler.service.web.state import Services
    from sutler.service.workers.worker import Worker

READS: Final = 0.6  # chosen: of an API process's connections; changes that wait for one another leave these alone


@contextmanager
def opened_database(patience: "Patience | None" = None, *, upgrade: bool = True) -> "Iterator[Engine]":
    """The database of this process's settings; at the end, the last to leave a private one stops it.

    Raises SettingsError, DatabaseError.
    """
    from sutler.service.db import embedded
    from sutler.service.db.engine import UNHURRIED, open_engine
    from sutler.service.db.store import open_store

    settings = store_settings()
    try:
        engine = (open_store if upgrade else open_engine)(settings, patience or UNHURRIED)
        try:
            yield engine
        finally:
            engine.dispose()
    finally:
        if settings.database_url is None:
            embedded.stop(settings.data_dir)


@contextmanager
def opened_market(patience: "Patience | None" = None) -> "Iterator[MarketService]":
    """The market on the store of this process's settings. Raises SettingsError, DatabaseError."""
    from sutler.service.market.polling import Poller
    from sutler.service.market.service import MarketService

    settings = market_settings()
    with opened_database(patience) as engine:
        poller = Poller(engine, settings.configs, settings.poll_interval_s, settings.paces)
        yield MarketService(engine, settings, poller)


@contextmanager
def opened_profiles(names: "Names | None" = None) -> "Iterator[ProfilesService]":
    """Profiles and calibrations in the store of this process's settings; `names`: what those of GPUs and models mean,
    unset: what the catalogue says. Raises SettingsError, DatabaseError, DocumentError where the project is none."""
    from sutler.service.profiles.service import ProfilesService

    with opened_database() as engine:
        profiles = ProfilesService(engine) if names is None else ProfilesService(engine, names=names)
        project = store_settings().project
        profiles.check(project)
        yield profiles.of(project)


@asynccontextmanager
async def opened_engine(
    market: "MarketService", patience: "Patience", *, part: float
) -> "AsyncIterator[AsyncEngine]":
    """An asynchronous engine on the market's store, with a part of a process's connections; whose rows each of its
    transactions reaches has to be said."""
    from sutler.service.db.asynchronous import open_async_engine
    from sutler.service.db.projects import undecided

    settings = store_settings()
    private_in = settings.data_dir if settings.database_url is None else None
    engine = open_async_engine(market.engine, patience, part=part, private_in=private_in)
    try:
        yield undecided(engine)
    finally:
        await engine.dispose()


@asynccontextmanager
async def opened_services(fork_server: "ForkServer", *, needs_key: bool) -> "AsyncIterator[Services]":
    """What the API's endpoints work with. Raises SettingsError, DatabaseError."""
    from sutler.service.auth.authenticator import Authenticator
    from sutler.service.auth.sessions import Sessions
    from sutler.service.db.asynchronous import conninfo
    from sutler.service.db.engine import CALLERS
    from sutler.service.db.hanging import HangGuard
    from sutler.service.db.notices import Notices
    from sutler.service.db.projects import across, undecided
    from sutler.service.db.queue import Queue
    from sutler.service.deployments.current import CurrentPlans
    from sutler.service.operation.metrics_of_the_store import StoreMetricsCache
    from sutler.service.profiles.service import ProfilesService
    from sutler.service.web.checking import Checker
    from sutler.service.web.metrics import Metrics
    from sutler.service.web.state import Services

    settings = service_settings()
    async with AsyncExitStack() as stack:
        market = stack.enter_context(opened_market(CALLERS))
        engine = await stack.enter_async_context(opened_engine(market, CALLERS, part=READS))
        changes = await stack.enter_async_context(opened_engine(market, CALLERS, part=1 - READS))
        checker = Checker(fork_server)
        stack.push_async_callback(checker.stop)
        guard = HangGuard(conninfo(engine), market.engine, engine.sync_engine, changes.sync_engine)
        notices = Notices(conninfo(engine))
        authenticator = Authenticator(across(engine), notices, settings, needs_key=needs_key)
        profiles = ProfilesService(undecided(market.engine))
        parts = (
            *(authenticator, checker, guard, market, profiles, CurrentPlans(engine, notices)),
            StoreMetricsCache(worker_silent_s=settings.worker_silent_s),
            Sessions(across(engine), across(changes), notices, authenticator),
        )
        yield Services(
            engine=engine,
            changes=changes,
            queue=Queue(conninfo(engine)),
            notices=notices,
            settings=settings,
            metrics=Metrics(),
            count_change=authenticator.count_change,
            needs_key=needs_key,
            parts={type(part): part for part in parts},
        )


def api(fork_server: "ForkServer", *, needs_key: bool) -> "FastAPI":
    """The application on the store of this process's settings."""
    from sutler.service.api.app import build_app

    return build_app(lambda: opened_services(fork_server, needs_key=needs_key))


@asynccontextmanager
async def opened_worker(fork_server: "ForkServer") -> "AsyncIterator[Worker]":
    """A worker on the store of this process's settings. Raises SettingsError, DatabaseError."""
    from sutler.service.db.asynchronous import conninfo
    from sutler.service.db.engine import JOBS
    from sutler.service.db.queue import Queue
    from sutler.service.workers.worker import Worker

    with opened_market(JOBS) as market:
        async with opened_engine(market, JOBS, part=1.0) as engine:
            queue = Queue(conninfo(engine))
            yield Worker(engine, queue, market, service_settings(), fork_server, now=lambda: datetime.now(UTC))


class StoreWhenNeeded:
    """A market store that is opened by a question: problems with a snapshot of their own need none."""

    def stored(self) -> StoredMarket:
        """Returns nothing, rather than a new database, where nobody has ever polled."""
        settings = store_settings()
        if settings.database_url is None and not settings.has_private_database:
            return StoredMarket(datetime.now(UTC), (), {})
        with opened_market() as market:
            return market.stored()

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        with opened_market() as market:
            return market.polled(providers)

    def with_chances(self, plan: "PlanDocument", translation: "Translation") -> "PlanDocument":
        """The plan with how likely its offers are still there. Raises SettingsError, DatabaseError."""
        with opened_market() as market:
            return market.with_chances(plan, translation)

    def calibration(self, name: str) -> "CalibrationDocument":
        """Returns the calibration. Raises NoSuchProfileError, also where there is no database yet."""
        from sutler.service.profiles.service import no_calibration

        settings = store_settings()
        if settings.database_url is None and not settings.has_private_database:
            raise no_calibration(name, ())
        with opened_profiles() as profiles:
            return profiles.calibration(name)
