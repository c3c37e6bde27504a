"""On which GPUs the replicas of a stage go: topology respected, as little as possible loaded anew (SamuLLM §4.3).

Flow: searches ask `can_place`; execution.py and adjusting ask `place` for one stage after what runs, and
placing_ahead.py for all stages of a schedule at once.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.room import Room, Seat
from sutler.solver.offline.stages import GpuNumber

MOST_CHECKS: Final = 4_000  # a host of 8 GPUs never needs more than 256
_REMEMBERED: Final = 1 << 17  # answers; chosen: tens of megabytes, more than a search asks different questions

Gpus = tuple[GpuNumber, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A replica that needs `tensor_parallel` GPUs. `on`: those on which it runs now (empty: it does not run yet);
    `reload_s`: what moving it costs."""

    node: int
    number: int
    tensor_parallel: int
    on: Gpus = ()
    reload_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Placed:
    """gpus [num_groups]; `reload_s`: of the groups that ran and do not keep their GPUs. `is_exact`: no placement
    has less of it."""

    gpus: tuple[Gpus, ...]
    reload_s: float
    is_exact: bool


def can_place(hardware: Hardware, tensor_parallel: Sequence[int]) -> bool:
    """Whether groups of these sizes fit, together; exact."""
    islands = tuple([(island.host, len(island.gpus)) for island in hardware.islands])
    return _can_place(islands, hardware.across_gb_per_s > 0, tuple(sorted(tensor_parallel)))


def place(hardware: Hardware, groups: Sequence[Group]) -> tuple[Gpus, ...] | None:
    """GPUs of every group, in their order; None where they do not fit.

    The sum of `reload_s` of groups that run and do not keep exactly their GPUs is minimal, and so is, for that sum,
    the number that moves. Exact up to MOST_CHECKS sets of groups to move, more than one host of 8 has; beyond,
    the dearest are kept first. Raises InvalidProblemError where two groups run on one GPU.
    """
    placed = place_groups(hardware, groups)
    return placed.gpus if placed is not None else None


def place_groups(hardware: Hardware, groups: Sequence[Group]) -> Placed | None:
    """Does what `place` does, and says what it costs and whether that is proven."""
    _check_apart(groups)
    seats = [seat_now(hardware, group) for group in groups]
    room = Room.of(hardware)
    for seat, group in zip(seats, groups, strict=True):
        room = room.used(seat, group.tensor_parallel) if seat else room
    moves = _Moves.of(room, groups, seats)
    counts, is_exact = moves.cheapest()
    moved = moves.positions(counts)
    for position in moved:
        room = room.used(seats[position], groups[position].tensor_parallel, sign=1)
    away = [position for position, seat in enumerate(seats) if not seat or position in moved]
    taken = room.seating([groups[position].tensor_parallel for position in away])
    if taken is None:
        return None
    new_seats = dict(zip(away, taken, strict=True))
    gpus = seat_gpus(
        hardware,
        groups,
        [new_seats.get(position, seat) for position, seat in enumerate(seats)],
        kept=[() if position in new_seats else group.on for position, group in enumerate(groups)],
    )
    return Placed(gpus, sum((groups[position].reload_s for position in away if groups[position].on), 0.0), is_exact)


def seat_now(hardware: Hardware, group: Group) -> Seat:
    """The islands where it runs and may stay; none where it does not run, or not as the hardware would have it."""
    if not group.on or len(group.on) != group.tensor_parallel:
        return ()
    numbers = {gpu for _, gpu in group.on}
    host = group.on[0][0]
    seat, inside = [], 0
    for position, island in enumerate(hardware.islands):
        if island.host == host and (here := len(numbers.intersection(island.gpus))):
            seat.append(position)
            inside += here
    if inside != group.tensor_parallel or any(at != host for at, _ in group.on):
        return ()
    if len(seat) == 1:
        return tuple(seat)
    whole = sum(len(hardware.islands[position].gpus) for position in seat) == inside
    is_wide = group.tensor_parallel > max(len(island.gpus) for island in hardware.islands)
    return tuple(seat) if whole and is_wide and hardware.across_gb_per_s > 0 else ()


def seat_gpus(
    hardware: Hardware, groups: Sequence[Group], seats: Sequence[Seat], *, kept: Sequence[Gpus]
) -> tuple[Gpus, ...]:
    """GPUs on their islands: those in `kept`, where there are some, else the first that are free."""
    used = {gpu for gpus in kept for gpu in gpus}
    found: list[Gpus] = []
    for group, seat, gpus in zip(groups, seats, kept, strict=True):
        if not gpus:
            islands = [hardware.islands[position] for position in seat]
            numbers = [(island.host, gpu) for island in islands for gpu in island.gpus]
            gpus = tuple([number for number in numbers if number not in used][: group.tensor_parallel])  # noqa: PLW2901
            used.update(gpus)
        found.append(gpus)
    return tuple(found)


@lru_cache(_REMEMBERED)
def _can_place(islands: tuple[tuple[int, int], ...], spans: bool, sizes: tuple[int, ...]) -> bool:
    gpus = tuple(gpus for _, gpus in islands)
    return Room(tuple(host for host, _ in islands), gpus, gpus, spans).fits(sizes)


def _check_apart(groups: Sequence[Group]) -> None:
    numbers = [number for group in groups for number in group.on]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise InvalidProblemError("groups.on", twice, "let one group run on a GPU")


@dataclass(frozen=True, slots=True)
class _Moves:
    """Sets of groups to move from their seats: how many of each class [num_classes].

    Groups of one size on the same islands are a class: they free the same room, so of them the cheaper move first.
    `room` is what all leave that run; `new` are the sizes of those that need a seat anyway; members: positions of
    the groups of a class, the cheapest first, and reload_s what each costs.
    """

    room: Room
    new: tuple[int, ...]
    kinds: tuple[tuple[Seat, int], ...]
    members: tuple[tuple[int, ...], ...]
    reload_s: tuple[float, ...]

    @staticmethod
    def of(room: Room, groups: Sequence[Group], seats: Sequence[Seat]) -> "_Moves":
        classes: dict[tuple[Seat, int], list[int]] = {}
        for position in sorted(range(len(groups)), key=lambda position: groups[position].reload_s):
            if seats[position]:
                classes.setdefault((seats[position], groups[position].tensor_parallel), []).append(position)
        new = tuple(group.tensor_parallel for group, seat in zip(groups, seats, strict=True) if not seat)
        members = tuple(tuple(some) for some in classes.values())
        return _Moves(room, new, tuple(classes), members, tuple(group.reload_s for group in groups))

    def positions(self, counts: Sequence[int]) -> set[int]:
        return {member for some, count in zip(self.members, counts, strict=True) for member in some[:count]}

    def fits(self, counts: Sequence[int]) -> bool:
        room, sizes = self.room, list(self.new)
        for (seat, gpus), count in zip(self.kinds, counts, strict=True):
            if count:
                room = room.used(seat, gpus * count, sign=1)
                sizes += [gpus] * count
        return room.fits(sizes)

    def cheapest(self) -> tuple[tuple[int, ...], bool]:
        """The cheapest set after which all fit (or all moves, where even that does not help); whether that is proven.

        Sets are tried by what they cost. Where a set makes room for all, so does every larger one, as a group may
        move to where it was: the first that fits is the cheapest, and if moving all does not help, nothing does.
        """
        none, every = (0,) * len(self.kinds), tuple(len(some) for some in self.members)
        if self.fits(none):
            return none, True
        if not self.fits(every):
            return every, True
        heap = [(0.0, 0, none, 0)]
        for _ in range(MOST_CHECKS):
            cost_s, number, counts, first = heapq.heappop(heap)
            if number and self.fits(counts):
                return counts, True
            for kind in range(first, len(counts)):
                if counts[kind] < every[kind]:
                    dearer_s = cost_s + self.reload_s[self.members[kind][counts[kind]]]
                    heapq.heappush(heap, (dearer_s, number + 1, _changed(counts, kind, 1), kind))
        return self.dearest_kept(every), False

    def dearest_kept(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Keeps of the moves in `counts` those without which not all fit, when the dearest is spared first."""
        dearest_first = sorted(
            ((kind, member) for kind, some in enumerate(self.members) for member in some),
            key=lambda move: -self.reload_s[move[1]],
        )
        for kind, _ in dearest_first:
            fewer = _changed(counts, kind, -1)
            counts = fewer if self.fits(fewer) else counts
        return counts


def _changed(counts: tuple[int, ...], kind: int, by: int) -> tuple[int, ...]:
    return (*counts[:kind], counts[kind] + by, *counts[kind + 1 :])
