"""Lambda as the fake plays it: instance types in whole cents, with the regions that have some.

https://docs.lambda.ai/api/cloud
"""

from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.stock import INSTANCE_SIZES, fitting, machines_at, sold
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES
from sutler.adapters.fake.wire import Reply, Request, json_reply

TYPES_PATH: Final = "/api/v1/instance-types"
_NAMES: Final = {
    "b200": ("b200_sxm6", "B200 (180 GB SXM6)"),
    "h100-sxm": ("h100_sxm5", "H100 (80 GB SXM5)"),
    "h100-pcie": ("h100_pcie", "H100 (80 GB PCIe)"),
    "rtx-a6000": ("a6000", "A6000 (48 GB)"),
}
_CODES: Final = {401: "global/invalid-api-key", 400: "global/invalid-parameters", 429: "global/too-many-requests"}


def _types(_: Request, view: MarketInstant) -> Reply:
    types = {"cpu_4x_general": _cpu_type()}
    for gpu in sold("lambda"):
        for gpus in INSTANCE_SIZES:
            types[f"gpu_{gpus}x_{_NAMES[gpu.slug][0]}"] = _type(gpu, gpus, view)
    return json_reply({"data": types})


def _type(gpu: GpuModel, gpus: int, view: MarketInstant) -> dict[str, Any]:
    own, described = _NAMES[gpu.slug]
    regions = [
        {"name": place.region, "description": place.title}
        for place in PLACES["lambda"]
        if fitting(machines_at(view, "lambda", gpu, place), gpus)
    ]
    cents = round(view.market.list_price("lambda", "", gpu, view.at_s) * gpus * 100)
    specs = {"vcpus": 26 * gpus, "memory_gib": 200 * gpus, "storage_gib": 1024 * gpus, "gpus": gpus}
    return _entry(f"gpu_{gpus}x_{own}", f"{gpus}x {described}", described, cents, specs, regions)


def _cpu_type() -> dict[str, Any]:
    specs = {"vcpus": 4, "memory_gib": 16, "storage_gib": 64, "gpus": 0}
    return _entry("cpu_4x_general", "4x CPU General", "N/A", 20, specs, [])


def _entry(
    name: str,
    description: str,
    gpu_description: str,
    cents: int,
    specs: dict[str, int],
    regions: list[dict[str, str]],
) -> dict[str, Any]:
    return {
        "instance_type": {
            "name": name,
            "description": description,
            "gpu_description": gpu_description,
            "price_cents_per_hour": cents,
            "specs": specs,
        },
        "regions_with_capacity_available": regions,
    }


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"error": {"code": _CODES.get(status, "global/internal-error"), "message": message}}, status)


CLOUD: Final = Cloud(
    name="lambda",
    title="Lambda",
    routes={("GET", TYPES_PATH): _types},
    refuse=_refuse,
    key_of=lambda request: request.bearer(),
    row_shapes={
        TYPES_PATH: RowShape(
            ("data",),
            ("instance_type", "gpu_description"),
            (("instance_type", "price_cents_per_hour"),),
            id=None,
            is_for_rent=lambda row: bool(row["regions_with_capacity_available"]),
        )
    },
)
