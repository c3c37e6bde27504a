"""Shadeform's instance types: many clouds, cents per instance, availability by region."""

from typing import Any

import pytest

from sutler.adapters.base import USUAL_PRICE_BAND, Coverage, Offer, Poll
from sutler.adapters.shadeform import PROVIDER, parse
from tests.adapters.builders import DELETE, KEY
from tests.adapters.cloud_bodies import poll_of_cloud, shadeform_type
from tests.adapters.server import Received


def found_in(*types: Any) -> Poll:
    return parse({"instance_types": list(types)}, price_band=USUAL_PRICE_BAND)


def test_a_type_is_a_list_price_and_an_offer_in_each_region_that_has_some() -> None:
    found = found_in(shadeform_type())
    shared: dict[str, Any] = {
        "gpu": "a100-sxm4-80gb",
        "gpus": 2,
        "price_usd_per_hour": 3.18,
        "contract": "on_demand",
        "disk_gb": 640.0,
        "ram_gb": 220.0,
        "cpu_cores": 24.0,
    }
    assert found.offers == (
        Offer(
            offer_id="list/massedcompute/A100_80Gx2", feed="list", available=0, availability_basis="list", **shared
        ),
        Offer(
            offer_id="massedcompute/us-west-9/A100_80Gx2",
            feed="stock/massedcompute/A100_80Gx2/",
            available=1,
            availability_basis="lower_bound",
            machine_id="massedcompute/us-west-9/a100-sxm4-80gb",
            machine_gpus=2,
            site="shadeform/massedcompute/us-west-9",
            region="us-west-9",
            **shared,
        ),
    )
    assert (found.kept, found.not_available) == (1, {})
    assert found.covered == (Coverage("stock", None, 1), Coverage("list", None, 1))


@pytest.mark.parametrize(
    ("setup", "gpu"),
    [
        ({"gpu_type": "A100_80G", "interconnect": "pcie"}, "a100-pcie-80gb"),
        ({"gpu_type": "A100", "interconnect": "sxm4", "vram_per_gpu_in_gb": 40}, "a100-sxm4-40gb"),
        ({"gpu_type": "H100", "interconnect": "sxm5"}, "h100-sxm"),
        ({"gpu_type": "H100", "interconnect": "pcie"}, "h100-pcie"),
        ({"gpu_type": "H100_NVL", "interconnect": "pcie", "vram_per_gpu_in_gb": 94}, "h100-nvl"),
        ({"gpu_type": "H200", "interconnect": "sxm5", "vram_per_gpu_in_gb": 141}, "h200-sxm"),
        ({"gpu_type": "A30", "interconnect": "pcie", "vram_per_gpu_in_gb": 24}, "a30"),
        ({"gpu_type": "RTX4090", "interconnect": None, "vram_per_gpu_in_gb": 24}, "rtx-4090"),
        ({"gpu_type": "RTX6000", "interconnect": "pcie", "vram_per_gpu_in_gb": 24}, "q-rtx-6000"),
        ({"gpu_type": "RTX6000", "interconnect": "pcie", "vram_per_gpu_in_gb": 48}, "rtx-6000-ada"),
        ({"gpu_type": "V100", "interconnect": DELETE, "nvlink": False, "vram_per_gpu_in_gb": 16}, "v100-pcie-16gb"),
        ({"gpu_type": "V100", "interconnect": "sxm2", "vram_per_gpu_in_gb": 16}, "v100-sxm2-16gb"),
    ],
)
def test_type_and_interconnect_tell_the_gpu(setup: dict[str, Any], gpu: str) -> None:
    assert {offer.gpu for offer in found_in(shadeform_type(setup=setup)).offers} == {gpu}


@pytest.mark.parametrize(
    "setup",
    [
        {"gpu_type": "H100", "interconnect": None},
        {"gpu_type": "A100_80G", "interconnect": "sxm4", "vram_per_gpu_in_gb": 40},
        {"gpu_type": "H200", "interconnect": "pcie", "vram_per_gpu_in_gb": 141},
        {"gpu_type": None},
        {"gpu_type": "H100_MIG", "interconnect": "sxm5"},
    ],
)
def test_what_does_not_tell_one_card_is_unknown(setup: dict[str, Any]) -> None:
    found = found_in(shadeform_type(setup=setup))
    assert (found.offers, [row.reason for row in found.rejected]) == ((), ["unknown_gpu"])


def test_clouds_that_are_polled_directly_can_be_left_out() -> None:
    bodies = {
        "/v1/instances/types": {"instance_types": [shadeform_type(), shadeform_type("H100x8", cloud="lambdalabs")]}
    }
    assert poll_of_cloud(PROVIDER, bodies, leave_out="lambdalabs, hyperstack").not_available == {"left_out": 1}
    kept = poll_of_cloud(PROVIDER, bodies, leave_out="none")
    assert (kept.kept, kept.not_available) == (2, {})


def test_clouds_that_sutler_polls_are_left_out_unless_told_otherwise() -> None:
    resold = [shadeform_type(name, cloud=name) for name in ("lambdalabs", "Hyperstack", "datacrunch", "verda")]
    found = poll_of_cloud(PROVIDER, {"/v1/instances/types": {"instance_types": [shadeform_type(), *resold]}})
    assert (found.kept, found.not_available) == (1, {"left_out": 4})


def test_an_unknown_cloud_to_leave_out_is_a_wrong_setting() -> None:
    found = poll_of_cloud(PROVIDER, leave_out="lambada")
    assert (found.outcome, found.requests) == ("config_error", 0)
    assert "leave_out" in found.detail


def test_any_region_is_no_site() -> None:
    offer = found_in(shadeform_type(cloud="runpod", regions={"any": True})).offers[1]
    assert (offer.offer_id, offer.site, offer.region) == ("runpod/any/A100_80Gx2", None, None)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"regions": {"us-west-9": False}}, "no_capacity"),
        ({"regions": {}}, "no_capacity"),
        ({"regions": {"us-west-9": "soon"}}, "unknown"),
        ({"availability": None}, "unknown"),
        ({"setup": {"num_gpus": 0}}, "no_gpu"),
        ({"regions": {}, "hourly_price": "?"}, "no_capacity"),
    ],
)
def test_what_cannot_be_rented_is_not_available(changes: dict[str, Any], cause: str) -> None:
    found = found_in(shadeform_type(**changes))
    assert (found.kept, found.rejected, found.not_available) == (0, (), {cause: 1})


def test_spot_entries_have_no_known_price() -> None:
    entry = {"region": "us-west-9", "available": True, "rental_type": "spot"}
    found = found_in(shadeform_type(availability=[entry]))
    assert (found.kept, found.not_available) == (0, {"no_capacity": 1})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cloud": None}, "bad_shape"),
        ({"shade_instance_type": None}, "bad_shape"),
        ({"setup": {"num_gpus": None}}, "bad_shape"),
        ({"setup": {"num_gpus": "two"}}, "bad_number"),
        ({"setup": {"storage_in_gb": -1}}, "bad_number"),
        ({"hourly_price": None}, "no_on_demand_price"),
        ({"hourly_price": "3.18 USD"}, "bad_number"),
        ({"hourly_price": -5}, "price_nonpositive"),
        ({"hourly_price": 1}, "price_too_low"),
        ({"hourly_price": 31_800}, "price_too_high"),
    ],
)
def test_a_bad_type_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    found = found_in(shadeform_type(**changes), None, shadeform_type("good"))
    assert [row.reason for row in found.rejected] == [reason, "bad_shape"]
    assert found.kept == 1


def test_a_bad_region_costs_only_itself() -> None:
    entries = ["x", {"available": True}, {"region": "us-west-9", "available": "true"}]
    found = found_in(shadeform_type(availability=entries))
    assert (found.kept, [row.reason for row in found.rejected]) == (1, ["bad_shape", "bad_shape"])


def test_fields_may_stand_beside_the_configuration() -> None:
    row = shadeform_type()
    found = found_in({**row, **row["configuration"], "configuration": None})
    assert found.offers == found_in(row).offers


def test_the_key_travels_in_its_own_header() -> None:
    asked: list[Received] = []
    poll_of_cloud(PROVIDER, seen=asked.append)
    assert [request.headers["x-api-key"] for request in asked] == [KEY]


def test_no_types_is_an_answer() -> None:
    found = poll_of_cloud(PROVIDER, {"/v1/instances/types": {"instance_types": []}})
    assert (found.outcome, found.kept) == ("ok", 0)
    assert found.covered == (Coverage("stock", None, 0), Coverage("list", None, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"availability": None},
        {"availability": {"us-west-9": True}},
        {"availability": ["x"]},
        {"regions": {"a": "soon"}},
    ],
)
def test_a_type_that_does_not_tell_its_stock_is_unknown_and_not_none(changes: dict[str, Any]) -> None:
    found = found_in(shadeform_type(**changes), shadeform_type("told", regions={"a": False}))
    assert found.not_available == {"unknown": 1, "no_capacity": 1}
    assert found.covered == (Coverage("stock/massedcompute/told/", None, 1), Coverage("list", None, 2))
    assert found_in(shadeform_type(**changes)).covered == (Coverage("list", None, 1),)


def test_a_gpu_that_nobody_knows_leaves_nothing_open() -> None:
    found = found_in(shadeform_type("new", setup={"gpu_type": "Z9"}), shadeform_type("told"))
    assert found.covered == (Coverage("stock", None, 1), Coverage("list", None, 1))


def test_rejected_rows_are_named_by_cloud_type_and_region() -> None:
    found = found_in(
        shadeform_type("A", hourly_price="?"),
        shadeform_type("A", cloud="crusoe", hourly_price="?"),
        shadeform_type(
            "B", availability=[{"region": "x" * 300, "rental_type": 5, "available": 1}, {"available": True}]
        ),
        shadeform_type("C", cloud=None),
    )
    assert [row.offer_id for row in found.rejected] == ["massedcompute/A", "crusoe/A", None, None]
