"""An offer that the market snapshot would refuse is never made."""

from typing import Any

import pytest
from pydantic import ValidationError

from sutler.adapters.base import LONGEST_NAME, OFFER_LIMITS, Offer
from sutler.adapters.errors import RowError
from sutler.service.documents.market import OfferDocument
from tests.adapters.builders import as_document

PLAIN: dict[str, Any] = {
    "offer_id": "a",
    "feed": "main",
    "gpu": "h100-sxm",
    "gpus": 2,
    "available": 1,
    "price_usd_per_hour": 4.0,
    "contract": "on_demand",
}
NAMES = ("offer_id", "gpu", "machine_id", "site", "region")
BAD_NAMES = ("", "x" * (LONGEST_NAME + 1), "a\u0000", "a\nb", "a\u202eb")
BEYOND: list[tuple[str, Any]] = [
    *((name, least - 1) for name, (least, _) in OFFER_LIMITS.items()),
    *((name, most + 1) for name, (_, most) in OFFER_LIMITS.items()),
    *(("price_usd_per_hour", price) for price in (-1e-9, -1.0, 1.1e7, float("nan"), float("inf"))),
    ("reliability_fraction", float("nan")),
    ("disk_gb", float("inf")),
    ("gpu_ids", (-1, 1)),
    ("gpu_ids", (1, 2**63)),
]
NO_CARDS: tuple[tuple[int, ...], ...] = ((), (1,), (1, 1), (1, 2, 3))
WITHIN: list[tuple[str, Any]] = [
    *((name, least) for name, (least, _) in OFFER_LIMITS.items()),
    *((name, most) for name, (_, most) in OFFER_LIMITS.items()),
    *((name, "x" * LONGEST_NAME) for name in NAMES),
    ("price_usd_per_hour", 0.0),
    ("price_usd_per_hour", 1e7),
    ("gpu_ids", (0, 2**63 - 1)),
]


@pytest.mark.parametrize(("name", "value"), WITHIN)
def test_what_the_snapshot_takes_is_an_offer(name: str, value: object) -> None:
    assert as_document(Offer(**{**PLAIN, name: value}))


@pytest.mark.parametrize(("name", "value"), BEYOND)
def test_a_figure_beyond_the_snapshots_limits_is_a_bad_number(name: str, value: object) -> None:
    with pytest.raises(RowError, match=f"^{name}: ") as caught:
        Offer(**{**PLAIN, name: value})
    assert caught.value.reason == "bad_number"


@pytest.mark.parametrize("cards", NO_CARDS)
def test_cards_that_are_not_one_for_each_gpu_are_a_bad_row(cards: tuple[int, ...]) -> None:
    with pytest.raises(RowError, match=r"^gpu_ids: ") as caught:
        Offer(**{**PLAIN, "gpu_ids": cards})
    assert caught.value.reason == "bad_shape"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", BAD_NAMES)
def test_a_name_that_no_snapshot_holds_is_a_bad_row(name: str, value: str) -> None:
    with pytest.raises(RowError, match=f"^{name}: ") as caught:
        Offer(**{**PLAIN, name: value})
    assert caught.value.reason == "bad_shape"


def test_several_of_one_machine_are_a_bad_row() -> None:
    with pytest.raises(RowError, match=r"^available: 2 of one machine"):
        Offer(**{**PLAIN, "available": 2, "machine_id": "m"})
    assert Offer(**{**PLAIN, "available": 0, "machine_id": "m"}).available == 0


@pytest.mark.parametrize("name", sorted(OFFER_LIMITS))
def test_the_limits_are_those_of_the_snapshot(name: str) -> None:
    """One beyond each limit is refused by the document, too."""
    shared = {field: value for field, value in PLAIN.items() if field != "feed"}
    for beyond in (OFFER_LIMITS[name][0] - 1, OFFER_LIMITS[name][1] + 1):
        with pytest.raises(ValidationError, match=name):
            OfferDocument(provider="north", **{**shared, name: beyond})
