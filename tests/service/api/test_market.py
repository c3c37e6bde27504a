"""The market over REST: offers sought, sorted and counted, GPUs over time, the polls of a cloud."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pytest

from sutler.service.db.store import open_store
from sutler.service.market.listing import ORDERS
from sutler.service.settings import StoreSettings
from sutler.service.web.paging import encode_cursor
from tests.looped import for_each
from tests.postgres import Server, a_folder
from tests.service.market.builders import Store, ToldTime, a_cloud, a_failure, an_answer, an_offer
from tests.service.running import Running, serving, settings

GPUS: Final = ("h100-sxm", "rtx-4090", "a40")
REGIONS: Final = ("US-TX", "US", "EU-RO", None)
VASTAI: Final = a_cloud("vastai")
RUNPOD: Final = a_cloud("runpod")
OFFERS: Final = 23
FIRST_DAY: Final = "0001-01-01T00:00:00+14:00"  # a time that has no UTC


@pytest.fixture(scope="module")
def market(postgres: Server) -> Iterator[Running]:
    """An API on a market of two clouds that nobody polls any more; the cloud that is set up was never asked."""
    postgres.create("listed_market")
    url = postgres.url("listed_market")
    with a_folder() as folder:
        engine = open_store(StoreSettings(data_dir=folder, database_url=url))
        store = Store(engine, ToldTime(datetime.now(UTC) - timedelta(minutes=10)))
        offers = [
            an_offer(
                f"o{number:02}",
                1.0 + number % 5,
                gpu=GPUS[number % 3],
                gpus=1 + number % 2,
                region=REGIONS[number % 4],
                contract="interruptible" if number % 7 == 0 else "on_demand",
            )
            for number in range(OFFERS)
        ]
        store.poll(an_answer(*offers[::2]), cloud=VASTAI)
        store.poll(an_answer(*offers[1::2]), cloud=RUNPOD, after_s=0)
        for _ in range(4):
            store.poll(a_failure(), cloud=RUNPOD, after_s=0)
        engine.dispose()
        with serving(folder, settings(folder, SUTLER_DATABASE_URL=url), "--role", "api") as running:
            yield running


def paged(running: Running, path: str, **params: Any) -> list[dict[str, Any]]:
    """Items of all pages."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = running.get(path, params={**params, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["items"]
        cursor = page["next"]
        if cursor is None:
            return found
        assert len(page["items"]) == params["limit"]


def ids(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["provider"], one["offer_id"]) for one in items]


@for_each("order", [*ORDERS, *(f"-{name}" for name in ORDERS)])
def test_pages_in_any_order_are_the_whole_without_repetition(order: str, market: Running) -> None:
    whole = market.get("/v1/offers", params={"sort": order, "limit": 1000}).json()
    assert whole["next"] is None
    assert whole["total"] == len(set(ids(whole["items"]))) == OFFERS
    assert ids(paged(market, "/v1/offers", sort=order, limit=7)) == ids(whole["items"])


def test_the_cheapest_gpu_hour_comes_first_unless_another_order_is_asked_for(market: Running) -> None:
    usual = market.get("/v1/offers").json()["items"]
    prices = [one["price_usd_per_hour"] / one["gpus"] for one in usual]
    assert prices == sorted(prices)
    assert market.get("/v1/offers", params={"sort": "usd_per_gpu_hour"}).json()["items"] == usual
    most = market.get("/v1/offers", params={"sort": "-usd_per_hour"}).json()["items"]
    assert all(before["price_usd_per_hour"] >= after["price_usd_per_hour"] for before, after in pairwise(most))


def test_facets_count_what_is_there_but_for_their_own_filter(market: Running) -> None:
    plain = market.get("/v1/offers", params={"provider": "vastai"}).json()
    assert plain["facets"] == {}
    counted = market.get("/v1/offers", params={"provider": "vastai", "facets": True}).json()
    assert counted["items"] == plain["items"]
    assert counted["total"] == plain["total"] == 12
    assert counted["facets"]["provider"] == {"vastai": 12, "runpod": 11}
    assert sum(counted["facets"]["gpu"].values()) == 12
    american = market.get("/v1/offers", params={"region": "us", "facets": True}).json()
    assert american["total"] == american["facets"]["region"]["US"] == 12
    assert american["facets"]["region"] == {"US": 12, "EU": 6, "?": 5}


def test_every_word_that_is_sought_is_in_the_offer(market: Running) -> None:
    found = market.get("/v1/offers", params={"q": " VASTAI  us-tx h100", "facets": True}).json()
    assert {(one["provider"], one["region"], one["gpu"]) for one in found["items"]} == {
        ("vastai", "US-TX", "h100-sxm")
    }
    assert found["facets"]["gpu"] == {"h100-sxm": found["total"]}
    assert market.get("/v1/offers", params={"q": ""}).json()["total"] == OFFERS
    assert market.get("/v1/offers", params={"q": "nowhere"}).json() | {"taken_at": ""} == {
        "taken_at": "",
        "items": [],
        "next": None,
        "total": 0,
        "facets": {},
    }


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        ({"sort": "price"}, "sort", "usd_per_gpu_hour, usd_per_hour, gpu"),
        ({"sort": ""}, "sort", "usd_per_gpu_hour, usd_per_hour, gpu"),
        ({"sort": "--gpu"}, "sort", "usd_per_gpu_hour, usd_per_hour, gpu"),
        ({"sort": "x" * 41}, "sort", "40"),
        ({"q": "a\x00b"}, "q", "pattern"),
        ({"q": "a\nb"}, "q", "pattern"),
        ({"q": "\u202eb"}, "q", "pattern"),
        ({"q": "us " * 200}, "q", "200"),
        ({"facets": "perhaps"}, "facets", "bool"),
        ({"as_of": FIRST_DAY}, "as_of", "must be a time"),
        ({"cursor": encode_cursor(FIRST_DAY, 1)}, "cursor", "unchanged"),
        ({"cursor": encode_cursor("2026-11-20T12:00:00Z", "²")}, "cursor", "unchanged"),
        ({"cursor": encode_cursor("2026-11-20T12:00:00Z", -1)}, "cursor", "unchanged"),
    ],
)
def test_what_cannot_be_asked_of_offers_is_refused_by_name(
    market: Running, params: dict[str, Any], field: str, words: str
) -> None:
    answer = market.get("/v1/offers", params=params)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert words in error["remedy"]


def test_the_history_of_one_gpu_is_what_it_was_and_several_come_as_series(market: Running) -> None:
    params: dict[str, Any] = {"since": "30m", "until": "1m", "points": 5}
    gpus = ["a40", "H100 SXM", "rtx-4090", "a40"]
    one = market.get("/v1/offers/history", params={**params, "gpu": "a40"}).json()
    assert (one["gpu"], one["contract"], one["next"], one["series"]) == ("a40", "on_demand", None, [])
    several = market.get("/v1/offers/history", params={**params, "gpu": gpus}).json()
    assert [series["gpu"] for series in several["series"]] == ["a40", "h100-sxm", "rtx-4090"]
    assert (several["gpu"], several["items"]) == ("a40", several["series"][0]["items"])
    assert supply(several["items"]) == supply(one["items"])
    assert supply(one["items"])[0] is None
    assert supply(one["items"])[-1] > 0
    for series in several["series"][1:]:
        alone = market.get("/v1/offers/history", params={**params, "gpu": series["gpu"]}).json()
        assert supply(series["items"]) == supply(alone["items"])


def test_points_are_bounded_over_all_gpus(market: Running) -> None:
    gpus = ["a40", "h100-sxm", "rtx-4090"]
    answers = [market.get("/v1/offers/history", params={"gpu": gpus, "points": points}) for points in (333, 334)]
    assert [answer.status_code for answer in answers] == [200, 422]
    assert answers[1].json()["errors"][0] == {
        "field": "points",
        "value": "334",
        "remedy": "at most 333 of 3 GPUs",
    }


def supply(items: list[dict[str, Any]]) -> list[Any]:
    return [item["gpus"] for item in items]


@pytest.mark.parametrize("gpus", [[], ["voodoo"], ["a40", ""], ["a40", "a\x00"], ["a40"] * 13])
def test_a_history_is_of_one_to_twelve_gpus_that_there_are(market: Running, gpus: list[str]) -> None:
    assert market.get("/v1/offers/history", params={"gpu": gpus}).status_code == 422


def test_polls_come_newest_first_and_each_once_where_their_times_are_equal(market: Running) -> None:
    whole = market.get("/v1/providers/runpod/polls").json()
    assert whole["next"] is None
    assert [one["outcome"] for one in whole["items"]] == ["retry"] * 4 + ["ok"]
    assert len({one["ended_at"] for one in whole["items"]}) == 1
    for limit in (1, 2, 4):
        assert paged(market, "/v1/providers/runpod/polls", limit=limit) == whole["items"]
    first = whole["items"][-1]
    assert (first["kept"], first["opened"], first["closed"]) == (11, 11, 0)
    assert whole["items"][0]["http_status"] == 503
    assert set(first) == {
        *("at", "ended_at", "seconds", "outcome", "http_status", "requests", "kept", "rejected", "not_available"),
        *("flags", "opened", "closed", "retry_at", "detail"),
    }


def test_a_cloud_without_polls_has_an_empty_list_and_one_that_is_none_is_404(market: Running) -> None:
    assert market.get("/v1/providers/file/polls").json() == {"items": [], "next": None}
    for name in ("lium", "RUNPOD", "%25", "a%27b", "a" * 100):
        answer = market.get(f"/v1/providers/{name}/polls")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found"), name
    for name in ("%00", "a%0ab", "a" * 101):
        assert market.get(f"/v1/providers/{name}/polls").status_code == 422, name
    for cursor in ("x", encode_cursor("now"), encode_cursor(FIRST_DAY), encode_cursor("2026-11-20T12:00:00")):
        assert market.get("/v1/providers/runpod/polls", params={"cursor": cursor}).status_code == 422, cursor
