"""Hardware and groups for placing, and what every assignment of GPUs says about the cheapest one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

from sutler.solver.offline.hardware import Hardware, Island
from sutler.solver.offline.placement import Group
from sutler.solver.offline.stages import GpuNumber
from tests.builders import a_gpu

Assignment = tuple[tuple[GpuNumber, ...], ...]


def some_hardware(*hosts: Sequence[int], across: bool = True) -> Hardware:
    """`some_hardware([2, 2], [4])`: a host with two islands of two GPUs, and one with an island of four."""
    islands = []
    for host, sizes in enumerate(hosts):
        first = 0
        for size in sizes:
            islands.append(Island(host, tuple(range(first, first + size)), 300.0))
            first += size
    return Hardware(a_gpu("a100-sxm-80gb"), tuple(islands), 32.0 if across else 0.0)


def at(*gpus: int, host: int = 0) -> tuple[GpuNumber, ...]:
    return tuple((host, gpu) for gpu in gpus)


def new(node: int, tensor_parallel: int, *, number: int = 0, reload_s: float = 10.0) -> Group:
    return Group(node, number, tensor_parallel, (), reload_s)


def running(node: int, *gpus: int, number: int = 0, reload_s: float = 10.0, host: int = 0) -> Group:
    return Group(node, number, len(gpus), at(*gpus, host=host), reload_s)


def random_hardware(random: Random, most_gpus: int) -> Hardware:
    while True:
        hosts = [
            [random.choice((1, 2, 2, 3, 4)) for _ in range(random.randint(1, 4))]
            for _ in range(random.choice((1, 2)))
        ]
        if 4 <= sum(map(sum, hosts)) <= most_gpus:
            return some_hardware(*hosts, across=random.random() < 0.7)


def random_degrees(
    random: Random, hardware: Hardware, most_groups: int, among: Sequence[int] = (1, 2, 4)
) -> list[int]:
    """Sizes of at most so many groups that need no more GPUs than there are."""
    degrees: list[int] = []
    for _ in range(random.randint(1, most_groups)):
        degree = random.choice(among)
        if sum(degrees) + degree <= hardware.gpus:
            degrees.append(degree)
    return degrees


def random_groups(random: Random, hardware: Hardware, most_new: int = 2) -> list[Group]:
    """Some of what ran when the GPUs were full of small groups, a few of it where it may not stay, and new groups."""
    everything = [1] * hardware.gpus
    while len(everything) > 1 and random.random() < 0.6:
        everything = [everything[0] + everything[1], *everything[2:]] if everything[1] == 1 else everything
        random.shuffle(everything)
    places = list(assignments(hardware, everything)) or [tuple((gpu,) for gpu in every_gpu(hardware))]
    groups = []
    for node, gpus in enumerate(random.choice(places)):
        if random.random() < 0.6:
            degree = len(gpus) if random.random() < 0.95 else 1
            groups.append(Group(node, 0, degree, gpus, random.choice((0.0, 5.0, 8.0, 13.5))))
    return [*groups, *random_arrivals(random, hardware, groups, most_new)]


def random_arrivals(random: Random, hardware: Hardware, groups: Sequence[Group], most_new: int) -> list[Group]:
    """New groups beside these, the larger first."""
    free = hardware.gpus - sum(group.tensor_parallel for group in groups)
    arrivals: list[Group] = []
    for _ in range(most_new):
        degree = random.choice([degree for degree in (4, 3, 2, 2, 1) if degree <= free] or [0])
        if degree:
            arrivals.append(new(random.randrange(10, 10**6), degree, reload_s=random.choice((4.0, 9.0))))
            free -= degree
    return arrivals


def every_gpu(hardware: Hardware) -> list[GpuNumber]:
    return [(island.host, gpu) for island in hardware.islands for gpu in island.gpus]


def may_lie(hardware: Hardware, gpus: Sequence[GpuNumber], degree: int) -> bool:
    """The rule, said again: within an island, or, if none is large enough, on whole islands of one host."""
    taken = set(gpus)
    touched = [island for island in hardware.islands if taken & {(island.host, gpu) for gpu in island.gpus}]
    if len(taken) != degree or len({host for host, _ in taken}) != 1:
        return False
    if any(len(island.gpus) >= degree for island in hardware.islands):
        return len(touched) == 1
    return hardware.across_gb_per_s > 0 and sum(len(island.gpus) for island in touched) == degree


def assignments(hardware: Hardware, degrees: Sequence[int]) -> Iterator[Assignment]:
    """All ways to give every group its GPUs."""

    def given(position: int, free: Sequence[GpuNumber]) -> Iterator[Assignment]:
        if position == len(degrees):
            yield ()
            return
        for gpus in combinations(free, degrees[position]):
            if may_lie(hardware, gpus, degrees[position]):
                left = [gpu for gpu in free if gpu not in gpus]
                yield from ((gpus, *others) for others in given(position + 1, left))

    return given(0, every_gpu(hardware))


def moves_s(groups: Sequence[Group], gpus: Assignment) -> float:
    """What the groups cost that ran and run elsewhere now."""
    pairs = zip(groups, gpus, strict=True)
    return sum((group.reload_s for group, now in pairs if group.on and set(group.on) != set(now)), 0.0)


def after(groups: Sequence[Group], earlier: Sequence[Group], gpus: Assignment) -> list[Group]:
    """The groups, with those of an earlier stage on the GPUs that they had there."""
    had = {(group.node, group.number, group.tensor_parallel): on for group, on in zip(earlier, gpus, strict=True)}
    return [replace(group, on=had.get((group.node, group.number, group.tensor_parallel), ())) for group in groups]


def least_moves_s(hardware: Hardware, stages: Sequence[Sequence[Group]]) -> float | None:
    """Of all assignments in all stages the cheapest; None where there is none."""
    best_s = {}
    for gpus in assignments(hardware, [group.tensor_parallel for group in stages[0]]):
        best_s[gpus] = moves_s(stages[0], gpus)
    for earlier, groups in pairwise(stages):
        following = {}
        for gpus in assignments(hardware, [group.tensor_parallel for group in groups]):
            costs = [cost_s + moves_s(after(groups, earlier, was), gpus) for was, cost_s in best_s.items()]
            if costs:
                following[gpus] = min(costs)
        best_s = following
    return min(best_s.values(), default=None)
