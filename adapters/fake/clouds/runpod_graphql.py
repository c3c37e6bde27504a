"""RunPod's GraphQL as the fake plays it: GPU types with their lowest price, which is all that sutler asks.

https://graphql-spec.runpod.io
"""

from collections.abc import Mapping
from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.clouds.graphql import QueryError, execute
from sutler.adapters.fake.clouds.runpod_stock import TIERS, is_sold, pods
from sutler.adapters.fake.clouds.stock import sold, word
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.wire import Reply, Request, json_reply

POD_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_DISPLAY_NAMES: Final = {
    "h200-sxm": "H200 SXM",
    "h100-pcie": "H100 PCIe",
    "a100-sxm4-80gb": "A100 SXM",
    "a100-pcie-80gb": "A100 PCIe",
    "rtx-6000-ada": "RTX 6000 Ada",
}
_PRICE_INPUT: Final = frozenset(
    {
        "gpuCount",
        "secureCloud",
        "dataCenterId",
        "countryCode",
        "minDisk",
        "minMemoryInGb",
        "minVcpuCount",
        "minCudaVersion",
        "allowedCudaVersions",
        "minDownload",
        "minUpload",
        "supportPublicIp",
        "globalNetwork",
    }
)


def answer(request: Request, view: MarketInstant) -> Reply:
    """Status 400 with a list of errors for what does not fit the schema."""
    asked = request.data()
    if not isinstance(asked, dict):
        return refuse(400, "POST body missing, invalid Content-Type, or JSON object has no keys.")
    try:
        return json_reply({"data": execute(asked.get("query"), asked.get("variables"), _root(view))})
    except QueryError as error:
        return refuse(400, str(error))


def refuse(status: int, message: str) -> Reply:
    code = {400: "GRAPHQL_VALIDATION_FAILED", 401: "UNAUTHENTICATED"}.get(status, "RUNPOD")
    return json_reply({"errors": [{"message": message, "extensions": {"code": code}}]}, status)


def display_name(gpu: GpuModel) -> str:
    return _DISPLAY_NAMES.get(gpu.slug, gpu.name)


def _root(view: MarketInstant) -> dict[str, Any]:
    def gpu_types(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        wanted = _input(arguments, frozenset({"id", "ids", "cluster"}))
        ids = wanted.get("ids") or ([wanted["id"]] if wanted.get("id") else None)
        if ids is not None and not isinstance(ids, list):
            raise QueryError("Expected ids to be a list.")
        return [_gpu_type(gpu, view) for gpu in sold("runpod") if ids is None or gpu.full_name in ids]

    return {"gpuTypes": gpu_types}


def _gpu_type(gpu: GpuModel, view: MarketInstant) -> dict[str, Any]:
    listed = {
        tier: view.market.list_price("runpod", tier, gpu, view.at_s) if is_sold(view, gpu, tier) else None
        for tier in TIERS
    }
    secure, community = listed["secure"], listed["community"]
    months = ("oneWeekPrice", "oneMonthPrice", "threeMonthPrice", "sixMonthPrice", "oneYearPrice", "clusterPrice")
    return {
        "__typename": "GpuType",
        "id": gpu.full_name,
        "displayName": display_name(gpu),
        "manufacturer": "NVIDIA",
        "memoryInGb": gpu.memory_gb,
        "cudaCores": 0,
        "secureCloud": secure is not None,
        "communityCloud": community is not None,
        "securePrice": secure,
        "communityPrice": community,
        "secureSpotPrice": None if secure is None else round(secure * 0.55, 2),
        "communitySpotPrice": None if community is None else round(community * 0.6, 2),
        **dict.fromkeys(months),
        "throughput": None,
        "minPodGpuCount": 1,
        "maxGpuCountSecureCloud": 8,
        "maxGpuCountCommunityCloud": 8,
        "nodeGroupDatacenters": [],
        "lowestPrice": lambda arguments: _lowest_price(gpu, view, listed, arguments),
    }


def _lowest_price(
    gpu: GpuModel, view: MarketInstant, listed: Mapping[str, float | None], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    wanted = _input(arguments, _PRICE_INPUT)
    secure_only = wanted.get("secureCloud")
    tier = None if secure_only is None else "secure" if secure_only else "community"
    place = {"tier": tier, "region": wanted.get("dataCenterId"), "country": wanted.get("countryCode")}
    sizes = [size for size in POD_SIZES if pods(view, gpu, size, **place)]
    free = pods(view, gpu, _gpu_count(wanted), **place)
    prices = [price for name, price in listed.items() if price is not None and tier in {None, name}]
    price = min(prices, default=None) if free else None
    return {
        "__typename": "LowestPrice",
        "minimumBidPrice": None if price is None else round(price * 0.55, 2),
        "uninterruptablePrice": price,
        "minVcpu": 8 * _gpu_count(wanted) if free else None,
        "minMemory": round(1.5 * gpu.memory_gb) * _gpu_count(wanted) if free else None,
        "stockStatus": word(free) if free else None,
        "availableGpuCounts": sizes if free else None,
        "maxUnreservedGpuCount": max(sizes, default=0) if free else None,
        "countryCode": wanted.get("countryCode"),
        "compliance": None,
        "gpuName": display_name(gpu),
        "rentedCount": None,
        "totalCount": None,
        "rentalPercentage": None,
        "gpuTypeCudaVersions": [],
    }


def _gpu_count(wanted: Mapping[str, Any]) -> int:
    value = wanted.get("gpuCount", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 64:
        raise QueryError("Int cannot represent gpuCount: it must be a whole number from 1.")
    return value


def _input(arguments: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """The `input` of a field. Raises QueryError for names outside the schema."""
    unknown = [name for name in arguments if name != "input"]
    given = arguments.get("input") or {}
    if unknown or not isinstance(given, dict):
        raise QueryError(f'Unknown argument "{unknown[0] if unknown else "input"}".')
    for name in given:
        if name not in known:
            raise QueryError(f'Field "{name}" is not defined by the input type.')
    return given
