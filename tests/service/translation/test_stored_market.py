"""Planning on the store's market: ages, stale providers, what is not for rent, what was polled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.problem_parts import MarketSourceDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.market_source import FilteredMarket, read_market
from sutler.service.translation.stored_market import StoredMarket
from tests.service.builders import NOW, UNJUDGED, an_offer


@dataclass
class Store:
    """A store that was polled long ago, and remembers who was asked."""

    offers: list[dict[str, Any]]
    after_polling: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def stored(self) -> StoredMarket:
        offers = tuple(validate(OfferDocument, offer) for offer in self.offers)
        return StoredMarket(NOW, offers, {offer.provider: NOW for offer in offers})

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        self.asked.extend(providers)
        self.offers = self.after_polling
        return self.stored()


def seen(seconds_ago: float, provider: str = "vastai", **others: Any) -> dict[str, Any]:
    at: datetime = NOW - timedelta(seconds=seconds_ago)
    return an_offer(offer_id=f"{provider}-{seconds_ago:g}", provider=provider, observed_at=at.isoformat(), **others)


def view_of(store: Store, **source: Any) -> FilteredMarket:
    return read_market(
        validate(MarketSourceDocument, source),
        folder=None,
        now=NOW,
        fitness=UNJUDGED,
        store=store,
    )


def kept(view: FilteredMarket) -> list[str]:
    return [offer.offer_id for _, offer in view.offers]


def test_a_market_without_offers_of_its_own_is_the_store() -> None:
    assert kept(view_of(Store([seen(10)]))) == ["vastai-10"]


def test_the_age_of_a_stored_market_is_that_of_its_oldest_offer_that_counts() -> None:
    view = view_of(Store([seen(10), seen(500, "runpod")]))
    assert view.age_s(NOW) == pytest.approx(500)


def test_a_stale_provider_is_left_out_and_the_notes_name_it() -> None:
    view = view_of(Store([seen(10), seen(1000, "runpod")]))
    assert kept(view) == ["vastai-10"]
    assert any(note.startswith("runpod is stale: 1 of its offers") and "are left out" in note for note in view.notes)
    assert [(p.provider, p.offers, p.stale) for p in view.providers] == [("runpod", 0, True), ("vastai", 1, False)]


def test_a_stale_provider_counts_where_the_problem_says_so_and_the_notes_name_it() -> None:
    view = view_of(Store([seen(10), seen(1000, "runpod")]), filter={"stale": "flag"})
    assert kept(view) == ["vastai-10", "runpod-1000"]
    assert any("runpod is stale" in note and "count all the same" in note for note in view.notes)


def test_the_problem_sets_the_age_that_is_stale() -> None:
    store = Store([seen(10), seen(1000, "runpod")])
    assert kept(view_of(store, filter={"max_age_s": 2000})) == ["vastai-10", "runpod-1000"]
    assert kept(view_of(store, filter={"max_age_s": 60})) == ["vastai-10"]


def test_a_market_that_is_stale_as_a_whole_is_no_market() -> None:
    with pytest.raises(NoMarketDataError, match="sutler market poll"):
        view_of(Store([seen(1000)]))


def test_list_prices_are_not_for_rent() -> None:
    store = Store([seen(10), seen(20, available=0, availability_basis="list")])
    view = view_of(store)
    assert kept(view) == ["vastai-10"]
    assert not any("dropped" in note for note in view.notes)


def test_a_store_of_list_prices_alone_is_no_market() -> None:
    with pytest.raises(NoMarketDataError, match="the store has no offers"):
        view_of(Store([seen(20, available=0, availability_basis="list")]))


def test_a_live_market_polls_the_providers_of_the_filter() -> None:
    store = Store([seen(5000)], after_polling=[seen(1)])
    assert kept(view_of(store, live=True, filter={"providers": ["vastai"]})) == ["vastai-1"]
    assert store.asked == ["vastai"]
