"""Vast.ai: from the rows of a search to whole offers, rows not for rent and rows rejected for a reason."""

import json
from datetime import UTC, datetime
from time import process_time
from typing import Any

import pytest

from sutler.adapters.base import Coverage, Offer, PriceBand
from sutler.adapters.errors import Reason
from tests.adapters.builders import (
    DELETE,
    NOON_EPOCH_S,
    as_document,
    as_market,
    only_offer,
    only_reason,
    prices,
    vast_poll,
    vast_row,
)

# A whole offer


def test_a_row_becomes_a_whole_offer() -> None:
    row = vast_row(
        501,
        gpu_name="H100 SXM",
        num_gpus=4,
        gpu_ids=[64, 61, 63, 62],
        gpu_ram=81_559,
        gpu_max_power=700.0,
        bw_nvlink=900.0,
        dph_total=9.05,
        geolocation="Texas, US",
    )
    assert only_offer(vast_poll(row)) == Offer(
        offer_id="501",
        feed="on_demand",
        gpu="h100-sxm",
        gpus=4,
        available=1,
        price_usd_per_hour=9.05,
        contract="on_demand",
        availability_basis="count",
        divisible=False,
        machine_id="7100",
        machine_gpus=None,
        gpu_ids=(61, 62, 63, 64),
        site="vastai/host-88",
        host_id="88",
        is_verified=True,
        listed_until=datetime.fromtimestamp(NOON_EPOCH_S + 86_400, UTC),
        region="US-Texas",
        reliability_fraction=0.991,
        intra_machine_gb_per_s=None,
        inter_machine_gb_per_s=None,
        disk_gb=640.0,
        disk_included_gb=8.0,
        disk_usd_per_gb_month=0.18,
        inet_down_gb_per_s=0.2,
        cuda_max=12.8,
        open_ports=120,
    )


def test_a_row_of_required_fields_alone_is_an_offer() -> None:
    row = {"id": 9, "gpu_name": "A40", "num_gpus": 1, "dph_total": 0.4}
    assert only_offer(vast_poll(row)) == Offer(
        offer_id="9",
        feed="on_demand",
        gpu="a40",
        gpus=1,
        available=1,
        price_usd_per_hour=0.4,
        contract="on_demand",
        disk_included_gb=8.0,
    )


def test_nulls_in_fields_that_may_be_missing_are_nothing() -> None:
    nullable = set(vast_row()) - {"id", "gpu_name", "num_gpus", "dph_base", "dph_total"}
    without = only_offer(vast_poll(vast_row(**dict.fromkeys(nullable, DELETE))))
    assert only_offer(vast_poll(vast_row(**dict.fromkeys(nullable)))) == without


def test_fields_that_nobody_knows_are_ignored() -> None:
    assert vast_poll(vast_row(brand_new={"x": [1]}, another=None)) == vast_poll(vast_row())


def test_every_kept_offer_fits_the_market_snapshot() -> None:
    found = vast_poll(vast_row(1), vast_row(2, num_gpus=2, gpu_ids=[60_001, 60_002], dph_total=0.7))
    as_market(found)


# Rule 3: one bad row never loses the others


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("a row", "bad_shape"),
        (None, "bad_shape"),
        ([], "bad_shape"),
        (17, "bad_shape"),
        ({}, "bad_shape"),
        (vast_row(DELETE), "bad_shape"),
        (vast_row(None), "bad_shape"),
        (vast_row(1.5), "bad_shape"),
        (vast_row(True), "bad_shape"),
        (vast_row({"$oid": 1}), "bad_shape"),
        (vast_row(num_gpus=DELETE), "bad_shape"),
        (vast_row(num_gpus=None), "bad_shape"),
        (vast_row(num_gpus=0), "bad_number"),
        (vast_row(num_gpus=-1), "bad_number"),
        (vast_row(num_gpus=1.5), "bad_number"),
        (vast_row(num_gpus=True), "bad_number"),
        (vast_row(num_gpus="two"), "bad_number"),
        (vast_row(num_gpus=10**9), "bad_number"),
        (vast_row(dph_total="N/A"), "bad_number"),
        (vast_row(dph_total="0,33"), "bad_number"),
        (vast_row(dph_total="NaN"), "bad_number"),
        (vast_row(dph_total=True), "bad_number"),
        (vast_row(dph_total=[0.33]), "bad_number"),
        (vast_row(dph_total=float("inf")), "bad_number"),
        (vast_row(gpu_ram="24 GB"), "bad_number"),
        (vast_row(reliability=1.2), "bad_number"),
        (vast_row(reliability=-0.1), "bad_number"),
        (vast_row(disk_space=-1), "bad_number"),
        (vast_row(disk_space=1e12), "bad_number"),
        (vast_row(storage_cost=1e6), "bad_number"),
        (vast_row(inet_down=-3), "bad_number"),
        (vast_row(cuda_max_good="12.8.1"), "bad_number"),
        (vast_row(direct_port_count=1.5), "bad_number"),
        (vast_row(end_date="2027-01-01"), "bad_number"),
        (vast_row(gpu_name=None), "unknown_gpu"),
        (vast_row(gpu_name=DELETE), "unknown_gpu"),
        (vast_row(gpu_name=""), "unknown_gpu"),
        (vast_row(gpu_name=4090), "unknown_gpu"),
        (vast_row(gpu_name="RTX 9090"), "unknown_gpu"),
        (vast_row(gpu_name="RTX 4090 laptop"), "unknown_gpu"),
        (vast_row(gpu_name="H100 SXM MIG 1g.10gb", gpu_ram=9_984), "unknown_gpu"),
        (vast_row(gpu_name="H100 SXM", gpu_ram=9_984), "unknown_gpu"),
        (vast_row(gpu_ram=49_140), "unknown_gpu"),
        (vast_row(gpu_name="InstinctMI250X", gpu_ram=65_520), "unknown_gpu"),
        (vast_row(dph_total=None, dph_base=None), "no_on_demand_price"),
        (vast_row(dph_total=None, storage_cost=None), "no_on_demand_price"),
        (vast_row(dph_total=DELETE, dph_base=DELETE, storage_cost=DELETE), "no_on_demand_price"),
        (vast_row(dph_total=0), "price_nonpositive"),
        (vast_row(dph_total=-0.2), "price_nonpositive"),
        (vast_row(dph_total=0.005), "price_too_low"),
        (vast_row(dph_total=60), "price_too_high"),
        (vast_row(num_gpus=8, gpu_ids=DELETE, dph_total=0.04), "price_too_low"),
        (vast_row(dph_total=1e300), "price_too_high"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason_and_the_others_live_on(bad: object, reason: Reason) -> None:
    before, after = vast_row(1, machine_id=1), vast_row(2, machine_id=2)
    found = vast_poll(before, bad, after)
    assert [offer.offer_id for offer in found.offers] == ["1", "2"]
    assert found.kept == 2
    assert found.outcome == "ok"
    assert found.rejected_by_reason == {reason: 1}
    assert found.covered == (Coverage("on_demand", None, 2),)
    (row,) = found.rejected
    assert row.detail
    assert json.loads(row.raw) == json.loads(json.dumps(bad).replace("Infinity", '"inf"'))


def test_a_rejected_row_names_its_field_and_value() -> None:
    found = vast_poll(vast_row(77, inet_down="fast"))
    (row,) = found.rejected
    assert (row.offer_id, row.detail) == ("77", "inet_down: 'fast' is not a number")


# Rule 4: numbers, ids, booleans in quotes


def test_quoted_numbers_booleans_and_ids_mean_the_same() -> None:
    quoted = vast_row(
        "501",
        machine_id="7100",
        host_id="88",
        num_gpus="1",
        gpu_ram=" 24564 ",
        bw_nvlink="0.0",
        pcie_bw="21.5",
        dph_total="0.332",
        dph_base="33e-2",
        storage_cost="0.18",
        inet_down="1600",
        cuda_max_good="12.8",
        rentable="true",
        rented="FALSE",
        is_bid="false",
        reliability="0.991",
        direct_port_count="120",
    )
    assert only_offer(vast_poll(quoted)) == only_offer(vast_poll(vast_row()))


def test_a_total_that_is_missing_is_added_up_from_base_and_storage() -> None:
    for total in (None, DELETE):
        offer = only_offer(vast_poll(vast_row(dph_total=total, dph_base=0.33, storage_cost=0.18)))
        assert offer.price_usd_per_hour == pytest.approx(0.332)


def test_free_storage_is_no_missing_storage() -> None:
    assert only_offer(vast_poll(vast_row(dph_total=None, storage_cost=0))).price_usd_per_hour == 0.33


# Rule 5: the price band


def test_the_price_band_is_per_gpu_and_the_operators() -> None:
    band = PriceBand(1.0, 2.0)
    rows = [
        vast_row(i, machine_id=i, num_gpus=4, gpu_ids=DELETE, dph_total=usd)
        for i, usd in enumerate([3.9, 4.0, 8.0, 8.1])
    ]
    found = vast_poll(*rows, price_band=band)
    assert [offer.price_usd_per_hour for offer in found.offers] == [4.0, 8.0]
    assert found.rejected_by_reason == {"price_too_low": 1, "price_too_high": 1}


# Rule 6: names of GPUs (more in test_gpu_names)


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"gpu_name": "RTX  4090 "}, "rtx-4090"),
        ({"gpu_name": "RTX_4090"}, "rtx-4090"),
        ({"gpu_name": "A100 SXM4", "gpu_ram": 40_960}, "a100-sxm4-40gb"),
        ({"gpu_name": "A100 SXM4", "gpu_ram": 81_920}, "a100-sxm4-80gb"),
        ({"gpu_name": "Tesla V100", "gpu_ram": 16_384, "gpu_max_power": 300.0}, "v100-sxm2-16gb"),
        ({"gpu_name": "Tesla V100", "gpu_ram": 16_384, "gpu_max_power": 250.0}, "v100-pcie-16gb"),
        ({"gpu_name": "Tesla V100", "gpu_ram": 16_384, "gpu_max_power": None, "bw_nvlink": 150.0}, "v100-sxm2-16gb"),
        ({"gpu_name": "RTX PRO 6000", "gpu_ram": 97_887, "gpu_max_power": 300.0}, "rtx-pro-6000-maxq"),
        ({"gpu_name": "RTX PRO 6000", "gpu_ram": 97_887, "gpu_max_power": 600.0}, "rtx-pro-6000-ws"),
    ],
)
def test_memory_power_and_link_tell_cards_of_one_name_apart(changes: dict[str, Any], slug: str) -> None:
    assert only_offer(vast_poll(vast_row(**changes))).gpu == slug


# Rule 7: the same id twice


def test_of_one_offer_told_twice_the_higher_price_counts() -> None:
    for told in ((0.30, 0.36), (0.36, 0.30)):
        found = vast_poll(*(vast_row(5, dph_total=price) for price in told))
        assert prices(found) == {("5", "on_demand"): 0.36}
        assert (found.kept, found.flags) == (1, {"duplicate_conflict": 1})


def test_an_id_is_the_same_in_quotes() -> None:
    found = vast_poll(vast_row(5, dph_total=0.30), vast_row("5", dph_total=0.36))
    assert prices(found) == {("5", "on_demand"): 0.36}


def test_one_row_twice_is_one_offer_and_no_conflict() -> None:
    found = vast_poll(vast_row(5), vast_row(5))
    assert (found.kept, found.flags) == (1, {})


# Rule 8: slices of a machine overlap


def test_slices_of_a_machine_name_their_cards() -> None:
    cards = list(range(60_000, 60_008))
    slices = [
        vast_row(size, num_gpus=size, gpu_ids=cards[:size], dph_total=0.35 * size, gpu_frac=size / 8)
        for size in (8, 4, 2, 1)
    ]
    found = vast_poll(*slices)
    assert {offer.machine_id for offer in found.offers} == {"7100"}
    assert {len(offer.gpu_ids or ()) for offer in found.offers} == {1, 2, 4, 8}
    assert set().union(*(offer.gpu_ids or () for offer in found.offers)) == set(cards)
    assert all(offer.available == 1 for offer in found.offers)


@pytest.mark.parametrize(
    "gpu_ids", [None, DELETE, [], [1], [1, 1], [1, 2, 3], [1, "2"], [1, None], "12", {"a": 1}, [-1, 2], [1, 10**30]]
)
def test_cards_that_are_not_those_of_the_offer_are_not_believed(gpu_ids: object) -> None:
    assert only_offer(vast_poll(vast_row(num_gpus=2, gpu_ids=gpu_ids, dph_total=0.7))).gpu_ids is None


def test_two_gpu_types_on_one_machine_are_two_machines_whatever_comes_first() -> None:
    rows = [
        vast_row(1, gpu_ids=[1]),
        vast_row(2, gpu_ids=[2], gpu_name="RTX 3090", gpu_ram=24_576),
        vast_row(3, gpu_ids=[3]),
        vast_row(4, gpu_ids=[4], machine_id=7_200),
    ]
    for order in (rows, rows[::-1]):
        found = vast_poll(*order)
        assert {offer.offer_id: offer.machine_id for offer in found.offers} == {
            "1": "rtx-4090/7100",
            "2": "rtx-3090/7100",
            "3": "rtx-4090/7100",
            "4": "7200",
        }
        as_market(found)


def test_ids_too_long_for_a_snapshot_are_cut() -> None:
    long = "h" * 300
    rows = [
        vast_row(1, host_id=long, machine_id=long),
        vast_row(2, cluster_id=long, machine_id=long, gpu_name="RTX 3090"),
    ]
    for offer in vast_poll(*rows).offers:
        assert len(as_document(offer).site or "") == 200
        assert len(offer.machine_id or "") == 200


# Rule 10: what is not for rent, and unknown words


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"rentable": False}, "not_rentable"),
        ({"rentable": "false"}, "not_rentable"),
        ({"rented": True}, "rented"),
        ({"rented": "true"}, "rented"),
        ({"verification": "deverified"}, "deverified"),
        ({"verification": " Deverified "}, "deverified"),
        ({"end_date": NOON_EPOCH_S}, "expired"),
        ({"end_date": 1.0}, "expired"),
        ({"duration": 0}, "expired"),
        ({"duration": "-5"}, "expired"),
        ({"rentable": "perhaps"}, "unknown"),
        ({"rented": "soon"}, "unknown"),
        ({"rentable": 1}, "unknown"),
        ({"rentable": []}, "unknown"),
        ({"rentable": False, "rented": True, "dph_total": "N/A"}, "not_rentable"),
    ],
)
def test_what_is_not_for_rent_is_counted_by_cause(changes: dict[str, Any], cause: str) -> None:
    found = vast_poll(vast_row(1), vast_row(2, **changes))
    assert [offer.offer_id for offer in found.offers] == ["1"]
    assert found.not_available == {cause: 1}
    assert found.rejected == ()
    assert found.covered == (Coverage("on_demand", None, 2),), "it was read: the market is not silent"


@pytest.mark.parametrize(
    "changes",
    [
        {"verification": "unverified"},
        {"verification": "a new word"},
        {"verification": 3},
        {"end_date": NOON_EPOCH_S + 1},
        {"duration": 1},
        {"rentable": None, "rented": None},
        {"rentable": DELETE, "rented": DELETE},
    ],
)
def test_what_is_not_said_to_be_unavailable_is_for_rent(changes: dict[str, Any]) -> None:
    assert vast_poll(vast_row(**changes)).kept == 1


def test_an_unknown_gpu_that_is_rented_is_unknown() -> None:
    assert only_reason(vast_poll(vast_row(gpu_name="RTX 9090", rented=True))) == "unknown_gpu"


# Where it stands


@pytest.mark.parametrize(
    ("geolocation", "region"),
    [
        (None, None),
        (DELETE, None),
        ("", None),
        ("  ", None),
        (",", None),
        (", US", "US"),
        ("US", "US"),
        ("Texas, US", "US-Texas"),
        ("  Texas ,US ", "US-Texas"),
        ("Texas,", "Texas"),
        ("Sha Tin, New Territories, HK", "HK-Sha Tin, New Territories"),
        ("a,b,c,d,e", "e-a,b,c,d"),
        ("Île-de-France, FR", "FR-Île-de-France"),
        ("Tex\x00as, U\u202eS", "US-Texas"),
        (["Texas", "US"], None),
        (5, None),
    ],
)
def test_the_country_comes_before_the_region(geolocation: object, region: str | None) -> None:
    assert only_offer(vast_poll(vast_row(geolocation=geolocation))).region == region


@pytest.mark.parametrize(
    ("changes", "site"),
    [
        ({}, "vastai/host-88"),
        ({"cluster_id": 4}, "vastai/cluster-4"),
        ({"cluster_id": 0}, "vastai/cluster-0"),
        ({"host_id": 0}, "vastai/host-0"),
        ({"host_id": None}, None),
    ],
)
def test_machines_of_a_cluster_or_else_of_a_host_are_one_site(changes: dict[str, Any], site: str | None) -> None:
    offer = only_offer(vast_poll(vast_row(**changes)))
    assert offer.site == site
    assert offer.inter_machine_gb_per_s is None, "nothing is known of the network between them"


# The link between the cards


@pytest.mark.parametrize(
    ("changes", "gb_per_s"),
    [
        ({"num_gpus": 1}, None),
        ({"bw_nvlink": 600.0}, None),
        ({"pcie_bw": 21.5}, 21.5),
        ({"pcie_bw": 3108.0}, 32.0),
        ({"pcie_bw": 3108.0, "pci_gen": 3.0, "gpu_lanes": 8}, 8.0),
        ({"pcie_bw": 21.5, "gpu_lanes": 1}, 2.0),
        ({"pcie_bw": 50.0, "pci_gen": 5.0}, 50.0),
        ({"pcie_bw": 3108.0, "pci_gen": 5.0, "gpu_lanes": 64}, 64.0),
        ({"pcie_bw": 50.0, "pci_gen": None}, 32.0),
        ({"pcie_bw": 50.0, "pci_gen": 5.0, "gpu_lanes": None}, 32.0),
        ({"pcie_bw": 50.0, "pci_gen": 5.0, "gpu_lanes": -1}, 32.0),
        ({"pcie_bw": 0}, 32.0),
        ({"pcie_bw": None}, 32.0),
        ({"pcie_bw": None, "bw_nvlink": None}, 32.0),
        ({"pcie_bw": None, "gpu_lanes": 8}, 16.0),
        ({"pcie_bw": None, "pci_gen": 3.0}, 16.0),
        ({"pcie_bw": None, "pci_gen": "5.0"}, 64.0),
        ({"pcie_bw": None, "gpu_lanes": 64}, 32.0),
        ({"pcie_bw": None, "gpu_lanes": 0}, 16.0),
        ({"pcie_bw": None, "gpu_lanes": None}, 16.0),
        ({"pcie_bw": None, "pci_gen": None}, 16.0),
        ({"pcie_bw": None, "pci_gen": 7.0}, 16.0),
    ],
)
def test_cards_without_nvlink_talk_over_pcie(changes: dict[str, Any], gb_per_s: float | None) -> None:
    row = vast_row(**{"num_gpus": 2, "gpu_ids": [1, 2], "dph_total": 0.7, **changes, **one_card(changes)})
    assert only_offer(vast_poll(row)).intra_machine_gb_per_s == gb_per_s


def one_card(changes: dict[str, Any]) -> dict[str, Any]:
    return {"gpu_ids": [1]} if changes.get("num_gpus") == 1 else {}


@pytest.mark.parametrize(("ports", "expected"), [(120, 120), (0, 0), (-1, None), (10**9, 65_536), (None, None)])
def test_ports_are_at_most_all_of_them(ports: object, expected: int | None) -> None:
    assert only_offer(vast_poll(vast_row(direct_port_count=ports))).open_ports == expected


def test_reliability_has_two_names() -> None:
    changes = {"reliability": None, "reliability2": 0.9}
    assert only_offer(vast_poll(vast_row(**changes))).reliability_fraction == 0.9
    assert only_offer(vast_poll(vast_row(reliability2=0.5))).reliability_fraction == 0.991


# Size


def test_two_thousand_offers_are_read_in_well_under_a_second() -> None:
    rows = [vast_row(i, machine_id=i // 4, gpu_ids=[i]) for i in range(2000)]
    started = process_time()
    assert vast_poll(*rows).kept == 2000
    assert process_time() - started < 1.0
