"""The fake's Vast.ai search: rows of the documented shape over one market, and the documented search body."""

from typing import Any

import pytest
import requests

from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.clouds.vastai_rows import rows
from sutler.adapters.fake.clouds.vastai_search import understood
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from tests.adapters.fake.builders import NIGHT_S, a_cloud

DOCUMENTED = """
id ask_contract_id machine_id host_id bundle_id bundled_results cluster_id gpu_name num_gpus gpu_ids gpu_frac gpu_ram
gpu_total_ram gpu_arch compute_cap cuda_max_good driver_version driver_vers total_flops gpu_mem_bw dlperf
gpu_max_power
gpu_max_temp bw_nvlink pci_gen gpu_lanes pcie_bw cpu_cores cpu_cores_effective cpu_ram disk_space disk_bw inet_down
inet_up inet_down_cost inet_up_cost dph_base dph_total storage_cost storage_total_cost dph_total_adj
discounted_dph_total discount_rate credit_discount_max search instance min_bid is_bid rentable rented reliability
reliability2 reliability_mult expected_reliability verification vericode hosting_type external geolocation static_ip
direct_port_count public_ipaddr duration end_date start_date vms_enabled is_vm_deverified resource_type
"""


def all_rows(*, machines: int = 300, at_s: float = NIGHT_S, is_bid: bool = False) -> list[dict[str, Any]]:
    return list(rows(MarketInstant(Market(seed=1, machines=machines), at_s, at_s), is_bid=is_bid, storage_gb=8.0))


def search(cloud: FakeCloud, **body: Any) -> list[dict[str, Any]]:
    answer = requests.post(f"{cloud.base_url}/api/v0/bundles/", json={"limit": 5000, **body}, timeout=10)
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["offers"]
    return found


def test_a_row_has_every_documented_field() -> None:
    for row in all_rows():
        assert set(DOCUMENTED.split()) <= row.keys()


def test_slices_of_a_machine_overlap_on_its_free_cards() -> None:
    market = Market(seed=1, machines=300)
    free = {30_000 + s.machine.number: s for s in market.states("vastai", NIGHT_S)}
    sizes: dict[int, set[int]] = {}
    for row in all_rows():
        state = free[row["machine_id"]]
        cards = {card - 100_000 - state.machine.number * 100 for card in row["gpu_ids"]}
        assert len(cards) == row["num_gpus"]
        assert cards <= (set(state.free) if row["rentable"] else set(range(state.machine.gpus)))
        sizes.setdefault(row["machine_id"], set()).add(row["num_gpus"])
    assert {8, 4, 2, 1} in sizes.values()


def test_offer_ids_are_unique_and_cards_belong_to_one_machine() -> None:
    found = all_rows(machines=1500)
    assert len({row["id"] for row in found}) == len(found)
    owners: dict[int, set[int]] = {}
    for row in found:
        for card in row["gpu_ids"]:
            owners.setdefault(card, set()).add(row["machine_id"])
    assert all(len(machines) == 1 for machines in owners.values())


def test_the_total_is_base_and_storage() -> None:
    with a_cloud() as cloud:
        for storage_gb in (8, 100):
            for row in search(cloud, allocated_storage=storage_gb):
                expected = row["dph_base"] + row["storage_cost"] * storage_gb / 720
                assert row["dph_total"] == pytest.approx(expected, abs=1e-6)


def test_bids_are_below_the_on_demand_price_of_the_same_offer() -> None:
    with a_cloud() as cloud:
        on_demand = {row["id"]: row for row in search(cloud, type="on-demand")}
        bids = {row["id"]: row for row in search(cloud, type="bid")}
    assert on_demand.keys() == bids.keys()
    assert all(row["is_bid"] and row["dph_base"] == row["min_bid"] for row in bids.values())
    assert all(bids[own]["dph_total"] < row["dph_total"] for own, row in on_demand.items())
    assert all(row["min_bid"] < row["dph_base"] for row in on_demand.values())


def test_offers_come_sorted_and_cut_at_the_limit() -> None:
    with a_cloud() as cloud:
        everything = search(cloud, order=[["dph_total", "asc"]])
        cheapest = search(cloud, order=[["dph_total", "asc"]], limit=5)
        dearest = search(cloud, order=[["dph_total", "desc"]], limit=1)
    prices = [row["dph_total"] for row in everything]
    assert prices == sorted(prices)
    assert cheapest == everything[:5]
    assert dearest[0]["dph_total"] == prices[-1]


def test_without_a_limit_64_offers_come() -> None:
    with a_cloud() as cloud:
        answer = requests.post(f"{cloud.base_url}/api/v0/bundles/", json={}, timeout=10)
    assert len(answer.json()["offers"]) == 64


def test_the_usual_filters_hide_what_is_rented_or_not_verified() -> None:
    with a_cloud() as cloud:
        usual = search(cloud)
        rented = search(cloud, rentable={"eq": False}, rented={"eq": True})
        unverified = search(cloud, verified={"eq": False})
    assert usual
    assert rented
    assert unverified
    assert all(row["rentable"] and not row["rented"] and row["verification"] == "verified" for row in usual)
    assert not any(row["rentable"] for row in rented)
    assert {row["verification"] for row in unverified} == {"unverified"}


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"num_gpus": {"gte": 2, "lt": 8}}, lambda row: 2 <= row["num_gpus"] < 8),
        ({"gpu_name": {"eq": "RTX 4090"}}, lambda row: row["gpu_name"] == "RTX 4090"),
        ({"gpu_name": {"in": ["A40", "L40"]}}, lambda row: row["gpu_name"] in {"A40", "L40"}),
        ({"gpu_name": {"notin": ["A40", "RTX 4090"]}}, lambda row: row["gpu_name"] not in {"A40", "RTX 4090"}),
        ({"num_gpus": {"neq": 1}}, lambda row: row["num_gpus"] > 1),
        ({"geolocation": {"eq": "US"}}, lambda row: row["geolocation"].endswith("US")),
        ({"datacenter": {"eq": True}}, lambda row: row["hosting_type"] == 1),
        ({"dph_total": {"lte": 0.5}}, lambda row: row["dph_total"] <= 0.5),
        ({"reliability2": {"gt": 0.98}}, lambda row: row["reliability"] > 0.98),
    ],
)
def test_filters_choose_exactly_what_passes(filters: dict[str, Any], passes: Any) -> None:
    with a_cloud() as cloud:
        everything, found = search(cloud, order=[["id", "asc"]]), search(cloud, order=[["id", "asc"]], **filters)
    assert found == [row for row in everything if passes(row)]
    assert 0 < len(found) < len(everything)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"num_gpus": 1}, "1 is not a valid search op"),
        ({"num_gpus": {"about": 2}}, "about is not a valid search op"),
        ({"gpu_name": {"in": "A40"}}, "in is not a valid search op"),
        ({"gpu_nmae": {"eq": "A40"}}, "'gpu_nmae' is not a valid search field"),
        ({"type": "cheap"}, "'cheap' is not a valid offer type"),
        ({"order": "dph_total"}, "not a valid order"),
        ({"order": [["dph_total", "up"]]}, "not a valid order"),
        ({"type": []}, "[] is not a valid offer type"),
        ({"order": [["id", []]]}, "not a valid order"),
        ({"limit": "many"}, "'many' is not a valid limit"),
        ([], "must be a JSON object"),
        ("{", "must be a JSON object"),
    ],
)
def test_a_search_that_cannot_be_understood_is_an_invalid_request(body: Any, message: str) -> None:
    with a_cloud() as cloud:
        answer = requests.post(f"{cloud.base_url}/api/v0/bundles/", json=body, timeout=10)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert message in answer.json()["msg"]


def test_null_compares_with_nothing() -> None:
    row = {"verification": "verified", "rentable": True, "rented": False, "cluster_id": None}
    chosen = understood({"cluster_id": {"gte": 1}}, frozenset(row)).choose([row])
    assert chosen == []


def test_reserved_offers_do_not_exist() -> None:
    with a_cloud() as cloud:
        assert search(cloud, type="reserved") == []


def test_a_large_market_has_two_thousand_offers() -> None:
    with a_cloud(machines=1300) as cloud:
        assert len(search(cloud)) > 2000


@pytest.mark.parametrize(
    "is_unfit",
    [
        lambda row: row["direct_port_count"] == 0,
        lambda row: row["cuda_max_good"] < 12.8,
        lambda row: row["cpu_ram"] < 24_000 * row["num_gpus"],
        lambda row: row["duration"] < 86_400,
        lambda row: row["verification"] == "unverified",
    ],
)
def test_some_machines_rent_well_and_serve_badly(is_unfit: Any) -> None:
    found = all_rows(machines=2000)
    assert 0 < sum(map(is_unfit, found)) < 0.2 * len(found)
