"""From counts to things: which machine of which offer every stage runs on.

Pieces that fill a machine of another size go first; the others go largest first, each to the first machine with room.
Sizes 1, 2, 4, 8 divide each other, so a machine's room is always a multiple of the size being placed, and the supply
rows guarantee that every piece finds a place (Coffman, Garey & Johnson 1987). Machines that end up empty are not
rented.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sutler.solver.candidates.enumerate import AGGREGATED
from sutler.solver.market.pools import PIECE_SIZES, checkpoint_disk_gb, disk_of
from sutler.solver.market.supply import OfferClass
from sutler.solver.plan import KvTransfer, Rental, Stage
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Offer


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs that must share a machine: piece `index` of replica `replica`, stages of so many GPUs, and the disk that
    it needs."""

    replica: int
    index: int
    disk_needed_gb: float
    pool: int
    size: int
    stages: tuple[int, ...]  # GPUs of each


@dataclass(frozen=True, slots=True)
class PackedReplica:
    """One running replica: its candidate and its stages where they stand; `stays`: where it was pinned to."""

    candidate: int
    stages: tuple[Stage, ...]
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the replicas of an allocation stand, in candidate order, and what they are called.

    `handed_over`: what those that run already hand over to whom.
    """

    rentals: tuple[Rental, ...]
    replicas: tuple[PackedReplica, ...]
    names: tuple[str, ...]
    handed_over: tuple[KvTransfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Pin:
    """Where a piece runs already: the offer, which of its held machines, which GPUs there."""

    offer: int
    copy: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PinnedReplica:
    """A replica of a candidate that runs already, one pin per piece."""

    candidate: int
    pins: tuple[Pin, ...]


@dataclass(slots=True)
class _Machine:
    """A rented machine. `free`: its free GPUs in ascending order; `copy` counts the machines of its offer.

    Storage is charged as if every piece had a checkpoint of its own; pieces that share one rent no more than the
    disk.
    """

    offer: int
    copy: int
    pool: int
    gpus: int
    price_usd_per_hour: float
    free: list[int]
    disk_gb: float
    storage_gb: float = 0.0
    storage_usd_per_hour: float = 0.0

    @property
    def is_used(self) -> bool:
        return len(self.free) < self.gpus

    def has_room(self, size: int) -> bool:
        return len(self.free) >= size and (size in PIECE_SIZES or self.gpus == size)

    def take(self, wanted: Sequence[int]) -> tuple[int, ...]:
        for gpu in wanted:
            self.free.remove(gpu)
        return tuple(wanted)


class PackingError(Exception):
    """A piece found no machine: the allocation broke its own supply rows, a defect of the solver."""


def pack(
    polytope: Polytope, allocation: Allocation, pinned: Sequence[PinnedReplica] = ()
) -> tuple[tuple[Rental, ...], tuple[PackedReplica, ...]]:
    """Rentals and placed replicas of an allocation, replicas in candidate order.

    Replicas that run already stay where they are as long as larger pieces leave them their place.
    """
    owners = [
        int(c) for c, count in zip(allocation.candidate, allocation.replicas, strict=True) for _ in range(count)
    ]
    kind = _kinds(polytope, owners)
    pieces = [
        replace(piece, pool=kind[piece.pool])
        for replica, c in enumerate(owners)
        for piece in _pieces_of(polytope, replica, c)
    ]
    pins = _pins_of(owners, pinned)
    pieces.sort(key=lambda p: (p.size in PIECE_SIZES, -p.size, (p.replica, p.index) not in pins))
    machines = _rented_machines(polytope, allocation, pins.values())
    for machine in machines:
        machine.pool = kind[machine.pool]
    machines += _direct_machines(polytope, pieces)
    first_of_all = _handing_over(
        polytope, owners
    )  # the first machines of an offer are those that the next plan knows
    machines.sort(key=lambda m: (m.pool not in first_of_all, m.pool, -m.gpus, m.price_usd_per_hour, m.offer))
    placed, moved = _placed(polytope, owners, pieces, machines, pins)
    rentals, position = _rentals(polytope, machines)
    stay = {replica for replica, _ in pins} - moved
    replicas = [
        PackedReplica(c, _stages_of(polytope, replica, c, placed, position), replica in stay)
        for replica, c in enumerate(owners)
    ]
    return rentals, tuple(replicas)


def _kinds(polytope: Polytope, owners: Sequence[int]) -> list[int]:
    """[pools] the pool with whose machines each is packed: a machine inside of which nothing is handed over is one of
    many alike."""
    supply, apart = polytope.supply, _handing_over(polytope, owners)
    kind = list(range(len(supply.pools)))
    for (offer, _), pool in supply.pool_of_machine.items():
        kind[pool] = pool if pool in apart else supply.pool_of_offer[offer]
    return kind


def _handing_over(polytope: Polytope, owners: Sequence[int]) -> set[int]:
    """The pools that are single machines inside of which something is handed over."""
    candidates, own = polytope.candidates, set(polytope.supply.pool_of_machine.values())
    return own & {int(candidates.pool[c, 0]) for c in owners if candidates.role[c] != AGGREGATED}


def _pins_of(owners: Sequence[int], pinned: Sequence[PinnedReplica]) -> dict[tuple[int, int], Pin]:
    """The pins by (replica, piece), in the order given as far as there are replicas of the candidate."""
    waiting: dict[int, list[PinnedReplica]] = defaultdict(list)
    for one in pinned:
        waiting[one.candidate].append(one)
    pins = {}
    for replica, candidate in enumerate(owners):
        if waiting[candidate]:
            one = waiting[candidate].pop(0)
            pins.update({(replica, index): pin for index, pin in enumerate(one.pins)})
    return pins


def _placed(
    polytope: Polytope,
    owners: Sequence[int],
    pieces: Sequence[Piece],
    machines: Sequence[_Machine],
    pins: Mapping[tuple[int, int], Pin],
) -> tuple[dict[tuple[int, int], tuple[int, tuple[int, ...]]], set[int]]:
    """Returns (machine, its GPUs) by (replica, piece), and the replicas that could not stay where they were
    pinned."""
    by_pool: dict[int, list[int]] = defaultdict(list)
    by_copy = {}
    for index, machine in enumerate(machines):
        by_pool[machine.pool].append(index)
        by_copy[machine.offer, machine.copy] = index
    kept = {
        (by_copy[pin.offer, pin.copy], gpu)
        for pin in pins.values()
        if (pin.offer, pin.copy) in by_copy
        for gpu in pin.gpus
    }
    placed, moved = {}, set()
    beside: Counter[tuple[int, int]] | None = Counter() if polytope.losses.of_any_machine else None
    for piece in pieces:
        model = int(polytope.candidates.model[owners[piece.replica]])
        pin = pins.get((piece.replica, piece.index))
        at = None if pin is None else by_copy.get((pin.offer, pin.copy))
        if pin is not None and (at is None or not _still_free(machines[at], pin, piece.size)):
            moved.add(piece.replica)
            at = None
        if at is None:
            among = by_pool[piece.pool]
            if beside is not None:  # as few of a model on a machine as can be, so that little of it falls with one
                among = sorted(among, key=lambda i: (beside[i, model], -len(machines[i].free)))
            at = _roomiest(machines, among, piece.size, kept)
            if at is None:
                raise PackingError(f"piece of {piece.size} GPUs in pool {polytope.supply.pools[piece.pool].name}")
            pin = None
        machine, pool = machines[at], polytope.supply.pools[piece.pool]
        first = list(pin.gpus) if pin else []
        spare = sorted((gpu for gpu in machine.free if gpu not in first), key=lambda gpu: (at, gpu) in kept)
        gpus = [*first, *spare[: piece.size - len(first)]]
        placed[piece.replica, piece.index] = (at, machine.take(gpus if pin else sorted(gpus)))
        if beside is not None:
            beside[at, model] += 1
        machine.storage_usd_per_hour += pool.storage_usd_per_hour(piece.disk_needed_gb, piece.size)
        stored_gb = pool.storage_gb(piece.disk_needed_gb, piece.size) if pool.storage_usd_per_gb_month else 0.0
        machine.storage_gb = min(machine.storage_gb + stored_gb, machine.disk_gb)
    return placed, moved


def _still_free(machine: _Machine, pin: Pin, size: int) -> bool:
    return machine.has_room(size) and set(pin.gpus) <= set(machine.free)


def _roomiest(
    machines: Sequence[_Machine], among: Iterable[int], size: int, kept: set[tuple[int, int]]
) -> int | None:
    """The first machine with room beside what is to stay on it, else the first with room at all."""
    with_room = [i for i in among if machines[i].has_room(size)]
    beside = (i for i in with_room if sum((i, gpu) not in kept for gpu in machines[i].free) >= size)
    return next(beside, next(iter(with_room), None))


def _pieces_of(polytope: Polytope, replica: int, candidate: int) -> Iterable[Piece]:
    candidates = polytope.candidates
    need_gb = checkpoint_disk_gb(candidates.served(polytope.problem, candidate))
    ranks = int(candidates.data_parallel[candidate])
    gpus = tuple(int(tp) * ranks for tp in candidates.tensor_parallel[candidate] if tp > 0)
    for index, (pool, size) in enumerate(
        zip(candidates.piece_pool[candidate].tolist(), candidates.piece_size[candidate].tolist(), strict=True)
    ):
        if size > 0:
            stages = gpus if candidates.one_piece[candidate] else (gpus[index],)
            yield Piece(replica, index, need_gb, pool, size, stages)


def _rented_machines(polytope: Polytope, allocation: Allocation, pins: Iterable[Pin]) -> list[_Machine]:
    """The offers behind the counts, largest first; of equal slices of a machine those whose cards are still free.

    Of held machines those are kept on which the most GPUs run what stays.
    """
    offers, supply = polytope.problem.offers, polytope.supply
    running: Counter[tuple[int, int]] = Counter()
    for pin in pins:
        running[pin.offer, pin.copy] += len(pin.gpus)
    cards_used: dict[tuple[str, str | None], set[int]] = defaultdict(set)
    machines: list[_Machine] = []
    first = Counter(index for index, _ in supply.pool_of_machine if not offers[index].divisible)
    order = sorted(range(len(supply.classes)), key=lambda k: -supply.classes[k].gpus)
    for k in order:
        offer_class, left = supply.classes[k], int(allocation.rented[k])
        is_own = supply.pools[offer_class.pool].machine is not None
        if offer_class.held:
            copies = [
                (index, offer_class.copy if is_own else first[index] + number)
                for index, available in offer_class.offers
                for number in range(available)
            ]
            chosen = sorted(copies, key=lambda copy: (-running[copy], copy))[:left]
            machines += [_machine(offers[index], index, copy, offer_class) for index, copy in chosen]
            continue
        for index, available in offer_class.offers:
            offer = offers[index]
            cards = cards_used[offer.provider, offer.machine_id] if offer.machine_id else set()
            taken = 0 if cards.intersection(offer.gpu_ids or ()) else min(left, available)
            left -= taken
            if taken:
                cards.update(offer.gpu_ids or ())
            start = offer_class.copy if is_own else first[index]
            machines += [_machine(offer, index, start + number, offer_class) for number in range(taken)]
        if left:
            raise PackingError(f"{left} more of {offers[offer_class.offers[0][0]].offer_id!r} than the machine has")
    return machines


def _machine(offer: Offer, index: int, copy: int, offer_class: OfferClass) -> _Machine:
    gpus = offer_class.gpus
    return _Machine(index, copy, offer_class.pool, gpus, _price(offer, gpus), list(range(gpus)), disk_of(offer))


def _price(offer: Offer, gpus: int) -> float:
    """What so many of its GPUs cost per hour."""
    return offer.price_usd_per_hour * gpus / offer.gpus if gpus != offer.gpus else offer.price_usd_per_hour


def _direct_machines(polytope: Polytope, pieces: Sequence[Piece]) -> list[_Machine]:
    """In pools paid by the GPU every piece rents exactly its own GPUs, cut from the offers first-fit."""
    offers, supply = polytope.problem.offers, polytope.supply
    rooms: dict[int, list[list[int]]] = defaultdict(list)  # pool -> [offer, GPUs left] per machine
    for index, pool in enumerate(supply.pool_of_offer):
        if pool in supply.gpu_price_usd_per_hour:
            rooms[pool] += [[index, offers[index].gpus] for _ in range(min(offers[index].available, len(pieces)))]
    machines: list[_Machine] = []
    for piece in pieces:
        if piece.pool not in supply.gpu_price_usd_per_hour:
            continue
        machine = next((room for room in rooms[piece.pool] if room[1] >= piece.size), None)
        if machine is None:
            raise PackingError(f"piece of {piece.size} GPUs in pool {supply.pools[piece.pool].name}")
        machine[1] -= piece.size
        offer = offers[machine[0]]
        size, gpus = piece.size, list(range(piece.size))
        price = _price(offer, size)
        machines.append(_Machine(machine[0], len(machines), piece.pool, size, price, gpus, disk_of(offer)))
    return machines


def _rentals(
    polytope: Polytope, machines: Sequence[_Machine]
) -> tuple[tuple[Rental, ...], dict[int, tuple[int, int]]]:
    """Consecutive equal machines become one rental; returns where each machine went: (rental, machine)."""
    used = [(index, machine) for index, machine in enumerate(machines) if machine.is_used]
    rentals: list[Rental] = []
    position: dict[int, tuple[int, int]] = {}
    for _, run in groupby(used, key=lambda item: _alike(item[1])):
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
                held=offer.held,
            )
        )
    return tuple(rentals), position


def _alike(machine: _Machine) -> tuple[float, ...]:
    """Machines that can be one rental."""
    return machine.offer, machine.gpus, round(machine.storage_gb, 6), round(machine.storage_usd_per_hour, 9)


def _stages_of(
    polytope: Polytope,
    replica: int,
    candidate: int,
    placed: Mapping[tuple[int, int], tuple[int, tuple[int, ...]]],
    position: Mapping[int, tuple[int, int]],
) -> tuple[Stage, ...]:
    pools, candidates = polytope.supply.pools, polytope.candidates
    layers = candidates.layers[candidate]
    known = int(layers.sum()) > 0
    stages: list[Stage] = []
    for piece in _pieces_of(polytope, replica, candidate):
        machine, gpus = placed[replica, piece.index]
        start = 0
        rental, number = position[machine]
        for count in piece.stages:
            stages.append(
                Stage(
                    gpu=pools[piece.pool].gpu,
                    tensor_parallel=int(candidates.tensor_parallel[candidate, len(stages)]),
                    layers=int(layers[len(stages)]) if known else None,
                    rental=rental,
                    machine=number,
                    gpu_indices=gpus[start : start + count],
                    piece=piece.index,
                )
            )
            start += count
    return tuple(stages)
