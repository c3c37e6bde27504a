"""Every cloud of the registry, polled from the fake by its real adapter, against what is truly there."""

from typing import Any

import pytest
import requests

from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.clouds.graphql import QueryError, execute
from sutler.adapters.fake.gpus import SOLD_BY
from sutler.adapters.fake.market import Market
from sutler.adapters.registry import PROVIDERS
from tests.adapters.fake.builders import CANARY, DAY_S, NIGHT_S, PLAYED, a_cloud, polled

NOT_POLLED_OVER_HTTP = {"file", "gpuhunt"}
PATHS = [(name, method, path) for name, cloud in CLOUDS.items() for method, path in cloud.routes]


def test_the_fake_plays_every_cloud_that_can_be_polled() -> None:
    assert set(PROVIDERS) - set(CLOUDS) == NOT_POLLED_OVER_HTTP & set(PROVIDERS)


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize("at_s", [NIGHT_S, DAY_S])
def test_the_real_adapter_reads_everything(name: str, at_s: float) -> None:
    with a_cloud(at_s=at_s) as cloud:
        poll = polled(cloud, name)
    assert (poll.outcome, poll.rejected, poll.detail) == ("ok", (), "")
    assert poll.kept > 0
    assert poll.covered


@pytest.mark.parametrize("name", PLAYED)
def test_offers_are_of_the_gpus_that_the_cloud_sells(name: str) -> None:
    with a_cloud() as cloud:
        poll = polled(cloud, name)
    resold = {"shadeform": ("lambda", "hyperstack")}.get(name, ())
    sold = {slug for seller in (name, *resold) for slug in SOLD_BY[seller]}
    assert {offer.gpu for offer in poll.offers} <= sold
    assert len({offer.gpu for offer in poll.offers}) > 3


def test_runpod_answers_over_graphql_as_over_rest() -> None:
    with a_cloud() as cloud:
        rest, graphql = polled(cloud, "runpod"), polled(cloud, "runpod", api="graphql")
    assert (graphql.outcome, graphql.rejected) == ("ok", ())
    assert graphql.kept == rest.kept > 0


def test_what_the_vast_adapter_finds_is_what_is_free() -> None:
    """The union of cards over verified machines that rent out single cards."""
    market = Market(seed=1, machines=300)
    with a_cloud() as cloud:
        poll = polled(cloud, "vastai")
    found = {card for offer in poll.offers for card in offer.gpu_ids or ()}
    free = {
        100_000 + state.machine.number * 100 + card
        for state in market.states("vastai", NIGHT_S)
        if state.machine.is_verified and state.machine.smallest_slice == 1
        for card in state.free
    }
    assert free <= found
    assert {offer.contract for offer in poll.offers} == {"on_demand", "interruptible"}


def test_offers_have_not_expired_by_the_callers_calendar() -> None:
    """The market's time may lie years back."""
    with a_cloud(at_s=NIGHT_S - 9 * 365 * 86_400) as cloud:
        poll = polled(cloud, "vastai")
    assert poll.kept > 0
    assert "expired" not in poll.not_available


def test_lium_and_hyperstack_tell_true_counts() -> None:
    market = Market(seed=1, machines=300)
    with a_cloud() as cloud:
        nodes = get(cloud.base_url, "/api/public/v1/nodes")["nodes"]
        stocks = get(cloud.base_url, "/v1/core/stocks")["stocks"]
    assert sum(node["available_gpu_count"] for node in nodes) == free_gpus(market, "lium")
    fitting = sum(model["configurations"]["1x"] for stock in stocks for model in stock["models"])
    assert fitting == free_gpus(market, "hyperstack")


def test_runpods_words_follow_true_counts() -> None:
    market = Market(seed=1, machines=300)
    with a_cloud() as cloud:
        catalogs = [runpod_catalog(cloud.base_url, count=count) for count in (1, 8)]
    for count, catalog in zip((1, 8), catalogs, strict=True):
        for row in catalog["gpus"]:
            fits = sum(
                len(state.free) // count
                for state in market.states("runpod", NIGHT_S)
                if state.machine.gpu.full_name == row["id"] and state.machine.place.tier == "secure"
            )
            assert (row["availability"] == "NONE") == (fits == 0)
            assert ("dataCenters" in row) == (fits > 0)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 200),
        ({"include": "AVAILABILITY"}, 400),
        ({"product": "POD"}, 400),
        ({"include": "AVAILABILITY", "product": "POD", "cloud": "COMMUNITY", "countryCodes": "CZ,BG"}, 200),
        ({"include": "AVAILABILITY", "product": "POD", "cloud": "MOON"}, 422),
        ({"include": "AVAILABILITY", "product": "POD", "count": "0"}, 422),
        ({"include": "AVAILABILITY", "product": "POD", "count": "1" * 5000}, 422),
        ({"include": "AVAILABILITY", "product": "TEAPOT"}, 422),
    ],
)
def test_runpods_catalogue_checks_its_query(query: dict[str, str], status: int) -> None:
    with a_cloud() as cloud:
        answer = requests.get(f"{cloud.base_url}/v2/catalog/gpus", params=query, timeout=10)
    assert answer.status_code == status
    kind = "application/json" if status == 200 else "application/problem+json"
    assert answer.headers["content-type"] == kind


def test_availability_comes_only_when_asked_for() -> None:
    with a_cloud() as cloud:
        rows = get(cloud.base_url, "/v2/catalog/gpus")["gpus"]
    assert not any("availability" in row or "dataCenters" in row for row in rows)


def test_graphql_knows_aliases_variables_and_typename() -> None:
    query = """query Prices($count: Int = 2, $secure: Boolean!) {  # a comment
        gpuTypes(input: {ids: ["NVIDIA A40"]}) { __typename id
            one: lowestPrice(input: {gpuCount: 1, secureCloud: $secure}) { stockStatus }
            some: lowestPrice(input: {gpuCount: $count, secureCloud: $secure}) { availableGpuCounts } } }"""
    with a_cloud() as cloud:
        answer = ask_graphql(cloud.base_url, query, {"secure": False}).json()
    (gpu,) = answer["data"]["gpuTypes"]
    assert gpu.keys() == {"__typename", "id", "one", "some"}
    assert (gpu["__typename"], gpu["id"]) == ("GpuType", "NVIDIA A40")
    assert gpu["one"].keys() == {"stockStatus"}


@pytest.mark.parametrize(
    "query",
    [
        "{ gpuTypes { id maxGpuCount } }",
        "{ gpuTypes { id lowestPrice } }",
        "{ gpuTypes(input: {colour: 1}) { id } }",
        "{ gpuTypes { lowestPrice(input: {gpus: 1}) { stockStatus } } }",
        "{ gpuTypes { id }",
        "{ gpuTypes { id } } }",
        "{ gpuTypes { id @skip } }",
        "{" * 40,
        '{ gpuTypes(input: {ids: "NVIDIA A40"}) { id } }',
        "{ gpuTypes { lowestPrice(input: {gpuCount: 0}) { stockStatus } } }",
        "{ gpuTypes { lowestPrice(input: {gpuCount: [1]}) { stockStatus } } }",
        "{ gpuTypes(input: {ids: " + "[" * 5000 + "}) { id } }",
        "{ gpuTypes(input: {id: " + "1" * 5000 + "}) { id } }",
        "",
        None,
    ],
)
def test_a_query_outside_the_schema_is_refused(query: Any) -> None:
    with a_cloud() as cloud:
        answer = ask_graphql(cloud.base_url, query, {})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"]


def test_an_argument_of_a_plain_field_is_refused() -> None:
    with pytest.raises(QueryError, match='Unknown argument "unit"'):
        execute("{ name(unit: 1) }", None, {"name": "x"})


def test_verda_hands_out_a_token_for_id_and_secret_only() -> None:
    with a_cloud() as cloud:
        url = f"{cloud.base_url}/v1/oauth2/token"
        good = {"grant_type": "client_credentials", "client_id": "a", "client_secret": CANARY}
        statuses = [
            requests.post(url, json=body, timeout=10).status_code
            for body in (good, {**good, "client_secret": ""}, {**good, "grant_type": "password"}, {})
        ]
    assert statuses == [200, 401, 400, 400]


def test_verda_quotes_in_the_currency_asked_for() -> None:
    with a_cloud() as cloud:
        usd = get(cloud.base_url, "/v1/instance-types?currency=usd")[0]
        usual = get(cloud.base_url, "/v1/instance-types")[0]
    assert (usd["currency"], usual["currency"]) == ("usd", "eur")
    assert float(usd["price_per_hour"]) > float(usual["price_per_hour"])


def test_shadeform_filters_and_sorts() -> None:
    with a_cloud() as cloud:
        query = "gpu_type=H100&num_gpus=8&available=true&sort=price"
        found = get(cloud.base_url, f"/v1/instances/types?{query}")["instance_types"]
    prices = [each["hourly_price"] for each in found]
    assert prices == sorted(prices)
    assert found
    assert {each["configuration"]["num_gpus"] for each in found} == {8}


@pytest.mark.parametrize("name", PLAYED)
def test_with_require_key_a_key_is_needed_where_the_cloud_wants_one(name: str) -> None:
    with a_cloud(require_key=True) as cloud:
        assert polled(cloud, name).outcome == "ok"
        statuses = {
            requests.request(method, cloud.base_url + path, json={}, timeout=10).status_code
            for own, method, path in PATHS
            if own == name and "token" not in path
        }
    assert statuses == ({200} if name == "lium" else {CLOUDS[name].bad_key_status})


@pytest.mark.parametrize(("name", "method", "path"), PATHS)
def test_another_method_is_refused_in_the_clouds_own_words(name: str, method: str, path: str) -> None:
    with a_cloud() as cloud:
        other = "GET" if method == "POST" else "POST"
        answer = requests.request(other, cloud.base_url + path, timeout=10)
    assert answer.status_code == 405
    assert isinstance(answer.json(), dict)


def free_gpus(market: Market, provider: str) -> int:
    return sum(count.free_gpus for count in market.counts(NIGHT_S)[provider].values())


def get(base_url: str, path: str) -> Any:
    answer = requests.get(base_url + path, timeout=10)
    assert answer.status_code == 200
    return answer.json()


def runpod_catalog(base_url: str, *, count: int) -> Any:
    return get(base_url, f"/v2/catalog/gpus?include=AVAILABILITY&product=POD&count={count}")


def ask_graphql(base_url: str, query: object, variables: dict[str, object]) -> requests.Response:
    body = {"query": query, "variables": variables}
    return requests.post(f"{base_url}/graphql", json=body, timeout=10)
