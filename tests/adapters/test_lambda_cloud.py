"""Lambda's instance types: cents per instance, and regions that have some."""

from typing import Any

import pytest

from sutler.adapters.base import USUAL_PRICE_BAND, Coverage, Offer, Poll
from sutler.adapters.lambda_cloud import PROVIDER, parse
from tests.adapters.builders import DELETE, KEY
from tests.adapters.cloud_bodies import lambda_type, poll_of_cloud
from tests.adapters.server import Received


def found_in(**types: Any) -> Poll:
    return parse({"data": types}, price_band=USUAL_PRICE_BAND)


def test_a_type_is_a_list_price_and_an_offer_in_each_region_that_has_some() -> None:
    found = found_in(gpu_8x_h100_sxm5=lambda_type(regions=("us-east-3", "europe-central-9")))
    shared: dict[str, Any] = {
        "gpu": "h100-sxm",
        "gpus": 8,
        "price_usd_per_hour": 23.92,
        "contract": "on_demand",
        "disk_gb": 23622.32,
        "disk_included_gb": 23622.32,
        "ram_gb": 1800 / (1 / 1.073741824),
        "cpu_cores": 208.0,
    }
    listed, east, europe = found.offers
    assert listed == Offer(
        offer_id="list/gpu_8x_h100_sxm5", feed="list", available=0, availability_basis="list", **shared
    )
    assert east == Offer(
        offer_id="gpu_8x_h100_sxm5/us-east-3",
        feed="stock/gpu_8x_h100_sxm5/",
        available=1,
        availability_basis="lower_bound",
        machine_id="us-east-3/h100-sxm",
        machine_gpus=8,
        site="lambda/us-east-3",
        region="us-east-3",
        **shared,
    )
    assert europe.offer_id == "gpu_8x_h100_sxm5/europe-central-9"
    assert (found.kept, found.not_available) == (2, {})
    assert found.covered == (Coverage("stock", None, 1), Coverage("list", None, 1))


def test_sizes_of_one_gpu_in_one_region_are_slices_of_one_machine() -> None:
    found = found_in(
        gpu_8x=lambda_type(),
        gpu_1x=lambda_type("1x H100 (80 GB SXM5)", gpus=1, cents=329, regions=("us-east-3", "us-west-9")),
        gpu_1x_pcie=lambda_type("1x H100 (80 GB PCIe)", gpus=1, cents=249),
    )
    assert {(o.offer_id, o.machine_id, o.machine_gpus) for o in found.offers if o.available} == {
        ("gpu_8x/us-east-3", "us-east-3/h100-sxm", 8),
        ("gpu_1x/us-east-3", "us-east-3/h100-sxm", 8),
        ("gpu_1x/us-west-9", "us-west-9/h100-sxm", 1),
        ("gpu_1x_pcie/us-east-3", "us-east-3/h100-pcie", 1),
    }


def test_a_type_without_capacity_keeps_its_list_price() -> None:
    found = found_in(gpu_8x=lambda_type(regions=()))
    assert [offer.feed for offer in found.offers] == ["list"]
    assert (found.kept, found.not_available) == (0, {"no_capacity": 1})


@pytest.mark.parametrize("regions", [None, "us-east-3", {"us-east-3": True}])
def test_capacity_that_is_not_said_is_unknown_and_not_none(regions: object) -> None:
    silent = {**lambda_type(), "regions_with_capacity_available": regions}
    found = found_in(gpu_8x=silent, gpu_1x=lambda_type("1x H100 (80 GB SXM5)", gpus=1, cents=329, regions=()))
    assert (found.kept, found.not_available) == (0, {"unknown": 1, "no_capacity": 1})
    assert found.covered == (Coverage("stock/gpu_1x/", None, 1), Coverage("list", None, 2))


def test_regions_that_cannot_be_read_say_nothing_of_stock() -> None:
    found = found_in(gpu_8x={**lambda_type(), "regions_with_capacity_available": ["us-east-3", "us-west-9"]})
    assert (found.outcome, found.kept, [row.reason for row in found.rejected]) == (
        "prices_only",
        0,
        ["bad_shape"] * 2,
    )
    assert found.covered == (Coverage("list", None, 1),)


def test_a_type_whose_price_cannot_be_read_is_not_gone() -> None:
    unpriced = {**lambda_type(cents=None)}
    found = found_in(gpu_8x=unpriced, gpu_1x=lambda_type("1x H100 (80 GB SXM5)", gpus=1, cents=329, regions=()))
    assert [coverage.feed_prefix for coverage in found.covered] == ["stock/gpu_1x/", "list"]


def test_rejected_rows_are_named_apart_and_alike_from_poll_to_poll() -> None:
    entry = lambda_type(regions=())
    entry["regions_with_capacity_available"] = [{"name": "r" * 199 + "a"}, {"name": "r" * 199 + "b"}, "x"]
    twice = [found_in(gpu_8x=entry, broken=cents) for cents in (1, 2)]
    ids = [[row.offer_id for row in found.rejected] for found in twice]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4
    assert all(row_id is None or len(row_id) <= 200 for row_id in ids[0])


@pytest.mark.parametrize("name", ["", "\u0000"])
def test_a_type_without_a_name_is_rejected(name: str) -> None:
    found = found_in(**{name: lambda_type()})
    assert [(row.offer_id, row.reason) for row in found.rejected] == [(None, "bad_shape")]


def test_a_type_without_a_gpu_is_passed_over() -> None:
    found = found_in(
        cpu_4x_general=lambda_type("4x CPU Cores", gpus=0, gpu_description="N/A"),
        cpu_8x_general=lambda_type("8x CPU Cores", gpus=DELETE, gpu_description="N/A", specs={}),
    )
    assert (found.offers, found.rejected, found.not_available) == ((), (), {"no_gpu": 2})


@pytest.mark.parametrize(
    ("description", "gpu"),
    [
        ("1x A10 (24 GB PCIe)", "a10"),
        ("1x A100 (40 GB PCIe)", "a100-pcie-40gb"),
        ("1x A100 (40 GB SXM4)", "a100-sxm4-40gb"),
        ("8x A100 (80 GB SXM4)", "a100-sxm4-80gb"),
        ("1x H100 (80 GB PCIe)", "h100-pcie"),
        ("1x GH200 (96 GB)", "gh200"),
        ("8x B200 (180 GB SXM6)", "b200"),
        ("1x RTX 6000 (24 GB)", "q-rtx-6000"),
        ("2x A6000 (48 GB)", "rtx-a6000"),
    ],
)
def test_the_gpu_is_in_the_description(description: str, gpu: str) -> None:
    found = found_in(some=lambda_type(description, gpus=int(description[0])))
    assert {offer.gpu for offer in found.offers} == {gpu}


def test_without_specs_the_count_is_in_the_description() -> None:
    found = found_in(some=lambda_type("4x H100 (80 GB SXM5)", specs={}, gpu_description=DELETE))
    assert {offer.gpus for offer in found.offers} == {4}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"description": "8x H100 MIG (10 GB)"}, "unknown_gpu"),
        ({"description": "8x H100 (96 GB SXM5)"}, "unknown_gpu"),
        ({"description": None, "gpu_description": None}, "bad_shape"),
        ({"cents": None}, "no_on_demand_price"),
        ({"cents": "2392 cents"}, "bad_number"),
        ({"cents": 0}, "price_nonpositive"),
        ({"cents": 7}, "price_too_low"),
        ({"cents": 999_999}, "price_too_high"),
        ({"gpus": 4}, "bad_number"),
        ({"gpus": "eight"}, "bad_number"),
    ],
)
def test_a_bad_type_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    plain = lambda_type()
    bad = lambda_type(**{name: value for name, value in changes.items() if name in {"cents", "gpus"}})
    described = {name: value for name, value in changes.items() if name.endswith("description")}
    bad["instance_type"] |= {"gpu_description": described.get("description"), **described} if described else {}
    found = found_in(bad=bad, worse="no type", good=plain)
    assert [(row.offer_id, row.reason) for row in found.rejected] == [("bad", reason), ("worse", "bad_shape")]
    assert found.kept == 1


def test_a_type_that_nobody_can_rent_needs_no_price() -> None:
    found = found_in(gpu_8x=lambda_type(regions=(), cents=None))
    assert (found.offers, found.rejected, found.not_available) == ((), (), {"no_capacity": 1})


def test_a_bad_region_costs_only_itself() -> None:
    entry = lambda_type()
    entry["regions_with_capacity_available"] += [{"description": "nowhere"}, "x"]
    found = found_in(gpu_8x=entry)
    assert (found.kept, [row.reason for row in found.rejected]) == (1, ["bad_shape", "bad_shape"])


def test_the_key_travels_as_bearer() -> None:
    asked: list[Received] = []
    poll_of_cloud(PROVIDER, seen=asked.append)
    assert [request.headers["authorization"] for request in asked] == [f"Bearer {KEY}"]


def test_no_types_is_an_answer() -> None:
    found = poll_of_cloud(PROVIDER, {"/api/v1/instance-types": {"data": {}}})
    assert (found.outcome, found.kept) == ("ok", 0)
    assert found.covered == (Coverage("stock", None, 0), Coverage("list", None, 0))
