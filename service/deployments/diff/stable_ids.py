"""Keys of a plan's machines, replicas and routes that outlive the plan: equal in two plans while they name the same.

A plan numbers its rentals and replicas anew each time (`rentals[2]`, `chat-0`); whoever carries plans out needs names
that a change elsewhere does not shift.

- machine: `provider/offer_id/contract/4xGPU/copy`. One key per machine: a higher count adds keys.
- replica: `model/role/4xGPU+4xGPU/digest/ordinal`: the stages in pipeline order, a digest of the keys of their
  machines, and a number for equal replicas on the same machines. Layers and engine settings are not part of it. Where
  the model lists several precisions, `model/role/precision/4xGPU/...`. An engine that prefills or decodes by what is
  sent to it has `either-phase` in the place of its role: another phase is the same replica.
- route: `model/workload`; where its answers are written, if elsewhere: `model/workload/decode`.
- transfer: `model/workload/digest`, a digest of the keys of the two replicas.

Parts are percent-encoded, so a `/` within a name does not divide it. Copies of one offer are interchangeable: they
are numbered by what runs on them, equals together. Taking one of several equals away therefore takes the last copy
away, and shifts at most one machine for each other kind of content that shares the offer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import (
    KvTransferDocument,
    PlanDocument,
    RentalDocument,
    ReplicaDocument,
    RouteDocument,
)
from sutler.solver.answer.engine_args import bends

EITHER_PHASE: Final = "either-phase"
DIGEST_DIGITS: Final = 10  # 40 bits: among 1,000 replicas of a kind two are alike in one plan of two million
Place = tuple[int, int]
"""(index of the rental, which of its machines), as stages point at them."""
Shape = tuple[str, ...]
"""What a replica is, and on machines of which offers; equal for interchangeable replicas."""


@dataclass(frozen=True, slots=True)
class KeyedMachine:
    """One machine to rent; `copy` counts the machines of the same offer, from 1."""

    key: str
    rental: RentalDocument
    copy: int


@dataclass(frozen=True, slots=True)
class KeyedReplica:
    """One replica; `machines` has the key of each stage's machine."""

    key: str
    replica: ReplicaDocument
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyedRoute:
    """Where one workload goes; `fractions` are by replica key.

    `is_handed_over`: where it goes on after its prompt.
    """

    key: str
    route: RouteDocument
    fractions: Mapping[str, float]
    is_handed_over: bool = False


@dataclass(frozen=True, slots=True)
class KeyedTransfer:
    """What a prefill replica hands over to a decode replica; both by key."""

    key: str
    transfer: KvTransferDocument
    prefill: str
    decode: str


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """A plan's parts, each kind sorted by key; keys are unique within their kind.

    `answers`: where what is handed over goes on, as routes to the replicas that decode it.
    """

    machines: tuple[KeyedMachine, ...]
    replicas: tuple[KeyedReplica, ...]
    routes: tuple[KeyedRoute, ...]
    answers: tuple[KeyedRoute, ...]
    transfers: tuple[KeyedTransfer, ...]


def keyed(plan: PlanDocument) -> KeyedPlan:
    """The same keys for the same fleet, in whatever order the plan lists it."""
    machines = _machines(plan)
    replicas = _replicas(plan, {place: machine.key for place, machine in machines.items()})
    keys = {replica.replica.id: replica.key for replica in replicas}
    routes = [
        KeyedRoute(_joined(route.model, route.workload), route, {keys[r]: f for r, f in route.fractions.items()})
        for route in plan.routing
    ]
    transfers = [_transfer(one, keys) for one in plan.kv_transfers]
    return KeyedPlan(
        tuple(sorted(machines.values(), key=lambda machine: machine.key)),
        tuple(sorted(replicas, key=lambda replica: replica.key)),
        tuple(sorted(routes, key=lambda route: route.key)),
        tuple(_answers(routes, transfers)),
        tuple(sorted(transfers, key=lambda transfer: transfer.key)),
    )


def power_caps(replicas: Iterable[KeyedReplica]) -> dict[str, dict[int, float]]:
    """The watts by GPU of each machine that has caps, by the machine's key."""
    caps: dict[str, dict[int, float]] = defaultdict(dict)
    for part in replicas:
        for stage, machine in zip(part.replica.stages, part.machines, strict=True):
            if stage.power_cap_watts is not None:
                caps[machine] |= dict.fromkeys(stage.gpu_indices, stage.power_cap_watts)
    return caps


def _transfer(one: KvTransferDocument, keys: Mapping[str, str]) -> KeyedTransfer:
    prefill, decode = keys[one.prefill], keys[one.decode]
    return KeyedTransfer(f"{_joined(one.model, one.workload)}/{_digest((prefill, decode))}", one, prefill, decode)


def _answers(routes: Iterable[KeyedRoute], transfers: Iterable[KeyedTransfer]) -> Iterable[KeyedRoute]:
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for one in transfers:
        of_workload = shares[_joined(one.transfer.model, one.transfer.workload)]
        of_workload[one.decode] = of_workload.get(one.decode, 0.0) + one.transfer.fraction
    for route in sorted(routes, key=lambda route: route.key):
        if route.key in shares:
            yield KeyedRoute(f"{route.key}/decode", route.route, shares[route.key], is_handed_over=True)


def _machines(plan: PlanDocument) -> dict[Place, KeyedMachine]:
    contents = _contents(plan)
    by_offer: dict[str, list[Place]] = defaultdict(list)
    for index, rental in enumerate(plan.rentals):
        by_offer[offer_key(rental)] += [(index, machine) for machine in range(rental.count)]
    keyed_machines = {}
    for offer, places in by_offer.items():
        for copy, place in enumerate(sorted(places, key=lambda place: (*contents[place], place)), start=1):
            keyed_machines[place] = KeyedMachine(f"{offer}/{copy}", plan.rentals[place[0]], copy)
    return keyed_machines


def offer_key(machine: RentalDocument | HoldingDocument) -> str:
    """How the keys of an offer's machines begin: `provider/offer_id/contract/4xGPU`."""
    size = _size(machine.gpus, machine.gpu)
    return f"{_joined(machine.provider, machine.offer_id, machine.contract)}/{size}"


def _contents(plan: PlanDocument) -> dict[Place, tuple[list[tuple[Shape, int]], list[str], list[int]]]:
    """What copies are sorted by: the stages on each machine, then, among equals, their roles and the replicas' order
    in the plan.

    The roles leave as many engines as possible in their phase. The order keeps the machines of one replica together
    where several copies make one pipeline.
    """
    contents: dict[Place, tuple[list[tuple[Shape, int]], list[str], list[int]]] = defaultdict(lambda: ([], [], []))
    for number, replica in enumerate(plan.replicas):
        shape = _shape(plan, replica)
        for position, stage in enumerate(replica.stages):
            stages, roles, owners = contents[stage.rental, stage.machine]
            stages.append((shape, position))
            roles.append(replica.role)
            owners.append(number)
    for parts in contents.values():
        for part in parts:
            part.sort()
    return contents


def _shape(plan: PlanDocument, replica: ReplicaDocument) -> Shape:
    return (_kind(plan, replica), *(offer_key(plan.rentals[stage.rental]) for stage in replica.stages))


def _kind(plan: PlanDocument, replica: ReplicaDocument) -> str:
    stages = "+".join(_size(stage.tensor_parallel, stage.gpu) for stage in replica.stages)
    ranks = "" if replica.data_parallel == 1 else f"*dp{replica.data_parallel}"
    has_choice = any(model.name == replica.model and model.more_precisions for model in plan.models)
    precision = [replica.precision] if has_choice and replica.precision else []
    takes_either = bends(replica.role, replica.engine, replica.engine_args)
    role = EITHER_PHASE if takes_either else replica.role
    return f"{_joined(replica.model, role, *precision)}/{stages}{ranks}"


def _replicas(plan: PlanDocument, machine_keys: Mapping[Place, str]) -> list[KeyedReplica]:
    """Equal replicas on the same machines are numbered by their GPUs there."""
    equals: dict[str, list[tuple[ReplicaDocument, tuple[str, ...]]]] = defaultdict(list)
    for replica in plan.replicas:
        machines = tuple(machine_keys[stage.rental, stage.machine] for stage in replica.stages)
        equals[f"{_kind(plan, replica)}/{_digest(machines)}"].append((replica, machines))
    return [
        KeyedReplica(f"{key}/{ordinal}", replica, machines)
        for key, members in equals.items()
        for ordinal, (replica, machines) in enumerate(sorted(members, key=lambda member: _gpus(member[0])), start=1)
    ]


def _gpus(replica: ReplicaDocument) -> tuple[tuple[int, ...], ...]:
    return tuple(stage.gpu_indices for stage in replica.stages)


def _digest(machines: Iterable[str]) -> str:
    return sha256(" ".join(machines).encode()).hexdigest()[:DIGEST_DIGITS]


def _size(gpus: int, gpu: str) -> str:
    return f"{gpus}x{quote(gpu, safe='')}"


def _joined(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)
