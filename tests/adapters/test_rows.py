"""The tally of a poll: one offer per key, rejected rows as they came, the same row twice counted once."""

import json

import pytest

from sutler.adapters.base import Contract, Offer
from sutler.adapters.errors import RowError
from sutler.adapters.rows import Collected
from sutler.adapters.values import as_row, optional_identifier


def an_offer(price: float, *, offer_id: str = "1", contract: Contract = "on_demand") -> Offer:
    return Offer(
        offer_id=offer_id,
        feed=contract,
        gpu="a40",
        gpus=1,
        available=1,
        price_usd_per_hour=price,
        contract=contract,
    )


def kept(*offers: Offer) -> Collected:
    tally = Collected()
    for offer in offers:
        tally.keep(offer)
    return tally


def test_of_two_prices_for_one_offer_the_higher_stays_and_is_flagged() -> None:
    for prices in ((0.4, 0.5), (0.5, 0.4)):
        tally = kept(*(an_offer(price) for price in prices))
        assert [offer.price_usd_per_hour for offer in tally.offers.values()] == [0.5]
        assert tally.flags == {"duplicate_conflict": 1}


def test_an_offer_told_twice_at_one_price_is_no_conflict() -> None:
    tally = kept(an_offer(0.4), an_offer(0.4))
    assert len(tally.offers) == 1
    assert tally.flags == {}


def test_contracts_of_one_offer_are_two_offers() -> None:
    tally = kept(an_offer(0.4), an_offer(0.2, contract="interruptible"), an_offer(0.4, offer_id="2"))
    assert len(tally.offers) == 3
    assert tally.flags == {}


def test_a_rejected_row_is_kept_as_it_came() -> None:
    tally = Collected()
    tally.reject({"id": 7, "price": "N/A"}, RowError("bad_number", "price: 'N/A' is not a number"), "7")
    (row,) = tally.rejected
    assert (row.offer_id, row.reason, row.detail) == ("7", "bad_number", "price: 'N/A' is not a number")
    assert json.loads(row.raw) == {"id": 7, "price": "N/A"}


def test_a_rejected_row_may_have_another_id_or_none() -> None:
    tally = Collected()
    error = RowError("bad_shape", "no")
    tally.reject({"uuid": "u-1"}, error, "u-1")
    for row in ({"id": None}, {"id": [1]}, "text", None, [1, 2]):
        tally.reject(row, error, optional_identifier(row, "id"))
    assert [row.offer_id for row in tally.rejected] == ["u-1", None, None, None, None, None]


def test_the_same_row_to_the_letter_is_new_only_once() -> None:
    tally = Collected()
    assert tally.is_new({"id": 1, "a": [1, {"b": 2}]})
    assert not tally.is_new({"a": [1, {"b": 2}], "id": 1})
    assert tally.is_new({"id": 1, "a": [1, {"b": 3}]})
    assert tally.is_new({"id": 2, "a": [1, {"b": 2}]})


def test_a_row_with_an_impossible_number_is_the_same_row_too() -> None:
    tally = Collected()
    assert tally.is_new({"id": 1, "a": float("nan")})
    assert not tally.is_new({"id": 1, "a": float("nan")})


def test_what_is_no_object_is_always_new() -> None:
    tally = Collected()
    assert tally.is_new("row")
    assert tally.is_new("row")


def test_thousands_of_rows_without_an_id_are_told_apart() -> None:
    tally = Collected()
    assert all(tally.is_new({"n": i, "more": "x" * 200}) for i in range(3000))
    assert not tally.is_new({"n": 7, "more": "x" * 200})


@pytest.mark.parametrize("value", [[], "x" * 900, None, 3])
def test_only_an_object_is_a_row(value: object) -> None:
    with pytest.raises(RowError, match="is no object") as caught:
        as_row(value)
    assert caught.value.reason == "bad_shape"
    assert len(str(caught.value)) < 120


def test_an_object_is_a_row() -> None:
    assert as_row({"id": 1}) == {"id": 1}
