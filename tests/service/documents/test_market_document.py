"""The market snapshot: what is optional, what offers must agree on, what is refused."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.validation import validate
from tests.service.builders import DELETE, Path, a_snapshot, an_offer, changed

WHOLE_OFFER: dict[str, Any] = {
    "provider": "vastai",
    "offer_id": "123",
    "machine_id": "77",
    "machine_gpus": 8,
    "site": "vastai/host-9",
    "region": "US-TX",
    "gpu": "h100-sxm",
    "gpus": 4,
    "available": 1,
    "divisible": False,
    "price_usd_per_hour": 9.05,
    "contract": "on_demand",
    "reliability_fraction": 0.993,
    "intra_machine_gb_per_s": 450,
    "inter_machine_gb_per_s": 0.0,
    "gpu_ids": [1, 2, 3, 4],
    "disk_gb": 500,
    "disk_included_gb": 8,
    "disk_usd_per_gb_month": 0.1,
    "inet_down_gb_per_s": 0.1,
    "cuda_max": 12.8,
    "open_ports": 10,
    "observed_at": "2026-11-20T11:59:40Z",
}
REQUIRED = {"provider", "offer_id", "gpu", "gpus", "available", "price_usd_per_hour", "contract"}
OFFER = ("offers", 0)

WRONG: list[tuple[Path, object, str, str]] = [
    (("schema",), "sutler/market/v2", "schema", "'sutler/market/v1'"),
    (("taken_at",), DELETE, "taken_at", "is missing"),
    (("taken_at",), "yesterday", "taken_at", "must be a time such as"),
    (("taken_at",), 1_795_000_000, "taken_at", "must be a time such as"),
    (("taken_at",), "1795000000", "taken_at", "must be a time such as"),
    (("taken_at",), "2026-11-20T12:00:00", "taken_at", "time zone"),
    (("offers",), [], "offers", "must not be empty"),
    (("offers",), DELETE, "offers", "is missing"),
    ((*OFFER, "price_usd_per_hour"), -1e-9, "offers[0].price_usd_per_hour", "at least 0"),
    ((*OFFER, "price_usd_per_hour"), -1, "offers[0].price_usd_per_hour", "at least 0"),
    ((*OFFER, "price_usd_per_hour"), float("nan"), "offers[0].price_usd_per_hour", "finite"),
    ((*OFFER, "price_usd_per_hour"), "9.05", "offers[0].price_usd_per_hour", "remove the quotes"),
    ((*OFFER, "price_usd_per_hour"), None, "offers[0].price_usd_per_hour", "must be a number"),
    ((*OFFER, "gpus"), 0, "offers[0].gpus", "at least 1"),
    ((*OFFER, "gpus"), 4.5, "offers[0].gpus", "whole number"),
    ((*OFFER, "gpus"), 10**9, "offers[0].gpus", "at most 1024"),
    ((*OFFER, "available"), -1, "offers[0].available", "at least 0"),
    ((*OFFER, "available"), 2, "offers[0].available", "must be 1 where machine_id is given"),
    ((*OFFER, "gpu_ids"), [1, 2, 3], "offers[0].gpu_ids", "has 3 cards for gpus: 4"),
    ((*OFFER, "gpu_ids"), [1, 2, 3, 3], "offers[0].gpu_ids", "card 3 is named twice"),
    ((*OFFER, "gpu_ids"), [-1, 2, 3, 4], "offers[0].gpu_ids[0]", "at least 0"),
    ((*OFFER, "contract"), "barter", "offers[0].contract", "'interruptible'"),
    ((*OFFER, "reliability_fraction"), 99.3, "offers[0].reliability_fraction", "at most 1"),
    ((*OFFER, "provider"), "a\nb", "offers[0].provider", "control characters"),
    ((*OFFER, "gpu"), "", "offers[0].gpu", "must not be empty"),
    ((*OFFER, "disk"), 5, "offers[0].disk", "did you mean disk_gb?"),
]


@pytest.mark.parametrize(("path", "value", "field", "remedy"), WRONG)
def test_a_wrong_field_is_named_with_its_remedy(path: Path, value: object, field: str, remedy: str) -> None:
    [(found, said)] = problems_of(changed(a_snapshot(WHOLE_OFFER), path, value))
    assert found == field
    assert remedy in said


def problems_of(document: object) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        validate(MarketDocument, document)
    return [(problem.field, problem.remedy) for problem in caught.value.problems]


@pytest.mark.parametrize("field", sorted(set(WHOLE_OFFER) - REQUIRED))
def test_every_other_field_of_an_offer_can_be_left_out(field: str) -> None:
    document = validate(MarketDocument, changed(a_snapshot(WHOLE_OFFER), (*OFFER, field), DELETE))
    assert document.offers[0].gpus == 4


@pytest.mark.parametrize("field", sorted(REQUIRED))
def test_a_required_field_of_an_offer_is_missed_by_name(field: str) -> None:
    [(found, said)] = problems_of(changed(a_snapshot(WHOLE_OFFER), (*OFFER, field), DELETE))
    assert found == f"offers[0].{field}"
    assert said.startswith("is missing")


def test_one_id_under_two_contracts_is_two_offers() -> None:
    snapshot = a_snapshot(an_offer(), an_offer(contract="interruptible", price_usd_per_hour=5.0))
    assert len(validate(MarketDocument, snapshot).offers) == 2


def test_one_key_twice_is_refused() -> None:
    [(field, remedy)] = problems_of(a_snapshot(an_offer(), an_offer(gpus=2)))
    assert field == "offers[1].offer_id"
    assert "offers[0] has the same provider, offer_id and contract" in remedy


@pytest.mark.parametrize(("field", "other"), [("gpu", "a100-pcie-80gb"), ("machine_gpus", 7)])
def test_offers_of_one_machine_must_agree(field: str, other: object) -> None:
    second = {**WHOLE_OFFER, "offer_id": "124", field: other}
    [(found, remedy)] = problems_of(a_snapshot(WHOLE_OFFER, second))
    assert found == f"offers[1].{field}"
    assert "offers of one machine must agree" in remedy


def test_machines_of_two_providers_may_share_an_id() -> None:
    second = {**WHOLE_OFFER, "provider": "runpod", "machine_gpus": 4}
    assert len(validate(MarketDocument, a_snapshot(WHOLE_OFFER, second)).offers) == 2
