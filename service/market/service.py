"""The market's front door: poll clouds into the store, and read it. Command line, API and scheduler all come here."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Engine

from sutler.adapters.base import Poll
from sutler.adapters.config import EVERYBODY, OWNER, Provider
from sutler.adapters.registry import PROVIDERS
from sutler.service.db.engine import connected
from sutler.service.db.errors import DatabaseError
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.market.history import USUAL_SILENCE, HistoryPoint, price_histories
from sutler.service.market.interruptions import interruptions_at
from sutler.service.market.kept import KeptMarket
from sutler.service.market.outlook import Outlook, OutlookCache
from sutler.service.market.polling import Poller
from sutler.service.market.repository import PollReport, ProviderReport, polls_of, provider_reports
from sutler.service.market.resources import PollResource
from sutler.service.market.retention import Pruned, prune
from sutler.service.market.selection import provider_names
from sutler.service.market.snapshot import read_market
from sutler.service.settings import WITHHELD, MarketSettings
from sutler.service.translation.spares import with_chances
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import Translation
from sutler.service.web.errors import NotFoundError
from sutler.solver.outlook.interruptions import LearntRate

MOST_POLLS_AT_ONCE: Final = 8  # chosen: polls wait for clouds, not for the processor


@dataclass(frozen=True, slots=True)
class MarketService:
    """One store and the clouds that fill it; of a `project`, without what is another's; None: with all there is."""

    engine: Engine
    settings: MarketSettings
    poller: Poller
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    learnt: OutlookCache = field(default_factory=OutlookCache)
    kept: KeptMarket = field(default_factory=KeptMarket)
    project: str | None = None

    def of(self, project: str) -> "MarketService":
        """The same as this project sees it."""
        return replace(self, project=project)

    @property
    def hidden(self) -> frozenset[str]:
        """Providers whose offers are another project's."""
        if self.project is None:
            return frozenset()
        own = [one.name for one in PROVIDERS.values() if OWNER in one.options]
        return frozenset(name for name in own if self._owner(name) not in {self.project, EVERYBODY})

    def _owner(self, name: str) -> str:
        config = self.settings.configs.get(name)
        return OWNER.default if config is None else config.text(OWNER)

    def seen(self, market: StoredMarket) -> StoredMarket:
        """What the project sees of a market with all there is."""
        hidden = self.hidden
        if not hidden:
            return market
        offers = tuple(offer for offer in market.offers if offer.provider not in hidden)
        last_seen = {name: at for name, at in market.last_seen.items() if name not in hidden}
        return replace(market, offers=offers, last_seen=last_seen)

    def providers(self, names: Sequence[str] = ()) -> list[Provider]:
        """The clouds of these names, or those that are set up. Raises DocumentError for an unknown name."""
        chosen = provider_names(names) or self.settings.providers
        return [PROVIDERS[name] for name in dict.fromkeys(chosen)]

    def poll(self, providers: Sequence[Provider], *, insist: bool = False) -> list[PollReport]:
        """Polls side by side and reports in the order given. Raises DatabaseError where no poll could be stored."""
        pool = ThreadPoolExecutor(MOST_POLLS_AT_ONCE, thread_name_prefix="poll")
        try:
            found = list(pool.map(lambda provider: self._polled_or_error(provider, insist=insist), providers))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # an interrupted caller does not wait for slow clouds
        errors = [error for error in found if isinstance(error, DatabaseError)]
        if errors and len(errors) == len(found):
            raise errors[0]
        return [
            self._not_stored(provider, result) if isinstance(result, DatabaseError) else result
            for provider, result in zip(providers, found, strict=True)
        ]

    def _polled_or_error(self, provider: Provider, *, insist: bool) -> PollReport | DatabaseError:
        try:
            return self.poller.poll(provider, insist=insist)
        except DatabaseError as error:
            return error

    def _not_stored(self, provider: Provider, error: DatabaseError) -> PollReport:
        """Beside polls that were stored, one that was not is reported as failed."""
        return PollReport(provider.name, self.now(), 0.0, Poll(outcome="retry", detail=str(error)), {}, None, 0, 0)

    def read(self, *, as_of: datetime | None = None, providers: Sequence[str] = ()) -> StoredMarket:
        """The market now or at a past instant. Raises DatabaseError."""
        return self.seen(read_market(self.engine, now=self.now(), as_of=as_of, providers=providers))

    def looked_through(self, *, as_of: datetime | None = None) -> StoredMarket:
        """The same for who looks through its offers: read anew only where a cloud has been polled since.

        Raises DatabaseError.
        """
        if as_of is not None:
            return self.read(as_of=as_of)
        return self.seen(self.kept.get(self.engine, self.now(), replace(self, project=None).read))

    def stored(self) -> StoredMarket:
        return self.read()

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        """Polls, then reads; what a cloud does not answer stays as old as it is. Where the scheduler alone has a
        cloud's key, what that has polled is read."""
        pollable = [name for wanted in providers for name in _polled_for(wanted.lower())]
        if pollable or not providers:
            chosen = [one for one in self.providers(pollable) if not self._is_withheld(one)]
            if chosen:
                self.poll(chosen)
        return self.read()

    def _is_withheld(self, provider: Provider) -> bool:
        return WITHHELD in self.settings.configs[provider.name].secrets.values()

    def history(
        self,
        gpu: str,
        *,
        contract: str,
        since: datetime,
        until: datetime,
        points: int,
        providers: Sequence[str] = (),
    ) -> list[HistoryPoint]:
        """Number and price of a GPU over time. Raises DocumentError where the end is not after the start."""
        found = self.histories([gpu], contract=contract, since=since, until=until, points=points, providers=providers)
        return found[gpu]

    def histories(
        self,
        gpus: Sequence[str],
        *,
        contract: str,
        since: datetime,
        until: datetime,
        points: int,
        providers: Sequence[str] = (),
    ) -> dict[str, list[HistoryPoint]]:
        """The same of several GPUs, in less time than one after the other."""
        if until <= since:
            raise DocumentError.of(
                "until", f"must be after since, {since:%Y-%m-%dT%H:%M:%SZ}", value=f"{until:%FT%TZ}"
            )
        return price_histories(
            self.engine,
            gpus,
            contract=contract,
            since=since,
            until=until,
            points=points,
            providers=self._shown(providers),
            silence=self._silence,
        )

    def _shown(self, providers: Sequence[str]) -> Sequence[str]:
        """Those of these providers, or of all, that are not hidden."""
        hidden = self.hidden
        return [one for one in providers or PROVIDERS if one not in hidden] or [""] if hidden else providers

    def outlook(self) -> Outlook:
        """How long machines stay for rent, as learnt some minutes ago at most. Raises DatabaseError."""
        return self.learnt.get(self.engine, self.now())

    def interruptions(self) -> tuple[LearntRate, ...]:
        """How often rented machines were taken away. Raises DatabaseError."""
        with connected(self.engine) as connection:
            return interruptions_at(connection, self.now())

    def with_chances(self, plan: PlanDocument, translation: Translation) -> PlanDocument:
        """The plan with how likely its offers are still there, where it is of the store's market.

        Raises DatabaseError.
        """
        if not translation.market.is_of_store or not plan.rentals:
            return plan
        return with_chances(plan, translation, self.outlook(), self.now())

    def provider_reports(self) -> list[ProviderReport]:
        """Each cloud's last poll, and those that are set up but were never asked."""
        with connected(self.engine) as connection:
            found = [one for one in provider_reports(connection) if one.provider not in self.hidden]
        known = {report.provider for report in found}
        unasked = [name for name in self.settings.providers if name not in known | self.hidden]
        return [*found, *(ProviderReport(name, None, None, None, 0, 0) for name in unasked)]

    def polls(self, name: str, *, limit: int, before: datetime | None = None) -> list[PollResource]:
        """The polls of a cloud, the newest first. Raises NotFoundError for one that is neither known nor set up."""
        with connected(self.engine) as connection:
            found = polls_of(connection, name, limit=limit, before=before)
        if name in self.hidden or (found is None and name not in self.settings.providers):
            raise NotFoundError(f"there is no cloud {name!r}: GET /v1/providers lists those that are set up")
        return found or []

    def prune(self, history_days: float) -> Pruned:
        """Rolls up and deletes what ended more than `history_days` ago. Raises DatabaseError."""
        return prune(self.engine, now=self.now(), history_days=history_days, silence=self._silence)

    @property
    def _silence(self) -> timedelta:
        """What counts as silence: slow polling does not."""
        return max(USUAL_SILENCE, 3 * timedelta(seconds=self.settings.poll_interval_s or 0.0))


def _polled_for(name: str) -> list[str]:
    """Who tells of a provider: itself, or those that have it on a list of several clouds' prices."""
    if name in PROVIDERS:
        return [name]
    return [
        one.name
        for one in PROVIDERS.values()
        if any(option.name == "clouds" and name in option.choices for option in one.options)
    ]
