"""Lium as the fake plays it: its public feed of nodes, with true counts (https://docs.lium.io/developers/public-nodes-feed)."""

from typing import Any, Final

from sutler.adapters.fake.chance import bits
from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape
from sutler.adapters.fake.market import MachineState
from sutler.adapters.fake.wire import Reply, Request, json_reply

NODES_PATH: Final = "/api/public/v1/nodes"


def _nodes(_: Request, view: MarketInstant) -> Reply:
    return json_reply({"nodes": [_node(state) for state in view.states("lium")]})


def _node(state: MachineState) -> dict[str, Any]:
    machine = state.machine
    node_id = f"{bits(machine.number, 5):016x}"
    return {
        "id": node_id,
        "gpu_model": machine.gpu.full_name,
        "gpu_count": machine.gpus,
        "available_gpu_count": len(state.free),
        "min_rentable_gpu_count": machine.smallest_slice,
        "price_per_gpu_hour": state.usd_per_gpu_hour,
        "gpu_memory_gb": machine.gpu.memory_gb,
        "cpu_count": 16 * machine.gpus,
        "ram_gb": 128 * machine.gpus,
        "disk_free_gb": 800 + 400 * len(state.free),
        "country_code": machine.place.country,
        "region": machine.place.region,
        "tier": machine.place.tier,
        "rent_url": f"https://lium.example/rent/{node_id}",
    }


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"detail": message}, status)


CLOUD: Final = Cloud(
    name="lium",
    title="Lium",
    routes={("GET", NODES_PATH): _nodes},
    refuse=_refuse,
    key_of=None,
    row_shapes={
        NODES_PATH: RowShape(
            ("nodes",),
            ("gpu_model",),
            (("price_per_gpu_hour",),),
            memory=("gpu_memory_gb",),
            is_for_rent=lambda row: row["available_gpu_count"] >= row["min_rentable_gpu_count"],
        )
    },
)
