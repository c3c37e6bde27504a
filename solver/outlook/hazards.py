"""Rates at which machines go, of cells and of cells within cells, each with what is not known of it.

Within a cell machines go at one rate per hour. What is known of a rate is a Gamma distribution: so many deaths in so
many hours (`shape`, `hours`). What is known before anything is seen is `PRIOR`. A cell divides into finer ones, step
by step (`Step`): what its other parts tell is the prior of each part, worth at most `weight` deaths. The weight is
judged by the parts themselves: it is small where they differ by more than chance (empirical Bayes). A part never
lends itself what it has seen: its own deaths and hours are left out of its prior.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.outlook.lives import Lives, Slot

Key = tuple[Hashable, ...]
"""What names a cell."""
Step = Literal["provider", "gpu", "age", "time", "host", "machine"]
STEPS: Final[tuple[Step, ...]] = ("provider", "gpu", "age", "time", "host", "machine")
WEIGHTS: Final = np.logspace(-1.0, 3.0, 25)  # deaths that a prior may be worth; a thousand is as good as certain


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate per hour, as if `shape` deaths had been seen in `hours` machine-hours."""

    shape: float
    hours: float

    @property
    def per_hour(self) -> float:
        return self.shape / self.hours


# Half a death in half a day: one a day on the whole, and nearly nothing is excluded. Chosen: what is for rent by the
# hour lasts hours to weeks, and one life that was seen outweighs it.
PRIOR: Final = Rate(0.5, 12.0)


@dataclass(frozen=True, slots=True)
class Table:
    """Deaths and hours of cells: each entry's key is what names its cell at every step, from the coarsest on."""

    slot: IntArray
    age: IntArray
    time: IntArray
    hours: FloatArray
    deaths: FloatArray
    codes: dict[str, IntArray]

    def __len__(self) -> int:
        return len(self.slot)


class Nest:
    """Rates of cells, of cells within them, and so on.

    `seen` and `rates` have the cells of each level by name, `weights` what a cell of a level tells those inside it.
    """

    def __init__(self, prior: Rate, keys: Sequence[Sequence[Key]], deaths: FloatArray, hours: FloatArray) -> None:
        """`keys`: for each level, the coarsest first, which cell each entry of `deaths` and `hours` is of."""
        self.seen: list[dict[Key, tuple[float, float]]] = []
        self.rates: list[dict[Key, Rate]] = []
        self.weights: list[float] = []
        found, member = _numbered(keys[0])
        d, e = _summed(member, deaths, len(found)), _summed(member, hours, len(found))
        shape, exposure = prior.shape + d, prior.hours + e
        self._add(found, shape, exposure, d, e)
        for own_keys in keys[1:]:
            finer, inner = _numbered(own_keys)
            parent = np.zeros(len(finer), np.int64)
            parent[inner] = member
            d, e = _summed(inner, deaths, len(finer)), _summed(inner, hours, len(finer))
            others, apart = shape[parent] - d, exposure[parent] - e
            weight = _weight(others, others / apart, d, e)
            own: FloatArray = np.minimum(weight, others)
            shape, exposure = own + d, own * apart / others + e
            self.weights.append(weight)
            self._add(finer, shape, exposure, d, e)
            member = inner

    def _add(self, keys: Sequence[Key], shape: FloatArray, hours: FloatArray, d: FloatArray, e: FloatArray) -> None:
        rates = zip(shape.tolist(), hours.tolist(), strict=True)
        self.rates.append({key: Rate(*rate) for key, rate in zip(keys, rates, strict=True)})
        self.seen.append(dict(zip(keys, zip(d.tolist(), e.tolist(), strict=True), strict=True)))


class Cells(Nest):
    """The cells along a chain of steps, each with its rate; the first are of contract and number of GPUs alone."""

    def __init__(self, lives: Lives, chain: Sequence[Step], *, kept: FloatArray | None = None) -> None:
        """`kept`: which of the atoms are to be learnt from; None: all."""
        self.chain = tuple(chain)
        atoms = lives.atoms
        chosen = slice(None) if kept is None else np.flatnonzero(kept)
        slot, age, time = (part[chosen].tolist() for part in (atoms.slot, atoms.age, atoms.time))
        keys = [[root_of(lives.slots[s]) for s in slot]]
        for step in self.chain:
            parts = _parts(step, lives, slot, age, time)
            keys.append([(*key, part) for key, part in zip(keys[-1], parts, strict=True)])
        super().__init__(PRIOR, keys, atoms.deaths[chosen], atoms.hours[chosen])

    def rate(self, slot: Slot, age: int, time: int) -> Rate:
        """The rate of a slot, of this age at this time; of a cell that nothing was seen of, what its parent tells."""
        key = root_of(slot)
        found = self.rates[0].get(key, PRIOR)
        for depth, step in enumerate(self.chain, 1):
            key = (*key, part_of(step, slot, age, time))
            known = self.rates[depth].get(key)
            found = _lent(found, self.weights[depth - 1]) if known is None else known
        return found


def root_of(slot: Slot) -> Key:
    """What every cell keeps apart: a machine's own numbers of GPUs tell of the same cards, and are never one cell."""
    return (slot.contract, slot.gpus)


def part_of(step: Step, slot: Slot, age: int, time: int) -> Hashable:
    """Which part of its cell a slot belongs to."""
    if step == "age":
        return age
    if step == "time":
        return time
    if step == "host":
        return slot.host if slot.host is not None else slot.machine
    return getattr(slot, step)  # type: ignore[no-any-return]


def _parts(step: Step, lives: Lives, slot: list[int], age: list[int], time: list[int]) -> list[Hashable]:
    if step == "age":
        return list(age)
    if step == "time":
        return list(time)
    own = [part_of(step, each, 0, 0) for each in lives.slots]
    return [own[s] for s in slot]


def _numbered(keys: Sequence[Key]) -> tuple[list[Key], IntArray]:
    """The distinct keys, and of each key which of them it is."""
    numbers: dict[Key, int] = {}
    member = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    return list(numbers), member


def _summed(member: IntArray, values: FloatArray, cells: int) -> FloatArray:
    return np.bincount(member, values, cells).astype(np.float64)


def _lent(parent: Rate, weight: float) -> Rate:
    own = min(weight, parent.shape)
    return Rate(own, own / parent.per_hour)


def _weight(others: FloatArray, rates: FloatArray, d: FloatArray, e: FloatArray) -> float:
    """What a prior is worth, in deaths, judged by what all parts have seen.

    Every weight of `WEIGHTS` was as probable before. A prior of weight w has a variance of rate^2 / w: the weight
    that is returned has the mean of these variances, so that few parts, which could be alike by chance, lend little.
    """
    weights = np.minimum(WEIGHTS[:, None], others)
    scores = log_probability(weights, weights / rates, d, e).sum(axis=1)
    probable = np.exp(scores - scores.max())
    return float(probable.sum() / (probable / WEIGHTS).sum())


def log_probability(shape: FloatArray, hours: FloatArray, d: FloatArray, e: FloatArray) -> FloatArray:
    """Log density of `d` deaths at their instants in `e` hours, where the rate is known as (shape, hours)."""
    gammaln = scipy.special.gammaln
    found: FloatArray = gammaln(shape + d) - gammaln(shape) + shape * np.log(hours) - (shape + d) * np.log(hours + e)
    return found
