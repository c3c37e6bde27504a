"""Which cells are worth telling apart: of each cloud those that foretell machines that were left out better.

A chain of cells grows step by step, in the order of `STEPS`. A step stays where what machines did that were left out
of the learning is more probable with it than without, by more than the standard error of that difference over the
machines. Otherwise the coarser cells stay: they have seen more.
"""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.outlook.hazards import STEPS, Cells, Rate, Step, log_probability, part_of, root_of
from sutler.solver.outlook.lives import Lives, Slot

FOLDS: Final = 4  # chosen: three quarters are learnt from, and each machine is left out once
LEAST_MACHINES: Final = 8  # chosen: with fewer, a standard error over them says nothing
COARSEST: Final[tuple[Step, ...]] = ("provider", "gpu")


@dataclass(frozen=True, slots=True)
class Estimates:
    """The cells of every cloud; a cloud that was never seen has those that all have."""

    lives: Lives
    cells: dict[str, Cells]
    usual: Cells

    def of(self, provider: str) -> Cells:
        return self.cells.get(provider, self.usual)


def estimates(lives: Lives) -> Estimates:
    """Learns the cells of every cloud, as fine as they foretell better."""
    chains = {name: chosen_chain(lives, name) for name in sorted({slot.provider for slot in lives.slots})}
    fitted = {chain: Cells(lives, chain) for chain in {*chains.values(), COARSEST}}
    return Estimates(lives, {name: fitted[chain] for name, chain in chains.items()}, fitted[COARSEST])


def chosen_chain(lives: Lives, provider: str) -> tuple[Step, ...]:
    """The steps that foretell this cloud's machines better than without."""
    own = _of_provider(lives, provider)
    if len({slot.machine for slot in own.slots}) < LEAST_MACHINES:
        return COARSEST
    chain = COARSEST
    score = held_out(own, chain)
    for step in STEPS[len(COARSEST) :]:
        finer = held_out(own, (*chain, step))
        gains = finer - score
        if gains.sum() > gains.std(ddof=1) * np.sqrt(len(gains)):
            chain, score = (*chain, step), finer
    return chain


def held_out(lives: Lives, chain: tuple[Step, ...]) -> FloatArray:
    """[machines] Log probability of what each machine did, with cells that were learnt without it."""
    names = sorted({slot.machine for slot in lives.slots})
    number = {name: i for i, name in enumerate(names)}
    machine = np.array([number[slot.machine] for slot in lives.slots])[lives.atoms.slot]
    scores = np.zeros(len(names))
    for fold in range(FOLDS):
        left_out = machine % FOLDS == fold
        if left_out.any() and not left_out.all():
            _add_scores(scores, Cells(lives, chain, kept=~left_out), lives, left_out, number)
    return scores


def _add_scores(scores: FloatArray, cells: Cells, lives: Lives, left_out: BoolArray, number: dict[str, int]) -> None:
    sums: dict[tuple[str, Hashable], list[float]] = defaultdict(lambda: [0.0, 0.0])
    rates: dict[tuple[str, Hashable], Rate] = {}
    atoms = lives.atoms
    for i in np.flatnonzero(left_out).tolist():
        slot, age, time = lives.slots[atoms.slot[i]], int(atoms.age[i]), int(atoms.time[i])
        key = (slot.machine, (*root_of(slot), *(part_of(step, slot, age, time) for step in cells.chain)))
        own = sums[key]
        own[0] += float(atoms.deaths[i])
        own[1] += float(atoms.hours[i])
        if key not in rates:
            rates[key] = cells.rate(slot, age, time)
    known = np.array([(rates[key].shape, rates[key].hours, *sums[key]) for key in sums])
    found = log_probability(*known.T)
    np.add.at(scores, [number[machine] for machine, _ in sums], found)


def _of_provider(lives: Lives, provider: str) -> Lives:
    kept = [i for i, slot in enumerate(lives.slots) if slot.provider == provider]
    place = np.full(len(lives.slots), -1, np.int64)
    place[kept] = np.arange(len(kept))
    atoms = lives.atoms
    mine = place[atoms.slot] >= 0 if len(atoms.slot) else np.zeros(0, bool)
    slots: tuple[Slot, ...] = tuple(lives.slots[i] for i in kept)
    own = replace(
        atoms,
        slot=place[atoms.slot[mine]],
        age=atoms.age[mine],
        time=atoms.time[mine],
        hours=atoms.hours[mine],
        deaths=atoms.deaths[mine],
    )
    return Lives(slots, own, lives.counts[kept], {}, lives.away_hours[kept], lives.returns[kept])
