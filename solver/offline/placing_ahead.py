"""On which GPUs replicas go in all stages of a schedule at once: a stage may make room for one that comes later.

Flow: stages of a schedule -> place_groups, one after the other (placement.py); where that loads more than it must,
a program over all stages (here) -> PlacedSchedule -> execution.py.

The program, with islands i, stages k, groups g; groups that one island is large enough for are narrow, others wide:

    minimise   sum_{k, g in k-1 and k} reload_s[k, g] (1 - stays[k, g])
    one seat   sum_i on[k, g, i] = 1                             narrow g; only islands of at least its size
               sum_{i of h} size_i on[k, g, i] = size_g at[k, g, h],  sum_h at[k, g, h] = 1      wide g
    room       sum_g uses[g, i] on[k, g, i] <= size_i            uses: size_g of a narrow, size_i of a wide group
    stays      stays[k, g] and on[k-1, g, i] imply on[k, g, i]
    all binary; on[-1] is where groups run at the start

Islands say it all: groups that stay on their islands share no GPU, so all of them can keep theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ortools.sat.python import cp_model

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.placement import Gpus, Group, place_groups, seat_gpus, seat_now
from sutler.solver.offline.room import Seat

_TICKS_PER_S: Final = 1e6  # the program counts in whole numbers; a move costs at least one

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PlacedSchedule:
    """gpus [num_stages][num_groups]. `reload_s`: of groups that ran in the stage before and do not keep their GPUs.
    `proven`: no placement of all stages has less of it, to a microsecond per group."""

    gpus: tuple[tuple[Gpus, ...], ...]
    reload_s: float
    proven: bool


def place_schedule(
    hardware: Hardware, stages: Sequence[Sequence[Group]], *, time_limit_s: float = 5.0
) -> PlacedSchedule | None:
    """GPUs of every group in every stage with the least `reload_s`; None where the groups of a stage do not fit.

    A group is the same in two stages when node, number and degree are; moving it between them costs its `reload_s`
    in the later one. One that is not in the stage before is loaded anyway and costs nothing here. `on` counts in the
    first stage alone: where things run at the start. The same on every machine, unless time runs out. Raises
    InvalidProblemError where two groups run on one GPU at the start, or one is twice in a stage.
    """
    _check_once(stages)
    in_turn = _placed_in_turn(hardware, stages)
    if in_turn is None or in_turn.proven:
        return in_turn
    seats, is_optimal = _Program(hardware, stages, in_turn).solve(time_limit_s)
    if seats is None:
        return in_turn
    ahead = _on_seats(hardware, stages, seats)
    better = ahead if ahead.reload_s < in_turn.reload_s else in_turn
    return replace(better, proven=is_optimal)


def _key(group: Group) -> Key:
    return group.node, group.number, group.tensor_parallel


def _placed_in_turn(hardware: Hardware, stages: Sequence[Sequence[Group]]) -> PlacedSchedule | None:
    """Each stage the cheapest way after the one before. Proven where only the first stage costs something: no
    schedule spares that."""
    gpus: list[tuple[Gpus, ...]] = []
    reload_s: list[float] = []
    is_exact = True
    running: dict[Key, Gpus] = {}
    for stage, groups in enumerate(stages):
        started = [group if stage == 0 else replace(group, on=running.get(_key(group), ())) for group in groups]
        placed = place_groups(hardware, started)
        if placed is None:
            return None
        gpus.append(placed.gpus)
        reload_s.append(placed.reload_s)
        is_exact = placed.is_exact if stage == 0 else is_exact
        running = dict(zip(map(_key, groups), placed.gpus, strict=True))
    return PlacedSchedule(tuple(gpus), sum(reload_s), not sum(reload_s[1:]) and (is_exact or not reload_s[0]))


def _check_once(stages: Sequence[Sequence[Group]]) -> None:
    for number, groups in enumerate(stages):
        keys = [_key(group) for group in groups]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InvalidProblemError(f"stages[{number}]", twice, "give every replica of a node its own number")


class _Program:
    """The program of the module's text, built stage by stage, with a placement to start from."""

    def __init__(self, hardware: Hardware, stages: Sequence[Sequence[Group]], hint: PlacedSchedule) -> None:
        self.model = cp_model.CpModel()
        self.hardware = hardware
        self.sizes = [len(island.gpus) for island in hardware.islands]
        self.on: list[list[list[cp_model.IntVar]]] = []
        """[num_stages][num_groups][num_islands]"""
        before = {_key(group): seat for group in stages[0] if (seat := seat_now(hardware, group))}
        started = {key: [self.model.new_constant(i in seat) for i in self._islands] for key, seat in before.items()}
        moving = []
        for groups, gpus in zip(stages, hint.gpus, strict=True):
            seats = [seat_now(hardware, replace(group, on=on)) for group, on in zip(groups, gpus, strict=True)]
            self.on.append([self._seat(group, seat) for group, seat in zip(groups, seats, strict=True)])
            self._make_room(groups)
            for group, on, seat in zip(groups, self.on[-1], seats, strict=True):
                if _key(group) in started:
                    stays = self._stays(started[_key(group)], on, is_so=before[_key(group)] == seat)
                    moving.append((round(group.reload_s * _TICKS_PER_S) + 1) * (1 - stays))
            started = dict(zip(map(_key, groups), self.on[-1], strict=True))
            before = dict(zip(map(_key, groups), seats, strict=True))
        self.model.minimize(sum(moving))

    def solve(self, time_limit_s: float) -> tuple[list[list[Seat]] | None, bool]:
        """Seats [num_stages][num_groups] of the best placement that was found, if any; whether it is proven."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_time_in_seconds = time_limit_s
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, False
        seats = [
            [tuple(island for island in self._islands if solver.boolean_value(on[island])) for on in groups]
            for groups in self.on
        ]
        return seats, status == cp_model.OPTIMAL

    @property
    def _islands(self) -> range:
        return range(len(self.sizes))

    def _is_wide(self, group: Group) -> bool:
        return group.tensor_parallel > max(self.sizes)

    def _seat(self, group: Group, hint: Seat) -> list[cp_model.IntVar]:
        """Makes the variables of the islands that a group is on, in one stage."""
        on = [self._binary(island in hint) for island in self._islands]
        hosts = [island.host for island in self.hardware.islands]
        if not self._is_wide(group):
            self.model.add_exactly_one(
                at for at, size in zip(on, self.sizes, strict=True) if size >= group.tensor_parallel
            )
            self.model.add(sum(on) == 1)
            return on
        at_host = {host: self._binary(any(hosts[island] == host for island in hint)) for host in sorted(set(hosts))}
        self.model.add_exactly_one(at_host.values())
        for host, at in at_host.items():
            gpus = sum(self.sizes[island] * on[island] for island in self._islands if hosts[island] == host)
            self.model.add(gpus == group.tensor_parallel * at)
        return on

    def _make_room(self, groups: Sequence[Group]) -> None:
        for island, size in enumerate(self.sizes):
            uses = [size if self._is_wide(group) else group.tensor_parallel for group in groups]
            taken = sum(gpus * on[island] for gpus, on in zip(uses, self.on[-1], strict=True))
            self.model.add(taken <= size)

    def _stays(
        self, before: Sequence[cp_model.IntVar], on: Sequence[cp_model.IntVar], *, is_so: bool
    ) -> cp_model.IntVar:
        stays = self._binary(is_so)
        for was, is_on in zip(before, on, strict=True):
            self.model.add_bool_or(~stays, ~was, is_on)
        return stays

    def _binary(self, hint: bool) -> cp_model.IntVar:
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable


def _on_seats(
    hardware: Hardware, stages: Sequence[Sequence[Group]], seats: Sequence[Sequence[Seat]]
) -> PlacedSchedule:
    """GPUs for groups on these islands; who stays on an island keeps them."""
    running = {_key(group): (seat_now(hardware, group), group.on) for group in stages[0]}
    gpus: list[tuple[Gpus, ...]] = []
    reload_s = 0.0
    for groups, taken in zip(stages, seats, strict=True):
        before = [running.get(_key(group), ((), ())) for group in groups]
        kept = [on if was == seat else () for (was, on), seat in zip(before, taken, strict=True)]
        gpus.append(seat_gpus(hardware, groups, taken, kept=kept))
        reload_s += sum(
            group.reload_s for group, (_, on), keeps in zip(groups, before, kept, strict=True) if on and not keeps
        )
        running = {_key(group): (seat, on) for group, seat, on in zip(groups, taken, gpus[-1], strict=True)}
    return PlacedSchedule(tuple(gpus), reload_s, proven=False)
