"""Bodies of the further clouds, in their documented shapes with values of their own, and servers that give them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sutler.adapters import verda
from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.polling import poll
from tests.adapters.builders import DELETE, KEY, ToldTime
from tests.adapters.server import Answer, Received, Reply, ScriptedServer, json_reply

TOKEN: Final = "canary-token-fedcba9876543210"
SECRETS: Final[Mapping[str, str]] = {"api_key": KEY, "client_id": "client-7f3a", "client_secret": KEY}


def a_row(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`plain` with changes; DELETE leaves a field out."""
    return {name: value for name, value in {**plain, **changes}.items() if value is not DELETE}


def lium_node(node_id: object = "node-a", **changes: Any) -> dict[str, Any]:
    plain = {
        "id": node_id,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "gpu_count": 8,
        "available_gpu_count": 5,
        "min_rentable_gpu_count": 1,
        "price_per_gpu_hour": 1.9,
        "gpu_memory_gb": 80,
        "cpu_count": 128,
        "ram_gb": 1007,
        "disk_free_gb": 2200,
        "country_code": "US",
        "region": "CA",
        "tier": "secure",
        "rent_url": "https://example.org/rent/node-a",
    }
    return a_row(plain, changes)


def lambda_type(description: str = "8x H100 (80 GB SXM5)", **changes: Any) -> dict[str, Any]:
    """`regions`, `gpus`, `storage_gib` and `cents` as such; other changes are of the type itself."""
    regions = changes.pop("regions", ("us-east-3",))
    specs = {"vcpus": 208, "memory_gib": 1800, "storage_gib": 22_000, "gpus": changes.pop("gpus", 8)}
    plain = {
        "name": "gpu_8x_h100_sxm5",
        "description": description,
        "gpu_description": description.partition("x ")[2],
        "price_cents_per_hour": changes.pop("cents", 2392),
        "specs": specs,
    }
    named = [{"name": name, "description": f"somewhere in {name}"} for name in regions]
    return {"instance_type": a_row(plain, changes), "regions_with_capacity_available": named}


def verda_type(name: str = "1H100.80S.30V", **changes: Any) -> dict[str, Any]:
    plain = {
        "id": "type-1",
        "instance_type": name,
        "price_per_hour": "2.29",
        "spot_price": "0.8",
        "currency": "usd",
        "cpu": {"description": "30 CPU", "number_of_cores": 30},
        "gpu": {"description": "1x H100 SXM5 80GB", "number_of_gpus": 1},
        "gpu_memory": {"description": "80GB GPU RAM", "size_in_gigabytes": 80},
        "memory": {"description": "120GB RAM", "size_in_gigabytes": 120},
        "model": "H100 80GB",
    }
    return a_row(plain, changes)


def verda_location(code: str, *names: str) -> dict[str, Any]:
    return {"location_code": code, "availabilities": list(names)}


def hyperstack_model(model: str = "H100-80G-PCIe-NVLink", **changes: Any) -> dict[str, Any]:
    plain = {
        "model": model,
        "available": "200+",
        "planned_7_days": None,
        "configurations": {"1x": 396, "2x": 197, "4x": 98, "8x": 45, "10x": 0},
    }
    return a_row(plain, changes)


def hyperstack_stocks(*models: Any, region: str = "CANADA-1") -> dict[str, Any]:
    return {"status": True, "stocks": [{"region": region, "stock-type": "GPU", "models": list(models)}]}


def hyperstack_prices(**usd_per_gpu_hour: Any) -> list[dict[str, Any]]:
    """A price book with a disk among the GPUs; "_" in a name stands for "-"."""
    gpus = [{"name": name.replace("_", "-"), "value": price} for name, price in usd_per_gpu_hour.items()]
    return [{"id": 1, "name": "Cloud-SSD", "value": "0.0001"}, *gpus]


def shadeform_type(name: str = "A100_80Gx2", **changes: Any) -> dict[str, Any]:
    """`setup` changes the configuration, `regions` maps region to availability."""
    setup = {
        "memory_in_gb": 220,
        "storage_in_gb": 640,
        "vcpus": 24,
        "num_gpus": 2,
        "gpu_type": "A100_80G",
        "interconnect": "sxm4",
        "nvlink": True,
        "vram_per_gpu_in_gb": 80,
    }
    regions = changes.pop("regions", {"us-west-9": True, "us-east-9": False})
    plain = {
        "cloud": "massedcompute",
        "shade_instance_type": name,
        "cloud_instance_type": "gpu_2x_a100",
        "configuration": a_row(setup, changes.pop("setup", {})),
        "hourly_price": 318,
        "deployment_type": "vm",
        "availability": [{"region": region, "available": free} for region, free in regions.items()],
    }
    return a_row(plain, changes)


PLAIN_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "lium": {"/api/public/v1/nodes": {"nodes": [lium_node()]}},
    "lambda": {"/api/v1/instance-types": {"data": {"gpu_8x_h100_sxm5": lambda_type()}}},
    "verda": {
        verda.TOKEN_PATH: {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"},
        verda.TYPES_PATH: [verda_type()],
        verda.AVAILABILITY_PATH: [verda_location("FIN-09", "1H100.80S.30V")],
    },
    "hyperstack": {
        "/v1/core/stocks": hyperstack_stocks(hyperstack_model()),
        "/v1/pricebook": hyperstack_prices(H100_80G_PCIe_NVLink="1.95"),
    },
    "shadeform": {"/v1/instances/types": {"instance_types": [shadeform_type()]}},
}
# Where the market itself is asked for, in each cloud.
MARKET_PATHS: Final[Mapping[str, str]] = {
    "lium": "/api/public/v1/nodes",
    "lambda": "/api/v1/instance-types",
    "verda": verda.TYPES_PATH,
    "hyperstack": "/v1/core/stocks",
    "shadeform": "/v1/instances/types",
}


def cloud(provider: Provider, changed: Mapping[str, Any] | None = None) -> ScriptedServer:
    """A server of this cloud; `changed` has other bodies, replies or functions of the request by path."""
    found = {**PLAIN_BODIES[provider.name], **(changed or {})}

    def answer(request: Received) -> Answer:
        given = found.get(request.path, Reply(404))
        made = given(request) if callable(given) else given
        return json_reply(made) if isinstance(made, dict | list | str | int | None) else made

    return ScriptedServer(answer)


def poll_of_cloud(
    provider: Provider,
    changed: Mapping[str, Any] | None = None,
    *,
    secrets: Mapping[str, str] = SECRETS,
    seen: Callable[[Received], None] = lambda _: None,
    **options: str,
) -> Poll:
    """A poll of such a server, over loopback and in no real time."""
    with cloud(provider, changed) as server:
        found = poll(provider, ProviderConfig(server.base_url, secrets, options), clock=ToldTime().clock)
        for request in server.requests:
            seen(request)
    return found
