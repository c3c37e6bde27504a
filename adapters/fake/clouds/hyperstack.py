"""Hyperstack as the fake plays it: stocks with counts per size, flavors, and a price book per GPU.

https://docs.hyperstack.cloud/docs/api-reference
"""

from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.stock import INSTANCE_SIZES, fitting, machines_at, sold
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES, Place
from sutler.adapters.fake.wire import Reply, Request, json_reply

STOCKS_PATH: Final = "/v1/core/stocks"
FLAVORS_PATH: Final = "/v1/core/flavors"
PRICEBOOK_PATH: Final = "/v1/pricebook"
MOST_SHOWN: Final = 200  # Hyperstack shows "200+" beyond
_NAMES: Final = {
    "h200-sxm": "H200-141G-SXM5",
    "h100-sxm": "H100-80G-SXM5",
    "h100-pcie": "H100-80G-PCIe",
    "a100-pcie-80gb": "A100-80G-PCIe",
    "l40": "L40",
    "rtx-a6000": "RTX-A6000",
}
_REASONS: Final = {400: "bad_request", 401: "unauthorized", 429: "too_many_requests"}


def _stocks(_: Request, view: MarketInstant) -> Reply:
    stocks = [
        {
            "region": place.region,
            "stock-type": "GPU",
            "models": [_model(gpu, place, view) for gpu in sold("hyperstack")],
        }
        for place in PLACES["hyperstack"]
    ]
    return json_reply({"status": True, "message": "Fetched stocks", "stocks": stocks})


def _model(gpu: GpuModel, place: Place, view: MarketInstant) -> dict[str, Any]:
    fits = _fits(gpu, place, view)
    free = fits[1]
    return {
        "model": _NAMES[gpu.slug],
        "available": f"{MOST_SHOWN}+" if free > MOST_SHOWN else str(free),
        "planned_7_days": None,
        "planned_30_days": None,
        "planned_100_days": None,
        "configurations": {**{f"{gpus}x": count for gpus, count in fits.items()}, "10x": 0},
    }


def _fits(gpu: GpuModel, place: Place, view: MarketInstant) -> dict[int, int]:
    there = machines_at(view, "hyperstack", gpu, place)
    return {gpus: fitting(there, gpus) for gpus in INSTANCE_SIZES}


def _flavors(request: Request, view: MarketInstant) -> Reply:
    wanted = request.query.get("region")
    places = [place for place in PLACES["hyperstack"] if wanted in {None, "", place.region}]
    data = [_flavor_group(gpu, place, view) for gpu in sold("hyperstack") for place in places]
    return json_reply({"status": True, "message": "Fetched flavors", "data": data})


def _flavor_group(gpu: GpuModel, place: Place, view: MarketInstant) -> dict[str, Any]:
    name = _NAMES[gpu.slug]
    first_id = 1 + 100 * tuple(_NAMES).index(gpu.slug) + 10 * PLACES["hyperstack"].index(place)
    flavors: list[dict[str, Any]] = [
        {
            "id": first_id + index,
            "name": f"n3-{name}x{gpus}",
            "display_name": None,
            "region_name": place.region,
            "cpu": 28 * gpus,
            "ram": 180.0 * gpus,
            "disk": 100,
            "ephemeral": 750 * gpus,
            "gpu": name,
            "gpu_count": gpus,
            "stock_available": count > 0,
            "created_at": "2026-01-05T10:00:00",
            "labels": [],
            "features": {},
        }
        for index, (gpus, count) in enumerate(_fits(gpu, place, view).items())
    ]
    return {"gpu": name, "region_name": place.region, "flavors": flavors}


def _pricebook(_: Request, view: MarketInstant) -> Reply:
    listed = [
        (_NAMES[gpu.slug], view.market.list_price("hyperstack", "", gpu, view.at_s)) for gpu in sold("hyperstack")
    ]
    other = [("vCPU (cpu-only-flavors)", 0.01), ("Public IP", 0.00672), ("Cloud-SSD Storage", 0.000097)]
    return json_reply([_price(index, name, usd) for index, (name, usd) in enumerate([*listed, *other], start=1)])


def _price(number: int, name: str, usd: float) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "value": usd,
        "original_value": usd,
        "discount_applied": False,
        "start_time": None,
        "end_time": None,
    }


def _refuse(_: str, status: int, message: str) -> Reply:
    body = {"status": False, "message": message, "error_reason": _REASONS.get(status, "server_error")}
    return json_reply(body, status)


CLOUD: Final = Cloud(
    name="hyperstack",
    title="Hyperstack",
    routes={("GET", STOCKS_PATH): _stocks, ("GET", FLAVORS_PATH): _flavors, ("GET", PRICEBOOK_PATH): _pricebook},
    refuse=_refuse,
    key_of=lambda request: request.headers.get("api_key", ""),
    row_shapes={
        STOCKS_PATH: RowShape(
            ("stocks", "0", "models"),
            ("model",),
            (("configurations", "1x"),),
            id=None,
            is_for_rent=lambda row: row["configurations"]["1x"] > 0,
        )
    },
)
