"""RunPod's GraphQL API, polled over HTTP: one query per cloud, and errors that may come with data."""

import re
from typing import Any

import pytest

from sutler.adapters import runpod
from sutler.adapters.base import Offer
from tests.adapters.builders import DELETE, KEY, ToldTime, a_poll
from tests.adapters.runpod_bodies import (
    A40,
    H200,
    L4,
    covers,
    for_rent,
    graphql_poll,
    graphql_poll_of,
    graphql_row,
    list_prices,
)
from tests.adapters.server import ScriptedServer, json_reply, text_reply

NO_DATA = {"errors": [{"message": "Something broke.", "path": ["gpuTypes"]}], "data": None}


def error_at(*path: object, message: str = "no answer in time") -> dict[str, Any]:
    return {"message": message, "path": list(path)}


def test_an_offer_says_what_is_known_and_no_more() -> None:
    found = graphql_poll_of(graphql_row(A40, "High", {"availableGpuCounts": [1, 2, 4]}))
    assert found.outcome == "ok"
    assert found.kept == 1
    assert found.offers[0] == Offer(
        offer_id=f"{A40}/secure",
        feed=f"secure/{A40}/",
        gpu="a40",
        gpus=4,
        available=1,
        price_usd_per_hour=1.76,
        contract="on_demand",
        availability_basis="lower_bound",
        divisible=True,
        machine_id=f"{A40}/secure",
    )
    assert list_prices(found) == {f"{A40}/secure/list": 0.44}
    assert {coverage.feed_prefix: coverage.rows_read for coverage in found.covered} == {
        "list/secure/": 1,
        "secure/": 1,
        "at_least/secure/": 1,
        "spot/secure/": 1,
    }


def test_a_query_per_cloud_asks_for_all_types_and_never_for_max_gpu_count() -> None:
    with ScriptedServer([json_reply({"data": {"gpuTypes": []}})]) as server:
        a_poll(server.base_url, runpod.PROVIDER, api="graphql", clouds="SECURE,COMMUNITY")
    queries = [request.data["query"] for request in server.requests]
    assert [(request.method, request.path) for request in server.requests] == [("POST", "/graphql")] * 2
    assert [re.findall(r"secureCloud: (\w+)", query) for query in queries] == [["true"], ["false"]]
    assert [re.findall(r"\w+Price\b(?! ?\()", query)[0] for query in queries] == ["securePrice", "communityPrice"]
    assert not re.search(r"\bmaxGpuCount\b", "".join(queries))
    assert all(query.count("{") == query.count("}") for query in queries)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_each_cloud_has_its_own_price() -> None:
    found = graphql_poll_of(graphql_row(lowest={"uninterruptablePrice": DELETE}), clouds="SECURE,COMMUNITY")
    prices = {offer.offer_id: offer.price_usd_per_hour for offer in found.offers if offer.available}
    assert prices == {f"{A40}/secure": 0.44, f"{A40}/community": 0.31}
    assert (found.kept, found.requests) == (1, 2)


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (graphql_row(stock=None), "no_stock"),
        (graphql_row(stock="None"), "no_stock"),
        (graphql_row(stock="Out"), "no_stock"),
        (graphql_row(stock="OUT"), "no_stock"),
        (graphql_row(lowestPrice=None), "no_stock"),
        (graphql_row(lowestPrice={}), "no_stock"),
        (graphql_row(stock="Plenty"), "unknown_stock"),
        (graphql_row(stock=7), "unknown_stock"),
        (graphql_row(stock=False), "unknown_stock"),
        (graphql_row(secureCloud=False), "not_offered"),
        (graphql_row(secureCloud=False, securePrice=None), "not_offered"),
        (graphql_row(secureCloud="sometimes"), "unknown_stock"),
    ],
)
def test_what_is_not_in_stock_is_not_available(row: dict[str, Any], cause: str) -> None:
    found = graphql_poll_of(row)
    assert (found.outcome, found.kept, for_rent(found)) == ("ok", 0, {})
    assert found.not_available == {cause: 1}
    assert covers(found, f"secure/{A40}/")


@pytest.mark.parametrize("word", ["High", "Medium", "Low", "LOW", "high"])
def test_the_words_for_stock_are_known_in_any_case(word: str) -> None:
    assert graphql_poll_of(graphql_row(stock=word)).kept == 1


@pytest.mark.parametrize(
    ("sizes", "gpus", "is_divisible"),
    [
        (DELETE, 1, True),
        (None, 1, True),
        ([], 1, True),
        ([None], 1, True),
        ([1, 2, 3, 7], 7, True),
        ([2, 1], 2, True),
        (["1", "4"], 4, True),
        ([8], 8, False),
        ([2, 4], 4, False),
        ([1, 16], 1, True),
        ([16], 1, True),
    ],
)
def test_the_largest_listed_size_is_a_lower_bound(sizes: object, gpus: int, is_divisible: bool) -> None:
    offer = graphql_poll_of(graphql_row(lowest={"availableGpuCounts": sizes})).offers[0]
    assert (offer.gpus, offer.divisible) == (gpus, is_divisible)
    assert offer.price_usd_per_hour == pytest.approx(0.44 * gpus)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "unknown", "memoryInGb": 0}, "unknown_gpu"),
        ({"id": "y" * 10_000}, "unknown_gpu"),
        ({"id": None}, "bad_shape"),
        ({"memoryInGb": 40}, "unknown_gpu"),
        ({"memoryInGb": "big"}, "bad_number"),
        ({"lowestPrice": 0.44}, "bad_shape"),
        ({"lowestPrice": [{"stockStatus": "High"}]}, "bad_shape"),
        ({"maxGpuCountSecureCloud": "all"}, "bad_number"),
        ({"securePrice": None}, "no_on_demand_price"),
        ({"securePrice": DELETE}, "no_on_demand_price"),
        ({"securePrice": "0,44"}, "bad_number"),
        ({"securePrice": float("nan")}, "bad_number"),
        ({"securePrice": float("inf")}, "bad_number"),
        ({"securePrice": {"usd": 0.44}}, "bad_number"),
        ({"securePrice": 0}, "price_nonpositive"),
        ({"securePrice": -1}, "price_nonpositive"),
        ({"securePrice": 0.001}, "price_too_low"),
        ({"securePrice": 80_000}, "price_too_high"),
    ],
)
def test_a_bad_row_is_rejected_with_a_reason_and_the_others_live(changes: dict[str, Any], reason: str) -> None:
    found = graphql_poll_of(graphql_row(A40, **changes), graphql_row(L4))
    assert found.outcome == "ok"
    assert found.rejected_by_reason == {reason: 1}
    assert for_rent(found) == {f"{L4}/secure": 1}


@pytest.mark.parametrize(
    ("lowest", "reason"),
    [
        ({"availableGpuCounts": 4}, "bad_shape"),
        ({"availableGpuCounts": ["some"]}, "bad_number"),
        ({"availableGpuCounts": [1.5]}, "bad_number"),
        ({"availableGpuCounts": [-2]}, "bad_number"),
        ({"availableGpuCounts": [1, 10_000]}, "bad_number"),
        ({"uninterruptablePrice": "N/A"}, "bad_number"),
    ],
)
def test_what_the_lowest_price_says_must_be_readable(lowest: dict[str, Any], reason: str) -> None:
    assert graphql_poll_of(graphql_row(lowest=lowest)).rejected_by_reason == {reason: 1}


@pytest.mark.parametrize("row", [None, 5, "A40", [], {}, dict.fromkeys(graphql_row(), None)])
def test_rows_that_are_no_types_are_rejected(row: object) -> None:
    found = graphql_poll_of(row, row, graphql_row(L4), clouds="SECURE,COMMUNITY")
    assert found.rejected_by_reason == {"bad_shape": 2}
    assert found.kept == 1


@pytest.mark.parametrize(
    ("stated", "flags"),
    [(0.44, {}), (0.36, {}), (0.52, {}), (0.34, {"price_mismatch": 1}), (0.9, {"price_mismatch": 1}), (None, {})],
)
def test_the_list_price_stays_and_one_that_contradicts_it_is_flagged(
    stated: float | None, flags: dict[str, int]
) -> None:
    found = graphql_poll_of(graphql_row(lowest={"uninterruptablePrice": stated}))
    assert found.offers[0].price_usd_per_hour == 0.44
    assert found.flags == flags


def test_of_two_prices_for_one_type_the_higher_is_kept_and_flagged() -> None:
    found = graphql_poll_of(graphql_row(A40), graphql_row(A40, securePrice=0.46))
    assert found.offers[0].price_usd_per_hour == 0.46
    assert (found.kept, found.flags) == (1, {"duplicate_conflict": 1})


def test_a_type_without_a_lowest_price_field_is_unknown_and_stays() -> None:
    found = graphql_poll_of(graphql_row(A40, lowestPrice=DELETE), graphql_row(L4))
    assert (found.outcome, found.kept) == ("ok", 1)
    assert found.not_available == {"unknown_stock": 1}
    assert not covers(found, f"secure/{A40}/")


def test_an_empty_list_is_an_answer_in_which_nothing_was_read() -> None:
    found = graphql_poll_of()
    assert (found.outcome, found.kept) == ("ok", 0)
    assert {coverage.rows_read for coverage in found.covered} == {0}


def test_errors_without_data_are_retried() -> None:
    time = ToldTime()
    with ScriptedServer([json_reply(NO_DATA), json_reply({"data": {"gpuTypes": [graphql_row()]}})]) as server:
        found = a_poll(server.base_url, runpod.PROVIDER, time=time, api="graphql")
    assert (found.outcome, found.kept, found.requests) == ("ok", 1, 2)
    assert len(time.slept) == 1


@pytest.mark.parametrize(
    "body",
    [
        NO_DATA,
        {"errors": "upstream is down"},
        {"errors": {"message": "upstream is down"}, "data": None},
        {"errors": [None], "data": None},
        {"errors": [{"message": None, "extensions": "x"}]},
        {"errors": ["busy"], "data": {"gpuTypes": None}},
        {"errors": ["busy"], "data": {}},
        {"errors": ["busy"], "data": []},
    ],
)
def test_errors_without_data_that_last_ask_to_try_later(body: object) -> None:
    found = graphql_poll(body)
    assert (found.outcome, found.offers, found.covered, found.requests) == ("retry", (), (), 3)
    assert found.wait_s is not None
    assert found.wait_s > 0
    assert found.detail


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": None},
        {"data": {}},
        {"data": {"gpuTypes": None}},
        {"data": {"gpuTypes": {}}},
        {"data": [], "errors": []},
        {"data": {"gpuTypes": None}, "errors": None},
        [],
        [{"data": {"gpuTypes": []}}],
        None,
        "data",
    ],
)
def test_another_shape_is_a_failed_poll(body: object) -> None:
    found = graphql_poll(body)
    assert (found.outcome, found.covered, found.requests) == ("bad_shape", (), 1)


def test_a_type_that_an_error_points_at_is_unknown_and_stays() -> None:
    rows = [graphql_row(A40), graphql_row(L4, lowestPrice=None), graphql_row(H200, lowestPrice=None)]
    found = graphql_poll_of(*rows, errors=[error_at("gpuTypes", 2, "lowestPrice")])
    assert (found.outcome, found.kept, for_rent(found)) == ("partial", 1, {f"{A40}/secure": 1})
    assert found.not_available == {"no_stock": 1}
    covered = {type_id: covers(found, f"secure/{type_id}/") for type_id in (A40, L4, H200)}
    assert covered == {A40: True, L4: True, H200: False}
    assert covers(found, f"list/secure/{H200}/")
    assert "no answer in time" in found.detail


@pytest.mark.parametrize(
    "errors", ["busy", {"message": "busy"}, [{"message": "busy"}], [error_at("gpuTypes")], [error_at("gpuTypes", 9)]]
)
def test_when_no_error_points_at_a_type_all_without_a_lowest_price_are_unknown(errors: object) -> None:
    rows = [graphql_row(A40), graphql_row(L4, lowestPrice=None), graphql_row(H200, stock="Out"), None]
    found = graphql_poll_of(*rows, errors=errors)
    assert (found.outcome, found.kept) == ("partial", 1)
    assert found.rejected == ()
    assert found.not_available == {"no_stock": 1}
    assert not covers(found, f"secure/{L4}/")
    assert not covers(found, "secure/NVIDIA B200/")
    assert covers(found, f"secure/{H200}/")


def test_a_type_that_comes_as_null_with_an_error_leaves_all_absent_types_as_they_were() -> None:
    for lost in (None, graphql_row(None), graphql_row("NVIDIA RTX 6090")):
        found = graphql_poll_of(lost, graphql_row(A40), errors=[error_at("gpuTypes", 0)])
        assert (found.outcome, found.kept) == ("partial", 1)
        assert covers(found, f"secure/{A40}/")
        assert not covers(found, f"secure/{L4}/")
        assert not covers(found, f"list/secure/{L4}/")


def test_a_list_price_that_an_error_hides_is_not_gone() -> None:
    found = graphql_poll_of(
        graphql_row(A40, securePrice=None), graphql_row(L4), errors=[error_at("gpuTypes", 0, "securePrice")]
    )
    assert not covers(found, f"list/secure/{A40}/")
    assert covers(found, f"list/secure/{L4}/")


def test_errors_beside_whole_data_leave_all_of_it() -> None:
    found = graphql_poll_of(graphql_row(A40), graphql_row(L4, "Out"), errors=[error_at("dataCenters")])
    assert (found.outcome, found.kept, found.not_available) == ("partial", 1, {"no_stock": 1})
    assert covers(found, "secure/NVIDIA B200/")


def test_a_second_cloud_that_fails_leaves_the_first_whole() -> None:
    found = graphql_poll(
        {"data": {"gpuTypes": [graphql_row()]}}, text_reply("<html>busy</html>", 500), clouds="SECURE,COMMUNITY"
    )
    assert (found.outcome, found.kept) == ("partial", 1)
    assert covers(found, f"secure/{L4}/")
    assert not covers(found, f"community/{A40}/")


def test_a_query_that_does_not_fit_the_schema_is_not_repeated_and_names_the_other_api() -> None:
    errors = {"errors": [{"message": "Unknown field.", "extensions": {"code": "GRAPHQL_VALIDATION_FAILED"}}]}
    for reply in (json_reply(errors, 400), json_reply({"errors": "no such field"}, 400), json_reply(errors)):
        found = graphql_poll(reply)
        assert (found.outcome, found.requests) == ("config_error", 1)
        assert "SUTLER_RUNPOD_API=v2" in found.detail


def test_what_comes_with_a_gpu_is_stated_for_all_of_the_offer() -> None:
    found = graphql_poll_of(graphql_row(A40, lowest={"availableGpuCounts": [1, 4], "minVcpu": 9, "minMemory": "50"}))
    assert (found.offers[0].cpu_cores, found.offers[0].ram_gb) == (36.0, 200.0)


@pytest.mark.parametrize("odd", [None, 0, -8, "N/A", "NaN", 1e300, 900_000, [], True])
def test_what_comes_with_a_gpu_costs_no_row(odd: object) -> None:
    sizes = {"availableGpuCounts": [8], "minVcpu": odd, "minMemory": odd}
    found = graphql_poll_of(graphql_row(A40, lowest=sizes))
    assert (found.kept, found.rejected) == (1, ())
    assert (found.offers[0].cpu_cores, found.offers[0].ram_gb) == (None, None)


@pytest.mark.parametrize(
    ("least_bid", "spot_price", "price"),
    [(0.2, 0.3, 0.8), (None, 0.3, 1.2), (0, 0.3, 1.2), ("N/A", None, None), (DELETE, DELETE, None), (900, -1, None)],
)
def test_the_least_bid_or_else_the_spot_price_makes_an_interruptible_offer_of_the_same_machine(
    least_bid: object, spot_price: object, price: float | None
) -> None:
    row = graphql_row(
        A40, lowest={"availableGpuCounts": [1, 4], "minimumBidPrice": least_bid}, secureSpotPrice=spot_price
    )
    found = graphql_poll_of(row)
    on_demand, *spot = [offer for offer in found.offers if offer.available]
    assert [offer.price_usd_per_hour for offer in spot] == ([] if price is None else [price])
    assert {(offer.machine_id, offer.contract) for offer in spot} <= {(on_demand.machine_id, "interruptible")}
    assert covers(found, f"spot/secure/{A40}/")
    assert (on_demand.price_usd_per_hour, found.rejected) == (1.76, ())


@pytest.mark.parametrize("field", ["minimumBidPrice", "secureSpotPrice", "minVcpu"])
def test_a_field_that_the_api_no_longer_has_is_no_longer_asked_for(field: str) -> None:
    refusal = {"errors": [{"message": f'Cannot query field "{field}" on type "GpuType".'}]}
    answers = [json_reply(refusal, 400), json_reply({"data": {"gpuTypes": [graphql_row(A40)]}})]
    with ScriptedServer(answers) as server:
        found = a_poll(server.base_url, runpod.PROVIDER, api="graphql")
    first, second = (request.data["query"] for request in server.requests)
    assert (found.outcome, found.kept, found.requests) == ("ok", 1, 2)
    assert field in first
    assert field not in second


def test_a_refused_key_names_the_setting() -> None:
    said = {"errors": [{"message": f"key {KEY} is not known", "extensions": {"code": "UNAUTHENTICATED"}}]}
    for reply in (json_reply({}, 401), json_reply({}, 403), json_reply(said), json_reply(said, 400)):
        found = graphql_poll(reply)
        assert (found.outcome, found.requests) == ("auth_error", 1)
        assert "SUTLER_RUNPOD_API_KEY" in found.detail
        assert KEY not in found.detail


def test_a_page_of_a_proxy_is_no_answer() -> None:
    found = graphql_poll(text_reply("<h1>Too many</h1>", 429, {"Retry-After": "45"}))
    assert (found.outcome, found.wait_s, found.requests) == ("retry", 45.0, 1)
    assert graphql_poll(text_reply("<h1>Welcome</h1>")).outcome == "bad_body"


def test_of_two_rows_for_one_type_the_larger_machine_counts() -> None:
    found = graphql_poll_of(graphql_row(A40, lowest={"availableGpuCounts": [1, 4]}), graphql_row(A40))
    assert for_rent(found) == {f"{A40}/secure": 4}
