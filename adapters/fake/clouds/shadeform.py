"""Shadeform as the fake plays it: what other clouds sell, and machines of clouds that only it knows, in cents.

https://docs.shadeform.ai/api-reference/instances/instances-types
"""

from collections.abc import Iterator
from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.stock import INSTANCE_SIZES, fitting, machines_at, sold
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES, Place
from sutler.adapters.fake.wire import Reply, Request, json_reply

TYPES_PATH: Final = "/v1/instances/types"
RESOLD: Final = (("lambdalabs", "lambda"), ("hyperstack", "hyperstack"))  # its name of a cloud, and ours
_NAMES: Final = {
    "b200": ("B200", "sxm6"),
    "h200-sxm": ("H200", "sxm5"),
    "h100-sxm": ("H100", "sxm5"),
    "h100-pcie": ("H100", "pcie"),
    "a100-sxm4-80gb": ("A100_80G", "sxm4"),
    "a100-pcie-80gb": ("A100_80G", "pcie"),
    "l40s": ("L40S", "pcie"),
    "l40": ("L40", "pcie"),
    "rtx-a6000": ("A6000", "pcie"),
}


def _types(request: Request, view: MarketInstant) -> Reply:
    types = list(_all_types(view))
    query = request.query
    if query.get("gpu_type"):
        types = [each for each in types if each["configuration"]["gpu_type"] == query["gpu_type"]]
    if query.get("num_gpus"):
        types = [each for each in types if str(each["configuration"]["num_gpus"]) == query["num_gpus"]]
    if query.get("cloud"):
        types = [each for each in types if each["cloud"] == query["cloud"]]
    if query.get("available", "").lower() == "true":
        types = [each for each in types if any(region["available"] for region in each["availability"])]
    if query.get("sort") == "price":
        types.sort(key=lambda each: each["hourly_price"])
    return json_reply({"instance_types": types})


def _all_types(view: MarketInstant) -> Iterator[dict[str, Any]]:
    for seller in sorted({place.tier for place in PLACES["shadeform"]}):
        places = tuple(place for place in PLACES["shadeform"] if place.tier == seller)
        yield from _types_of(view, seller, "shadeform", seller, places)
    for seller, provider in RESOLD:
        yield from _types_of(view, seller, provider, "", PLACES[provider])


def _types_of(
    view: MarketInstant, seller: str, provider: str, tier: str, places: tuple[Place, ...]
) -> Iterator[dict[str, Any]]:
    for gpu in sold(provider):
        cents_per_gpu = view.market.list_price(provider, tier, gpu, view.at_s) * 100
        stock = {place: machines_at(view, provider, gpu, place) for place in places}
        for gpus in INSTANCE_SIZES:
            regions = [
                {"region": place.region, "available": fitting(there, gpus) > 0, "display_name": place.title}
                for place, there in stock.items()
            ]
            yield _type(gpu, gpus, seller, round(cents_per_gpu * gpus), regions)


def _type(gpu: GpuModel, gpus: int, seller: str, cents: int, regions: list[dict[str, Any]]) -> dict[str, Any]:
    short, link = _NAMES[gpu.slug]
    shared = {
        "gpu_type": short,
        "interconnect": link,
        "nvlink": gpu.nvlink_gb_per_s > 0 and gpus > 1,
        "num_gpus": gpus,
        "memory_in_gb": (128 if gpu.memory_gb <= 80 else 240) * gpus,
        "storage_in_gb": 750 * gpus,
        "vcpus": 20 * gpus,
    }
    return {
        **shared,
        "cloud": seller,
        "region": regions[0]["region"],
        "shade_instance_type": f"{short}x{gpus}" if link == "pcie" else f"{short}_{link}x{gpus}",
        "cloud_instance_type": f"gpu_{gpus}x_{short.lower()}_{link}",
        "configuration": {
            **shared,
            "gpu_manufacturer": "nvidia",
            "vram_per_gpu_in_gb": gpu.memory_gb,
            "os_options": ["ubuntu22.04_cuda12.8_shade_os"],
        },
        "hourly_price": cents,
        "deployment_type": "vm",
        "availability": regions,
        "boot_time": {"min_boot_in_sec": 180, "max_boot_in_sec": 300},
    }


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"error": message}, status)


CLOUD: Final = Cloud(
    name="shadeform",
    title="Shadeform",
    routes={("GET", TYPES_PATH): _types},
    refuse=_refuse,
    key_of=lambda request: request.headers.get("x-api-key", ""),
    row_shapes={
        TYPES_PATH: RowShape(
            ("instance_types",),
            ("configuration", "gpu_type"),
            (("hourly_price",),),
            id="shade_instance_type",
            memory=("configuration", "vram_per_gpu_in_gb"),
            is_for_rent=lambda row: any(region["available"] for region in row["availability"]),
        )
    },
)
