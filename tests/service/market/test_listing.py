"""Offers sought, sorted and counted, against what is found one by one."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, Final

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.market.listing import FACETS, MOST_VALUES, ORDERS, Listing, listed
from sutler.service.market.selection import OfferFilter
from sutler.service.translation.stored_market import StoredMarket
from tests.looped import for_each
from tests.service.market.builders import NOON

GPUS: Final = ("h100-sxm", "rtx-4090", "a40", "l40s")
CLOUDS: Final = ("vastai", "runpod", "lium")
REGIONS: Final = ("US", "US-TX", "us-east-1", "EU-RO-1", "SE", None)
CONTRACTS: Final = ("on_demand", "interruptible", "reserved")
ORDERS_BOTH_WAYS: Final = (*ORDERS, *(f"-{name}" for name in ORDERS))


def an_offer(offer_id: str = "a", **others: Any) -> OfferDocument:
    usual: dict[str, Any] = {
        "provider": "vastai",
        "gpu": "h100-sxm",
        "gpus": 1,
        "available": 1,
        "price_usd_per_hour": 2.0,
        "contract": "on_demand",
        "observed_at": NOON,
    }
    return OfferDocument(offer_id=offer_id, **{**usual, **others})


def a_market(*offers: OfferDocument) -> StoredMarket:
    return StoredMarket(NOON, offers, {})


def a_filter(**wanted: Any) -> OfferFilter:
    nothing: dict[str, Any] = {"gpus": (), "providers": (), "regions": (), "contracts": ()}
    none: dict[str, Any] = {"most_usd_per_gpu_hour": None, "max_age_s": None, "list_prices": False}
    return OfferFilter(**{**nothing, **none, **wanted})


def ids(found: Listing) -> list[str]:
    return [offer.offer_id for offer in found.offers]


@dataclass
class Case:
    """A market and what somebody asks of it; few values of each kind, so that much is alike."""

    seed: int
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.market = a_market(*(self._offer(number) for number in range(self.random.choice((0, 1, 40, 200)))))
        self.wanted = {
            "gpus": self._some(GPUS),
            "providers": self._some(CLOUDS),
            "regions": self._some(("us", "US-TX", "EU", "SE", "FR")),
            "contracts": self._some(CONTRACTS),
        }
        self.most_usd_per_gpu_hour = self.random.choice((None, 1.0, 2.0))
        self.words = self.random.choice(("", "", "1", "VAST us", "on_demand 4090", "m1 h100", "nothing"))
        self.order = self.random.choice(ORDERS_BOTH_WAYS)

    def _offer(self, number: int) -> OfferDocument:
        pick = self.random.choice
        return an_offer(
            f"o{number}",
            provider=pick(CLOUDS),
            gpu=pick(GPUS),
            gpus=pick((1, 2, 8)),
            available=pick((1, 3)),
            price_usd_per_hour=pick((1.0, 2.0, 4.0, 16.0)),
            contract=pick(CONTRACTS),
            region=pick(REGIONS),
            reliability_fraction=pick((None, 0.5, 0.99)),
            site=pick((None, f"m{number % 7}")),
            availability_basis=pick(("count", "count", "list")),
            observed_at=NOON - timedelta(seconds=pick((0, 60))),
        )

    def _some(self, values: tuple[str, ...]) -> list[str]:
        return self.random.sample(values, self.random.choice((0, 0, 1, 2)))

    @property
    def filter(self) -> OfferFilter:
        return a_filter(**self.wanted, most_usd_per_gpu_hour=self.most_usd_per_gpu_hour)

    def listed(self, **others: Any) -> Listing:
        asked = {"words": self.words, "order": self.order, "facets": True, **others}
        return listed(self.market, self.filter, **asked)

    def expected(self, *, but_for: str = "") -> Iterator[OfferDocument]:
        """What matches, written down a second time; `but_for` is a collection that counts for nothing."""
        asked = {name: [] if name == but_for else values for name, values in self.wanted.items()}
        for offer in self.market.offers:
            regions = {"-".join((offer.region or "").lower().split("-")[:parts]) for parts in (1, 2, 3)}
            text = " ".join(str(value) for value in offer.model_dump(include=NAMES).values()).lower()
            if (
                offer.availability_basis != "list"
                and (not asked["gpus"] or offer.gpu in asked["gpus"])
                and (not asked["providers"] or offer.provider in asked["providers"])
                and (not asked["regions"] or {name.lower() for name in asked["regions"]} & regions)
                and (not asked["contracts"] or offer.contract in asked["contracts"])
                and offer.price_usd_per_hour / offer.gpus <= (self.most_usd_per_gpu_hour or 1e9)
                and all(word in text for word in self.words.lower().split())
            ):
                yield offer


NAMES: Final = {"provider", "offer_id", "gpu", "region", "contract", "machine_id", "site"}
VALUES: Final[dict[str, tuple[str, Callable[[OfferDocument], str]]]] = {
    "gpu": ("gpus", lambda offer: offer.gpu),
    "provider": ("providers", lambda offer: offer.provider),
    "region": ("regions", lambda offer: (offer.region or "?").split("-")[0].upper()),
    "contract": ("contracts", lambda offer: offer.contract),
}


@for_each("seed", range(200))
def test_what_is_listed_is_what_matches_however_sorted(seed: int) -> None:
    case = Case(seed)
    assert {offer.key for offer in case.listed().offers} == {offer.key for offer in case.expected()}
    assert len(case.listed().offers) == len([*case.expected()])
    assert case.listed(facets=False) == Listing(case.listed().offers, {})


@for_each("seed", range(200))
def test_facets_are_the_counts_of_what_only_their_own_filter_hides(seed: int) -> None:
    case = Case(seed)
    found = case.listed().facets
    assert list(found) == list(VALUES)
    for name, (collection, value_of) in VALUES.items():
        assert found[name] == Counter(value_of(offer) for offer in case.expected(but_for=collection)), name
        counts = [(-count, value) for value, count in found[name].items()]
        assert counts == sorted(counts), name


@for_each("seed", range(60))
def test_choosing_a_value_of_a_facet_shows_as_many_offers_as_it_said(seed: int) -> None:
    case = Case(seed)
    for name, counts in case.listed().facets.items():
        for value, count in counts.items():
            if value != "?":
                case.wanted[VALUES[name][0]] = [value]
                assert len(case.listed().offers) == count, (name, value)
        case = Case(seed)


@for_each("seed", range(100))
def test_an_order_is_kept_and_what_is_alike_has_the_cheapest_first(seed: int) -> None:
    case = Case(seed)
    name = case.order.removeprefix("-")
    offers = case.listed().offers
    values = [ORDERS[name](offer) for offer in offers]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=case.order.startswith("-"))
    assert values[len(known) :] == [None] * (len(values) - len(known))
    for before, after in pairwise(offers):
        if ORDERS[name](before) == ORDERS[name](after):
            rank = [(one.price_usd_per_hour / one.gpus, one.key) for one in (before, after)]
            assert rank[0] < rank[1]


@for_each("seed", range(50))
def test_the_order_in_which_offers_come_does_not_matter(seed: int) -> None:
    case = Case(seed)
    first = case.listed()
    shuffled = [*case.market.offers]
    case.random.shuffle(shuffled)
    case.market = a_market(*shuffled)
    assert case.listed() == first
    assert [[*counts.items()] for counts in case.listed().facets.values()] == [
        [*counts.items()] for counts in first.facets.values()
    ]


@pytest.mark.parametrize("order", ["", "-", "--gpu", "price", "GPU", " gpu", "gpu,gpus", "+gpu", "\x00", "gpu" * 20])
def test_an_order_that_there_is_not_names_those_that_there_are(order: str) -> None:
    with pytest.raises(DocumentError, match="usd_per_gpu_hour, usd_per_hour, gpu, gpus,") as refused:
        listed(a_market(), a_filter(), order=order)
    assert refused.value.problems[0].field == "sort"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["a", "b"]),
        ("  \t ", ["a", "b"]),
        ("H100 us-tx", ["a"]),
        ("tx us", ["a"]),
        ("rack-7", ["a"]),
        ("Host-B", ["b"]),
        ("h100-sxm a vastai", ["a"]),
        ("none", []),
        ("on_demand", ["a", "b"]),
        ("%", []),
        (".*", []),
        ("sxmvastai", []),
        ("\x00", []),
        ("us " * 200, ["a"]),
        ("x" * 10_000, []),
    ],
)
def test_every_word_is_part_of_a_name(words: str, expected: list[str]) -> None:
    market = a_market(
        an_offer("a", region="US-TX", machine_id="Rack-7"), an_offer("b", gpu="a40", site="host-b", region=None)
    )
    assert ids(listed(market, a_filter(), words=words)) == expected


def test_a_facet_has_so_many_values_at_most_those_with_the_most_offers() -> None:
    many = [an_offer(f"o{number}", region=f"R{number:03}-X") for number in range(MOST_VALUES + 20)]
    market = a_market(*many, an_offer("again", region="R119"))
    found = listed(market, a_filter(), facets=True).facets["region"]
    assert len(found) == MOST_VALUES
    assert list(found.items())[:2] == [("R119", 2), ("R000", 1)]


def test_every_facet_is_a_filter() -> None:
    assert set(FACETS) == set(VALUES)
