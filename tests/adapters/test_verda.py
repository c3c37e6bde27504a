"""Verda's instance types: prices as text, memory in total, availability by location and by spot."""

from collections.abc import Mapping
from typing import Any

import pytest

from sutler.adapters.base import USUAL_PRICE_BAND, Offer, Poll
from sutler.adapters.verda import AVAILABILITY_PATH, PROVIDER, TOKEN_PATH, TYPES_PATH, RentedAs, parse
from tests.adapters.builders import DELETE, KEY
from tests.adapters.cloud_bodies import SECRETS, TOKEN, poll_of_cloud, verda_location, verda_type
from tests.adapters.server import Answer, Received, json_reply

NAME = "1H100.80S.30V"
EIGHT: Mapping[str, Any] = {
    "gpu": {"description": "8x H100 SXM5 80GB", "number_of_gpus": 8},
    "gpu_memory": {"size_in_gigabytes": 640},
    "price_per_hour": "18.32",
    "spot_price": "6.4",
}


def found_in(
    *types: Any, on_demand: tuple[str, ...] = (NAME,), interruptible: tuple[str, ...] = (), place: str = "FIN-09"
) -> Poll:
    stock: dict[RentedAs, Any] = {
        "on_demand": [verda_location(place, *on_demand)],
        "interruptible": [verda_location(place, *interruptible)],
    }
    return parse(list(types), stock, price_band=USUAL_PRICE_BAND)


def rented(found: Poll) -> list[tuple[str, str, float]]:
    return [(o.offer_id, o.contract, o.price_usd_per_hour) for o in found.offers if o.available]


def by_spot(on_demand: object, spot: object) -> Any:
    def answer(request: Received) -> Answer:
        body = spot if request.params["isSpot"] == "true" else on_demand
        return body if not isinstance(body, list) else json_reply(body)  # type: ignore[return-value]

    return answer


def test_a_type_is_offered_where_it_is_named_on_demand_or_as_spot() -> None:
    found = found_in(
        verda_type("8H100.80S.176V", **EIGHT), on_demand=("8H100.80S.176V",), interruptible=("8H100.80S.176V",)
    )
    assert rented(found) == [
        ("8H100.80S.176V/FIN-09", "on_demand", 18.32),
        ("8H100.80S.176V/FIN-09", "interruptible", 6.4),
    ]
    assert found.offers[1] == Offer(
        offer_id="8H100.80S.176V/FIN-09",
        feed="on_demand/FIN-09/8H100.80S.176V/",
        gpu="h100-sxm",
        gpus=8,
        available=1,
        availability_basis="lower_bound",
        price_usd_per_hour=18.32,
        contract="on_demand",
        machine_id="FIN-09/h100-sxm",
        machine_gpus=8,
        site="verda/FIN-09",
        region="FIN-09",
        ram_gb=120.0,
        cpu_cores=30.0,
    )
    assert [(o.offer_id, o.feed) for o in found.offers if not o.available] == [
        ("list/8H100.80S.176V", "list/on_demand"),
        ("list/8H100.80S.176V", "list/interruptible"),
    ]


def test_a_poll_takes_a_token_and_asks_in_usd() -> None:
    asked: list[Received] = []
    found = poll_of_cloud(PROVIDER, seen=asked.append)
    token, types, *stock = asked
    assert (token.method, token.path) == ("POST", TOKEN_PATH)
    assert token.data == {
        "grant_type": "client_credentials",
        "client_id": SECRETS["client_id"],
        "client_secret": SECRETS["client_secret"],
    }
    assert (types.path, types.params) == (TYPES_PATH, {"currency": "usd"})
    assert [request.params for request in stock] == [{"isSpot": "false"}, {"isSpot": "true"}]
    assert {request.headers["authorization"] for request in asked[1:]} == {f"Bearer {TOKEN}"}
    assert (found.outcome, found.kept, found.requests) == ("ok", 2, 4)
    assert [coverage.feed_prefix for coverage in found.covered] == ["on_demand", "interruptible", "list"]


@pytest.mark.parametrize("status", [400, 401])
def test_refused_credentials_are_an_auth_error(status: int) -> None:
    refusal = json_reply({"code": "unauthorized", "message": f"no client {KEY}"}, status)
    found = poll_of_cloud(PROVIDER, {TOKEN_PATH: refusal})
    assert (found.outcome, found.requests) == ("auth_error", 1)
    assert "SUTLER_VERDA_CLIENT_ID and SUTLER_VERDA_CLIENT_SECRET" in found.detail
    assert KEY not in found.detail


@pytest.mark.parametrize("body", [{}, [], {"access_token": ""}, {"access_token": 7}, {"access_token": "a\nb: c"}])
def test_a_token_that_no_header_can_hold_is_bad_shape(body: object) -> None:
    found = poll_of_cloud(PROVIDER, {TOKEN_PATH: body})
    assert (found.outcome, found.requests) == ("bad_shape", 1)


def test_without_one_availability_the_poll_is_partial_and_leaves_that_market_alone() -> None:
    busy = json_reply({"message": "busy"}, 429, {"Retry-After": "90"})
    found = poll_of_cloud(PROVIDER, {AVAILABILITY_PATH: by_spot([verda_location("FIN-09", NAME)], busy)})
    assert (found.outcome, found.wait_s, found.kept) == ("partial", 90.0, 1)
    assert [coverage.feed_prefix for coverage in found.covered] == ["on_demand", "list"]
    assert "429" in found.detail


def test_without_any_availability_only_prices_are_left() -> None:
    found = poll_of_cloud(PROVIDER, {AVAILABILITY_PATH: {"no": "list"}})
    assert (found.outcome, found.kept, len(found.offers)) == ("prices_only", 0, 2)
    assert [coverage.feed_prefix for coverage in found.covered] == ["list"]
    assert found.not_available == {}


def test_prices_in_another_currency_are_a_wrong_setting() -> None:
    found = poll_of_cloud(PROVIDER, {TYPES_PATH: [verda_type(currency="eur")]})
    assert (found.outcome, found.covered) == ("config_error", ())
    assert "eur" in found.detail


def test_one_type_in_another_currency_is_rejected_and_never_mixed_in() -> None:
    other = verda_type("8H100.80S.176V", currency="eur", **EIGHT)
    found = found_in(verda_type(), other, on_demand=(NAME, "8H100.80S.176V"))
    assert [(row.offer_id, row.reason) for row in found.rejected] == [("8H100.80S.176V", "no_on_demand_price")]
    assert rented(found) == [(f"{NAME}/FIN-09", "on_demand", 2.29)]


def test_a_type_at_no_location_keeps_its_list_prices() -> None:
    found = found_in(verda_type(), on_demand=())
    assert (found.kept, len(found.offers), found.not_available) == (0, 2, {"no_capacity": 1})


def test_a_type_without_a_gpu_is_passed_over() -> None:
    found = found_in(
        verda_type("CPU.4V.16G", gpu={"description": "", "number_of_gpus": 0}, gpu_memory={}), on_demand=()
    )
    assert (found.offers, found.rejected, found.not_available) == ((), (), {"no_gpu": 1})


@pytest.mark.parametrize(
    ("description", "count", "total_gb", "gpu"),
    [
        ("1x B300 SXM6 268GB", 1, 268, "b300"),
        ("4x H200 SXM5 141GB", 4, 564, "h200-sxm"),
        ("1x A100 SXM4 40GB", 1, 40, "a100-sxm4-40gb"),
        ("2x RTX6000 Ada 48GB", 2, 96, "rtx-6000-ada"),
        ("1x RTX PRO 6000 96GB", 1, 96, "rtx-pro-6000-server"),
        ("4x Tesla V100 16GB", 4, 64, "v100-sxm2-16gb"),
    ],
)
def test_the_gpu_is_in_the_description_and_the_memory_is_of_all(
    description: str, count: int, total_gb: int, gpu: str
) -> None:
    changes: dict[str, Any] = {
        "gpu": {"description": description, "number_of_gpus": count},
        "gpu_memory": {"size_in_gigabytes": total_gb},
    }
    found = found_in(verda_type(**changes))
    assert {(offer.gpu, offer.gpus) for offer in found.offers} == {(gpu, count)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": {"description": "1x H100 PCX 80GB", "number_of_gpus": 1}}, "unknown_gpu"),
        ({"gpu_memory": {"size_in_gigabytes": 640}}, "unknown_gpu"),
        ({"gpu": None}, "bad_shape"),
        ({"instance_type": None}, "bad_shape"),
        ({"gpu": {"description": "1x H100 SXM5 80GB", "number_of_gpus": "one"}}, "bad_number"),
        ({"price_per_hour": None}, "no_on_demand_price"),
        ({"price_per_hour": "2,29"}, "bad_number"),
        ({"price_per_hour": "0"}, "price_nonpositive"),
        ({"price_per_hour": "0.002"}, "price_too_low"),
        ({"price_per_hour": "2290"}, "price_too_high"),
    ],
)
def test_a_bad_type_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    good = verda_type(
        "2H100.80S.60V", gpu={"description": "2x H100 SXM5 80GB", "number_of_gpus": 2}, gpu_memory=DELETE
    )
    found = found_in(verda_type(**changes), good, on_demand=(NAME, "2H100.80S.60V"))
    assert [row.reason for row in found.rejected] == [reason]
    assert rented(found) == [("2H100.80S.60V/FIN-09", "on_demand", 2.29)]


def test_a_spot_price_is_missed_only_where_spot_is_for_rent() -> None:
    assert found_in(verda_type(spot_price=None)).rejected == ()
    found = found_in(verda_type(spot_price=None), interruptible=(NAME,))
    assert [row.reason for row in found.rejected] == ["no_on_demand_price"]
    assert rented(found) == [(f"{NAME}/FIN-09", "on_demand", 2.29)]


def test_a_bad_location_costs_only_itself() -> None:
    stock: dict[RentedAs, Any] = {
        "on_demand": ["nowhere", {"location_code": "FIN-08", "availabilities": None}, verda_location("FIN-09", NAME)],
        "interruptible": [],
    }
    found = parse([verda_type()], stock, price_band=USUAL_PRICE_BAND)
    assert [row.reason for row in found.rejected] == ["bad_shape", "bad_shape"]
    assert rented(found) == [(f"{NAME}/FIN-09", "on_demand", 2.29)]


def test_no_types_is_an_answer() -> None:
    found = poll_of_cloud(PROVIDER, {TYPES_PATH: []})
    assert (found.outcome, found.kept) == ("ok", 0)
    assert {coverage.rows_read for coverage in found.covered} == {0}


def told(found: Poll, contract: str = "on_demand") -> list[tuple[str, int]]:
    return [(c.feed_prefix, c.rows_read) for c in found.covered if c.feed_prefix.startswith(contract)]


def with_on_demand(*locations: Any) -> Poll:
    stock: dict[RentedAs, Any] = {"on_demand": list(locations), "interruptible": [verda_location("FIN-09")]}
    return parse([verda_type()], stock, price_band=USUAL_PRICE_BAND)


def test_no_location_says_nothing_of_stock() -> None:
    found = with_on_demand()
    assert told(found) == [("on_demand", 0)]
    assert told(found, "interruptible") == [("interruptible", 1)]


@pytest.mark.parametrize(
    "location",
    [
        "FIN-01",
        {"location_code": "FIN-01", "available": [NAME]},
        {"location_code": "FIN-01", "availabilities": [{"instance_type": NAME}]},
        {"location_code": "FIN-01", "availabilities": ["h100-one"]},
        {"code": "FIN-01", "availabilities": [NAME]},
    ],
)
def test_a_location_that_cannot_be_read_is_unknown_and_not_empty(location: object) -> None:
    found = with_on_demand(location, verda_location("FIN-09"))
    assert ([row.reason for row in found.rejected], found.kept) == (["bad_shape"], 0)
    assert told(found) == [(f"on_demand/FIN-09/{NAME}/", 1)]
    assert told(with_on_demand(location)) == []


def test_a_spot_price_of_another_name_ends_no_spot_offer() -> None:
    found = found_in(verda_type(spot_price=None), interruptible=(NAME,))
    assert told(found, "interruptible") == []
    assert told(found) == [("on_demand", 1)]


def test_rejected_locations_are_named_apart() -> None:
    bad = [{"location_code": "FIN-01"}, {"location_code": "FIN-02"}]
    stock: dict[RentedAs, Any] = {"on_demand": bad, "interruptible": bad}
    found = parse([verda_type()], stock, price_band=USUAL_PRICE_BAND)
    ids = [row.offer_id for row in found.rejected]
    assert ids == ["on_demand/FIN-01", "on_demand/FIN-02", "interruptible/FIN-01", "interruptible/FIN-02"]


def test_after_a_stated_wait_nothing_more_is_asked() -> None:
    asked: list[Received] = []
    busy = json_reply({"message": "busy"}, 429, {"Retry-After": "120"})
    found = poll_of_cloud(PROVIDER, {AVAILABILITY_PATH: busy}, seen=asked.append)
    assert [request.params.get("isSpot") for request in asked] == [None, None, "false"]
    assert (found.outcome, found.wait_s, found.wait_is_stated) == ("prices_only", 120.0, True)


def test_a_failure_without_a_stated_wait_leaves_the_other_market() -> None:
    broken = json_reply({"message": "broken"}, 500)
    bodies = {AVAILABILITY_PATH: by_spot(broken, [verda_location("FIN-09", NAME)])}
    found = poll_of_cloud(PROVIDER, bodies)
    assert (found.outcome, found.kept, found.wait_is_stated) == ("partial", 1, False)
    assert [coverage.feed_prefix for coverage in found.covered] == ["interruptible", "list"]


def test_the_wait_of_both_failures_is_handed_on() -> None:
    broken, busy = json_reply({}, 500), json_reply({}, 503, {"Retry-After": "75"})
    found = poll_of_cloud(PROVIDER, {AVAILABILITY_PATH: by_spot(broken, busy)})
    assert (found.outcome, found.wait_s, found.wait_is_stated) == ("prices_only", 75.0, True)


def test_a_key_that_both_availabilities_refuse_is_the_failure() -> None:
    refusal = json_reply({"code": "forbidden", "message": "no"}, 403)
    found = poll_of_cloud(PROVIDER, {AVAILABILITY_PATH: refusal})
    assert (found.outcome, found.offers, found.covered) == ("auth_error", (), ())
    assert "SUTLER_VERDA_CLIENT_ID" in found.detail
