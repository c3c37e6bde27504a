"""Which machines and engines of one plan are those of another: the fewest engines are to be started anew.

Machines of one offer are interchangeable, so any of the earlier plan's can be any of the later one's. Replicas that
span machines are matched first, as wholes; then machines with the most GPUs' worth of equal replicas on them. Greedy,
and exact where the plans share whole machines, which is what plans made to keep machines do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sutler.service.deployments.diff.stable_ids import KeyedMachine, KeyedReplica, keyed
from sutler.service.documents.plan import PlanDocument
from sutler.solver.answer.engine_args import bends, either_phase
from sutler.solver.plan import sequences_of

Signature = str
"""What an engine is: equal for engines of which one can stand in for the other."""
Contents = tuple[tuple[int, Signature, str], ...]
"""The replicas that run on one machine alone, each with its GPUs, its engine and its role."""

# A running engine with another of these serves as well: limits of its steps, which not all plans state; a context
# that may only be longer. Sizes are those of the stages.
ADJUSTABLE: Final = frozenset(
    {"max_num_batched_tokens", "max_model_len", "tensor_parallel_size", "pipeline_parallel_size"}
)


@dataclass(frozen=True, slots=True)
class KeyedFleet:
    """A plan by its stable keys. `offers` has the machines' keys by offer, `on` the replicas' keys by machine."""

    machines: Mapping[str, KeyedMachine]
    replicas: Mapping[str, KeyedReplica]
    offers: Mapping[str, tuple[str, ...]]
    on: Mapping[str, tuple[str, ...]]
    signatures: Mapping[str, Signature]


@dataclass(frozen=True, slots=True)
class Matching:
    """Maps keys of the later plan to keys of the earlier one: machines that stay, engines that run on as they are."""

    machines: Mapping[str, str]
    engines: Mapping[str, str]


def fleet_of(plan: PlanDocument | None) -> KeyedFleet:
    """A plan by its stable keys; without a plan, an empty fleet."""
    if plan is None:
        return KeyedFleet({}, {}, {}, {}, {})
    parts = keyed(plan)
    offers: dict[str, list[str]] = defaultdict(list)
    on: dict[str, list[str]] = defaultdict(list)
    for machine in parts.machines:
        offers[offer_of(machine.key)].append(machine.key)
    for replica in parts.replicas:
        for key in dict.fromkeys(replica.machines):
            on[key].append(replica.key)
    return KeyedFleet(
        {machine.key: machine for machine in parts.machines},
        {replica.key: replica for replica in parts.replicas},
        {offer: tuple(keys) for offer, keys in offers.items()},
        {machine: tuple(keys) for machine, keys in on.items()},
        {replica.key: _signature(replica) for replica in parts.replicas},
    )


def offer_of(machine_key: str) -> str:
    """A machine's key without the number of its copy."""
    return machine_key.rpartition("/")[0]


def matched(before: KeyedFleet, after: KeyedFleet, *, most: Mapping[str, int]) -> Matching:
    """Pairs as many machines of each offer as both fleets have, and not more than `most` says for an offer."""
    pairing = _Pairing(before, after, _room(before, after, most))
    pairing.match_spanning()
    for offer in after.offers:
        pairing.match_rest(offer)
    return Matching(pairing.machines, _engines(before, after, pairing))


def _room(before: KeyedFleet, after: KeyedFleet, most: Mapping[str, int]) -> dict[str, int]:
    counts = {offer: min(len(keys), len(before.offers.get(offer, ()))) for offer, keys in after.offers.items()}
    return {offer: min(count, most.get(offer, count)) for offer, count in counts.items()}


@dataclass(slots=True)
class _Pairing:
    """The pairs found so far; `room` is how many more an offer may have."""

    before: KeyedFleet
    after: KeyedFleet
    room: dict[str, int]
    machines: dict[str, str] = field(default_factory=dict)
    spanning: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def match_spanning(self) -> None:
        """Replicas on several machines stay whole; those with the same key first."""
        candidates: dict[Signature, list[str]] = defaultdict(list)
        for key in _spanning(self.before):
            candidates[self.before.signatures[key]].append(key)
        wanted = sorted(_spanning(self.after), key=lambda key: (key not in self.before.replicas, key))
        for key in wanted:
            alike = candidates[self.after.signatures[key]]
            for other in self._nearest_first(key, alike):
                if self._stand_in(key, other):
                    alike.remove(other)
                    break

    def _nearest_first(self, key: str, alike: Iterable[str]) -> list[str]:
        """The same role, then the same key."""
        return sorted(
            alike, key=lambda other: (_role(self.after, key) != _role(self.before, other), other != key, other)
        )

    def _stand_in(self, key: str, other: str) -> bool:
        """Pairs the machines of two equal replicas, if that fits what is paired already."""
        mine, theirs = self.after.replicas[key].machines, self.before.replicas[other].machines
        pairs = dict(zip(mine, theirs, strict=True))
        new = {m: t for m, t in pairs.items() if self.machines.get(m) != t}
        if any(m in self.machines or t in self.taken for m, t in new.items()):
            return False
        needed = Counter(offer_of(m) for m in new)
        if any(count > self.room[offer] for offer, count in needed.items()):
            return False
        for m, t in new.items():
            self._pair(m, t)
        self.spanning[key] = other
        return True

    def match_rest(self, offer: str) -> None:
        """The machines of an offer with the most in common first, then any."""
        earlier = (key for key in self.before.offers.get(offer, ()) if key not in self.taken)
        theirs = _by_contents(self.before, earlier)
        mine = _by_contents(self.after, (key for key in self.after.offers[offer] if key not in self.machines))
        best_first = sorted((_distance(left, right), left, right) for left in mine for right in theirs)
        for _, left, right in best_first:
            for machine, other in _same_first(mine[left], theirs[right])[: self.room[offer]]:
                self._pair(machine, other)
                mine[left].remove(machine)
                theirs[right].remove(other)

    def _pair(self, machine: str, earlier: str) -> None:
        self.machines[machine] = earlier
        self.taken.add(earlier)
        self.room[offer_of(machine)] -= 1


def _spanning(fleet: KeyedFleet) -> list[str]:
    return [key for key, replica in fleet.replicas.items() if len(set(replica.machines)) > 1]


def _by_contents(fleet: KeyedFleet, machines: Iterable[str]) -> dict[Contents, list[str]]:
    found: dict[Contents, list[str]] = defaultdict(list)
    for machine in machines:
        found[_contents(fleet, machine)].append(machine)
    return found


def _contents(fleet: KeyedFleet, machine: str) -> Contents:
    local = (key for key in fleet.on.get(machine, ()) if len(set(fleet.replicas[key].machines)) == 1)
    return tuple(sorted((_gpus(fleet.replicas[key]), fleet.signatures[key], _role(fleet, key)) for key in local))


def _role(fleet: KeyedFleet, key: str) -> str:
    return fleet.replicas[key].replica.role


def _gpus(replica: KeyedReplica) -> int:
    return sum(stage.gpus for stage in replica.replica.stages)


def _distance(left: Contents, right: Contents) -> tuple[int, int, int]:
    """The more GPUs' worth of engines in common, the nearer; among those, the fewer others, then the more that keep
    their role."""
    mine, theirs = (Counter((gpus, engine) for gpus, engine, _ in side) for side in (left, right))
    common = mine & theirs
    others = (mine | theirs) - common
    as_they_are = Counter(left) & Counter(right)
    return -sum(gpus * count for (gpus, _), count in common.items()), others.total(), -as_they_are.total()


def _same_first(mine: list[str], theirs: list[str]) -> list[tuple[str, str]]:
    """Pairs as many as there can be; those with the same key stay together."""
    same = set(mine) & set(theirs)
    rest = zip((key for key in mine if key not in same), (key for key in theirs if key not in same), strict=False)
    return [*((key, key) for key in sorted(same)), *rest]


def _engines(before: KeyedFleet, after: KeyedFleet, pairing: _Pairing) -> dict[str, str]:
    """The replicas of the later plan whose engine runs already, on the machines that were paired."""
    found = dict(pairing.spanning)
    for machine, other in pairing.machines.items():
        theirs = [key for key in before.on.get(other, ()) if _is_local(before, key)]
        here = after.on.get(machine, ())
        kinds = {(before.signatures[key], _role(before, key)) for key in theirs}
        for key in sorted(here, key=lambda key: (after.signatures[key], _role(after, key)) not in kinds):
            alike = (
                [k for k in theirs if before.signatures[k] == after.signatures[key]] if _is_local(after, key) else []
            )
            if alike:
                found[key] = min(alike, key=lambda k: (_role(before, k) != _role(after, key), k != key))
                theirs.remove(found[key])
    return {key: other for key, other in found.items() if _serves(before.replicas[other], after.replicas[key])}


def _is_local(fleet: KeyedFleet, replica: str) -> bool:
    return len(set(fleet.replicas[replica].machines)) == 1


def _serves(running: KeyedReplica, wanted: KeyedReplica) -> bool:
    """Whether the running engine has the wanted role and enough sequences for it, or takes it by routing, and a
    context that is long enough."""
    engine, most = running.replica, wanted.replica.max_batch or 0
    takes_either = bends(engine.role, engine.engine, engine.engine_args)
    if engine.role != wanted.replica.role and not takes_either:
        return False
    if engine.role != "aggregated" and not takes_either and 0 < sequences_of(engine.engine_args) < most:
        return False
    has, needs = (part.replica.engine_args.get("max_model_len") for part in (running, wanted))
    return has == needs or (isinstance(has, int) and isinstance(needs, int) and has >= needs)


def _signature(replica: KeyedReplica) -> str:
    places = {machine: number for number, machine in enumerate(dict.fromkeys(replica.machines))}
    document = replica.replica
    stages = [
        (offer_of(machine), places[machine], stage.tensor_parallel, stage.layers)
        for machine, stage in zip(replica.machines, document.stages, strict=True)
    ]
    # Engines of versions before were started for one phase by name alone, and go on in it.
    either = either_phase(document.role, document.engine, document.engine_args)
    adjustable = ADJUSTABLE if document.max_batch else ADJUSTABLE | {"max_num_seqs"}  # of measured rates: no matter
    settings = sorted((name, value) for name, value in either.items() if name not in adjustable)
    engine = "vllm" if document.engine == "any-layout" else document.engine  # vLLM starts what it can of those
    ranks = (document.data_parallel, document.expert_parallel)
    role = "either phase" if bends(document.role, document.engine, either) else document.role
    return repr((document.model, role, engine, stages, ranks, settings, sorted(document.engine_env.items())))
