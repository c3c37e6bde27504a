"""Vast.ai's search rows: every slice of a machine's free cards, with the fields of the documented answer.

https://docs.vast.ai/api-reference/search/search-offers
"""

from collections.abc import Iterator
from typing import Any, Final

from sutler.adapters.fake.chance import between, bits, uniform
from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.market import FakeMachine, MachineState

SLICES: Final = (8, 4, 2, 1)
HOURS_PER_MONTH: Final = 720.0
USD_PER_GB_MONTH: Final = (0.1, 0.12, 0.15, 0.2)
_KEY: Final = 77  # sets the chance of these fields apart from that of the market
_DAY_S: Final = 86_400.0
# Invented: the shares of machines that rent well and serve badly.
WITHOUT_PORTS: Final = 0.03
WITH_AN_OLD_DRIVER: Final = 0.05
WITH_LITTLE_RAM: Final = 0.04
CUDA_OF_DRIVERS: Final = ((12.8, "570.172.08", 570172008), (12.4, "550.127.05", 550127005))


def rows(view: MarketInstant, *, is_bid: bool, storage_gb: float) -> Iterator[dict[str, Any]]:
    """Yields all slices that can be rented, and one row for each machine that is fully rented."""
    for state in view.states("vastai"):
        fixed = _fixed_fields(state, view)
        if not state.free:
            cards = tuple(range(state.machine.gpus))
            yield _row(fixed, state, cards, is_bid=is_bid, storage_gb=storage_gb, is_free=False)
        for cards in slices(state):
            yield _row(fixed, state, cards, is_bid=is_bid, storage_gb=storage_gb, is_free=True)


def slices(state: MachineState) -> Iterator[tuple[int, ...]]:
    """The overlapping offers of a machine: its free cards in groups of 8, 4, 2 and 1."""
    for size in SLICES:
        if size < min(state.machine.smallest_slice, state.machine.gpus):
            continue
        for first in range(0, len(state.free) - size + 1, size):
            yield state.free[first : first + size]


def _row(
    fixed: dict[str, Any],
    state: MachineState,
    cards: tuple[int, ...],
    *,
    is_bid: bool,
    storage_gb: float,
    is_free: bool,
) -> dict[str, Any]:
    machine, gpus = state.machine, len(cards)
    own_id = offer_id(state, cards)
    share = gpus / machine.gpus
    gpu_model = machine.gpu
    small_slice = 1.0 + 0.03 * (1.0 - share)
    bid = round(state.bid_usd_per_gpu_hour * gpus, 6)
    base = bid if is_bid else round(state.usd_per_gpu_hour * small_slice * gpus, 6)
    storage = fixed["storage_cost"] * storage_gb / HOURS_PER_MONTH
    total = round(base + storage, 8)
    return {
        **fixed,
        "id": own_id,
        "ask_contract_id": own_id,
        "bundle_id": bits(machine.number, gpus) % 2_000_000_000,
        "num_gpus": gpus,
        "gpu_ids": [100_000 + machine.number * 100 + card for card in cards],
        "gpu_total_ram": gpu_model.memory_mib * gpus,
        "gpu_frac": round(share, 6),
        "total_flops": round(gpu_model.fp32_tflops * gpus, 2),
        "dlperf": round(1.2 * gpu_model.fp32_tflops * gpus, 2),
        "cpu_cores_effective": round(fixed["cpu_cores"] * share, 1),
        "disk_space": round(fixed["disk_space"] * share, 1),
        "dph_base": base,
        "dph_total": total,
        "dph_total_adj": total,
        "discounted_dph_total": total,
        "storage_total_cost": round(storage, 8),
        "min_bid": bid,
        "is_bid": is_bid,
        "rentable": is_free,
        "rented": not is_free,
        "vram_costperhour": round(base / (gpu_model.memory_mib * gpus) * 1000, 8),
        "dlperf_per_dphtotal": round(1.2 * gpu_model.fp32_tflops * gpus / total, 3),
        "flops_per_dphtotal": round(gpu_model.fp32_tflops * gpus / total, 3),
        "score": round(gpu_model.fp32_tflops * gpus * machine.reliability_fraction / total, 3),
        "search": _bill(base, storage),
        "instance": _bill(0.0, storage),
    }


def offer_id(state: MachineState, cards: tuple[int, ...]) -> int:
    """Makes another id with each listing of the machine: at Vast.ai offers come and go, machines stay."""
    slice_number = SLICES.index(len(cards)) * 8 + cards[0] if len(cards) in SLICES else 99
    return (1 + state.listing % 900) * 2_000_000 + state.machine.number * 100 + slice_number


def _bill(gpu_usd_per_hour: float, disk_usd_per_hour: float) -> dict[str, float]:
    total = round(gpu_usd_per_hour + disk_usd_per_hour, 8)
    return {
        "gpuCostPerHour": gpu_usd_per_hour,
        "diskHour": round(disk_usd_per_hour, 8),
        "totalHour": total,
        "discountTotalHour": 0,
        "discountedTotalPerHour": total,
    }


def _fixed_fields(state: MachineState, view: MarketInstant) -> dict[str, Any]:
    """What all slices of a machine have in common."""
    machine = state.machine
    end_s = round(state.listed_until_s + view.shift_s)
    return {
        "bundled_results": None,
        "machine_id": 30_000 + machine.number,
        "host_id": 90_000 + machine.host,
        "cluster_id": None,
        "resource_type": "gpu",
        "external": None,
        **_gpu_fields(machine),
        **_computer_fields(machine),
        **_network_fields(machine),
        "storage_cost": USD_PER_GB_MONTH[bits(machine.host, _KEY, 1) % len(USD_PER_GB_MONTH)],
        "discount_rate": None,
        "discounted_hourly": 0.0,
        "credit_discount_max": 0.2,
        "reliability": machine.reliability_fraction,
        "reliability2": machine.reliability_fraction,
        "reliability_mult": round(machine.reliability_fraction**2, 4),
        "expected_reliability": 0.0,
        "verification": "verified" if machine.is_verified else "unverified",
        "vericode": 1 if machine.is_verified else 0,
        "hosting_type": 1 if machine.gpu.kind == "data_centre" else 0,
        "hostname": None,
        "geolocation": machine.place.region,
        "geolocode": bits(machine.host, _KEY, 2) % 900_000_000,
        "start_date": round(end_s - 90 * _DAY_S),
        "end_date": end_s,
        "duration": max(round(state.listed_until_s - view.at_s), 1),
        "logo": "/static/logos/none.png",
        "webpage": None,
        "time_remaining": "",
        "time_remaining_isbid": "",
    }


def _gpu_fields(machine: FakeMachine) -> dict[str, Any]:
    gpu = machine.gpu
    runs_old = gpu.compute_capability < 1000 and uniform(machine.number, _KEY, 12) < WITH_AN_OLD_DRIVER
    cuda, driver, driver_number = CUDA_OF_DRIVERS[runs_old]
    return {
        "gpu_name": gpu.name,
        "gpu_ram": gpu.memory_mib,
        "gpu_arch": "nvidia",
        "gpu_lanes": 16,
        "gpu_mem_bw": round(gpu.memory_gb_per_s * between(0.82, 0.95, machine.number, _KEY, 3), 1),
        "gpu_max_power": gpu.watts,
        "gpu_max_temp": round(between(55, 80, machine.number, _KEY, 4)),
        "gpu_display_active": False,
        "compute_cap": gpu.compute_capability,
        "cuda_max_good": cuda,
        "driver_version": driver,
        "driver_vers": driver_number,
        "bw_nvlink": gpu.nvlink_gb_per_s if machine.gpus > 1 else 0.0,
        "pci_gen": gpu.pcie_generation,
        "pcie_bw": round(between(0.7, 0.9, machine.number, _KEY, 5) * (52.0 if gpu.pcie_generation > 4 else 26.0), 1),
    }


def _computer_fields(machine: FakeMachine) -> dict[str, Any]:
    return {
        "cpu_name": "EPYC 9454 48-Core Processor",
        "cpu_arch": "amd64",
        "cpu_cores": 16 * max(machine.gpus, 2),
        "cpu_ghz": 3.8,
        "cpu_ram": (8_000 if uniform(machine.number, _KEY, 13) < WITH_LITTLE_RAM else 96_000) * max(machine.gpus, 2),
        "has_avx": 1,
        "disk_name": "nvme",
        "disk_space": round(between(600, 1600, machine.number, _KEY, 6) * machine.gpus, 1),
        "disk_bw": round(between(1500, 6000, machine.number, _KEY, 7), 1),
        "mobo_name": "ROME2D32GM",
        "os_version": "22.04",
        "vms_enabled": machine.gpu.kind == "data_centre",
        "is_vm_deverified": False,
    }


def _network_fields(machine: FakeMachine) -> dict[str, Any]:
    usd_per_tb = (1.0, 2.0, 3.0, 5.0)[bits(machine.host, _KEY, 8) % 4]
    return {
        "inet_down": round(between(400, 8000, machine.host, _KEY, 9), 1),
        "inet_up": round(between(300, 6000, machine.host, _KEY, 10), 1),
        "inet_down_cost": usd_per_tb / 1024,
        "inet_up_cost": usd_per_tb / 1024,
        "internet_down_cost_per_tb": usd_per_tb,
        "internet_up_cost_per_tb": usd_per_tb,
        "direct_port_count": 0
        if uniform(machine.number, _KEY, 14) < WITHOUT_PORTS
        else bits(machine.number, _KEY, 11) % 400,
        "static_ip": machine.gpu.kind == "data_centre",
        "public_ipaddr": f"198.51.100.{machine.host % 254 + 1}",
    }
