"""Vast.ai: what a row states of machine, host, listing and traffic; what cannot be read costs no row."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sutler.adapters.base import Offer
from sutler.adapters.cuda import NEWEST_CUDA, cuda_of_driver
from tests.adapters.builders import DELETE, NOON_EPOCH_S, only_offer, vast_poll, vast_row

MACHINE: dict[str, Any] = {"cpu_cores": 96, "cpu_cores_effective": 24.0, "cpu_ram": 515_000, "gpu_frac": 0.5}
STATED: dict[str, Any] = {
    "inet_up": 800.0,
    "inet_up_cost": 0.002,
    "inet_down_cost": 0.001,
    "compute_cap": 890,
    "driver_version": "570.124.04",
    **MACHINE,
}
NEW_FIELDS = (*STATED, "host_id", "verification", "verified")


def stated(**changes: Any) -> Offer:
    return only_offer(vast_poll(vast_row(**{**STATED, **changes})))


def test_what_a_row_states_is_in_the_offer_in_its_units() -> None:
    found = stated()
    assert (found.inet_up_gb_per_s, found.inet_down_usd_per_gb, found.inet_up_usd_per_gb) == (0.1, 0.001, 0.002)
    assert (found.ram_gb, found.cpu_cores, found.compute_capability) == (128.75, 24.0, 8.9)
    assert (found.host_id, found.is_verified, found.cuda_max) == ("88", True, 12.8)


@pytest.mark.parametrize("odd", [DELETE, None, "N/A", "", -1, "NaN", float("inf"), 1e30, [], {}, True])
@pytest.mark.parametrize("field", NEW_FIELDS)
def test_what_cannot_be_read_of_a_new_field_costs_no_row(field: str, odd: object) -> None:
    found = vast_poll(vast_row(**{**STATED, field: odd}))
    assert (found.kept, found.rejected) == (1, ())


@pytest.mark.parametrize("odd", [DELETE, None, "N/A", -1, "NaN", 1e30, 0])
def test_figures_of_the_machine_that_cannot_be_are_not_stated(odd: object) -> None:
    found = stated(cpu_ram=odd, cpu_cores=odd, cpu_cores_effective=odd, compute_cap=odd)
    assert (found.ram_gb, found.cpu_cores, found.compute_capability) == (None, None, None)


def test_traffic_may_be_free() -> None:
    found = stated(inet_up_cost=0, inet_down_cost="0.0")
    assert (found.inet_up_usd_per_gb, found.inet_down_usd_per_gb) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("machine", "ram_gb", "cpu_cores"),
    [
        ({}, 128.75, 24.0),
        ({"cpu_cores": None}, 257.5, 24.0),
        ({"cpu_cores": 0}, 257.5, 24.0),
        ({"cpu_cores_effective": None}, 257.5, 48.0),
        ({"cpu_cores_effective": None, "gpu_frac": None}, 515.0, 96.0),
        ({"cpu_cores_effective": None, "gpu_frac": 4}, 515.0, 96.0),
        ({"cpu_cores_effective": 128.0}, 515.0, 128.0),
    ],
)
def test_ram_is_shared_out_like_the_cores_or_else_like_the_gpus(
    machine: dict[str, Any], ram_gb: float, cpu_cores: float
) -> None:
    found = stated(**machine)
    assert (found.ram_gb, found.cpu_cores) == (ram_gb, cpu_cores)


@pytest.mark.parametrize(
    ("words", "is_verified"),
    [
        ({"verification": "verified"}, True),
        ({"verification": " Unverified "}, False),
        ({"verification": "unverified", "verified": True}, False),
        ({"verification": DELETE, "verified": True}, True),
        ({"verification": None, "verified": "false"}, False),
        ({"verification": "in review"}, None),
        ({"verification": DELETE}, None),
    ],
)
def test_a_host_is_verified_by_its_word_or_else_by_its_flag(words: dict[str, Any], is_verified: bool | None) -> None:
    assert stated(**words).is_verified is is_verified


@pytest.mark.parametrize(
    ("ends", "left_s"),
    [
        ({}, 86_400.0),
        ({"end_date": NOON_EPOCH_S + 50.0}, 50.0),
        ({"duration": 70.0}, 70.0),
        ({"end_date": None, "duration": 1e30}, None),
        ({"end_date": 1e15, "duration": None}, None),
        ({"end_date": 1e15, "duration": 90.0}, 90.0),
        ({"end_date": DELETE, "duration": DELETE}, None),
    ],
)
def test_a_listing_ends_at_its_date_or_when_its_time_is_over(ends: dict[str, Any], left_s: float | None) -> None:
    expected = None if left_s is None else datetime.fromtimestamp(NOON_EPOCH_S + left_s, UTC)
    assert stated(**ends).listed_until == expected


def test_a_row_that_is_rented_needs_no_readable_end() -> None:
    found = vast_poll(vast_row(rented=True, end_date="soon"))
    assert (found.rejected, found.not_available) == ((), {"rented": 1})


@pytest.mark.parametrize(
    ("cuda", "driver", "cuda_max"),
    [
        (12.4, "570.124.04", 12.4),
        (None, "570.124.04", 12.8),
        (0, "550.54.14", 12.4),
        (DELETE, "572.16", 12.8),
        (DELETE, "999.1.1", NEWEST_CUDA[590]),
        (DELETE, "390.48", None),
        (DELETE, "570", None),
        (DELETE, "nouveau", None),
        (DELETE, 570, None),
        (DELETE, DELETE, None),
    ],
)
def test_cuda_is_as_stated_or_else_that_of_the_driver(cuda: object, driver: object, cuda_max: float | None) -> None:
    assert stated(cuda_max_good=cuda, driver_version=driver).cuda_max == cuda_max


def test_newer_branches_run_newer_versions() -> None:
    assert sorted(NEWEST_CUDA, reverse=True) == list(NEWEST_CUDA)
    assert sorted(NEWEST_CUDA.values(), reverse=True) == list(NEWEST_CUDA.values())
    assert cuda_of_driver(None) is None
