"""RunPod's REST API v2, polled over HTTP: words for scarcity become lower bounds, per data centre."""

from typing import Any

import pytest

from sutler.adapters import runpod
from sutler.adapters.base import Offer
from tests.adapters.builders import DELETE, KEY, a_poll
from tests.adapters.runpod_bodies import (
    A40,
    H200,
    L4,
    covers,
    for_rent,
    list_prices,
    rest_poll,
    rest_poll_of,
    rest_row,
    up_to,
)
from tests.adapters.server import ScriptedServer, json_reply


def test_the_largest_machine_of_each_data_centre_is_a_lower_bound() -> None:
    found, asked = rest_poll(up_to({"EU-1": 8, "US-KS-2": 2}))
    assert found.outcome == "ok"
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8, f"{A40}/secure/US-KS-2": 2}
    assert asked == [("SECURE", count) for count in (1, 2, 4, 8)]
    assert found.requests == 4


def test_an_offer_says_what_is_known_and_no_more() -> None:
    found, _ = rest_poll(up_to({"US-KS-2": 4}))
    assert found.offers[0] == Offer(
        offer_id=f"{A40}/secure/US-KS-2",
        feed=f"secure/{A40}/US-KS-2",
        gpu="a40",
        gpus=4,
        available=1,
        price_usd_per_hour=1.76,
        contract="on_demand",
        availability_basis="lower_bound",
        divisible=True,
        machine_id=f"{A40}/secure/US-KS-2",
        site="runpod/US-KS-2",
        region="US-KS-2",
    )


def test_a_request_asks_for_pods_with_availability_and_carries_the_key() -> None:
    with ScriptedServer([json_reply({"gpus": []})]) as server:
        a_poll(server.base_url, runpod.PROVIDER)
    (request,) = server.requests
    assert request.path == "/v2/catalog/gpus"
    assert request.params == {"include": "AVAILABILITY", "product": "POD", "cloud": "SECURE", "count": "1"}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_type_that_names_no_data_centre_is_one_offer_without_region() -> None:
    for centers in (DELETE, None, []):
        found = rest_poll_of(rest_row(A40, "HIGH", dataCenters=centers))
        assert for_rent(found) == {f"{A40}/secure": 8}
        assert found.offers[0].region is None
        assert found.offers[0].feed == f"secure/{A40}/"


def test_what_is_free_somewhere_is_not_counted_beside_the_named_data_centres() -> None:
    found, _ = rest_poll(lambda _cloud, count: [rest_row(A40, "LOW", *(["EU-1"] if count == 1 else []))])
    assert for_rent(found) == {f"{A40}/secure/EU-1": 1}


def test_no_machine_is_larger_than_the_cloud_says() -> None:
    assert for_rent(rest_poll_of(rest_row(A40, "LOW", "EU-1", maxCount={"secure": 3}))) == {f"{A40}/secure/EU-1": 3}
    assert for_rent(rest_poll_of(rest_row(A40, "LOW", "EU-1", maxCount=None))) == {f"{A40}/secure/EU-1": 8}
    assert for_rent(rest_poll_of(rest_row(A40, "LOW", "EU-1", maxCount={"secure": 0}))) == {f"{A40}/secure/EU-1": 8}


def test_larger_counts_are_not_asked_for_when_nothing_is_in_stock() -> None:
    found, asked = rest_poll(up_to({"EU-1": 1}))
    assert asked == [("SECURE", 1), ("SECURE", 2)]
    assert found.outcome == "ok"
    assert covers(found, f"secure/{A40}/EU-1")


def test_only_rows_that_can_be_read_ask_for_larger_counts() -> None:
    _, asked = rest_poll(lambda _cloud, _count: [rest_row("NVIDIA RTX 6090", "HIGH"), rest_row(L4, "NONE")])
    assert asked == [("SECURE", 1)]


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("NONE", "no_stock"),
        ("none", "no_stock"),
        ("PLENTIFUL", "unknown_stock"),
        ("", "unknown_stock"),
        (3, "unknown_stock"),
        (True, "unknown_stock"),
        (["HIGH"], "unknown_stock"),
    ],
)
def test_only_the_known_words_are_stock(word: object, cause: str) -> None:
    found = rest_poll_of(rest_row(A40, word, "EU-1"))
    assert found.kept == 0
    assert found.not_available == {cause: 1}
    assert for_rent(found) == {}
    assert covers(found, f"secure/{A40}/EU-1")


@pytest.mark.parametrize("word", ["LOW", "MEDIUM", "HIGH", "low", " High "])
def test_the_words_for_stock_are_known_in_any_case(word: str) -> None:
    assert rest_poll_of(rest_row(A40, word, "EU-1")).kept == 1


def test_a_data_centre_with_an_unknown_word_has_nothing() -> None:
    centers = [{"id": "EU-1", "availability": "SOME"}, {"id": "EU-2", "availability": "LOW"}, {"id": "EU-3"}]
    assert for_rent(rest_poll_of(rest_row(A40, "LOW", dataCenters=centers))) == {f"{A40}/secure/EU-2": 8}


@pytest.mark.parametrize(("words", "cause"), [(["NONE"], "no_stock"), (["NONE", "SOME"], "unknown_stock")])
def test_a_type_whose_data_centres_all_lack_it_is_not_available(words: list[str], cause: str) -> None:
    centers = [{"id": f"EU-{index}", "availability": word} for index, word in enumerate(words)]
    assert rest_poll_of(rest_row(A40, "LOW", dataCenters=centers)).not_available == {cause: 1}


def test_data_centres_that_cannot_be_named_do_not_spoil_the_others() -> None:
    centers = [None, 7, {"availability": "LOW"}, {"id": "x" * 300, "availability": "LOW"}]
    good = {"id": "EU-1", "availability": "LOW"}
    found = rest_poll_of(rest_row(A40, "LOW", dataCenters=[*centers, good]))
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8}
    assert rest_poll_of(rest_row(A40, "LOW", dataCenters=centers)).rejected_by_reason == {"bad_shape": 1}


def test_a_type_that_the_cloud_does_not_offer_needs_no_price() -> None:
    row = rest_row(A40, "LOW", "EU-1", community=False, price={"secure": 0.44, "community": 0})
    found = rest_poll_of(row, clouds="COMMUNITY")
    assert found.not_available == {"not_offered": 1}
    assert found.rejected == ()
    assert found.offers == ()


def test_an_unknown_word_for_being_offered_is_not_stock() -> None:
    assert rest_poll_of(rest_row(A40, "HIGH", "EU-1", secure="perhaps")).not_available == {"unknown_stock": 1}
    assert rest_poll_of(rest_row(A40, "HIGH", "EU-1", secure="true")).kept == 1
    assert rest_poll_of(rest_row(A40, "HIGH", "EU-1", secure=DELETE)).kept == 1


def test_each_cloud_has_its_own_prices_offers_and_feeds() -> None:
    found, asked = rest_poll(
        lambda cloud, count: [rest_row(A40, "LOW" if count == 1 else "NONE", "EU-1", "EU-2")],
        clouds="community,secure",
    )
    assert [cloud for cloud, _ in asked] == ["SECURE", "SECURE", "COMMUNITY", "COMMUNITY"]
    assert {offer.offer_id: offer.price_usd_per_hour for offer in found.offers if offer.available} == {
        f"{A40}/secure/EU-1": 0.44,
        f"{A40}/secure/EU-2": 0.44,
        f"{A40}/community/EU-1": 0.31,
        f"{A40}/community/EU-2": 0.31,
    }
    assert found.kept == 1
    assert covers(found, f"community/{A40}/EU-9")


def test_a_type_that_one_cloud_has_is_kept_though_the_other_lacks_it() -> None:
    found, _ = rest_poll(
        lambda cloud, _count: [rest_row(A40, "LOW" if cloud == "COMMUNITY" else "NONE"), rest_row(L4, "NONE")],
        clouds="SECURE,COMMUNITY",
    )
    assert found.kept == 1
    assert found.not_available == {"no_stock": 1}


def test_out_of_stock_says_more_than_not_offered() -> None:
    found, _ = rest_poll(lambda _cloud, _count: [rest_row(A40, "NONE", secure=False)], clouds="SECURE,COMMUNITY")
    assert found.not_available == {"no_stock": 1}


def test_list_prices_are_kept_whether_or_not_anything_is_in_stock() -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1"), rest_row(L4, "NONE", price={"secure": 0.39}))
    assert list_prices(found) == {f"{A40}/secure/list": 0.44, f"{L4}/secure/list": 0.39}
    (listed,) = [offer for offer in found.offers if offer.gpu == "l4"]
    assert (listed.available, listed.gpus, listed.feed) == (0, 1, f"list/secure/{L4}/")
    assert covers(found, listed.feed)


def test_a_bad_price_of_a_type_out_of_stock_is_no_rejection() -> None:
    for price in ({"secure": 0}, {"secure": "N/A"}, {}, None, 5):
        found = rest_poll_of(rest_row(A40, "NONE", price=price))
        assert (found.not_available, found.rejected, found.offers) == ({"no_stock": 1}, (), ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "unknown", "memory": 0}, "unknown_gpu"),
        ({"id": "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", "memory": 24}, "unknown_gpu"),
        ({"id": "x" * 10_000}, "unknown_gpu"),
        ({"id": 4090}, "unknown_gpu"),
        ({"id": A40 + "_" * 150}, "unknown_gpu"),
        ({"memory": 24}, "unknown_gpu"),
        ({"id": None}, "bad_shape"),
        ({"id": ["NVIDIA A40"]}, "bad_shape"),
        ({"id": DELETE}, "bad_shape"),
        ({"memory": "48 GB"}, "bad_number"),
        ({"memory": -48}, "bad_number"),
        ({"maxCount": {"secure": 2.5}}, "bad_number"),
        ({"maxCount": {"secure": "many"}}, "bad_number"),
        ({"dataCenters": "EU-1"}, "bad_shape"),
        ({"dataCenters": {"id": "EU-1"}}, "bad_shape"),
        ({"price": 0.44}, "bad_shape"),
        ({"price": [0.44]}, "bad_shape"),
        ({"price": None}, "no_on_demand_price"),
        ({"price": {}}, "no_on_demand_price"),
        ({"price": {"secure": None, "community": 0.31}}, "no_on_demand_price"),
        ({"price": {"secure": "0,44"}}, "bad_number"),
        ({"price": {"secure": True}}, "bad_number"),
        ({"price": {"secure": float("nan")}}, "bad_number"),
        ({"price": {"secure": 0}}, "price_nonpositive"),
        ({"price": {"secure": -0.44}}, "price_nonpositive"),
        ({"price": {"secure": 0.0001}}, "price_too_low"),
        ({"price": {"secure": 80_000}}, "price_too_high"),
    ],
)
def test_a_bad_row_is_rejected_once_with_a_reason_and_the_others_live(changes: dict[str, Any], reason: str) -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1", **changes), rest_row(L4, "LOW", "EU-1"))
    assert found.outcome == "ok"
    assert found.requests == 4
    assert found.rejected_by_reason == {reason: 1}
    assert for_rent(found) == {f"{L4}/secure/EU-1": 8}
    assert found.kept == 1


@pytest.mark.parametrize("row", [None, 5, "A40", [], {}, dict.fromkeys(rest_row(), None)])
def test_rows_that_are_no_types_count_once_each_whatever_the_number_of_answers(row: object) -> None:
    found = rest_poll_of(row, row, rest_row(L4, "LOW"))
    assert found.rejected_by_reason == {"bad_shape": 2}
    assert found.kept == 1


def test_numbers_may_come_as_text() -> None:
    row = rest_row(H200, "LOW", "EU-1", memory=" 141 ", price={"secure": "3.59"}, maxCount={"secure": "2"})
    found = rest_poll_of(row)
    assert found.offers[0].price_usd_per_hour == 7.18


def test_blanks_in_an_id_are_collapsed() -> None:
    found = rest_poll_of(rest_row("NVIDIA  RTX A4500", "LOW", "EU-1"), rest_row("NVIDIA RTX A4500", "NONE"))
    assert for_rent(found) == {"NVIDIA RTX A4500/secure/EU-1": 8}
    assert (found.kept, found.not_available) == (1, {})


def test_the_memory_of_an_h200_nvl_may_be_143_gb() -> None:
    assert rest_poll_of(rest_row("NVIDIA H200 NVL", "LOW", memory=143)).offers[0].gpu == "h200-nvl"


def test_of_two_prices_for_one_type_the_higher_is_kept_and_flagged() -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1"), rest_row(A40, "LOW", "EU-2", price={"secure": 0.5}))
    assert {offer.price_usd_per_hour for offer in found.offers if offer.available} == {4.0}
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8, f"{A40}/secure/EU-2": 8}
    assert found.flags == {"duplicate_conflict": 1}
    assert found.kept == 1


def test_the_same_row_twice_is_no_conflict() -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1"), rest_row(A40, "LOW", "EU-1"))
    assert (found.kept, found.flags) == (1, {})


def test_without_any_word_for_stock_there_are_only_prices() -> None:
    found = rest_poll_of(rest_row(A40, DELETE), rest_row(L4, None, price={"secure": 0.39}))
    assert found.outcome == "prices_only"
    assert found.kept == 0
    assert found.not_available == {}
    assert list_prices(found) == {f"{A40}/secure/list": 0.44, f"{L4}/secure/list": 0.39}
    assert [coverage.feed_prefix for coverage in found.covered] == ["list/secure/"]


def test_one_row_without_a_word_is_unknown_and_its_offers_stay() -> None:
    found = rest_poll_of(rest_row(A40, DELETE), rest_row(L4, "LOW", "EU-1"))
    assert found.outcome == "ok"
    assert found.not_available == {"unknown_stock": 1}
    assert not covers(found, f"secure/{A40}/EU-1")
    assert covers(found, f"secure/{L4}/EU-9")


def test_one_cloud_with_only_prices_makes_the_poll_partial() -> None:
    found, _ = rest_poll(
        lambda cloud, _count: [rest_row(A40, "LOW" if cloud == "SECURE" else DELETE)], clouds="SECURE,COMMUNITY"
    )
    assert found.outcome == "partial"
    assert covers(found, f"secure/{A40}/EU-1")
    assert not covers(found, f"community/{A40}/EU-1")


def test_a_type_that_is_rejected_in_one_cloud_is_not_also_out_of_stock() -> None:
    found, _ = rest_poll(
        lambda cloud, _count: [rest_row(A40, "LOW" if cloud == "COMMUNITY" else "NONE", price={"secure": 0.44})],
        clouds="SECURE,COMMUNITY",
    )
    assert found.rejected_by_reason == {"no_on_demand_price": 1}
    assert (found.kept, found.not_available) == (0, {})
