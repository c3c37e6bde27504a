"""Verda as the fake plays it: a token, instance types with prices as text, and where they are available.

https://api.verda.com/v1/docs
"""

from typing import Any, Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.clouds.stock import INSTANCE_SIZES, fitting, machines_at, sold
from sutler.adapters.fake.gpus import GpuModel
from sutler.adapters.fake.places import PLACES, Place
from sutler.adapters.fake.wire import Reply, Request, json_reply

TOKEN_PATH: Final = "/v1/oauth2/token"
TYPES_PATH: Final = "/v1/instance-types"
AVAILABILITY_PATH: Final = "/v1/instance-availability"
LOCATIONS_PATH: Final = "/v1/locations"
TOKEN: Final = "fake-verda-access-token"
EUR_PER_USD: Final = 0.9  # invented, as is the next
SPOT_FACTOR: Final = 0.4
_NAMES: Final = {
    "b200": ("B200", "B200 SXM6 180GB", 30),
    "h200-sxm": ("H200", "H200 SXM5 141GB", 44),
    "h100-sxm": ("H100", "H100 SXM5 80GB", 30),
    "a100-sxm4-80gb": ("A100", "A100 SXM4 80GB", 22),
    "l40s": ("L40S", "L40S 48GB", 20),
    "rtx-6000-ada": ("RTX6000ADA", "RTX 6000 Ada 48GB", 10),
}
_CODES: Final = {400: "invalid_request", 401: "unauthorized_request", 429: "too_many_requests"}


def _token(request: Request, _: MarketInstant) -> Reply:
    asked = request.data()
    if not isinstance(asked, dict) or asked.get("grant_type") != "client_credentials":
        return _refuse(request.path, 400, "grant_type must be client_credentials")
    if not asked.get("client_id") or not asked.get("client_secret"):
        return _refuse(request.path, 401, "Invalid client id or client secret")
    return json_reply({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600, "scope": "cloud-api-v1"})


def _types(request: Request, view: MarketInstant) -> Reply:
    currency = request.query.get("currency", "eur").lower()
    if currency not in {"usd", "eur"}:
        return _refuse(request.path, 400, "currency must be usd or eur")
    rate = 1.0 if currency == "usd" else EUR_PER_USD
    return json_reply([_type(gpu, gpus, view, rate, currency) for gpu in sold("verda") for gpus in INSTANCE_SIZES])


def _type(gpu: GpuModel, gpus: int, view: MarketInstant, rate: float, currency: str) -> dict[str, Any]:
    short, title, cores = _NAMES[gpu.slug]
    price = view.market.list_price("verda", "", gpu, view.at_s) * gpus * rate
    memory_gb = gpu.memory_gb * gpus
    ram_gb = (120 if gpu.memory_gb <= 80 else 185) * gpus
    return {
        "id": f"fake-{short.lower()}-{gpus}",
        "instance_type": type_name(gpu, gpus),
        "model": title.rpartition(" ")[0],
        "name": title,
        "description": f"Dedicated Hardware Instance, {gpus}x {title}",
        "best_for": ["Inference"],
        "price_per_hour": f"{price:.3f}",
        "spot_price": f"{price * SPOT_FACTOR:.3f}",
        "serverless_price": None,
        "currency": currency,
        "gpu": {"description": f"{gpus}x {title}", "number_of_gpus": gpus},
        "gpu_memory": {"description": f"{memory_gb}GB GPU RAM", "size_in_gigabytes": memory_gb},
        "cpu": {"description": f"{cores * gpus} CPU", "number_of_cores": cores * gpus},
        "memory": {"description": f"{ram_gb}GB RAM", "size_in_gigabytes": ram_gb},
        "p2p": "600 GB/s" if gpus > 1 and gpu.nvlink_gb_per_s else "",
        "storage": {"description": "dynamic"},
        "manufacturer": "NVIDIA",
        "display_name": title,
        "supported_os": ["ubuntu-24.04-cuda-12.8-open"],
    }


def type_name(gpu: GpuModel, gpus: int) -> str:
    """GPUs, model, memory in GB in all (with an S for NVLink), cores: 8H100.640S.240V is of this kind."""
    short, _, cores = _NAMES[gpu.slug]
    link = "S" if gpu.nvlink_gb_per_s else ""
    return f"{gpus}{short}.{gpu.memory_gb * gpus}{link}.{cores * gpus}V"


def _availability(request: Request, view: MarketInstant) -> Reply:
    """A spot instance can be had where two of its size would fit: the last one is kept for on-demand callers."""
    least = 2 if request.query.get("isSpot", "false").lower() == "true" else 1
    wanted = request.query.get("location_code")
    return json_reply(
        [
            {"location_code": place.region, "availabilities": _available_at(place, view, least)}
            for place in PLACES["verda"]
            if wanted in {None, "", place.region}
        ]
    )


def _available_at(place: Place, view: MarketInstant, least: int) -> list[str]:
    found = []
    for gpu in sold("verda"):
        there = machines_at(view, "verda", gpu, place)
        found += [type_name(gpu, gpus) for gpus in INSTANCE_SIZES if fitting(there, gpus) >= least]
    return found


def _locations(_: Request, __: MarketInstant) -> Reply:
    places = PLACES["verda"]
    return json_reply(
        [{"code": place.region, "name": place.title, "country_code": place.country} for place in places]
    )


def _key(request: Request) -> str:
    """The token endpoint takes the key in its body and judges it itself."""
    return "asks for one" if request.path == TOKEN_PATH else request.bearer() if request.bearer() == TOKEN else ""


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"code": _CODES.get(status, "server_error"), "message": message}, status)


CLOUD: Final = Cloud(
    name="verda",
    title="Verda",
    routes={
        ("POST", TOKEN_PATH): _token,
        ("GET", TYPES_PATH): _types,
        ("GET", AVAILABILITY_PATH): _availability,
        ("GET", LOCATIONS_PATH): _locations,
    },
    refuse=_refuse,
    key_of=_key,
    row_shapes={
        TYPES_PATH: RowShape(
            (),
            ("gpu", "description"),
            (("price_per_hour",), ("spot_price",)),
            memory=("gpu_memory", "size_in_gigabytes"),
            is_for_rent=lambda row: row["gpu"]["number_of_gpus"] == 1,
        )
    },
)
