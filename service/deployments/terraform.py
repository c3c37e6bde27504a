"""A plan as a Terraform state document: what `data "terraform_remote_state"` with `backend = "http"` reads.

Only outputs matter to that data source; there are no resources. All maps have one exact type each, so `for_each`
works on them and a null is a null of its type. `rentals`, `replicas` and `routing` hold what somebody has to act on;
what moves with every plan (prices, utilisation, rates) stands beside them under the same keys, in `rental_figures`
and `replica_figures`. `kv_transfers`, `power_caps`, `sleeping` and `routing_after_losses` are outputs of their own,
so that plans without them are to Terraform what they were before there were any.

State format: https://github.com/hashicorp/terraform/blob/v1.4.0/internal/states/statefile/version4.go
Type constraints: https://github.com/zclconf/go-cty/blob/v1.12.1/docs/json.md
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from sutler.service.deployments.diff.stable_ids import KeyedPlan, KeyedReplica, KeyedRoute, keyed, power_caps
from sutler.service.documents.plan import PlanDocument, ReplicaDocument
from sutler.service.errors import Kind, SutlerError
from sutler.service.export import sglang
from sutler.service.export.command import flag
from sutler.service.export.layout import obstacle_of
from sutler.service.export.router import in_parts
from sutler.solver.answer.engine_args import bends, role_args

OLDEST_TERRAFORM: Final = "1.4.0"  # the first with terraform_data; newer ones read what older ones wrote
PARTS_OF_ONE: Final = 1_000_000  # chosen: finer than any router weighs; fractions are whole multiples of one part
Type = str | list[Any]
_RENTAL: Final[dict[str, Type]] = {
    "provider": "string",
    "offer_id": "string",
    "contract": "string",
    "site": "string",
    "gpu": "string",
    "gpus": "number",
    "copy": "number",
    "storage_gb": "number",
}
_STAGE: Final[dict[str, Type]] = {
    "rental": "string",
    "gpu": "string",
    "tensor_parallel": "number",
    "layers": "number",
    "gpu_indices": ["list", "number"],
}
_REPLICA: Final[dict[str, Type]] = {
    "model": "string",
    "role": "string",
    "rentals": ["list", "string"],
    "stages": ["list", ["object", _STAGE]],
    "data_parallel": "number",
    "expert_parallel": "number",
    "engine_args": ["map", "string"],
    "engine_env": ["map", "string"],
    "command": ["list", "string"],
}
_ROUTE: Final[dict[str, Type]] = {"model": "string", "workload": "string", "fractions": ["map", "number"]}
_KV_TRANSFER: Final[dict[str, Type]] = {
    "model": "string",
    "workload": "string",
    "prefill": "string",
    "decode": "string",
    "fraction": "number",
}
_SLEEPING: Final[dict[str, Type]] = {"starts_in_s": "number"}
_AFTER_LOSS: Final[dict[str, Type]] = {
    "kind": "string",
    "name": "string",
    "lost": ["list", "string"],
    "carried_fraction": "number",
    "routing": ["map", ["object", _ROUTE]],
    "kv_transfers": ["map", ["object", _KV_TRANSFER]],
}
_POWER_CAP: Final[dict[str, Type]] = {"watts": ["map", "number"]}
_RENTAL_FIGURES: Final[dict[str, Type]] = {"price_usd_per_hour": "number", "storage_usd_per_hour": "number"}
_REPLICA_FIGURES: Final[dict[str, Type]] = {
    "id": "string",
    "max_batch": "number",
    "utilisation_fraction": "number",
    "throughput_rps": ["map", "number"],
    "max_load_fraction": "number",
    "precision": "string",
    "checkpoint": "string",
}
_PLAN: Final[dict[str, Type]] = {
    "deployment": "string",
    "id": "string",
    "revision": "number",
    "created_at": "string",
    "status": "string",
    "objective_kind": "string",
    "objective_value": "number",
    "relative_gap": "number",
    "throughput_rps": "number",
    "makespan_s": "number",
    "load_multiple": "number",
    "cost_usd_per_hour": "number",
    "power_watts": "number",
    "usd_per_million_tokens": "number",
    "warnings": ["list", "string"],
}


class NothingToServeError(SutlerError):
    """The current plan is infeasible or unknown: handing it on as an empty fleet would tear everything down."""

    kind = Kind(409, "nothing-to-serve", "The current plan serves nothing")

    def __init__(self, deployment: str, status: str, remedy: str) -> None:
        self.deployment, self.status, self.remedy = deployment, status, remedy
        super().__init__(f"the current plan of {deployment} is {status} and runs nothing: {remedy}")


def state_document(plan: PlanDocument, *, deployment: str, lineage: UUID) -> str:
    """The plan as JSON of Terraform's state format, version 4; the same text for the same plan.

    `lineage` says which document this is a newer version of: one per deployment, for as long as it lives.
    Raises NothingToServeError for a plan that is infeasible or unknown.
    """
    if plan.status not in ("optimal", "feasible"):
        raise NothingToServeError(deployment, plan.status, _remedy(plan))
    state = {
        "version": 4,
        "terraform_version": OLDEST_TERRAFORM,
        "serial": plan.revision,
        "lineage": str(lineage),
        "outputs": _outputs(plan, keyed(plan), deployment),
        "resources": [],
        "check_results": None,
    }
    return json.dumps(state, indent=2, allow_nan=False, sort_keys=True) + "\n"


def _remedy(plan: PlanDocument) -> str:
    conflicts = "; ".join(conflict.remedy for conflict in plan.conflicts)
    return conflicts or "raise solver.time_limit_s or loosen the problem"


def _outputs(plan: PlanDocument, parts: KeyedPlan, deployment: str) -> dict[str, Any]:
    return {
        "plan": {"type": ["object", _PLAN], "value": _summary(plan, deployment)},
        "rentals": _map_of(_RENTAL, {m.key: _values(_RENTAL, m.rental, copy=m.copy) for m in parts.machines}),
        "rental_figures": _map_of(
            _RENTAL_FIGURES, {m.key: _values(_RENTAL_FIGURES, m.rental) for m in parts.machines}
        ),
        "replicas": _map_of(_REPLICA, {replica.key: _replica(replica) for replica in parts.replicas}),
        "replica_figures": _map_of(_REPLICA_FIGURES, {r.key: _replica_figures(r.replica) for r in parts.replicas}),
        "routing": _map_of(_ROUTE, {route.key: _route(route) for route in parts.routes}),
        "kv_transfers": _map_of(_KV_TRANSFER, _transfers(parts)),
        "power_caps": _map_of(_POWER_CAP, _caps(parts)),
        "sleeping": _map_of(_SLEEPING, {one.model: _values(_SLEEPING, one) for one in plan.sleeping}),
        "routing_after_losses": _map_of(_AFTER_LOSS, _after_losses(plan)),
    }


def _map_of(attributes: Mapping[str, Type], value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ["map", ["object", attributes]], "value": value}


def _summary(plan: PlanDocument, deployment: str) -> dict[str, Any]:
    objective = plan.objective
    return _values(
        _PLAN,
        plan,
        deployment=deployment,
        id=str(plan.id),
        created_at=plan.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        objective_kind=objective.kind,
        objective_value=objective.value,
        relative_gap=objective.relative_gap,
        warnings=list(plan.warnings),
    )


def _values(attributes: Mapping[str, Type], part: object, **given: Any) -> dict[str, Any]:
    """The attributes of a part of the plan by their names, but for what is `given`."""
    values = {name: given[name] if name in given else getattr(part, name) for name in attributes}
    return {name: _number(value) if isinstance(value, float) else value for name, value in values.items()}


def _number(value: float | None) -> float | None:
    """A value without its last digits, which are noise: 14.990000000000002 is 14.99."""
    return None if value is None else float(f"{value:.12g}")


def _replica(part: KeyedReplica) -> dict[str, Any]:
    replica = part.replica
    return _values(
        _REPLICA,
        replica,
        rentals=list(dict.fromkeys(part.machines)),
        stages=[
            _values(_STAGE, stage, rental=machine, gpu_indices=list(stage.gpu_indices))
            for stage, machine in zip(replica.stages, part.machines, strict=True)
        ],
        engine_args={name: _text(value) for name, value in replica.engine_args.items()},
        engine_env=sglang.environment(replica.engine_env) if replica.engine == "sglang" else replica.engine_env,
        command=_command(replica),
    )


def _text(value: str | int | float | bool) -> str:
    """A value as Terraform converts it to a string: `true`, `200`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _command(replica: ReplicaDocument) -> list[str]:
    """The server's command without addresses and ports; nothing where none of ours can start the replica.

    https://docs.vllm.ai/en/latest/cli/serve.html
    """
    if obstacle_of(replica) is not None:
        return []
    arguments = {
        "served_model_name": replica.model,
        **dict(role_args(replica.role, bends=bends(replica.role, replica.engine, replica.engine_args))),
        **replica.engine_args,
    }
    model = _text(arguments.pop("model", replica.model))
    if replica.engine == "sglang":
        pairs, program = sglang.arguments(arguments.items(), replica.role), [*sglang.COMMAND, "--model-path", model]
    else:
        pairs, program = iter(arguments.items()), ["vllm", "serve", model]
    return [*program, *(word for name, value in pairs for word in flag(name, value))]


def _replica_figures(replica: ReplicaDocument) -> dict[str, Any]:
    rates = {workload: _number(rate) for workload, rate in replica.throughput_rps.items()}
    return _values(_REPLICA_FIGURES, replica, throughput_rps=rates)


def _route(part: KeyedRoute) -> dict[str, Any]:
    return _values(_ROUTE, part.route, fractions=_in_parts_of_one(part.fractions))


def _transfers(parts: KeyedPlan) -> dict[str, dict[str, Any]]:
    by_workload: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for one in parts.transfers:
        by_workload[one.transfer.model, one.transfer.workload][one.key] = one.transfer.fraction
    rounded = {key: part for fractions in by_workload.values() for key, part in _in_parts_of_one(fractions).items()}
    return {
        one.key: _values(
            _KV_TRANSFER, one.transfer, prefill=one.prefill, decode=one.decode, fraction=rounded[one.key]
        )
        for one in parts.transfers
    }


def _after_losses(plan: PlanDocument) -> dict[str, dict[str, Any]]:
    """Of the losses that the plan is to survive: what falls, and where requests are sent then."""
    found = {}
    for loss in plan.losses:
        if not loss.routing:
            continue
        parts = keyed(plan.model_copy(update={"routing": loss.routing, "kv_transfers": loss.kv_transfers}))
        found[f"{loss.kind}/{quote(loss.name, safe='')}"] = _values(
            _AFTER_LOSS,
            loss,
            lost=[part.key for part in parts.replicas if part.replica.id in loss.replicas],
            routing={route.key: _route(route) for route in parts.routes},
            kv_transfers=_transfers(parts),
        )
    return found


def _caps(parts: KeyedPlan) -> dict[str, dict[str, Any]]:
    return {
        machine: {"watts": {str(gpu): _number(watts) for gpu, watts in sorted(caps.items())}}
        for machine, caps in power_caps(parts.replicas).items()
    }


def _in_parts_of_one(fractions: Mapping[str, float]) -> dict[str, float]:
    return {key: count / PARTS_OF_ONE for key, count in in_parts(fractions, PARTS_OF_ONE).items()}
