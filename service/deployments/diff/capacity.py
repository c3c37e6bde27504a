"""What the engines that run can carry at each step of a change, and in which order those on kept machines restart.

Flow: matching.py pairs machines and engines -> which engines have to stop before which can start -> the order in
which least is missing (solver/replanning/turns.py) -> steps.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sutler.service.deployments.diff.matching import KeyedFleet, Matching
from sutler.service.deployments.diff.offers import OfferChange
from sutler.service.deployments.diff.schema import REROUTE, START, STOP, CapacityStep
from sutler.service.deployments.diff.stable_ids import KeyedReplica
from sutler.service.documents.plan import PlanDocument
from sutler.solver.replanning.turns import Capacity, Engine, Turn, in_turn

Gpu = tuple[str, int]
"""(key of the machine in the later plan, index of the GPU as the running engines have it)."""


def capacity_steps(
    before: PlanDocument | None,
    after: PlanDocument,
    old: KeyedFleet,
    new: KeyedFleet,
    matching: Matching,
    changes: Sequence[OfferChange],
) -> Iterator[CapacityStep]:
    """Nothing is said of a later plan that does not state what its replicas sustain."""
    if not all(part.replica.sustained_rps for part in new.replicas.values()):
        return
    kept = frozenset(key for change in changes for key in change.kept.keys)
    fleets = _Fleets(old, new, matching, kept, {} if before is None else _stated_rates(before))
    capacity = Capacity(_load_rps(after))
    gone = {key for change in changes for key in change.gone.keys}
    going = {
        key: engine for key, engine in fleets.going().items() if not gone.intersection(old.replicas[key].machines)
    }
    running = Counter([*going.values(), *(fleets.engine(key) for key in matching.engines)])
    yield CapacityStep(phase=START, restart=(), carried_fraction=capacity.carried_fraction(running))
    order = {replica.id: number for number, replica in enumerate(after.replicas)}
    anew = sorted(new.replicas.keys() - matching.engines.keys(), key=lambda key: order[new.replicas[key].replica.id])
    restarted = [key for key in anew if fleets.is_on_kept(key)]
    running.update(fleets.engine(key) for key in anew if not fleets.is_on_kept(key))
    turns = list(fleets.turns(going, restarted))
    steps = in_turn(running, [turn for _, turn in turns], capacity)
    for step in steps:
        ids = tuple(new.replicas[key].replica.id for key in turns[step.turn][0])
        yield CapacityStep(phase=REROUTE, restart=ids, carried_fraction=step.carried_fraction)
    if not steps:
        yield CapacityStep(phase=REROUTE, restart=(), carried_fraction=capacity.carried_fraction(running))
    planned = Counter(map(fleets.engine, new.replicas))
    yield CapacityStep(phase=STOP, restart=(), carried_fraction=capacity.carried_fraction(planned))


def _load_rps(plan: PlanDocument) -> dict[tuple[str, str], float]:
    """What the plan serves, but no more than it was asked for where that is known."""
    served: dict[tuple[str, str], float] = defaultdict(float)
    for replica in plan.replicas:
        if replica.role != "decode":
            for workload, rps in replica.throughput_rps.items():
                served[replica.model, workload] += rps
    asked = {(model.name, one.name): one.rate_rps for model in plan.models for one in model.workloads}
    return {key: min(rps, asked.get(key) or rps) for key, rps in served.items()}


def _stated_rates(plan: PlanDocument) -> dict[str, dict[str, float]]:
    """By id of the replica; of plans that do not state them, the rates of what each serves."""
    evidence: dict[str, dict[str, float]] = defaultdict(dict)
    for one in plan.evidence:
        evidence[one.replica][one.workload] = one.rps
    return {replica.id: replica.sustained_rps or evidence[replica.id] for replica in plan.replicas}


def _engine(part: KeyedReplica, rates_rps: Mapping[str, float]) -> Engine:
    replica = part.replica
    most = 1.0 if replica.max_load_fraction is None else replica.max_load_fraction
    return Engine(replica.model, replica.role, most, tuple(sorted(rates_rps.items())))


@dataclass(frozen=True, slots=True)
class _Fleets:
    """Both fleets; `kept` are the later plan's keys of machines that are there already, in the earlier plan or not;
    `old_rates_rps` by id of the earlier plan's replica and workload."""

    old: KeyedFleet
    new: KeyedFleet
    matching: Matching
    kept: frozenset[str]
    old_rates_rps: Mapping[str, Mapping[str, float]]

    def engine(self, key: str) -> Engine:
        """Of a replica of the later plan."""
        part = self.new.replicas[key]
        return _engine(part, part.replica.sustained_rps)

    def going(self) -> dict[str, Engine]:
        """The engines of the earlier plan that do not run on, by key."""
        alike = {
            (self.new.signatures[key], part.replica.role): self.engine(key) for key, part in self.new.replicas.items()
        }
        staying = set(self.matching.engines.values())
        return {
            key: alike.get((self.old.signatures[key], part.replica.role))
            or _engine(part, self.old_rates_rps[part.replica.id])
            for key, part in self.old.replicas.items()
            if key not in staying
        }

    def is_on_kept(self, key: str) -> bool:
        """Whether a replica of the later plan uses a machine that is there already."""
        return not self.kept.isdisjoint(self.new.replicas[key].machines)

    def turns(self, going: Mapping[str, Engine], restarted: Sequence[str]) -> Iterator[tuple[list[str], Turn]]:
        """Yields the replicas that start together, with the engines whose GPUs they take."""
        later = {earlier: machine for machine, earlier in self.matching.machines.items()}
        held: dict[Gpu, str] = {
            (later[machine], gpu): key
            for key in going
            for machine, gpu in _gpus(self.old.replicas[key])
            if machine in later
        }
        places = {machine: self._places(machine) for machine in self.matching.machines}
        groups: list[tuple[list[str], set[str]]] = []
        for key in restarted:
            taken = ((m, places[m].get(gpu, gpu)) for m, gpu in _gpus(self.new.replicas[key]) if m in places)
            keys, stops = [key], {held[gpu] for gpu in taken if gpu in held}
            for other in [group for group in groups if group[1] & stops]:
                keys, stops = [*other[0], *keys], stops | other[1]
                groups.remove(other)
            groups.append((keys, stops))
        for keys, stops in groups:
            yield keys, Turn(_sorted(going[key] for key in stops), _sorted(map(self.engine, keys)))

    def _places(self, machine: str) -> dict[int, int]:
        """Where the later plan's GPUs are on a kept machine: an engine that runs on keeps those that it has.

        The others are as the plan numbers them, where that place is not taken.
        """
        earlier = self.matching.machines[machine]
        found: dict[int, int] = {}
        for key in self.new.on.get(machine, ()):
            other = self.matching.engines.get(key)
            if other is None:
                continue
            mine = [gpu for m, gpu in _gpus(self.new.replicas[key]) if m == machine]
            theirs = [gpu for m, gpu in _gpus(self.old.replicas[other]) if m == earlier]
            found.update(zip(mine, theirs, strict=True))
        total = self.new.machines[machine].rental.gpus
        free = [gpu for gpu in range(total) if gpu not in set(found.values())]
        waiting = [gpu for gpu in range(total) if gpu not in found]
        same = set(free) & set(waiting)
        found.update({gpu: gpu for gpu in same})
        rest = zip((g for g in waiting if g not in same), (g for g in free if g not in same), strict=True)
        return found | dict(rest)


def _sorted(engines: Iterable[Engine]) -> tuple[Engine, ...]:
    return tuple(sorted(engines, key=repr))


def _gpus(part: KeyedReplica) -> Iterable[Gpu]:
    return [
        (machine, gpu)
        for machine, stage in zip(part.machines, part.replica.stages, strict=True)
        for gpu in stage.gpu_indices
    ]
