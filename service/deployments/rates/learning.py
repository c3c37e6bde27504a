"""What the metrics of a deployment's engines say of their rates, gathered reading by reading. Pure.

Flow: traffic/reading.py -> Told -> gathered (here) -> Learnt -> rates/applying.py.

Readings of one engine are added up to stretches of some minutes: in a short one the number of requests that finish
is chance, and a chance that makes more in flight makes them look quicker for it. Stretches of one layout with
requests of about the same sizes and about as many in flight are one cell: the mean of their errors (log of measured
over estimated speed), each with the weight of its requests. Evidence halves in HALF_LIFE, so that a new version of
the engine is followed. Nobody trusts a single stretch: one that is beyond any stack is left out, and none counts for
more than MOST_WEIGHT requests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import hypot, log, log2, sqrt
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from sutler.solver.catalog.entries import Precision

HALF_LIFE: Final = timedelta(
    hours=6
)  # chosen: a changed engine is followed within a day, a quiet night forgets little
BEYOND_ANY: Final = log(4.0)  # of an error: chosen, beyond what estimates miss anywhere (docs/accuracy.md)
MOST_WEIGHT: Final = 300.0  # requests of a stretch
SHORTEST: Final = timedelta(minutes=2)  # of a stretch: many times what a request takes
LONGEST: Final = timedelta(minutes=15)  # chosen: traffic changes
FULL_REQUESTS: Final = 100.0  # whose number is chance to a tenth
FEWEST_REQUESTS: Final = 20.0  # of the longest stretch
LEAST_NOISE: Final = 0.02  # of a cell: what the closed form of an operating point itself misses (docs/replanning.md)
ONE_STRETCH: Final = 0.1  # standard deviation of the error of a stretch, until some have shown their own
CELLS_OCTAVES: Final = (0.5, 0.5, 1.0)  # input tokens, output tokens, requests in flight
MOST_CELLS: Final = 60  # chosen: more layouts and sizes than a deployment has; the ones with the least evidence go
MOST_SOURCES: Final = 2_000  # chosen: more than a deployment may have feeds
LEAST_STRETCHES: Final = 3.0  # of a layout, before anything is learnt


class LayoutKey(BaseModel):
    """What replicas share whose rates are learnt together. `engine`: the name of its factors."""

    model_config = ConfigDict(frozen=True)

    model: str
    gpu: str
    tensor_parallel: int
    precision: Precision
    kv_precision: Precision
    engine: str


Sizes = tuple[tuple[float, float, float], ...]


class Stretch(BaseModel):
    """Readings of one engine, added up: `requests` that finished in so many `seconds`, and the seconds that they
    spent in the engine without their waits for a place."""

    model_config = ConfigDict(frozen=True)

    layout: LayoutKey
    first_at: datetime
    last_at: datetime
    seconds: float = 0.0
    requests: float = 0.0
    spent_s: float = 0.0
    cached_fraction: float = 0.0
    sizes: Sizes = ()

    @property
    def in_flight(self) -> float:
        """Requests in the engine on average, by Little's law."""
        return self.spent_s / self.seconds

    @property
    def residence_s(self) -> float:
        return self.spent_s / self.requests

    @property
    def is_full(self) -> bool:
        """Whether it says enough."""
        length = self.last_at - self.first_at
        is_long, is_longest = length >= SHORTEST, length >= LONGEST
        return is_long and self.requests >= (FEWEST_REQUESTS if is_longest else FULL_REQUESTS)


class Cell(BaseModel):
    """Stretches of one layout that are alike: means by weight, and how the errors spread."""

    model_config = ConfigDict(frozen=True)

    layout: LayoutKey
    input_tokens: float
    output_tokens: float
    in_flight: float
    cached_fraction: float
    error: float
    squares: float
    requests: float
    stretches: float
    first_at: datetime
    last_at: datetime

    @property
    def place(self) -> tuple[LayoutKey, tuple[int, ...]]:
        """Which cell it is."""
        return self.layout, _place(self.input_tokens, self.output_tokens, self.in_flight)

    @property
    def noise(self) -> float:
        """Standard deviation of the mean error: that of one stretch until some have shown their own."""
        own = max(self.squares / max(self.requests, 1e-9) - self.error**2, 0.0)
        spread = sqrt((ONE_STRETCH**2 + self.stretches * own) / (1.0 + self.stretches))
        return hypot(spread / sqrt(max(self.stretches, 1e-9)), LEAST_NOISE)

    def at(self, now: datetime) -> "Cell":
        """What its evidence still counts for."""
        left = 0.5 ** (max((now - self.last_at).total_seconds(), 0.0) / HALF_LIFE.total_seconds())
        changed = {name: getattr(self, name) * left for name in ("squares", "requests", "stretches")}
        return self.model_copy(update=changed)


class Learnt(BaseModel):
    """All that was gathered.

    `until`: readings that ended by then are in it; `since`: nothing earlier ever will be. By source, `open` is the
    stretch that goes on, and `layouts` what the engine was last taken for. `beside`: the estimates that the errors
    are of.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    since: datetime | None = None
    until: datetime | None = None
    cells: tuple[Cell, ...] = ()
    open: dict[str, Stretch] = {}
    layouts: dict[str, LayoutKey] = {}
    left_out: int = 0
    beside: str = ""

    def of(self, layout: LayoutKey) -> list[Cell]:
        return [cell for cell in self.cells if cell.layout == layout]

    def known(self, now: datetime) -> list[Cell]:
        """The cells of layouts with enough evidence, as of now."""
        cells = [cell.at(now) for cell in self.cells]
        enough = {
            layout
            for layout in {cell.layout for cell in cells}
            if sum(cell.stretches for cell in cells if cell.layout == layout) >= LEAST_STRETCHES
        }
        return [cell for cell in cells if cell.layout in enough]


@dataclass(frozen=True, slots=True)
class Told:
    """One reading of one engine: how many requests finished, their mean time in it without their waits for a place,
    and their sizes, as (input tokens, output tokens, requests). `replica`: whose layout its feed names."""

    model: str
    source: str
    replica: str | None
    started_at: datetime
    ended_at: datetime
    sizes: Sizes
    requests: float
    residence_s: float
    cached_fraction: float


LayoutOf = Callable[[Told], LayoutKey | None]
"""The layout of the engine that told; None where nobody can know it, or nothing is learnt of such."""
ErrorsOf = Callable[[Sequence[Stretch]], Sequence[float]]
"""Logs of measured over estimated speed."""


def gathered(learnt: Learnt, told: Iterable[Told], layout_of: LayoutOf, errors_of: ErrorsOf) -> Learnt:
    """What is known with these readings, which are in the order of time."""
    new = [one for one in told if one.sizes and (learnt.since is None or one.started_at >= learnt.since)]
    going_on, layouts, full = dict(learnt.open), dict(learnt.layouts), []
    for one in new:
        layout = layout_of(one)
        if layout is None:
            going_on.pop(one.source, None)
            continue
        layouts.pop(one.source, None)
        layouts[one.source] = layout  # the newest last
        stretch = _longer(going_on.get(one.source), one, layout)
        going_on[one.source] = stretch
        if stretch.is_full:
            full.append(stretch)
            del going_on[one.source]
    cells, left_out = {cell.place: cell for cell in learnt.cells}, learnt.left_out
    for stretch, error in zip(full, errors_of(full), strict=True):
        if not abs(error) <= BEYOND_ANY:
            left_out += 1
            continue
        cell = _cell(stretch, error)
        before = cells.get(cell.place)
        cells[cell.place] = cell if before is None else _merged(before.at(cell.last_at), cell)
    kept = sorted(cells.values(), key=lambda cell: -cell.stretches)[:MOST_CELLS]
    until = max((one.ended_at for one in new), default=learnt.until)
    going_on = {source: one for source, one in going_on.items() if until is None or one.last_at > until - LONGEST}
    changed = {
        "cells": tuple(kept),
        "until": until,
        "open": going_on,
        "layouts": dict(list(layouts.items())[-MOST_SOURCES:]),
        "left_out": left_out,
    }
    return learnt.model_copy(update=changed)


def _longer(before: Stretch | None, one: Told, layout: LayoutKey) -> Stretch:
    """The stretch with one more reading; a new one where the last is of another layout or too old."""
    seconds = (one.ended_at - one.started_at).total_seconds()
    if before is None or before.layout != layout or one.ended_at > before.first_at + LONGEST + SHORTEST:
        before = Stretch(layout=layout, first_at=one.started_at, last_at=one.started_at)
    total = before.requests + one.requests
    cached = (before.requests * before.cached_fraction + one.requests * one.cached_fraction) / total
    return Stretch(
        layout=layout,
        first_at=before.first_at,
        last_at=one.ended_at,
        seconds=before.seconds + seconds,
        requests=total,
        spent_s=before.spent_s + one.requests * one.residence_s,
        cached_fraction=cached,
        sizes=_added(before.sizes, one.sizes),
    )


def _added(before: Sizes, new: Sizes) -> Sizes:
    """Requests of about the same size are one kind, of their mean size."""
    kinds: dict[tuple[int, ...], tuple[float, float, float]] = {}
    for inputs, outputs, requests in (*before, *new):
        place = _place(inputs, outputs, 1.0)
        i, o, n = kinds.get(place, (0.0, 0.0, 0.0))
        total = n + requests
        if total > 0:
            kinds[place] = ((i * n + inputs * requests) / total, (o * n + outputs * requests) / total, total)
    return tuple(kinds.values())


def remembered(stored: dict[str, Any]) -> Learnt:
    """What was stored; nothing where another version wrote it."""
    try:
        return Learnt.model_validate(stored)
    except ValidationError:
        return Learnt()


def _place(input_tokens: float, output_tokens: float, in_flight: float) -> tuple[int, ...]:
    values = zip((input_tokens, output_tokens, in_flight), CELLS_OCTAVES, strict=True)
    return tuple(round(log2(max(value, 1.0)) / octaves) for value, octaves in values)


def _cell(of: Stretch, error: float) -> Cell:
    total = sum(requests for _, _, requests in of.sizes)
    weight = min(of.requests, MOST_WEIGHT)
    inputs, outputs = (sum(size[i] * size[2] for size in of.sizes) / total for i in (0, 1))
    return Cell(
        layout=of.layout,
        input_tokens=inputs,
        output_tokens=outputs,
        in_flight=of.in_flight,
        cached_fraction=of.cached_fraction,
        error=error,
        squares=weight * error**2,
        requests=weight,
        stretches=1.0,
        first_at=of.first_at,
        last_at=of.last_at,
    )


def _merged(before: Cell, new: Cell) -> Cell:
    total = before.requests + new.requests
    means = {
        name: (before.requests * getattr(before, name) + new.requests * getattr(new, name)) / total
        for name in ("error", "input_tokens", "output_tokens", "in_flight", "cached_fraction")
    }
    added = {name: getattr(before, name) + getattr(new, name) for name in ("squares", "requests", "stretches")}
    last_at = max(before.last_at, new.last_at)
    return before.model_copy(update={**means, **added, "last_at": last_at})
