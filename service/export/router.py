"""Where requests go: the plan's fractions, as weights by replica for each model and workload."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from math import ceil, fsum
from typing import Any

from sutler.service.documents.plan import KvTransferDocument, PlanDocument, RouteDocument
from sutler.service.export.layout import Layout
from sutler.service.translation.to_plan import served_models, solver_plan
from sutler.solver.answer.engine_args import bends
from sutler.solver.simulation.bending import either_phases


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica answers, and to which model name."""

    model: str
    host: str
    port: int

    @property
    def netloc(self) -> str:
        """As URLs have it: host:port, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Replicas among which requests are divided, by fractions that sum to 1, in the plan's order.

    `workload` None: requests for the model that name none of its workloads, in the planned mix.
    """

    model: str
    workload: str | None
    fractions: Mapping[str, float]


def pools_of(plan: PlanDocument) -> Iterator[Pool]:
    """Yields the pools of each model: one for each of its workloads, then that of requests which name none."""
    rates = rates_of(plan)
    for model, routes in groupby(sorted(plan.routing, key=lambda route: route.model), key=lambda route: route.model):
        mix: dict[str, float] = defaultdict(float)
        known = list(routes)
        for route in known:
            yield Pool(model, route.workload, route.fractions)
            for replica, fraction in route.fractions.items():
                mix[replica] += rates[model, route.workload] * fraction
        total = fsum(mix.values())
        yield Pool(model, None, {replica: rate / total for replica, rate in mix.items()})


def rates_of(plan: PlanDocument) -> dict[tuple[str, str], float]:
    """Requests/s that are routed, by model and workload; where a plan states none, 1 for each."""
    rates = {
        (route.model, route.workload): fsum(
            replica.throughput_rps.get(route.workload, 0.0)
            for replica in plan.replicas
            if replica.model == route.model and replica.role != "decode"
        )
        for route in plan.routing
    }
    return {key: rate or 1.0 for key, rate in rates.items()}


def in_parts(fractions: Mapping[str, float], parts_of_one: int) -> dict[str, int]:
    """The fractions in whole parts that still sum to the same: the largest remainders are rounded up."""
    exact = {key: fraction * parts_of_one for key, fraction in sorted(fractions.items())}
    parts = {key: int(value) for key, value in exact.items()}
    missing = round(fsum(exact.values())) - sum(parts.values())
    for key in sorted(exact, key=lambda key: parts[key] - exact[key])[:missing]:
        parts[key] += 1
    return parts


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
    that the plan is to survive, the weights to switch to, worst first. `either_phase`: by model, the prefill and
    decode replicas that serve whole requests too, with the prompt tokens that wait and the answers from which on
    each is short.
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
        **({"either_phase": either_phase} if (either_phase := _either_phase(plan)) else {}),
        "replicas": {replica: asdict(endpoint) for replica, endpoint in endpoints.items()},
    }


def _either_phase(plan: PlanDocument) -> dict[str, dict[str, dict[str, str | int]]]:
    """Empty for plans of before, which say nothing of their models."""
    bending = [replica for replica in plan.replicas if bends(replica.role, replica.engine, replica.engine_args)]
    if not bending or not plan.models:
        return {}
    phases = either_phases(solver_plan(plan).replicas, served_models(plan))
    found: dict[str, dict[str, dict[str, str | int]]] = {}
    for replica in bending:
        short = phases[replica.id]
        helped = {"waiting_prompt_tokens": short.prompt_tokens, "answers": short.answers}
        found.setdefault(replica.model, {})[replica.id] = {"role": replica.role, **helped}
    return found


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
