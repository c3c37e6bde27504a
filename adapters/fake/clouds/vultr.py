"""Vultr as the fake plays it: cloud GPU plans at hourly prices, and region by region the plans that are available.

https://www.vultr.com/api/
"""

from functools import partial
from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.stock import INSTANCE_SIZES, fitting, machines_at, sold
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES, Place
from sutler.adapters.fake.wire import Reply, Request, json_reply

PLANS_PATH: Final = "/v2/plans"
PREEMPTIBLE_FACTOR: Final = 0.8  # invented
_NAMES: Final = {
    "b200": "NVIDIA_B200",
    "h100-sxm": "NVIDIA_H100",
    "a100-pcie-80gb": "NVIDIA_A100_PCIE",
    "l40s": "NVIDIA_L40S",
    "a40": "NVIDIA_A40",
}


def _plans(_: Request, view: MarketInstant) -> Reply:
    whole = [_plan(gpu, gpus, view) for gpu in sold("vultr") for gpus in INSTANCE_SIZES]
    plans = [*whole, _part_of(_plan(sold("vultr")[-1], 1, view))]
    return json_reply({"plans": plans, "meta": {"total": len(plans), "links": {"next": "", "prev": ""}}})


def _plan(gpu: GpuModel, gpus: int, view: MarketInstant) -> dict[str, Any]:
    price = round(view.market.list_price("vultr", "", gpu, view.at_s) * gpus, 3)
    return {
        "id": plan_id(gpu, gpus),
        "vcpu_count": 12 * gpus,
        "ram": 122_880 * gpus if gpu.memory_gb <= 80 else 245_760 * gpus,
        "disk": 1400,
        "disk_count": gpus,
        "bandwidth": 10_240,
        "monthly_cost": round(price * 672, 2),
        "hourly_cost": price,
        "monthly_cost_preemptible": round(price * 672 * PREEMPTIBLE_FACTOR, 2),
        "hourly_cost_preemptible": round(price * PREEMPTIBLE_FACTOR, 3),
        "type": "vcg",
        "locations": [place.region for place in PLACES["vultr"]],
        "location_cost": {},
        "deploy_ondemand": True,
        "deploy_preemptible": gpu.slug == "b200",
        "gpu_brand": "NVIDIA",
        "gpu_type": _NAMES[gpu.slug],
        "gpu_count": gpus,
        "gpu_vram_gb": gpu.memory_gb * gpus,
    }


def _part_of(plan: dict[str, Any]) -> dict[str, Any]:
    vram_gb = plan["gpu_vram_gb"] // 8
    return {**plan, "id": f"{plan['id']}-slice", "gpu_count": "1/8", "gpu_vram_gb": vram_gb}


def plan_id(gpu: GpuModel, gpus: int) -> str:
    """Card, cores and memory: vcg-h100-sxm-96c-640vram is of this kind."""
    return f"vcg-{gpu.slug}-{12 * gpus}c-{gpu.memory_gb * gpus}vram"


def _availability(_: Request, view: MarketInstant, *, place: Place) -> Reply:
    there = {gpu: machines_at(view, "vultr", gpu, place) for gpu in sold("vultr")}
    found = [plan_id(gpu, gpus) for gpu, states in there.items() for gpus in INSTANCE_SIZES if fitting(states, gpus)]
    return json_reply({"available_plans": found})


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"error": message, "status": status}, status)


CLOUD: Final = Cloud(
    name="vultr",
    title="Vultr",
    routes={
        ("GET", PLANS_PATH): _plans,
        **{
            ("GET", f"/v2/regions/{place.region}/availability"): partial(_availability, place=place)
            for place in PLACES["vultr"]
        },
    },
    refuse=_refuse,
    key_of=lambda request: request.bearer(),
    row_shapes={
        PLANS_PATH: RowShape(
            ("plans",),
            ("gpu_type",),
            (("hourly_cost",),),
            memory=("gpu_vram_gb",),
            is_for_rent=lambda row: row["gpu_count"] == 1,
        )
    },
)
