"""RunPod as the fake plays it: the REST v2 catalogue, and GraphQL beside it.

Stock words come from true counts of what fits; the answer holds no count. https://docs.runpod.io/api-reference-v2
"""

import re
from typing import Any, Final

from sutler.adapters.fake.clouds import runpod_graphql
from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.runpod_stock import TIERS, is_sold, pods
from sutler.adapters.fake.clouds.stock import machines_with, sold, word
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES
from sutler.adapters.fake.wire import Reply, Request, json_reply

GPUS_PATH: Final = "/v2/catalog/gpus"
GRAPHQL_PATH: Final = "/graphql"
PROBLEM: Final = "application/problem+json"
RATE_HEADERS: Final = {
    "RateLimit-Policy": '"minute";q=60;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400',
    "RateLimit": '"minute";r=58;t=37, "hour";r=2960;t=2100, "day";r=49500;t=40000',
}
_PRODUCTS: Final = frozenset({"POD", "CLUSTER", "SERVERLESS"})
_TITLES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_POOLS: Final = {"rtx-4090": "ADA_24", "l40s": "ADA_48_PRO", "h100-sxm": "HOPPER_80", "h200-sxm": "HOPPER_141"}


def _catalog(request: Request, view: MarketInstant) -> Reply:
    query = request.query
    if ("include" in query) != ("product" in query):
        missing, given = ("product", "include") if "include" in query else ("include", "product")
        return _refuse(request.path, 400, f"{missing} is required with {given}")
    cloud, count = query.get("cloud", "SECURE"), query.get("count", "1")
    products = set(query.get("product", "POD").split(","))
    if (
        cloud not in {"SECURE", "COMMUNITY"}
        or not products <= _PRODUCTS
        or query.get("include", "AVAILABILITY") != "AVAILABILITY"
    ):
        return _refuse(request.path, 422, "cloud, product or include has a value that is not in its enum")
    if not re.fullmatch("[1-9][0-9]?", count):
        return _refuse(request.path, 422, "count must be a whole number from 1")
    countries = frozenset(query["countryCodes"].split(",")) if query.get("countryCodes") else None
    rows = [_row(gpu, view) for gpu in sold("runpod")]
    if "include" in query:
        for row, gpu in zip(rows, sold("runpod"), strict=True):
            row.update(_availability(gpu, view, cloud.lower(), int(count), countries))
    return json_reply({"gpus": rows}, headers=RATE_HEADERS)


def _row(gpu: GpuModel, view: MarketInstant) -> dict[str, Any]:
    offered = {tier: is_sold(view, gpu, tier) for tier in TIERS}
    listed = {tier: view.market.list_price("runpod", tier, gpu, view.at_s) for tier in TIERS}
    return {
        "id": gpu.full_name,
        "name": runpod_graphql.display_name(gpu),
        "pool": _POOLS.get(gpu.slug),
        "manufacturer": "NVIDIA",
        "memory": gpu.memory_gb,
        **offered,
        "price": {tier: listed[tier] if offered[tier] else 0 for tier in TIERS},
        "maxCount": dict.fromkeys(TIERS, 8),
    }


def _availability(
    gpu: GpuModel, view: MarketInstant, tier: str, count: int, countries: frozenset[str] | None
) -> dict[str, Any]:
    centres = {}
    for place in PLACES["runpod"]:
        if place.tier == tier and (countries is None or place.country in countries):
            centres[place.region] = pods(view, gpu, count, tier=tier, region=place.region)
    found: dict[str, Any] = {"availability": word(sum(centres.values())).upper()}
    if any(centres.values()):
        listed = [(region, free) for region, free in centres.items() if free]
        found["dataCenters"] = [
            {"id": region, "name": region, "availability": word(free).upper()} for region, free in listed
        ]
    has_any = bool(machines_with(view, "runpod", gpu))
    return {**found, "cudaVersions": [{"version": version, "available": has_any} for version in ("12.8", "12.6")]}


def _refuse(path: str, status: int, message: str) -> Reply:
    if path == GRAPHQL_PATH:
        return runpod_graphql.refuse(status, message)
    return json_reply(
        {"title": _TITLES.get(status, "Error"), "status": status, "detail": message}, status, kind=PROBLEM
    )


CLOUD: Final = Cloud(
    name="runpod",
    title="RunPod",
    routes={("GET", GPUS_PATH): _catalog, ("POST", GRAPHQL_PATH): runpod_graphql.answer},
    refuse=_refuse,
    key_of=lambda request: request.bearer() or request.query.get("api_key", ""),
    row_shapes={
        GPUS_PATH: RowShape(
            ("gpus",),
            ("id",),
            (("price", "secure"), ("price", "community")),
            id=None,
            memory=("memory",),
            is_for_rent=lambda row: row.get("availability", "NONE") != "NONE",
        ),
        GRAPHQL_PATH: RowShape(
            ("data", "gpuTypes"), ("id",), (("securePrice",), ("communityPrice",)), id=None, memory=("memoryInGb",)
        ),
    },
)
