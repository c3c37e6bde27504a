"""Short ways to say what a cloud answers and when, and what the store then holds. Time passes only when told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Engine, text

from sutler.adapters.base import Coverage, Offer, Poll, RejectedRow
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import Outcome
from sutler.adapters.registry import PROVIDERS
from sutler.service.documents.market import OfferDocument
from sutler.service.market.polling import Poller
from sutler.service.market.repository import PollReport
from sutler.service.market.snapshot import read_market
from sutler.service.settings import Pace
from sutler.service.translation.stored_market import StoredMarket

NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
CONFIG: Final = ProviderConfig("http://127.0.0.1:9")
FAILURES: Final[tuple[Outcome, ...]] = ("retry", "bad_body", "bad_shape", "auth_error", "config_error", "quota")


def a_cloud(name: str = "north", *, interval_s: float = 60.0, least_interval_s: float = 30.0) -> Provider:
    """A provider whose adapter is never asked: tests hand in what it brings."""
    some = next(iter(PROVIDERS.values()))
    return replace(
        some, name=name, title=name.title(), poll_interval_s=interval_s, least_poll_interval_s=least_interval_s
    )


NORTH: Final = a_cloud("north")
SOUTH: Final = a_cloud("south")


def an_offer(offer_id: str = "a", price_usd_per_hour: float = 2.0, **others: Any) -> Offer:
    usual: dict[str, Any] = {"feed": "main", "gpu": "h100-sxm", "gpus": 1, "available": 1, "contract": "on_demand"}
    return Offer(offer_id=offer_id, price_usd_per_hour=price_usd_per_hour, **{**usual, **others})


def an_answer(*offers: Offer, **others: Any) -> Poll:
    """A poll that speaks of the whole market."""
    covered = (Coverage("", rows_read=max(1, len(offers))),)
    return Poll(**{"outcome": "ok", "offers": offers, "kept": len(offers), "covered": covered, **others})


def an_empty_answer(*feeds: str) -> Poll:
    """Without one readable row."""
    return an_answer(covered=tuple(Coverage(feed) for feed in feeds or ("",)))


def a_failure(outcome: Outcome = "retry", *, wait_s: float | None = None) -> Poll:
    detail = f"the cloud said {outcome}"
    return Poll(outcome=outcome, wait_s=wait_s, wait_is_stated=wait_s is not None, detail=detail, http_status=503)


def a_rejected_row(offer_id: str | None = "bad", raw: str = '{"gpu":"voodoo"}', **others: Any) -> RejectedRow:
    return RejectedRow(
        **{"offer_id": offer_id, "reason": "unknown_gpu", "detail": "gpu: 'voodoo'", "raw": raw, **others}
    )


@dataclass
class ToldTime:
    """`now` and `monotonic` move by `pass_s` and `sleep`."""

    at: datetime = NOON
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOON).total_seconds()

    def pass_s(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_s(seconds)


@dataclass
class Clouds:
    """Each provider's next answer; `asked` are the names of those who were asked, in order."""

    answers: dict[str, Poll | Callable[[], Poll]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def fetch(self, provider: Provider, _: ProviderConfig) -> Poll:
        self.asked.append(provider.name)
        answer = self.answers[provider.name]
        return answer if isinstance(answer, Poll) else answer()


@dataclass
class Store:
    """A store, a poller into it, and questions to the tables."""

    engine: Engine
    time: ToldTime = field(default_factory=ToldTime)
    clouds: Clouds = field(default_factory=Clouds)
    poll_interval_s: float | None = None
    paces: dict[str, Pace] = field(default_factory=dict)

    @property
    def poller(self) -> Poller:
        """A new one each time, as after a restart: what it knows is in the store."""
        return Poller(
            self.engine,
            dict.fromkeys(("north", "south", *PROVIDERS), CONFIG),
            self.poll_interval_s,
            self.paces,
            fetch=self.clouds.fetch,
            now=self.time.now,
            monotonic=self.time.monotonic,
            sleep=self.time.sleep,
        )

    def poll(
        self, answer: Poll | Callable[[], Poll], *, after_s: float = 60.0, cloud: Provider = NORTH
    ) -> PollReport:
        """Time passes, then the cloud is polled, whatever it asked for."""
        self.time.pass_s(after_s)
        self.clouds.answers[cloud.name] = answer
        return self.poller.poll(cloud, insist=True)

    def poll_all(self, *answers: Poll) -> list[PollReport]:
        return [self.poll(answer) for answer in answers]

    def market(self, as_of: datetime | None = None, *providers: str) -> StoredMarket:
        return read_market(self.engine, now=self.time.now(), as_of=as_of, providers=providers)

    def for_rent(self, as_of: datetime | None = None) -> dict[str, float]:
        """Prices by id."""
        return prices(self.market(as_of).offers)

    def offer(self, offer_id: str) -> OfferDocument:
        (found,) = (offer for offer in self.market().offers if offer.offer_id == offer_id)
        return found

    def scalar(self, statement: str, **values: Any) -> Any:
        with self.engine.connect() as connection:
            return connection.scalar(text(statement), values)

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), values)]

    @property
    def offer_rows(self) -> list[tuple[Any, ...]]:
        """Id, price, begin and end, in the order in which they were written."""
        return self.rows("SELECT offer_id, price_usd_per_hour, lower(valid), upper(valid) FROM offer ORDER BY id")


def prices(offers: Iterable[OfferDocument]) -> dict[str, float]:
    return {offer.offer_id: offer.price_usd_per_hour for offer in offers}
