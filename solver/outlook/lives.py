"""Lives of machines on the market: for how long they were watched, and how often they went, by age and time of week.

A life belongs to a slot: a machine of which at least so many GPUs are for rent under a contract. It is told by the
instants at which somebody looked, and by nothing between them:

- a life begins with the first look that finds it. Where no look shortly before found it absent, its age is unknown
  until it has been watched for the longest age that is told apart (left truncation);
- a life ends with the first look that does not find it, and is taken to have ended half-way from the look before;
- between looks that are far apart nobody watched: that time counts for nobody, and whoever went in it is not counted
  as gone, nor as there (right censoring; those who are still there enter again at their age);
- an end that is our own doing is no end: the life was watched until then;
- a machine that one look missed and the next one found lives twice: who had come between would have found nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
AGES_H: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 24.0)
"""From where ages are told apart; chosen: young offers go faster, and each class is still met in some days."""
OLD: Final = len(AGES_H) - 1
UNKNOWN_AGE: Final = len(AGES_H)
AGE_CLASSES: Final = len(AGES_H) + 1
BLOCK_H: Final = 4.0  # chosen: six times of day tell night from day and leave each enough to count
BLOCKS_OF_DAY: Final = 6
TIME_CLASSES: Final = 2 * BLOCKS_OF_DAY  # of working days and of weekends, UTC
USUAL_GAPS: Final = 3.5  # chosen: up to three failed polls in a row leave no gap in what is known
_MONDAY_BASED: Final = 3  # 1970-01-01 was a Thursday
_FIRST_DAY_OF_WEEKEND: Final = 5


@dataclass(frozen=True, slots=True)
class Slot:
    """A machine of which at least `gpus` GPUs are for rent under a contract; `host` None: unknown."""

    provider: str
    gpu: str
    contract: str
    gpus: int
    machine: str
    host: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Spell:
    """From the first look that found the slot to the first that did not; `end_s` inf: the last look found it.

    `is_ours`: it ended because we rented it.
    """

    start_s: float
    end_s: float = np.inf
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Atoms:
    """Hours watched and ends seen, one entry per slot, age class and time class that was met."""

    slot: IntArray
    age: IntArray
    time: IntArray
    hours: FloatArray
    deaths: FloatArray


@dataclass(frozen=True, slots=True)
class Lives:
    """What was seen of all slots; `counts` has how many lives of each, `since_s` since when one that is there now has
    been seen, and whether that is its true age.

    `away_hours` and `returns`, [slots, ages]: for how long slots were watched while they were gone, and how often
    they came back, by how long they had been gone.
    """

    slots: tuple[Slot, ...]
    atoms: Atoms
    counts: IntArray
    since_s: dict[Slot, tuple[float, bool]]
    away_hours: FloatArray
    returns: FloatArray


def time_class(t_s: FloatArray | float) -> IntArray:
    """The time of the week that an instant falls into."""
    days = np.floor(np.asarray(t_s) / DAY_S)
    is_weekend = (days + _MONDAY_BASED) % 7 >= _FIRST_DAY_OF_WEEKEND
    block = np.floor((np.asarray(t_s) - days * DAY_S) / (BLOCK_H * HOUR_S))
    return (is_weekend * BLOCKS_OF_DAY + block).astype(np.int64)


def age_class(seen_for_h: FloatArray | float, *, is_known: bool) -> IntArray:
    """The class of an age; one that is only known to be at least so much is unknown until it is old."""
    found = np.searchsorted(np.asarray(AGES_H), np.asarray(seen_for_h), side="right") - 1
    return np.clip(found, 0, OLD) if is_known else np.where(found >= OLD, OLD, UNKNOWN_AGE)


def watched(slots: Sequence[Slot], spells: Sequence[Sequence[Spell]], looks_s: FloatArray) -> Lives:
    """What these looks, in ascending order, tell of the lives of these slots, which all of them covered."""
    number = np.repeat(np.arange(len(slots)), [len(own) for own in spells])
    flat = [spell for own in spells for spell in own]
    if not flat or len(looks_s) == 0:
        never = np.zeros((len(slots), len(AGES_H)))
        return Lives(tuple(slots), _no_atoms(), np.zeros(len(slots), np.int64), {}, never, never)
    start, end = np.array([s.start_s for s in flat]), np.array([s.end_s for s in flat])
    ours = np.array([s.is_ours for s in flat])
    view = _View(looks_s)
    first, last = np.searchsorted(looks_s, start, "left"), np.searchsorted(looks_s, end, "left") - 1
    seen = last >= first
    number, start, end, ours, first, last = (part[seen] for part in (number, start, end, ours, first, last))
    known = (first > 0) & view.kept[np.maximum(first - 1, 0)] & (start >= looks_s[0])
    shape = (len(slots), AGE_CLASSES, TIME_CLASSES)
    hours, deaths = np.zeros(shape), np.zeros(shape)
    for age, low_h, high_h in _age_spans():
        member = ~known if age == UNKNOWN_AGE else (np.ones_like(known) if age == OLD else known)
        a = np.clip(np.searchsorted(looks_s, start + low_h * HOUR_S, "left"), first, last)
        b = np.clip(np.searchsorted(looks_s, start + high_h * HOUR_S, "left"), first, last)
        spans = (view.hours[b] - view.hours[a]) * member[:, None]
        np.add.at(hours[:, age, :], number, spans)
    is_over = np.isfinite(end) & view.kept[last] & ~ours
    where = np.flatnonzero(is_over)
    at = last[where]
    seen_for_h = (looks_s[at] - start[where]) / HOUR_S
    age_of = np.where(known[where], age_class(seen_for_h, is_known=True), age_class(seen_for_h, is_known=False))
    half = (looks_s[at + 1] - looks_s[at]) / HOUR_S / 2
    index = (number[where], age_of, view.time[at])
    np.add.at(hours, index, half)
    np.add.at(deaths, index, 1.0)
    there = np.flatnonzero(~np.isfinite(end))
    since = {slots[number[i]]: (float(start[i]), bool(known[i])) for i in there}
    away = _away(view, len(slots), number, first, np.where(is_over, last + 1, -1))
    return Lives(tuple(slots), _atoms(hours, deaths), np.bincount(number, minlength=len(slots)), since, *away)


def _away(
    view: "_View", slots: int, number: IntArray, first: IntArray, gone: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Hours away and returns, from the looks that first found a slot gone (-1: none did) to those that found it
    again."""
    hours, returns = np.zeros((slots, len(AGES_H))), np.zeros((slots, len(AGES_H)))
    comes_back = np.append(number[1:] == number[:-1], False)
    then = np.where(comes_back, np.append(first[1:], 0), len(view.looks_s) - 1)
    left = np.flatnonzero(gone >= 0)
    slot, begun, ended = number[left], gone[left], then[left]
    watched_h, at = view.hours.sum(axis=1), view.looks_s
    for age, (low_h, high_h) in enumerate(zip(AGES_H, (*AGES_H[1:], np.inf), strict=True)):
        a = np.clip(np.searchsorted(at, at[begun] + low_h * HOUR_S, "left"), begun, ended)
        b = np.clip(np.searchsorted(at, at[begun] + high_h * HOUR_S, "left"), begun, ended)
        np.add.at(hours[:, age], slot, watched_h[b] - watched_h[a])
    back = comes_back[left] & view.kept[ended - 1]
    after_h = (at[ended[back] - 1] - at[begun[back]]) / HOUR_S
    np.add.at(returns, (slot[back], age_class(after_h, is_known=True)), 1.0)
    return hours, returns


class _View:
    """The looks: which pauses between them were short enough to count, and the hours watched up to each, by time."""

    def __init__(self, looks_s: FloatArray) -> None:
        self.looks_s = looks_s
        pauses = np.diff(looks_s)
        kept = pauses <= USUAL_GAPS * (np.median(pauses) if len(pauses) else 0.0)
        self.kept = np.append(kept, False)  # of the pause after each look; nothing is known after the last
        self.time = time_class((looks_s[1:] + looks_s[:-1]) / 2)
        self.hours = np.zeros((len(looks_s), TIME_CLASSES))
        self.hours[np.arange(1, len(looks_s)), self.time] = pauses * kept / HOUR_S
        self.hours = np.cumsum(self.hours, axis=0)


def _age_spans() -> list[tuple[int, float, float]]:
    """Age classes with the hours that they span; of an unknown age those until it is old."""
    ends = (*AGES_H[1:], np.inf)
    return [
        *((i, low, high) for i, (low, high) in enumerate(zip(AGES_H, ends, strict=True))),
        (UNKNOWN_AGE, 0.0, AGES_H[OLD]),
    ]


def _atoms(hours: FloatArray, deaths: FloatArray) -> Atoms:
    slot, age, time = np.nonzero(hours)
    return Atoms(slot, age, time, hours[slot, age, time], deaths[slot, age, time])


def _no_atoms() -> Atoms:
    none = np.zeros(0, np.int64)
    return Atoms(none, none, none, np.zeros(0), np.zeros(0))


def joined(parts: Sequence[Lives]) -> Lives:
    """The lives of several clouds together."""
    slots = tuple(slot for part in parts for slot in part.slots)
    if not slots:
        return watched((), (), np.zeros(0))
    offsets = np.cumsum([0, *(len(part.slots) for part in parts)])
    atoms = [part.atoms for part in parts]
    return Lives(
        slots,
        Atoms(
            np.concatenate([a.slot + offset for a, offset in zip(atoms, offsets, strict=False)]),
            *(np.concatenate([getattr(a, name) for a in atoms]) for name in ("age", "time", "hours", "deaths")),
        ),
        np.concatenate([part.counts for part in parts]),
        {slot: since for part in parts for slot, since in part.since_s.items()},
        np.concatenate([part.away_hours for part in parts]),
        np.concatenate([part.returns for part in parts]),
    )
