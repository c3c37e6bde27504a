"""Where requests go: the plan's fractions, as weights by replica for each model and workload."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from sutler.service.documents.plan import KvTransferDocument, RouteDocument
from sutler.service.export.layout import Layout


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica answers, and to which model name."""

    model: str
    host: str
    port: int


def router_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """The weights as JSON; a replica's host is the name of its machine, to be replaced by its address."""
    return router_json(layout, machine_endpoints(layout)), ()


def router_json(layout: Layout, endpoints: Mapping[str, ReplicaAddress]) -> str:
    """The weights and these endpoints, by replica id, as indented JSON."""
    return json.dumps(routing_document(layout, endpoints), indent=2) + "\n"


def machine_endpoints(layout: Layout) -> dict[str, ReplicaAddress]:
    """Returns where the replicas that run listen, by id, on the ports of the layout."""
    return {s.replica.id: ReplicaAddress(s.replica.model, s.head.machine.name, s.port) for s in layout.servings}


def routing_document(layout: Layout, endpoints: Mapping[str, ReplicaAddress]) -> dict[str, Any]:
    """Returns the weights as planned, those of a workload summing to 1; `replicas` says where those that run listen.

    `sleeping`: after how many seconds to ask again for a model that nothing runs for. `after_losses`: for each loss
    that the plan is to survive, the weights to switch to, worst first.
    """
    plan = layout.plan
    sleeping = {one.model: {"retry_after_s": ceil(one.starts_in_s)} for one in plan.sleeping}
    after_losses = [
        {
            "kind": loss.kind,
            "name": loss.name,
            "lost": list(loss.replicas),
            "carried_fraction": loss.carried_fraction,
            **_sent(loss.routing, loss.kv_transfers),
        }
        for loss in plan.losses
        if loss.routing
    ]
    return {
        "schema": "sutler/router/v1",
        "plan": str(plan.id),
        "revision": plan.revision,
        **_sent(plan.routing, plan.kv_transfers),
        **({"sleeping": sleeping} if sleeping else {}),
        **({"after_losses": after_losses} if after_losses else {}),
        "replicas": {replica: asdict(endpoint) for replica, endpoint in endpoints.items()},
    }


def _sent(routing: Iterable[RouteDocument], kv_transfers: Iterable[KvTransferDocument]) -> dict[str, Any]:
    """Weights by model, workload and replica; `hand_over`: by model, workload and prefill replica, which share of all
    requests goes on to which decode replica."""
    weights: dict[str, dict[str, dict[str, float]]] = {}
    for route in routing:
        weights.setdefault(route.model, {})[route.workload] = dict(route.fractions)
    hand_over: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for one in kv_transfers:
        of_workload = hand_over.setdefault(one.model, {}).setdefault(one.workload, {})
        of_workload.setdefault(one.prefill, {})[one.decode] = one.fraction
    return {"weights": weights, **({"hand_over": hand_over} if hand_over else {})}
