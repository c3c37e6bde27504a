"""A snapshot file as a provider: its own offers, whole or those of one provider in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from sutler.adapters.base import Coverage, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.polling import poll
from sutler.adapters.snapshot_file import PROVIDER
from tests.adapters.builders import DELETE, only_offer
from tests.adapters.cloud_bodies import a_row


def a_snapshot_row(offer_id: str = "123", **changes: Any) -> dict[str, Any]:
    plain = {
        "provider": "vastai",
        "offer_id": offer_id,
        "gpu": "h100-sxm",
        "gpus": 2,
        "available": 1,
        "price_usd_per_hour": 4.4,
        "contract": "on_demand",
    }
    return a_row(plain, changes)


def found_in_text(folder: Path, text: str, **options: str) -> Poll:
    path = folder / "market.json"
    path.write_text(text, encoding="utf-8")
    return poll(PROVIDER, ProviderConfig(PROVIDER.base_url, options={"path": str(path), **options}))


def found_in(folder: Path, *rows: Any, **options: str) -> Poll:
    document = {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": list(rows)}
    return found_in_text(folder, json.dumps(document), **options)


def test_a_row_becomes_an_offer_with_all_that_it_says(tmp_path: Path) -> None:
    row = a_snapshot_row(
        available=1,
        divisible=True,
        machine_id="77",
        machine_gpus=8,
        gpu_ids=[4, 3],
        site="vastai/host-9",
        region="US-TX",
        reliability_fraction=0.993,
        intra_machine_gb_per_s=450,
        inter_machine_gb_per_s=12.5,
        disk_gb=500,
        disk_included_gb=8,
        disk_usd_per_gb_month=0.1,
        inet_down_gb_per_s=0.1,
        cuda_max=12.8,
        open_ports=10,
        observed_at="2026-11-20T11:59:40Z",
    )
    found = found_in(tmp_path, row)
    assert found.offers == (
        Offer(
            offer_id="vastai/123",
            feed="vastai/offers",
            gpu="h100-sxm",
            gpus=2,
            available=1,
            price_usd_per_hour=4.4,
            contract="on_demand",
            divisible=True,
            machine_id="vastai/77",
            machine_gpus=8,
            gpu_ids=(3, 4),
            site="vastai/host-9",
            region="US-TX",
            reliability_fraction=0.993,
            intra_machine_gb_per_s=450.0,
            inter_machine_gb_per_s=12.5,
            disk_gb=500.0,
            disk_included_gb=8.0,
            disk_usd_per_gb_month=0.1,
            inet_down_gb_per_s=0.1,
            cuda_max=12.8,
            open_ports=10,
        ),
    )
    assert (found.outcome, found.kept, found.requests, found.covered) == ("ok", 1, 0, (Coverage("", None, 1),))
    assert found.detail == "taken at 2026-11-20T12:00:00Z"


def test_rows_of_several_providers_stay_apart(tmp_path: Path) -> None:
    found = found_in(tmp_path, a_snapshot_row(), a_snapshot_row(provider="own", price_usd_per_hour=3.0))
    assert [offer.offer_id for offer in found.offers] == ["vastai/123", "own/123"]


def test_one_provider_can_be_picked(tmp_path: Path) -> None:
    found = found_in(tmp_path, a_snapshot_row(), a_snapshot_row(provider="own", gpu="?"), provider="vastai")
    assert (only_offer(found).offer_id, found.rejected) == ("vastai/123", ())


@pytest.mark.parametrize("price", [0, 0.0, -0.0, "0"])
def test_a_machine_of_ones_own_may_cost_nothing(tmp_path: Path, price: object) -> None:
    offer = only_offer(found_in(tmp_path, a_snapshot_row(price_usd_per_hour=price)))
    assert str(offer.price_usd_per_hour) == "0.0"


def test_spot_is_another_word_for_interruptible(tmp_path: Path) -> None:
    assert only_offer(found_in(tmp_path, a_snapshot_row(contract="spot"))).contract == "interruptible"


def test_what_nobody_can_rent_is_a_list_price(tmp_path: Path) -> None:
    found = found_in(tmp_path, a_snapshot_row(available=0))
    assert (found.kept, only_offer(found).availability_basis) == (0, "list")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "t1"}, "unknown_gpu"),
        ({"provider": None}, "bad_shape"),
        ({"offer_id": ""}, "bad_shape"),
        ({"offer_id": "x" * 195}, "bad_shape"),
        ({"gpus": 0}, "bad_number"),
        ({"gpus": None}, "bad_shape"),
        ({"available": None}, "bad_shape"),
        ({"available": -1}, "bad_number"),
        ({"available": 3, "machine_id": "77"}, "bad_number"),
        ({"price_usd_per_hour": None}, "bad_shape"),
        ({"price_usd_per_hour": "cheap"}, "bad_number"),
        ({"price_usd_per_hour": -0.01}, "price_nonpositive"),
        ({"price_usd_per_hour": 0.01}, "price_too_low"),
        ({"price_usd_per_hour": 200}, "price_too_high"),
        ({"contract": "barter"}, "bad_shape"),
        ({"contract": None}, "bad_shape"),
        ({"gpu_ids": [1]}, "bad_shape"),
        ({"gpu_ids": "1,2"}, "bad_shape"),
        ({"reliability_fraction": 1.2}, "bad_number"),
        ({"open_ports": 70_000}, "bad_number"),
        ({"disk_gb": -1}, "bad_number"),
        ({"available": 10_001}, "bad_number"),
        ({"gpus": 1025}, "bad_number"),
        ({"disk_gb": 2e9}, "bad_number"),
        ({"inter_machine_gb_per_s": 2e6}, "bad_number"),
        ({"disk_usd_per_gb_month": 20_000}, "bad_number"),
        ({"cuda_max": 1001}, "bad_number"),
        ({"machine_id": "9", "machine_gpus": 2.5}, "bad_number"),
        ({"machine_id": "9", "machine_gpus": 0}, "bad_number"),
    ],
)
def test_a_bad_row_is_rejected_alone(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    found = found_in(tmp_path, a_snapshot_row(**changes), "no row", a_snapshot_row("good"))
    assert [row.reason for row in found.rejected] == [reason, "bad_shape"]
    assert only_offer(found).offer_id == "vastai/good"


def test_rows_of_one_machine_agree_on_it(tmp_path: Path) -> None:
    first = a_snapshot_row("1", machine_id="77", machine_gpus=8)
    found = found_in(tmp_path, first, a_snapshot_row("2", machine_id="77", machine_gpus=4))
    assert (only_offer(found).offer_id, [row.reason for row in found.rejected]) == ("vastai/1", ["bad_shape"])


def test_one_endless_number_costs_only_its_row(tmp_path: Path) -> None:
    rows = json.dumps([a_snapshot_row(gpus="GPUS"), a_snapshot_row("good")]).replace('"GPUS"', "9" * 6000)
    found = found_in_text(tmp_path, f'{{"schema": "sutler/market/v1", "offers": {rows}}}')
    assert (only_offer(found).offer_id, [row.reason for row in found.rejected]) == ("vastai/good", ["bad_number"])


@pytest.mark.parametrize("text", ["", '{"schema": "sutler/market/v1", "offers": [', "<html>", "[" * 100_000])
def test_a_file_that_is_no_json_is_bad_body(tmp_path: Path, text: str) -> None:
    found = found_in_text(tmp_path, text)
    assert (found.outcome, found.covered) == ("bad_body", ())
    assert "SUTLER_FILE_PATH" in found.detail


@pytest.mark.parametrize("name", ["absent.json", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_bad_body(tmp_path: Path, name: str) -> None:
    found = poll(PROVIDER, ProviderConfig(PROVIDER.base_url, options={"path": f"{tmp_path}/{name}"}))
    assert (found.outcome, found.covered) == ("bad_body", ())


@pytest.mark.parametrize(
    "document",
    [[], {}, {"schema": "sutler/market/v1"}, {"schema": "sutler/plan/v1", "offers": []}, {"offers": []}, 3, None],
)
def test_another_document_is_bad_shape(tmp_path: Path, document: object) -> None:
    found = found_in_text(tmp_path, json.dumps(document))
    assert (found.outcome, found.covered) == ("bad_shape", ())


def test_a_file_without_offers_is_an_answer(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    assert (found.outcome, found.kept, found.covered) == ("ok", 0, (Coverage("", None, 0),))


def test_without_a_path_the_setting_is_named() -> None:
    found = poll(PROVIDER, ProviderConfig(PROVIDER.base_url))
    assert (found.outcome, "SUTLER_FILE_PATH" in found.detail) == ("config_error", True)


def test_a_row_needs_no_more_than_an_offer_must_have(tmp_path: Path) -> None:
    offer = only_offer(found_in(tmp_path, a_snapshot_row(divisible=DELETE)))
    assert (offer.divisible, offer.machine_id, offer.disk_gb, offer.gpu_ids) == (False, None, None, None)


def test_rejected_rows_are_named_by_provider_id_and_contract(tmp_path: Path) -> None:
    rows = [
        a_snapshot_row("1", gpus=0),
        a_snapshot_row("1", gpus=0, provider="own"),
        a_snapshot_row("1", gpus=0, contract="interruptible"),
        a_snapshot_row("1", gpus=0, provider=None),
    ]
    found = found_in(tmp_path, *rows)
    assert [row.offer_id for row in found.rejected] == ["vastai/1", "own/1", "vastai/1/interruptible", None]
