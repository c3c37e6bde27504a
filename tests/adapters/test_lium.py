"""Lium's nodes: real counts of free GPUs, priced per GPU."""

from typing import Any

import pytest

from sutler.adapters.base import USUAL_PRICE_BAND, Coverage, Offer, Poll
from sutler.adapters.lium import PROVIDER, parse
from tests.adapters.builders import DELETE, only_offer, only_reason
from tests.adapters.cloud_bodies import lium_node, poll_of_cloud


def found_in(*nodes: Any) -> Poll:
    return parse({"nodes": list(nodes)}, price_band=USUAL_PRICE_BAND)


def test_a_node_is_one_offer_of_its_free_gpus() -> None:
    found = poll_of_cloud(PROVIDER, {"/api/public/v1/nodes": {"nodes": [lium_node()]}})
    assert found.offers == (
        Offer(
            offer_id="node-a",
            feed="nodes",
            gpu="h100-sxm",
            gpus=5,
            available=1,
            price_usd_per_hour=9.5,
            contract="on_demand",
            divisible=True,
            machine_id="node-a",
            machine_gpus=5,
            region="US-CA",
            disk_gb=2200.0,
            ram_gb=629.375,
            cpu_cores=80.0,
        ),
    )
    assert (found.kept, found.covered, found.requests) == (1, (Coverage("", None, 1),), 1)


def test_a_smallest_order_above_one_is_not_divisible() -> None:
    assert only_offer(found_in(lium_node(min_rentable_gpu_count=4))).divisible is False


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"available_gpu_count": 0}, "rented"),
        ({"available_gpu_count": 5, "min_rentable_gpu_count": 8}, "below_minimum"),
        ({"min_rentable_gpu_count": None}, "below_minimum"),
        ({"available_gpu_count": 0, "price_per_gpu_hour": "N/A"}, "rented"),
    ],
)
def test_what_cannot_be_ordered_is_not_available(changes: dict[str, Any], cause: str) -> None:
    found = found_in(lium_node(**changes))
    assert (found.offers, found.rejected, found.not_available) == ((), (), {cause: 1})
    assert found.covered == (Coverage("", None, 1),)


def test_what_a_node_does_not_say_is_unknown_and_not_none() -> None:
    silent = lium_node("silent", available_gpu_count=None)
    found = found_in(silent, lium_node())
    assert (found.kept, found.not_available, found.covered) == (1, {"unknown": 1}, (Coverage("", None, 1),))
    alone = found_in(silent, lium_node("other", available_gpu_count=DELETE))
    assert (alone.not_available, alone.covered) == ({"unknown": 2}, ())
    assert "how many" in alone.detail


def test_nodes_of_which_none_can_be_read_are_no_rows() -> None:
    found = found_in(lium_node(available_gpu_count="many"), lium_node("b", available_gpu_count=[]))
    assert ([row.reason for row in found.rejected], found.covered) == (["bad_number"] * 2, (Coverage("", None, 0),))


def test_long_places_are_cut_to_what_a_region_may_be() -> None:
    offers = found_in(
        lium_node("a", country_code="\u00df" * 200, region=DELETE),
        lium_node("b", country_code="u" * 300, region="r" * 300),
    ).offers
    assert [offer.region for offer in offers] == ["S" * 20, f"{'U' * 20}-{'r' * 100}"]


def test_a_whole_node_without_a_stated_smallest_order_is_rentable_whole() -> None:
    offer = only_offer(found_in(lium_node(min_rentable_gpu_count=DELETE, available_gpu_count=8)))
    assert (offer.gpus, offer.divisible) == (8, False)


def test_the_spot_tier_is_interruptible() -> None:
    assert only_offer(found_in(lium_node(tier="spot"))).contract == "interruptible"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu_model": "RTX 9999"}, "unknown_gpu"),
        ({"gpu_model": None}, "unknown_gpu"),
        ({"gpu_memory_gb": 40}, "unknown_gpu"),
        ({"id": None}, "bad_shape"),
        ({"price_per_gpu_hour": None}, "no_on_demand_price"),
        ({"price_per_gpu_hour": "1,90"}, "bad_number"),
        ({"price_per_gpu_hour": 0}, "price_nonpositive"),
        ({"price_per_gpu_hour": 0.001}, "price_too_low"),
        ({"price_per_gpu_hour": 51}, "price_too_high"),
        ({"available_gpu_count": 9}, "bad_number"),
        ({"available_gpu_count": -1}, "bad_number"),
        ({"available_gpu_count": 2.5}, "bad_number"),
        ({"min_rentable_gpu_count": -2}, "bad_number"),
        ({"disk_free_gb": "NaN"}, "bad_number"),
    ],
)
def test_a_bad_node_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    found = found_in(lium_node("bad", **changes), "no node", lium_node("good"))
    assert [row.reason for row in found.rejected] == [reason, "bad_shape"]
    assert only_offer(found).offer_id == "good"
    assert found.covered == (Coverage("", None, 1),)


def test_numbers_may_be_text() -> None:
    offer = only_offer(found_in(lium_node(price_per_gpu_hour=" 0.31 ", available_gpu_count="2")))
    assert (offer.gpus, offer.price_usd_per_hour) == (2, 0.62)


def test_a_node_needs_nothing_but_what_makes_an_offer() -> None:
    absent = dict.fromkeys(("country_code", "region", "tier", "disk_free_gb", "gpu_memory_gb", "gpu_count"), DELETE)
    offer = only_offer(found_in(lium_node(**absent)))
    assert (offer.region, offer.disk_gb, offer.contract, offer.reliability_fraction) == (
        None,
        None,
        "on_demand",
        None,
    )


def test_the_same_node_twice_counts_once_and_the_dearer_price_stays() -> None:
    found = found_in(lium_node(), lium_node(), lium_node(price_per_gpu_hour=2.0))
    assert (only_offer(found).price_usd_per_hour, found.flags) == (10.0, {"duplicate_conflict": 1})


def test_no_nodes_is_an_answer() -> None:
    found = poll_of_cloud(PROVIDER, {"/api/public/v1/nodes": {"nodes": []}})
    assert (found.outcome, found.kept, found.covered) == ("ok", 0, (Coverage("", None, 0),))


def test_a_reason_names_the_field() -> None:
    found = found_in(lium_node(price_per_gpu_hour=True))
    assert only_reason(found) == "bad_number"
    assert "price_per_gpu_hour: True" in found.rejected[0].detail
