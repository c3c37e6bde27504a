"""Which card each stage runs on, and what the machines hold: placement has one right answer.

Pieces that fill a machine of another size than 1, 2, 4 or 8 GPUs go first, then the largest, then by replica and
piece number, each to the first machine of its pool with room, and take consecutive GPUs there; where the loss of a
machine is to be survived they may be spread over all that are rented. A machine inside of
which keys and values are handed over is no other's equal: what is on it goes nowhere else. Sizes divide each
other, so this fails only where the pieces do not fit at all (Coffman, Garey & Johnson 1987, "Bin packing with
divisible item sizes").
"""

from collections import defaultdict
from collections.abc import Iterator

from sutler.solver.market.pools import PIECE_SIZES, Pool
from sutler.solver.verify.numbers import same
from sutler.solver.verify.view import PlacedPiece, PlanView

Machine = tuple[int, int]


def misplaced_pieces(view: PlanView) -> Iterator[str]:
    """Pieces elsewhere than first fit decreasing puts them, machines without a piece, and wrong storage."""
    machines = [(index, machine) for index, rental in enumerate(view.plan.rentals) for machine in range(rental.count)]
    if view.is_standing:
        yield from _overfull(view)
        yield from _wrong_storage(view, machines)
        return
    if "machine" in view.problem.resilience.survive:
        yield from _overfull(view)
        placed = {(piece.rental, piece.machine) for piece in view.all_pieces()}
        yield from (_unused(*place) for place in machines if place not in placed)
        yield from _wrong_storage(view, machines)
        return
    used = dict.fromkeys(machines, 0)
    alike: dict[tuple[Pool, Machine | None], list[Machine]] = defaultdict(list)
    apart = view.handing_over

    def kind(place: Machine) -> tuple[Pool, Machine | None]:
        return view.pools[place[0]], place if place in apart else None

    for place in machines:
        alike[kind(place)].append(place)
    for piece in sorted(view.all_pieces(), key=_order):
        yield from _misplaced(view, piece, alike[kind((piece.rental, piece.machine))], used)
    yield from (_unused(*place) for place, gpus in used.items() if gpus == 0)
    yield from _wrong_storage(view, machines)


def _unused(rental: int, machine: int) -> str:
    return f"rentals[{rental}]: machine {machine} runs no stage, expected every rented machine to be used"


def _order(piece: PlacedPiece) -> tuple[bool, int, int, int]:
    return piece.size in PIECE_SIZES, -piece.size, piece.replica, piece.number


def _overfull(view: PlanView) -> Iterator[str]:
    """GPUs that two stages share or that a machine does not have, and machines with too many pieces."""
    reserved: dict[Machine, int] = defaultdict(int)
    taken: dict[Machine, set[int]] = defaultdict(set)
    for piece in view.all_pieces():
        place = (piece.rental, piece.machine)
        reserved[place] += piece.size
        for stage in piece.stages:
            if len(set(stage.gpu_indices)) != stage.gpus or taken[place].intersection(stage.gpu_indices):
                yield f"{view.path(piece)}: gpu_indices {stage.gpu_indices}, expected {stage.gpus} free"
            taken[place].update(stage.gpu_indices)
    for place, gpus in reserved.items():
        most = view.plan.rentals[place[0]].gpus
        if gpus > most or not taken[place] <= set(range(most)):
            yield f"rentals[{place[0]}]: machine {place[1]} has {most} GPUs, but {gpus} are reserved on it"


def _misplaced(
    view: PlanView, piece: PlacedPiece, machines: list[Machine], used: dict[Machine, int]
) -> Iterator[str]:
    """Checks one piece against the machines of its pool and reserves its GPUs."""
    free = ((place, view.plan.rentals[place[0]].gpus - used[place]) for place in machines)
    place = next(
        (p for p, gpus in free if gpus >= piece.size and (piece.size in PIECE_SIZES or gpus == piece.size)), None
    )
    if place is None:
        pool = view.pools[piece.rental].name
        yield f"{view.path(piece)}: {piece.size} GPUs, but no rented machine of pool {pool!r} has room for them"
        return
    start = used[place]
    used[place] += piece.size
    if place != (piece.rental, piece.machine):
        yield (
            f"{view.path(piece)}: on machine {piece.machine} of rental {piece.rental}, expected machine {place[1]} "
            f"of rental {place[0]} (first with room for {piece.size} GPUs)"
        )
        return
    for stage in piece.stages:
        expected = tuple(range(start, start + stage.gpus))
        start += stage.gpus
        if stage.gpu_indices != expected:
            yield f"{view.path(piece)}: gpu_indices {stage.gpu_indices}, expected {expected}"


def _wrong_storage(view: PlanView, machines: list[Machine]) -> Iterator[str]:
    held_gb: dict[Machine, float] = defaultdict(float)
    held_usd_per_hour: dict[Machine, float] = defaultdict(float)
    for piece in view.all_pieces():
        pool = view.pools[piece.rental]
        needed = view.disk_needed_gb[piece.replica]
        billed_gb = pool.storage_gb(needed, piece.size) if pool.storage_usd_per_gb_month else 0.0
        place, disk_gb = (piece.rental, piece.machine), view.offers[piece.rental].disk_gb
        held_gb[place] = min(held_gb[place] + billed_gb, float("inf") if disk_gb is None else disk_gb)
        held_usd_per_hour[place] += pool.storage_usd_per_hour(needed, piece.size)
    for machine in machines:
        rental = view.plan.rentals[machine[0]]
        path = f"rentals[{machine[0]}]"
        if not same(rental.storage_gb, held_gb[machine]):
            yield f"{path}.storage_gb: {rental.storage_gb!r}, but machine {machine[1]} needs {held_gb[machine]!r}"
        if not same(rental.storage_usd_per_hour, held_usd_per_hour[machine]):
            yield (
                f"{path}.storage_usd_per_hour: {rental.storage_usd_per_hour!r}, but storage of machine {machine[1]} "
                f"costs {held_usd_per_hour[machine]!r}"
            )
