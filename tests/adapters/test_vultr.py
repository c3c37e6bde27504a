"""Vultr: plans with their prices, and what is available region by region."""

from typing import Any

import pytest

from sutler.adapters.base import Coverage, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.polling import poll
from sutler.adapters.vultr import PLANS_PATH, PROVIDER, availability_path
from tests.adapters.builders import KEY, ToldTime
from tests.adapters.cloud_bodies import a_row
from tests.adapters.server import Answer, Received, Reply, ScriptedServer, json_reply

PLAN = "vcg-h100-96c-480g-160vram"


def plan(plan_id: object = PLAN, **changes: Any) -> dict[str, Any]:
    plain = {
        "id": plan_id,
        "type": "vcg",
        "vcpu_count": 96,
        "ram": 491_520,
        "disk": 1400,
        "disk_count": 2,
        "hourly_cost": 5.98,
        "hourly_cost_preemptible": 3.0,
        "monthly_cost": 4018.56,
        "locations": ["ewr", "ams"],
        "location_cost": {},
        "deploy_ondemand": True,
        "deploy_preemptible": False,
        "gpu_type": "NVIDIA_H100",
        "gpu_count": 2,
        "gpu_vram_gb": 160,
    }
    return a_row(plain, changes)


def polled(
    *plans: Any, available: dict[str, Any] | None = None, secrets: dict[str, str] | None = None, **options: str
) -> tuple[Poll, list[Received]]:
    """A poll of these plans; `available` maps regions to plans, or to replies."""
    stock = {"ewr": [PLAN], "ams": []} if available is None else available

    def answer(request: Received) -> Answer:
        if request.path == PLANS_PATH:
            return json_reply({"plans": list(plans), "meta": {"total": len(plans)}})
        region = next((region for region in stock if request.path == availability_path(region)), None)
        found = stock[region] if region else Reply(404)
        return found if isinstance(found, Reply) else json_reply({"available_plans": found})

    with ScriptedServer(answer) as server:
        found = poll(PROVIDER, ProviderConfig(server.base_url, secrets or {}, options), clock=ToldTime().clock)
        return found, server.requests


def rented(found: Poll) -> list[tuple[str, str, float]]:
    return [(offer.offer_id, offer.contract, offer.price_usd_per_hour) for offer in found.offers if offer.available]


def test_a_plan_is_a_list_price_and_an_offer_where_it_is_available() -> None:
    found, asked = polled(plan())
    listed, offer = found.offers
    assert (listed.offer_id, listed.available, listed.price_usd_per_hour) == (f"list/{PLAN}", 0, 5.98)
    assert offer == Offer(
        offer_id=f"{PLAN}/ewr",
        feed=f"stock/ewr/{PLAN}/",
        gpu="h100-sxm",
        gpus=2,
        available=1,
        availability_basis="lower_bound",
        price_usd_per_hour=5.98,
        contract="on_demand",
        machine_id="ewr/h100-sxm",
        machine_gpus=2,
        site="vultr/ewr",
        region="ewr",
        disk_gb=2800.0,
        disk_included_gb=2800.0,
        ram_gb=491_520 / (1e9 / 2**20),
        cpu_cores=96.0,
    )
    assert (found.outcome, found.kept, found.covered) == (
        "ok",
        1,
        (Coverage("stock", None, 2), Coverage("list", None, 1)),
    )
    assert [request.path for request in asked] == [PLANS_PATH, availability_path("ams"), availability_path("ewr")]
    assert {request.params["type"] for request in asked} == {"vcg"}


def test_a_key_is_sent_where_there_is_one() -> None:
    keys = [polled(plan(), secrets=secrets)[1][0].headers.get("authorization") for secrets in ({}, {"api_key": KEY})]
    assert keys == [None, f"Bearer {KEY}"]


def test_only_the_regions_that_are_named_are_asked() -> None:
    _, asked = polled(plan(), regions="ewr, syd")
    assert [request.path for request in asked[1:]] == [availability_path("ewr")]


@pytest.mark.parametrize("name", ["../../v2/account", "", "e" * 50, "EWR", "ewr?x=1", 7, None])
def test_what_is_no_region_makes_no_path(name: object) -> None:
    _, asked = polled(plan(locations=[name, "ewr"]))
    assert [request.path for request in asked[1:]] == [availability_path("ewr")]


def test_a_region_may_have_prices_of_its_own() -> None:
    found, _ = polled(plan(location_cost={"ewr": {"hourly_cost": 6.5}}))
    assert rented(found) == [(f"{PLAN}/ewr", "on_demand", 6.5)]


@pytest.mark.parametrize(
    ("ways", "contracts"),
    [
        ({}, ["on_demand"]),
        ({"deploy_preemptible": True}, ["on_demand", "interruptible"]),
        ({"deploy_ondemand": False, "deploy_preemptible": True}, ["interruptible"]),
        ({"deploy_ondemand": None, "deploy_preemptible": None}, ["on_demand"]),
    ],
)
def test_a_plan_is_rented_as_it_can_be_deployed(ways: dict[str, Any], contracts: list[str]) -> None:
    found, _ = polled(plan(**ways))
    prices = {"on_demand": 5.98, "interruptible": 3.0}
    assert rented(found) == [(f"{PLAN}/ewr", contract, prices[contract]) for contract in contracts]
    assert len({offer.machine_id for offer in found.offers if offer.available}) == 1


@pytest.mark.parametrize(
    ("stated", "size"),
    [
        ({"gpu_count": "1/8", "gpu_vram_gb": 10}, None),
        ({"gpu_count": 0.5, "gpu_vram_gb": 40}, None),
        ({"gpu_count": None, "gpu_vram_gb": 10}, None),
        ({"gpu_count": None}, ("h100-sxm", 2)),
        ({"gpu_vram_gb": None}, ("h100-sxm", 2)),
        ({"gpu_type": "NVIDIA_A100_PCIE"}, ("a100-pcie-80gb", 2)),
        ({"gpu_type": "NVIDIA_A100_SXM", "gpu_vram_gb": 80}, ("a100-sxm4-40gb", 2)),
        ({"gpu_type": "NVIDIA_B200", "gpu_count": 8, "gpu_vram_gb": 1536}, ("b200", 8)),
        ({"gpu_type": "AMD_MI325X", "gpu_count": 8, "gpu_vram_gb": 2048}, ("mi325x", 8)),
    ],
)
def test_gpus_are_counted_or_told_by_their_memory(stated: dict[str, Any], size: tuple[str, int] | None) -> None:
    found, _ = polled(plan(**stated))
    sizes = [(offer.gpu, offer.gpus) for offer in found.offers if offer.available]
    assert sizes == ([] if size is None else [size])
    assert found.not_available == ({"part_of_a_gpu": 1} if size is None else {})
    assert found.rejected == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": None}, "bad_shape"),
        ({"gpu_type": "NVIDIA_A100"}, "unknown_gpu"),
        ({"gpu_type": "NVIDIA_H100", "gpu_vram_gb": 96}, "unknown_gpu"),
        ({"gpu_count": "many"}, "bad_number"),
        ({"gpu_count": 1.5}, "bad_number"),
        ({"gpu_count": None, "gpu_vram_gb": None}, "bad_shape"),
        ({"hourly_cost": None}, "no_on_demand_price"),
        ({"hourly_cost": 0}, "price_nonpositive"),
    ],
)
def test_a_plan_that_cannot_be_read_costs_no_other(changes: dict[str, Any], reason: str) -> None:
    found, _ = polled(plan("good"), plan(**changes), available={"ewr": ["good", PLAN], "ams": []})
    assert [row.reason for row in found.rejected] == [reason]
    assert [offer.offer_id for offer in found.offers if offer.available] == ["good/ewr"]
    assert found.covered[0].feed_prefix == ("stock" if reason == "unknown_gpu" else "stock/ams/good/")


def test_a_plan_that_is_nowhere_needs_no_price() -> None:
    found, _ = polled(plan(hourly_cost=None), available={"ewr": [], "ams": []})
    assert (found.rejected, found.not_available, found.offers) == ((), {"no_capacity": 1}, ())


def test_regions_that_were_not_told_stay_as_they_were() -> None:
    found, _ = polled(
        plan(), available={"ams": [PLAN], "ewr": json_reply({"error": "slow"}, 429, {"Retry-After": "90"})}
    )
    assert (found.outcome, found.wait_s, [offer[0] for offer in rented(found)]) == ("partial", 90.0, [f"{PLAN}/ams"])
    assert [coverage.feed_prefix for coverage in found.covered] == [f"stock/ams/{PLAN}/", "list"]


def test_without_any_availability_only_prices_are_left() -> None:
    found, _ = polled(plan(), available={})
    assert (found.outcome, found.kept, [coverage.feed_prefix for coverage in found.covered]) == (
        "prices_only",
        0,
        ["list"],
    )


def test_a_refused_key_names_the_setting() -> None:
    with ScriptedServer([json_reply({"error": f"Invalid API token {KEY}", "status": 401}, 401)]) as server:
        found = poll(PROVIDER, ProviderConfig(server.base_url, {"api_key": KEY}), clock=ToldTime().clock)
    assert (found.outcome, found.covered) == ("auth_error", ())
    assert "SUTLER_VULTR_API_KEY" in found.detail
    assert KEY not in found.detail
