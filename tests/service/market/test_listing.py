"""Offers sought, sorted and counted, against the plainest way to do it."""

from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.market.listing import FACETS, ORDERS, listed, order_of
from sutler.service.market.selection import OfferFilter
from sutler.service.translation.stored_market import StoredMarket
from tests.looped import for_each
from tests.service.builders import an_offer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOTHING: dict[str, Any] = {
    "gpus": (),
    "providers": (),
    "regions": (),
    "contracts": (),
    "most_usd_per_gpu_hour": None,
    "max_age_s": None,
    "list_prices": True,
}


def a_market(seed: int, count: int = 60) -> StoredMarket:
    draw = Random(seed)
    offers = [
        an_offer(
            provider=draw.choice(("vastai", "runpod", "lium")),
            offer_id=f"offer-{i}",
            gpu=draw.choice(("h100-sxm", "l40s", "rtx-4090")),
            gpus=draw.choice((1, 2, 8)),
            available=draw.randint(1, 5),
            price_usd_per_hour=draw.choice((0.5, 1.0, 2.0, 4.0)),
            contract=draw.choice(("on_demand", "interruptible")),
            **({"region": draw.choice(("US-TX", "US-CA", "EU-FR"))} if draw.random() < 0.8 else {}),
        )
        for i in range(count)
    ]
    return StoredMarket(NOW, tuple(OfferDocument.model_validate(offer) for offer in offers), {})


@for_each("seed", range(30))
def test_counts_are_those_of_offers_if_only_their_own_filter_were_left_out(seed: int) -> None:
    draw, market = Random(seed), a_market(seed)
    chosen = {
        "gpus": draw.choice(((), ("l40s",))),
        "regions": draw.choice(((), ("US",))),
        "contracts": draw.choice(((), ("on_demand",))),
    }
    words = draw.choice(("", "offer-1", "US l40s", "nothing"))
    found = listed(market, OfferFilter(**{**NOTHING, **chosen}), words=words, facets=True)
    fields = {"gpu": "gpus", "provider": "providers", "region": "regions", "contract": "contracts"}
    for facet, value_of in FACETS.items():
        free = OfferFilter(**{**NOTHING, **chosen, fields[facet]: ()})
        wanted = Counter(value_of(offer) for offer in listed(market, free, words=words).offers)
        assert found.facets[facet] == wanted
        assert list(found.facets[facet].values()) == sorted(wanted.values(), reverse=True)


@for_each("order", [sign + name for name in ORDERS for sign in ("", "-")])
def test_an_order_is_kept_and_loses_nothing(order: str) -> None:
    market = a_market(3)
    found = listed(market, OfferFilter(**NOTHING), order=order).offers
    name, is_descending = order_of(order)
    values = [ORDERS[name](offer) for offer in found]
    assert values == sorted(values, reverse=is_descending)
    assert {offer.key for offer in found} == {offer.key for offer in market.offers}
    assert found == listed(market, OfferFilter(**NOTHING), order=order).offers


def test_every_word_has_to_stand_somewhere() -> None:
    market = a_market(5)
    found = listed(market, OfferFilter(**NOTHING), words="LIUM h100").offers
    assert found
    assert all((offer.provider, offer.gpu) == ("lium", "h100-sxm") for offer in found)
    assert listed(market, OfferFilter(**NOTHING), words="lium " * 200).offers == (
        listed(market, OfferFilter(**NOTHING), words="lium").offers
    )


@pytest.mark.parametrize("order", ["", "-", "--gpus", "beauty", "gpus "])
def test_an_order_that_there_is_not_is_refused_with_those_that_there_are(order: str) -> None:
    with pytest.raises(DocumentError, match="usd_per_gpu_hour, usd_per_hour, gpu"):
        order_of(order)
