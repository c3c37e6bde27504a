"""From counts to things: which machine of which offer every stage runs on.

Pieces go to machines largest first, each to the first machine with room. Sizes 1, 2, 4, 8 divide each other, so
a machine's room is always a multiple of the size being placed, and the supply rows guarantee that every piece
finds a place (Coffman, Garey & Johnson 1987). Machines that end up empty are not rented.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from solver.allocation import Polytope
from solver.milp import Allocation
from solver.plan import Rental, Stage
from solver.pools import disk_needed_gb


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs that must share a machine: piece `index` of replica `replica`, stages of these degrees."""

    replica: int
    index: int
    model: int
    pool: int
    size: int
    stages: tuple[int, ...]  # tensor-parallel degrees


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """One running replica: its candidate and its stages where they stand."""

    candidate: int
    stages: tuple[Stage, ...]


@dataclass(slots=True)
class _Machine:
    offer: int
    pool: int
    gpus: int
    price_usd_per_hour: float
    used: int
    storage_gb: float
    storage_usd_per_hour: float


class PackingError(Exception):
    """A piece found no machine: the allocation broke its own supply rows, a defect of the solver."""


def pack(polytope: Polytope, allocation: Allocation) -> tuple[tuple[Rental, ...], tuple[PlacedReplica, ...]]:
    """Rentals and placed replicas of an allocation, replicas in candidate order."""
    owners = [c for c, count in zip(allocation.candidate, allocation.replicas, strict=True) for _ in range(count)]
    pieces = [piece for replica, c in enumerate(owners) for piece in _pieces_of(polytope, replica, int(c))]
    pieces.sort(key=lambda piece: -piece.size)
    needs = disk_needed_gb(polytope.problem)
    machines = _rented_machines(polytope, allocation)
    machines += _direct_machines(polytope, pieces)
    machines.sort(key=lambda m: (m.pool, -m.gpus, m.price_usd_per_hour, m.offer))
    placed: dict[tuple[int, int], tuple[int, int]] = {}
    by_pool: dict[int, list[int]] = defaultdict(list)
    for index, machine in enumerate(machines):
        by_pool[machine.pool].append(index)
    for piece in pieces:
        at = next((i for i in by_pool[piece.pool] if machines[i].gpus - machines[i].used >= piece.size), None)
        if at is None:
            raise PackingError(f"piece of {piece.size} GPUs in pool {polytope.supply.pools[piece.pool].name}")
        machine, pool = machines[at], polytope.supply.pools[piece.pool]
        placed[piece.replica, piece.index] = (at, machine.used)
        machine.used += piece.size
        machine.storage_usd_per_hour += pool.storage_usd_per_hour(needs[piece.model], piece.size)
        machine.storage_gb += (
            pool.storage_gb(needs[piece.model], piece.size) if pool.storage_usd_per_gb_month else 0.0
        )
    rentals, position = _rentals(polytope, machines)
    replicas = [
        PlacedReplica(int(c), _stages_of(polytope, replica, int(c), placed, position))
        for replica, c in enumerate(owners)
    ]
    return rentals, tuple(replicas)


def _pieces_of(polytope: Polytope, replica: int, candidate: int) -> Iterable[Piece]:
    candidates = polytope.candidates
    model = int(candidates.model[candidate])
    degrees = tuple(int(tp) for tp in candidates.tensor_parallel[candidate] if tp > 0)
    for index, (pool, size) in enumerate(
        zip(candidates.piece_pool[candidate].tolist(), candidates.piece_size[candidate].tolist(), strict=True)
    ):
        if size > 0:
            stages = degrees if candidates.one_piece[candidate] else (degrees[index],)
            yield Piece(replica, index, model, pool, size, stages)


def _rented_machines(polytope: Polytope, allocation: Allocation) -> list[_Machine]:
    """The offers behind the counts, largest first; of equal slices of a machine those whose cards are still free."""
    offers, supply = polytope.problem.offers, polytope.supply
    cards_used: dict[tuple[str, str | None], set[int]] = defaultdict(set)
    machines = []
    order = sorted(range(len(supply.classes)), key=lambda k: -supply.classes[k].gpus)
    for k in order:
        offer_class, left = supply.classes[k], int(allocation.rented[k])
        for index, available in offer_class.offers:
            offer = offers[index]
            cards = cards_used[offer.provider, offer.machine_id] if offer.machine_id else set()
            taken = 0 if cards.intersection(offer.gpu_ids or ()) else min(left, available)
            left -= taken
            if taken:
                cards.update(offer.gpu_ids or ())
            machines += [
                _Machine(index, offer_class.pool, offer_class.gpus, offer_class.price_usd_per_hour, 0, 0.0, 0.0)
                for _ in range(taken)
            ]
        if left:
            raise PackingError(f"{left} more of {offers[offer_class.offers[0][0]].offer_id!r} than the machine has")
    return machines


def _direct_machines(polytope: Polytope, pieces: Sequence[Piece]) -> list[_Machine]:
    """In pools paid by the GPU every piece rents exactly its own GPUs, cut from the offers first-fit."""
    offers, supply = polytope.problem.offers, polytope.supply
    rooms: dict[int, list[list[int]]] = defaultdict(list)  # pool -> [offer, GPUs left] per machine
    for index, pool in enumerate(supply.pool_of_offer):
        if pool in supply.gpu_price_usd_per_hour:
            rooms[pool] += [[index, offers[index].gpus] for _ in range(min(offers[index].available, len(pieces)))]
    machines = []
    for piece in pieces:
        if piece.pool not in supply.gpu_price_usd_per_hour:
            continue
        machine = next((room for room in rooms[piece.pool] if room[1] >= piece.size), None)
        if machine is None:
            raise PackingError(f"piece of {piece.size} GPUs in pool {supply.pools[piece.pool].name}")
        machine[1] -= piece.size
        offer = offers[machine[0]]
        price = offer.price_usd_per_hour * piece.size / offer.gpus
        machines.append(_Machine(machine[0], piece.pool, piece.size, price, 0, 0.0, 0.0))
    return machines


def _rentals(
    polytope: Polytope, machines: Sequence[_Machine]
) -> tuple[tuple[Rental, ...], dict[int, tuple[int, int]]]:
    """Consecutive equal machines become one rental; returns where each machine went: (rental, machine)."""
    used = [(index, machine) for index, machine in enumerate(machines) if machine.used > 0]
    rentals: list[Rental] = []
    position: dict[int, tuple[int, int]] = {}
    for _, run in groupby(used, key=lambda item: (item[1].offer, item[1].gpus, round(item[1].storage_gb, 6))):
        members = list(run)
        machine, offer = members[0][1], polytope.problem.offers[members[0][1].offer]
        for number, (index, _) in enumerate(members):
            position[index] = (len(rentals), number)
        rentals.append(
            Rental(
                offer_id=offer.offer_id,
                provider=offer.provider,
                site=offer.site,
                gpu=offer.gpu,
                gpus=machine.gpus,
                count=len(members),
                price_usd_per_hour=machine.price_usd_per_hour + machine.storage_usd_per_hour,
                contract=offer.contract,
                storage_gb=machine.storage_gb,
                storage_usd_per_hour=machine.storage_usd_per_hour,
            )
        )
    return tuple(rentals), position


def _stages_of(
    polytope: Polytope,
    replica: int,
    candidate: int,
    placed: dict[tuple[int, int], tuple[int, int]],
    position: dict[int, tuple[int, int]],
) -> tuple[Stage, ...]:
    pools, candidates = polytope.supply.pools, polytope.candidates
    layers = candidates.layers[candidate]
    known = int(layers.sum()) > 0
    stages: list[Stage] = []
    for piece in _pieces_of(polytope, replica, candidate):
        machine, start = placed[replica, piece.index]
        rental, number = position[machine]
        for degree in piece.stages:
            stages.append(
                Stage(
                    gpu=pools[piece.pool].gpu,
                    tensor_parallel=degree,
                    layers=int(layers[len(stages)]) if known else None,
                    rental=rental,
                    machine=number,
                    gpu_indices=tuple(range(start, start + degree)),
                    piece=piece.index,
                )
            )
            start += degree
    return tuple(stages)
