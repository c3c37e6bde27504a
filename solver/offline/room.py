"""How much room islands have for tensor-parallel groups, and whether given groups fit: exactly, by recursion.

Flow: Hardware -> Room (here) -> placement.py, one stage; placing_ahead.py, all of a schedule.

A group that some island is large enough for ("narrow") lies on one; a larger one ("wide") takes whole islands of one
host, where groups may span islands. GPUs of an island are interchangeable, and so are islands of equal room and
hosts of equal islands: that keeps the recursion small.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from sutler.solver.offline.hardware import Hardware

Seat = tuple[int, ...]
"""Positions in `Hardware.islands`, ascending: one for a narrow group, one or more for a wide one."""
HostRoom = tuple[tuple[int, int], ...]
"""(size, free GPUs) of a host's islands, ascending."""

_REMEMBERED: Final = 1 << 17  # answers, as in placement.py


@dataclass(frozen=True, slots=True)
class Room:
    """What is free: hosts, sizes, free [num_islands]. `spans`: whether a wide group may be placed at all."""

    hosts: tuple[int, ...]
    sizes: tuple[int, ...]
    free: tuple[int, ...]
    spans: bool

    @staticmethod
    def of(hardware: Hardware) -> "Room":
        sizes = tuple([len(island.gpus) for island in hardware.islands])
        hosts = tuple([island.host for island in hardware.islands])
        return Room(hosts, sizes, sizes, hardware.across_gb_per_s > 0)

    def is_wide(self, gpus: int) -> bool:
        return gpus > max(self.sizes)

    def used(self, seat: Seat, gpus: int, *, sign: int = -1) -> "Room":
        """The room that is left when a group of so many GPUs takes its seat (`sign` 1: gives it back)."""
        free = list(self.free)
        for island in seat:
            free[island] += sign * (self.sizes[island] if len(seat) > 1 else gpus)
        return Room(self.hosts, self.sizes, tuple(free), self.spans)

    def fits(self, groups: Iterable[int]) -> bool:
        """Whether groups of these sizes fit together."""
        descending = tuple(sorted(groups, reverse=True))
        if not descending or descending[0] <= max(self.sizes):
            return _fits_narrow(tuple(sorted(self.free)), descending)
        return self.spans and _fits(self._by_host(), descending)

    def seats(self, gpus: int) -> Iterator[Seat]:
        """Yields where a group may lie, the tidiest first: what leaves the least room beside it, broken islands
        before whole ones, hosts with little room before others. Of equal islands a wide group is shown one choice."""
        host_free = dict.fromkeys(self.hosts, 0)
        for host, free in zip(self.hosts, self.free, strict=True):
            host_free[host] += free
        if not self.is_wide(gpus):
            rooms = [
                (free, free == size, host_free[host], island)
                for island, (host, size, free) in enumerate(zip(self.hosts, self.sizes, self.free, strict=True))
                if free >= gpus
            ]
            yield from ((island,) for *_, island in sorted(rooms))
        elif self.spans:
            for host in sorted(host_free, key=lambda host: (host_free[host], host)):
                yield from _adding_up(self._whole(host), gpus)

    def seating(self, groups: Sequence[int]) -> tuple[Seat, ...] | None:
        """A seat for every group, in their order; the largest choose first. None: they do not fit."""
        order = sorted(range(len(groups)), key=lambda position: -groups[position])
        found: dict[int, Seat] = {}
        room = self
        for rank, position in enumerate(order):
            others = [groups[later] for later in order[rank + 1 :]]
            for seat in room.seats(groups[position]):
                left = room.used(seat, groups[position])
                if left.fits(others):
                    room, found[position] = left, seat
                    break
            else:
                return None
        return tuple(found[position] for position in range(len(groups)))

    def _whole(self, host: int) -> tuple[tuple[int, int], ...]:
        """(size, position) of its islands of which nothing is used."""
        islands = zip(self.hosts, self.sizes, self.free, strict=True)
        return tuple(
            sorted((size, island) for island, (at, size, free) in enumerate(islands) if at == host and free == size)
        )

    def _by_host(self) -> tuple[HostRoom, ...]:
        rooms: dict[int, list[tuple[int, int]]] = {}
        for host, size, free in zip(self.hosts, self.sizes, self.free, strict=True):
            rooms.setdefault(host, []).append((size, free))
        return tuple(sorted(tuple(sorted(room)) for room in rooms.values()))


@lru_cache(_REMEMBERED)
def _fits(hosts: tuple[HostRoom, ...], groups: tuple[int, ...]) -> bool:
    """Whether groups, the largest first, fit where they may span islands; hosts ascend."""
    if sum(groups) > sum(free for host in hosts for _, free in host):
        return False
    if not groups or groups[0] <= max(size for host in hosts for size, _ in host):
        return _fits_narrow(tuple(sorted(free for host in hosts for _, free in host)), groups)
    for number, host in enumerate(hosts):
        if number and host == hosts[number - 1]:
            continue
        whole = tuple((size, island) for island, (size, free) in enumerate(host) if size == free)
        for seat in _adding_up(whole, groups[0]):
            left = tuple(sorted((size, 0 if at in seat else free) for at, (size, free) in enumerate(host)))
            if _fits(tuple(sorted((*hosts[:number], left, *hosts[number + 1 :]))), groups[1:]):
                return True
    return False


@lru_cache(_REMEMBERED)
def _fits_narrow(free: tuple[int, ...], groups: tuple[int, ...]) -> bool:
    """Whether groups, the largest first, fit into bins of these sizes, which ascend.

    Where each size divides the one before, it does not matter which bin the largest takes: a bin of c has room for
    floor(c / t) groups of t, and loses exactly s / t of them to a group of s.
    """
    if sum(groups) > sum(free):
        return False
    if not groups or groups[0] == 1:
        return True
    largest, others = groups[0], groups[1:]
    any_bin_will_do = all(larger % smaller == 0 for larger, smaller in pairwise(groups))
    for number, room in enumerate(free):
        if room < largest or (number and room == free[number - 1]):
            continue
        if _fits_narrow(tuple(sorted((*free[:number], room - largest, *free[number + 1 :]))), others):
            return True
        if any_bin_will_do:
            return False
    return False


def _adding_up(islands: tuple[tuple[int, int], ...], gpus: int) -> Iterator[Seat]:
    """Islands, given as (size, position) by size, whose sizes add up to `gpus`; of equal sizes the first ones."""
    if gpus == 0:
        yield ()
    for number, (size, island) in enumerate(islands):
        if size <= gpus and (number == 0 or islands[number - 1][0] != size):
            for others in _adding_up(islands[number + 1 :], gpus - size):
                yield tuple(sorted((island, *others)))
