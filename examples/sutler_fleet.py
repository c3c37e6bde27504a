"""What a plan of sutler calls for, by keys that outlive the plan, and what has to be done to get there.

The keys are those of the Terraform outputs (docs/terraform.md). Standard library only; provision.py uses it.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]


@dataclass(frozen=True)
class Fleet:
    """What is to run, or runs: machines, replicas and routes by key."""

    rentals: dict[str, Json] = field(default_factory=dict)
    replicas: dict[str, Json] = field(default_factory=dict)
    routing: dict[str, Json] = field(default_factory=dict)


def fleet_of(plan: Json) -> Fleet:
    """The same keys as in the Terraform outputs of the same plan."""
    machines = _machine_keys(plan)
    keyed = dict(_keyed_replicas(plan, machines))
    keys = {replica["id"]: key for key, replica in keyed.items()}
    return Fleet(
        rentals={key: _some(plan["rentals"][rental], _RENTAL) for (rental, _), key in machines.items()},
        replicas={key: _replica(replica, machines) for key, replica in keyed.items()},
        routing={f"{quoted(r['model'])}/{quoted(r['workload'])}": _route(r, keys) for r in plan["routing"]},
    )


_RENTAL = ("provider", "offer_id", "contract", "site", "gpu", "gpus", "storage_gb")
_REPLICA = ("model", "engine_args", "engine_env")
_STAGE = ("gpu", "tensor_parallel", "layers", "gpu_indices")


def _some(whole: Json, names: tuple[str, ...]) -> Json:
    return {name: whole[name] for name in names}


def _replica(replica: Json, machines: Mapping[tuple[int, int], str]) -> Json:
    stages = [
        {"rental": machines[stage["rental"], stage["machine"]], **_some(stage, _STAGE)} for stage in replica["stages"]
    ]
    return {**_some(replica, _REPLICA), "role": _role(replica), "stages": stages}


def _route(route: Json, keys: Mapping[str, str]) -> Json:
    fractions = {keys[replica]: round(share, 6) for replica, share in route["fractions"].items()}
    return {"model": route["model"], "workload": route["workload"], "fractions": fractions}


def prices_of(plan: Json) -> dict[str, float]:
    """USD per hour by machine. Not part of the fleet: a price that moves calls for nothing."""
    return {key: plan["rentals"][rental]["price_usd_per_hour"] for (rental, _), key in _machine_keys(plan).items()}


def with_next_spare(plan: Json, key: str) -> Json | None:
    """The plan with its next spare in the place of the rental that this machine is of; None where none is left."""
    index = next(rental for (rental, _), own in _machine_keys(plan).items() if own == key)
    rental = plan["rentals"][index]
    if not rental.get("spares"):
        return None
    spare, *left = rental["spares"]
    rentals = [*plan["rentals"][:index], {**rental, **spare, "spares": left}, *plan["rentals"][index + 1 :]]
    return {**plan, "rentals": rentals}


def with_rented_spares(plan: Json, rented: Collection[str]) -> Json:
    """The plan with spares that are rented already in the place of first choices that are not."""
    for index in range(len(plan["rentals"])):
        candidate: Json | None = plan
        while candidate is not None:
            keys = [key for (rental, _), key in _machine_keys(candidate).items() if rental == index]
            if any(key in rented for key in keys):
                plan = candidate
                break
            candidate = with_next_spare(candidate, keys[0])
    return plan


def _machine_keys(plan: Json) -> dict[tuple[int, int], str]:
    """By (rental, machine). Copies of an offer are numbered by what runs on them, equals by role, then in the plan's
    order."""
    contents: dict[tuple[int, int], tuple[list[Any], list[str], list[int]]] = defaultdict(lambda: ([], [], []))
    for number, replica in enumerate(plan["replicas"]):
        shape = (_kind(replica), *(_offer(plan["rentals"][stage["rental"]]) for stage in replica["stages"]))
        for position, stage in enumerate(replica["stages"]):
            stages, roles, owners = contents[stage["rental"], stage["machine"]]
            stages.append((shape, position))
            roles.append(replica["role"])
            owners.append(number)
    by_offer: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, rental in enumerate(plan["rentals"]):
        by_offer[_offer(rental)] += [(index, machine) for machine in range(rental["count"])]
    return {
        place: f"{offer}/{copy}"
        for offer, places in by_offer.items()
        for copy, place in enumerate(sorted(places, key=lambda at: (*map(sorted, contents[at]), at)), start=1)
    }


def _keyed_replicas(plan: Json, machines: Mapping[tuple[int, int], str]) -> Iterator[tuple[str, Json]]:
    equals: dict[str, list[Json]] = defaultdict(list)
    for replica in plan["replicas"]:
        on = " ".join(machines[stage["rental"], stage["machine"]] for stage in replica["stages"])
        equals[f"{_kind(replica)}/{sha256(on.encode()).hexdigest()[:10]}"].append(replica)
    for key, replicas in equals.items():
        replicas.sort(key=lambda replica: [stage["gpu_indices"] for stage in replica["stages"]])
        yield from ((f"{key}/{ordinal}", replica) for ordinal, replica in enumerate(replicas, start=1))


def _offer(rental: Json) -> str:
    names = "/".join(quoted(rental[name]) for name in ("provider", "offer_id", "contract"))
    return f"{names}/{rental['gpus']}x{quoted(rental['gpu'])}"


def _kind(replica: Json) -> str:
    stages = "+".join(f"{stage['tensor_parallel']}x{quoted(stage['gpu'])}" for stage in replica["stages"])
    return f"{quoted(replica['model'])}/{quoted(_role(replica))}/{stages}"


def _role(replica: Json) -> str:
    """The replica's role, or what stands for both phases of disaggregation: vLLM's engines that send and receive keys
    and values prefill or decode by what is sent to them, so that another phase calls for nothing but other routes."""
    role, args = str(replica["role"]), replica["engine_args"]
    if role == "aggregated" or replica["engine"] == "sglang" or "speculative_config" in args:
        return role
    sequences = args.get("max_num_seqs", 0) * args.get("data_parallel_size", 1)
    takes_either = json.loads(args.get("kv_transfer_config", "{}")).get("kv_role") == "kv_both"
    return "either-phase" if takes_either and sequences >= 256 else role


def quoted(name: str) -> str:
    return quote(name, safe="")


@dataclass(frozen=True)
class Change:
    """One thing to do; `kind` is the part of the fleet it belongs to."""

    action: str
    kind: str
    key: str
    before: Json | None
    after: Json | None


def changes(old: Fleet, new: Fleet) -> list[Change]:
    """Lists the steps in an order in which requests find a replica throughout, where the machines have room for it.

    What needs nobody's GPUs starts first; then, one after the other, each replica that takes others' GPUs, once those
    have stopped. What is in nobody's way stops last.
    """
    rentals = _differences("rentals", old.rentals, new.rentals, "rent", "resize", "release")
    replicas = _differences("replicas", old.replicas, new.replicas, "start", "restart", "stop")
    routes = _differences("routing", old.routing, new.routing, "route", "route", "unroute")
    stops = [change for change in replicas if change.action == "stop"]
    in_turn: list[Change] = []
    for change in replicas:
        in_the_way = [stop for stop in stops if _gpus(stop.before) & _gpus(change.after)]
        if in_the_way:
            in_turn += [stop for stop in in_the_way if stop not in in_turn]
            in_turn.append(change)
    order = {action: at for at, action in enumerate(_ORDER)}
    rest = [change for change in (*rentals, *replicas, *routes) if change not in in_turn]
    rest.sort(key=lambda change: order[change.action])
    moved = next((at for at, change in enumerate(rest) if order[change.action] >= order["restart"]), len(rest))
    return [*rest[:moved], *in_turn, *rest[moved:]]


_ORDER = ("rent", "resize", "start", "restart", "route", "unroute", "stop", "release")


def _differences(
    kind: str, old: dict[str, Json], new: dict[str, Json], added: str, altered: str, removed: str
) -> list[Change]:
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        action = added if before is None else removed if after is None else altered
        if before != after:
            found.append(Change(action, kind, key, before, after))
    return found


def _gpus(replica: Json | None) -> set[tuple[str, int]]:
    """Each as its machine and its number there."""
    stages = replica["stages"] if replica else []
    return {(stage["rental"], gpu) for stage in stages for gpu in stage["gpu_indices"]}
