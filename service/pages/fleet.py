"""A plan as a drawing: machines with what runs on their GPUs, and where each workload goes. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import PlanDocument, RentalDocument, ReplicaDocument, StageDocument
from sutler.service.wording.words import layout, parallelism
from sutler.solver.catalog import load_gpus

COLOURS: Final = 8  # in the style sheet
MOST_DRAWN: Final = 60  # replicas; of more, machines that run alike are drawn once, with their number
MOST_LISTED: Final = 12  # chosen: replicas of a route that a line of a table still shows


@dataclass(frozen=True, slots=True)
class Piece:
    """What one replica has on a machine: `cards` GPUs; `words` say which part of it."""

    replica: ReplicaDocument
    anchor: str
    words: str
    cards: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the plan, or `count` of them that run alike, whose replicas are `alike`."""

    rental: RentalDocument
    pieces: tuple[Piece, ...]
    idle: int
    is_missing: bool
    count: int = 1
    alike: tuple[str, ...] = ()

    @property
    def colour(self) -> int:
        return colour_of(self.rental.gpu)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a workload goes: replicas with their shares, the largest first."""

    model: str
    workload: str
    rate_rps: float | None
    shares: tuple[tuple[str, str, float], ...]
    """Of each replica: its id, its place on the page, and the share of the requests."""
    hands_over: tuple[tuple[str, str, float], ...]
    """Of requests that prefill replicas hand over: by pair, as `a → b`."""

    @property
    def shown(self) -> Sequence[tuple[str, str, float]]:
        return self.shares[:MOST_LISTED]

    @property
    def others(self) -> int:
        return max(0, len(self.shares) - MOST_LISTED)


@cache
def _places() -> dict[str, int]:
    return {slug: place for place, slug in enumerate(sorted(load_gpus()))}


def colour_of(gpu: str) -> int:
    """The same for a GPU on every page; more GPUs than colours share them, so a name always stands beside."""
    return _places().get(gpu, sum(gpu.encode())) % COLOURS


def anchors_of(plan: PlanDocument) -> dict[str, str]:
    """Where each replica stands on the page, by its id."""
    return {replica.id: f"replica-{number}" for number, replica in enumerate(plan.replicas)}


def machines_of(plan: PlanDocument, missing: Iterable[HoldingDocument] = ()) -> list[Machine]:
    """The machines in the order of the plan's rentals. Of one offer, those that are missing come last."""
    pieces, anchors = defaultdict(list), anchors_of(plan)
    for replica in plan.replicas:
        for number, stage in enumerate(replica.stages):
            piece = Piece(replica, anchors[replica.id], _stage_words(replica, stage, number), stage.gpus)
            pieces[stage.rental, stage.machine].append(piece)
    lacking: Counter[tuple[str, str, str, str, int]] = Counter()
    for holding in missing:
        lacking[holding.key] += holding.count
    found = []
    for place, rental in reversed(list(enumerate(plan.rentals))):
        key = (rental.provider, rental.offer_id, rental.contract, rental.gpu, rental.gpus)
        for number in reversed(range(rental.count)):
            on_it = tuple(pieces[place, number])
            idle = rental.gpus - sum(piece.cards for piece in on_it)
            found.append(Machine(rental, on_it, max(0, idle), lacking[key] > 0))
            lacking[key] -= 1
    found.reverse()
    return found if len(plan.replicas) <= MOST_DRAWN else _grouped(found)


def _grouped(machines: Iterable[Machine]) -> list[Machine]:
    """Those that run alike as one."""
    alike: dict[object, list[Machine]] = {}
    for machine in machines:
        runs = tuple(
            (p.replica.model, p.replica.role, layout(p.replica.stages), p.words, p.cards) for p in machine.pieces
        )
        kind = (machine.rental.provider, machine.rental.gpu, machine.rental.gpus, machine.is_missing)
        alike.setdefault((*kind, machine.rental.price_usd_per_hour, runs), []).append(machine)
    return [
        replace(
            group[0],
            count=len(group),
            alike=tuple(dict.fromkeys(piece.replica.id for machine in group for piece in machine.pieces)),
        )
        for group in alike.values()
    ]


def _stage_words(replica: ReplicaDocument, stage: StageDocument, number: int) -> str:
    parts = [parallelism(stage.tensor_parallel, replica.data_parallel)] if stage.gpus > 1 else []
    if len(replica.stages) > 1:
        parts.insert(0, f"stage {number + 1} of {len(replica.stages)}")
        if stage.layers is not None:
            parts.append(f"{stage.layers} layers")
    if stage.power_cap_watts is not None:
        parts.append(f"at {stage.power_cap_watts:.0f} W")
    return ", ".join(parts)


def routes_of(plan: PlanDocument) -> list[Route]:
    """Where each workload goes."""
    anchors = anchors_of(plan)
    rates = {(model.name, workload.name): workload.rate_rps for model in plan.models for workload in model.workloads}
    handed: dict[tuple[str, str], list[tuple[str, str, float]]] = defaultdict(list)
    for transfer in plan.kv_transfers:
        pair = f"{transfer.prefill} → {transfer.decode}"
        handed[transfer.model, transfer.workload].append((pair, anchors[transfer.decode], transfer.fraction))
    return [
        Route(
            route.model,
            route.workload,
            rates.get((route.model, route.workload)),
            tuple((id, anchors[id], share) for id, share in _largest_first(route.fractions.items())),
            tuple(sorted(handed[route.model, route.workload], key=lambda one: -one[2])),
        )
        for route in plan.routing
    ]


def _largest_first(shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(shares, key=lambda one: (-one[1], one[0]))
