"""RunPod: of which offers a poll speaks when parts of its answers are unreadable, left out or of another shape."""

from typing import Any

import pytest

from sutler.adapters.base import Poll
from tests.adapters.runpod_bodies import (
    A40,
    H200,
    L4,
    covers,
    for_rent,
    graphql_poll_of,
    graphql_row,
    rest_poll,
    rest_poll_of,
    rest_row,
)

FEEDS = ("secure/{}/EU-1", "at_least/secure/{}/EU-1", "list/secure/{}/")
STRANGER = "NVIDIA RTX 6090"


def speaks_of(found: Poll, type_id: str) -> list[bool]:
    """Whether the poll covers offers, lower bounds and list price of a type."""
    return [covers(found, feed.format(type_id)) for feed in FEEDS]


def rows_read(found: Poll) -> dict[str, int]:
    return {coverage.feed_prefix: coverage.rows_read for coverage in found.covered}


def test_prices_of_another_shape_end_no_offer_though_one_type_can_still_be_read() -> None:
    rows = [rest_row(type_id, "LOW", "EU-1", price={"secure": {"usd": 0.44}}) for type_id in (A40, H200)]
    found = rest_poll_of(*rows, rest_row(L4, "NONE", price={"secure": 0.39}))
    assert found.rejected_by_reason == {"bad_number": 2}
    assert speaks_of(found, A40) == speaks_of(found, H200) == [False, False, False]
    assert speaks_of(found, L4) == [True, True, True]
    assert rows_read(found) == {f"secure/{L4}/": 1, f"at_least/secure/{L4}/": 1, f"list/secure/{L4}/": 1}


def test_a_list_price_that_cannot_be_read_is_not_closed() -> None:
    for price in ({"secure": {"usd": 0.44}}, {}, None):
        found = rest_poll_of(rest_row(A40, "NONE", price=price), rest_row(L4, "NONE"))
        assert (found.rejected, found.not_available) == ((), {"no_stock": 2})
        assert speaks_of(found, A40) == [True, True, False]
        assert speaks_of(found, L4) == [True, True, True]


def test_a_type_that_the_cloud_does_not_offer_has_no_list_price_any_more() -> None:
    found = rest_poll_of(rest_row(A40, "LOW", secure=False), rest_row(L4, "LOW", "EU-1"))
    assert speaks_of(found, A40) == [True, True, True]
    assert rows_read(found)["list/secure/"] == 1, "those with a price"


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": "48 GB"},
        {"memory": 24},
        {"maxCount": {"secure": "many"}},
        {"dataCenters": "EU-1"},
        {"price": {"secure": 80_000}},
    ],
)
def test_a_type_whose_row_is_rejected_stays_as_it_was(changes: dict[str, Any]) -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1", **changes), rest_row(L4, "LOW", "EU-1"))
    assert found.outcome == "ok"
    assert speaks_of(found, A40) == [False, False, False]
    assert speaks_of(found, L4) == [True, True, True]


@pytest.mark.parametrize("row", [None, {}, {"id": None}, "A40"])
def test_a_row_of_no_type_may_be_that_of_any_type_that_did_not_come(row: object) -> None:
    found = rest_poll_of(row, rest_row(L4, "LOW", "EU-1"))
    assert speaks_of(found, A40) == [False, False, False]
    assert speaks_of(found, L4) == [True, True, True]
    in_graphql = graphql_poll_of(row, graphql_row(L4))
    assert not covers(in_graphql, f"secure/{A40}/")
    assert covers(in_graphql, f"secure/{L4}/")


def test_a_name_that_no_gpu_has_leaves_no_doubt_about_the_others() -> None:
    found = rest_poll_of(rest_row(STRANGER, "LOW"), rest_row(L4, "LOW", "EU-1"))
    assert found.rejected_by_reason == {"unknown_gpu": 1}
    assert speaks_of(found, A40) == [True, True, True], "a type that has gone from the catalogue"


def test_where_most_names_are_strange_absent_types_have_not_gone() -> None:
    found = rest_poll_of(*(rest_row(f"gpu-{i:04}", "LOW") for i in range(3)), rest_row(L4, "LOW", "EU-1"))
    assert speaks_of(found, A40) == [False, False, False]
    assert speaks_of(found, L4) == [True, True, True]


def test_a_type_without_a_word_keeps_what_was_known_of_its_stock() -> None:
    found = rest_poll_of(rest_row(A40, None), rest_row(L4, "LOW", "EU-1"))
    assert speaks_of(found, A40) == [False, False, True]
    assert speaks_of(found, L4) == [True, True, True]


def test_words_that_nobody_documented_say_nothing_of_the_stock() -> None:
    found = rest_poll_of(rest_row(A40, "SCARCE", "EU-1"), rest_row(L4, "SCARCE"), rest_row(H200, "NONE"))
    assert rows_read(found)["secure/"] == 1


def test_a_type_that_was_unreadable_at_first_may_have_more_places_than_came_later() -> None:
    found, _ = rest_poll(
        lambda _cloud, count: [
            rest_row(A40, "LOW", "EU-1", memory="?" if count == 1 else 48),
            rest_row(L4, "LOW", "EU-1"),
        ]
    )
    assert not covers(found, f"secure/{A40}/EU-2")
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8, f"{L4}/secure/EU-1": 8}


# Answers for larger machines that leave out what was there


def test_an_empty_answer_for_larger_machines_does_not_shrink_the_offer() -> None:
    found, asked = rest_poll(lambda _cloud, count: [rest_row(A40, "LOW", "EU-1")] if count == 1 else [])
    assert [count for _, count in asked] == [1, 2]
    assert for_rent(found) == {f"{A40}/secure/EU-1/at_least": 1}
    assert speaks_of(found, A40) == [False, True, True]


def test_a_type_that_a_later_answer_leaves_out_is_in_doubt_and_the_others_are_not() -> None:
    found, _ = rest_poll(
        lambda _cloud, count: [
            *([rest_row(A40, "LOW", "EU-1")] if count < 4 else []),
            *([rest_row(H200, "LOW", "EU-1", maxCount={"secure": 2})] if count < 4 else []),
            rest_row(L4, "LOW", "EU-1"),
        ]
    )
    assert for_rent(found) == {
        f"{A40}/secure/EU-1/at_least": 2,
        f"{H200}/secure/EU-1": 2,
        f"{L4}/secure/EU-1": 8,
    }
    assert [covers(found, f"secure/{type_id}/EU-1") for type_id in (A40, L4)] == [False, True]


# The same in GraphQL


def test_a_row_that_graphql_garbles_leaves_its_type_as_it_was() -> None:
    garbled = [graphql_row(A40, securePrice={"usd": 0.44}), graphql_row(H200, memoryInGb="?")]
    found = graphql_poll_of(*garbled, graphql_row(L4, None))
    assert len(found.rejected) == 2
    assert [covers(found, f"secure/{type_id}/") for type_id in (A40, H200, L4)] == [False, False, True]
    assert rows_read(found)[f"secure/{L4}/"] == 1
