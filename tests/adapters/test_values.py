"""What is a number, a flag, an id, a name: tables for what clouds send, laws for what they might."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.adapters.base import OFFER_LIMITS, PriceBand
from sutler.adapters.errors import Reason, RowError
from sutler.adapters.values import (
    above_zero,
    checked_price,
    count,
    flag,
    identifier,
    if_stated,
    inside,
    nonnegative,
    number,
    optional_identifier,
    raw_json,
    short,
    stated,
    text,
    whole,
    whole_numbers,
)
from sutler.service.documents.market import OfferDocument

BAND = PriceBand()
ABSENT = object()

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def a_row(value: object) -> dict[str, Any]:
    return {} if value is ABSENT else {"x": value}


# Numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (3, 3.0),
        (-2, -2.0),
        (0.25, 0.25),
        (1e300, 1e300),
        (10**300, 1e300),
        ("0.25", 0.25),
        (" 0.25 ", 0.25),
        ("\t7\n", 7.0),
        ("-3", -3.0),
        ("4e-1", 0.4),
        ("4E+2", 400.0),
        ("0", 0.0),
        ("-0", 0.0),
        (None, None),
        (ABSENT, None),
    ],
)
def test_a_number_is_a_json_number_or_text_that_is_exactly_one(value: object, expected: float | None) -> None:
    assert number(a_row(value), "x") == expected


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        "",
        " ",
        "N/A",
        "NaN",
        "nan",
        "inf",
        "Infinity",
        "-Infinity",
        "0,70",
        "1,000",
        "1 000",
        "1_000",
        "+1",
        ".5",
        "5.",
        "007",
        "0x10",
        "1e",
        "1e999",
        "$0.40",
        "0.40 USD",
        "٣",
        "１",
        "1\u00002",
        "9" * 500,
        float("nan"),
        float("inf"),
        float("-inf"),
        10**400,
        [],
        [1],
        {},
        {"value": 1},
    ],
)
def test_what_is_no_number_is_a_bad_number(value: object) -> None:
    with pytest.raises(RowError, match="x: ") as caught:
        number(a_row(value), "x")
    assert caught.value.reason == "bad_number"
    assert len(str(caught.value)) < 200


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_means_the_same_as_text(value: float) -> None:
    assert number(a_row(value), "x") == number(a_row(json.dumps(value)), "x") == value


def as_read(value: object) -> float | Reason | None:
    try:
        return number({"x": value}, "x")
    except RowError as error:
        return error.reason


@given(json_values)
def test_whatever_a_field_holds_is_a_finite_number_or_a_bad_one(value: object) -> None:
    found = as_read(value)
    assert math.isfinite(found) if isinstance(found, float) else found in {None, "bad_number"}


@pytest.mark.parametrize("value", [None, ABSENT])
def test_a_required_number_that_is_missing_is_a_bad_shape(value: object) -> None:
    with pytest.raises(RowError, match="x: is missing") as caught:
        stated(number(a_row(value), "x"), "x")
    assert caught.value.reason == "bad_shape"


def test_a_required_number_is_a_number() -> None:
    assert stated(number({"x": "1.5"}, "x"), "x") == 1.5


@pytest.mark.parametrize(("value", "expected"), [(8, 8), (8.0, 8), ("8", 8), ("8.0", 8), (-1, -1), (None, None)])
def test_a_whole_number_may_be_spelled_with_a_point(value: object, expected: int | None) -> None:
    assert whole(a_row(value), "x") == expected


@pytest.mark.parametrize("value", [1.5, "1.5", True, "eight"])
def test_a_fraction_is_no_whole_number(value: object) -> None:
    with pytest.raises(RowError) as caught:
        whole(a_row(value), "x")
    assert caught.value.reason == "bad_number"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "bad_number"),
        (-1, "bad_number"),
        (65, "bad_number"),
        (1e300, "bad_number"),
        (2.5, "bad_number"),
        (True, "bad_number"),
        (None, "bad_shape"),
        (ABSENT, "bad_shape"),
    ],
)
def test_a_count_is_from_one_to_the_most(value: object, reason: Reason) -> None:
    with pytest.raises(RowError) as caught:
        count(a_row(value), "x", most=64)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("value", "expected"), [(1, 1), ("64", 64), (8.0, 8)])
def test_a_count_counts(value: object, expected: int) -> None:
    assert count(a_row(value), "x", most=64) == expected


@pytest.mark.parametrize(("value", "expected"), [(0, 0.0), ("2.5", 2.5), (1e9, 1e9), (None, None)])
def test_a_quantity_is_from_zero_up(value: object, expected: float | None) -> None:
    assert nonnegative(a_row(value), "x") == expected


@pytest.mark.parametrize("value", [-0.001, "-1", 1e10, 1e300])
def test_a_negative_or_absurd_quantity_is_a_bad_number(value: object) -> None:
    with pytest.raises(RowError, match="is not from 0 to") as caught:
        nonnegative(a_row(value), "x")
    assert caught.value.reason == "bad_number"


# Flags


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ("true", True),
        (" TRUE ", True),
        ("False", False),
        ("yes", None),
        ("maybe", None),
        ("", None),
        (1, None),
        (0, None),
        ([True], None),
        (None, None),
        (ABSENT, None),
    ],
)
def test_a_flag_that_says_neither_is_unknown(value: object, expected: bool | None) -> None:
    assert flag(a_row(value), "x") is expected


# Ids and names


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (31, "31"),
        (0, "0"),
        (-7, "-7"),
        ("31", "31"),
        (" a-b ", "a-b"),
        ("a\x00b\x1bc\u202e", "abc"),
        ("x" * 500, "x" * 200),
        ("é", "é"),
    ],
)
def test_an_id_becomes_text(value: object, expected: str) -> None:
    assert identifier(a_row(value), "x") == expected


@pytest.mark.parametrize("value", [None, ABSENT, "", "  ", "\x00", "\ud800", True, 1.5, [], {}, 10**100])
def test_what_cannot_be_an_id_is_a_bad_shape(value: object) -> None:
    assert optional_identifier(a_row(value), "x") is None
    with pytest.raises(RowError, match="x: ") as caught:
        identifier(a_row(value), "x")
    assert caught.value.reason == "bad_shape"


@given(json_values)
def test_every_name_that_is_kept_is_one_that_a_snapshot_can_hold(value: object) -> None:
    for found in (text({"x": value}, "x"), optional_identifier({"x": value}, "x")):
        if found is not None:
            offer = OfferDocument(
                provider="p",
                offer_id=found,
                gpu="a40",
                gpus=1,
                available=1,
                price_usd_per_hour=1.0,
                contract="on_demand",
            )
            assert offer.offer_id == found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([3, 1, 2], (1, 2, 3)),
        ([0], (0,)),
        ([1, 1], None),
        ([1, -1], None),
        ([1, 2.0], None),
        ([1, "2"], None),
        ([True], None),
        ([10**30], None),
        ([[1]], None),
        ([None], None),
        ([], None),
        ("12", None),
        ({"0": 1}, None),
        (7, None),
        (None, None),
    ],
)
def test_cards_are_distinct_whole_numbers(value: object, expected: tuple[int, ...] | None) -> None:
    assert whole_numbers(a_row(value), "x") == expected


# Prices


@pytest.mark.parametrize(
    ("usd", "gpus", "reason"),
    [
        (0.0, 1, "price_nonpositive"),
        (-0.2, 1, "price_nonpositive"),
        (0.0099, 1, "price_too_low"),
        (0.079, 8, "price_too_low"),
        (50.01, 1, "price_too_high"),
        (400.1, 8, "price_too_high"),
        (1e308, 8, "price_too_high"),
    ],
)
def test_a_price_outside_the_band_per_gpu_is_refused(usd: float, gpus: int, reason: Reason) -> None:
    with pytest.raises(RowError, match="total: ") as caught:
        checked_price(usd, gpus=gpus, band=BAND, name="total")
    assert caught.value.reason == reason


@pytest.mark.parametrize(("usd", "gpus"), [(0.01, 1), (0.08, 8), (50.0, 1), (400.0, 8), (1.2345678, 1)])
def test_a_price_within_the_band_is_kept_as_it_is(usd: float, gpus: int) -> None:
    assert checked_price(usd, gpus=gpus, band=BAND, name="total") == usd


def test_the_band_is_the_operators() -> None:
    assert checked_price(75.0, gpus=1, band=PriceBand(0.5, 100.0), name="total") == 75.0
    with pytest.raises(RowError, match=r"below 0\.5 per GPU"):
        checked_price(0.4, gpus=1, band=PriceBand(0.5, 100.0), name="total")


# Raw rows and messages


@given(json_values)
def test_every_row_can_be_kept_as_plain_json(value: object) -> None:
    raw = raw_json({"x": value})
    assert raw.isascii()
    assert raw.isprintable()
    json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_raw_row_is_the_row() -> None:
    row = {"b": [1, None, "é\n"], "a": {"c": 0.1}}
    assert raw_json(row) == '{"a":{"c":0.1},"b":[1,null,"\\u00e9\\n"]}'
    assert json.loads(raw_json(row)) == row


def test_a_number_too_large_for_json_is_kept_as_text() -> None:
    row = {"id": 7, "price": [{"usd": math.inf}, math.nan, 1.5]}
    assert json.loads(raw_json(row)) == {"id": 7, "price": [{"usd": "inf"}, "nan", 1.5]}


def test_a_row_too_deep_to_write_is_kept_in_short() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert "[" in json.loads(raw_json({"x": deep}))


@given(json_values)
def test_a_message_never_shows_more_than_a_little(value: object) -> None:
    assert len(short(value)) < 2000


@pytest.mark.parametrize(
    ("value", "found"), [({"a": {"b": 1}}, 1), ({"a": {}}, None), ({"a": [1]}, None), ({}, None), ("a", None)]
)
def test_a_path_leads_through_objects_or_to_nothing(value: object, found: object) -> None:
    assert inside(value, "a", "b") == found


@given(json_values)
def test_a_figure_that_an_offer_can_do_without_is_within_its_limits_or_not_stated(value: Any) -> None:
    for figure, (least, most) in OFFER_LIMITS.items():
        found = if_stated({"a": value}, "a", figure, per=8.0)
        assert found is None or least <= found <= most


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (512_000, 512.0),
        ("64393.5", 64.3935),
        (0, 0.0),
        ("N/A", None),
        (-1, None),
        (None, None),
        (1e10, None),
        (True, None),
    ],
)
def test_such_a_figure_has_a_unit(value: Any, found: float | None) -> None:
    row = {"a": value}
    assert (if_stated(row, "a", "ram_gb", per=1000.0), if_stated(None, "a", "ram_gb")) == (found, None)
    assert above_zero(row, "a", "ram_gb", per=1000.0) == (found or None)
