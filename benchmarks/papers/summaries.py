"""Cells and outcomes to the few figures that are compared with the papers'."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from benchmarks.papers.cells import OPTIONS, Cell, Outcome
from benchmarks.papers.claims import GridClaim
from benchmarks.papers.grid import gpu_class, homogeneous

SUTLER: Final = "sutler"
ROUNDING: Final = 1e-6
"""Of HiGHS, whose tolerances are of this order."""
LESS_IS_BETTER: Final = ("melange", "cauchy", "least-power", "least-cost")

Outcomes = Mapping[tuple[str, str], Outcome]


@dataclass(frozen=True, slots=True)
class Spread:
    """Fractions over pairs of cell and rival: in `behind` of the `pairs` sutler is behind by more than the gap."""

    pairs: int
    mean: float
    least: float
    most: float
    behind: int


@dataclass(frozen=True, slots=True)
class Beaten:
    """A rival on the same supply with more than sutler's plan, by more than the gap; `sutlers` None: it has no plan.

    `contradicts`: more than sutler proved possible, which is a bug.
    """

    cell: str
    strategy: str
    value: float
    sutlers: float | None
    bound: float | None
    contradicts: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Plans of rivals on the supply that sutler has, in the cells of a part: how sutler's stand to them.

    `ahead`, `level`, `behind`: by more than the gap, within it, behind it by more. `alone`: only sutler has a plan.
    """

    part: str
    cells: int
    ahead: int
    level: int
    behind: int
    alone: int


def index(outcomes: Iterable[Outcome]) -> Outcomes:
    return {(one.cell, one.strategy): one for one in outcomes}


def spread(fractions: Sequence[float]) -> Spread | None:
    """None: there is nothing to compare."""
    if not fractions:
        return None
    behind = sum(fraction < -OPTIONS.relative_gap for fraction in fractions)
    return Spread(len(fractions), fmean(fractions), min(fractions), max(fractions), behind)


def claimed(claim: GridClaim, cells: Sequence[Cell], outcomes: Outcomes, *, catalog: str) -> list[float]:
    """The gains or losses of a claim, one for each of its cells (and rivals)."""
    return [
        fraction
        for cell in cells
        if cell.part == "grid" and cell.get("catalog") == catalog
        if cell.get("model") in claim.models and cell.get("trace") in claim.traces
        for fraction in _fractions(claim, cell, outcomes)
    ]


def _fractions(claim: GridClaim, cell: Cell, outcomes: Outcomes) -> list[float]:
    ours = value(outcomes, cell, SUTLER)
    found = [value(outcomes, cell, rival(name, f"{cell.get('catalog')}")) for name in claim.rivals]
    theirs = [one for one in found if one]
    if not ours or not theirs:
        return []
    if claim.best and len(theirs) < len(claim.rivals):
        return []
    chosen = [max(theirs)] if claim.best else theirs
    return [ours / one - 1 if claim.kind == "gain" else 1 - one / ours for one in chosen]


def rival(name: str, catalog: str) -> str:
    """The strategy's name: `h100` and `h100/unlimited` are fleets of one type, every other name is its own."""
    gpu, _, supply = name.partition("/")
    if gpu in ("h100", "a6000", "4090"):
        return homogeneous(gpu, catalog, unlimited=supply == "unlimited")
    return name


def value(outcomes: Outcomes, cell: Cell, strategy: str) -> float | None:
    """None where the strategy has no plan, or was not asked."""
    one = outcomes.get((cell.name, strategy))
    return None if one is None else one.value


def beaten(cells: Iterable[Cell], outcomes: Outcomes, *, gap: float) -> list[Beaten]:
    """Every rival on the same supply that is better than sutler by more than the gap."""
    found = []
    for cell in cells:
        ours = outcomes.get((cell.name, SUTLER))
        if ours is None:
            continue
        sign = -1.0 if less_is_better(cell) else 1.0
        for name in cell.strategies:
            one = outcomes.get((cell.name, name))
            if one is None or one.value is None or one.own_market or name == SUTLER:
                continue
            if ours.value is None or ours.bound is None:
                is_refuted = ours.status == "infeasible"
                found.append(Beaten(cell.name, name, one.value, ours.value, ours.bound, is_refuted))
                continue
            slack = gap * abs(ours.value)
            if sign * (one.value - ours.value) > slack:
                contradicts = sign * (one.value - ours.bound) > ROUNDING * abs(ours.bound)
                found.append(Beaten(cell.name, name, one.value, ours.value, ours.bound, contradicts))
    return found


def standing(part: str, cells: Iterable[Cell], outcomes: Outcomes, *, gap: float) -> Standing:
    own = [cell for cell in cells if cell.part == part and (cell.name, SUTLER) in outcomes]
    behind = {(one.cell, one.strategy) for one in beaten(own, outcomes, gap=gap)}
    ahead = level = alone = 0
    for cell in own:
        ours = value(outcomes, cell, SUTLER)
        for name in cell.strategies:
            one = outcomes.get((cell.name, name))
            if one is None or ours is None or one.own_market or name == SUTLER or (cell.name, name) in behind:
                continue
            if one.value is None:
                alone += 1
            elif (one.value - ours if less_is_better(cell) else ours - one.value) > gap * abs(ours):
                ahead += 1
            else:
                level += 1
    return Standing(part, len(own), ahead, level, len(behind), alone)


def less_is_better(cell: Cell) -> bool:
    """Costs and watts, rather than requests/s."""
    if cell.part == "splitwise":
        return cell.get("goal") in LESS_IS_BETTER
    return cell.part in LESS_IS_BETTER


def unproven(cells: Iterable[Cell], outcomes: Outcomes, *, gap: float) -> list[Outcome]:
    """Sutler's plans that the time limit ended before their gap was closed."""
    ours = [outcomes.get((cell.name, SUTLER)) for cell in cells]
    return [one for one in ours if one and one.value and one.bound and abs(one.bound / one.value - 1) > gap]


def broken(outcomes: Outcomes) -> list[Outcome]:
    """Plans that do not verify."""
    return [one for one in outcomes.values() if one.violations]


def shares(cells: Sequence[Cell], outcomes: Outcomes, *, served: bool) -> dict[str, float]:
    """Sutler's mean shares by class of GPU over cells: of the $/h, or of the requests that are `served`."""
    found: dict[str, list[float]] = {"data centre": [], "workstation": [], "consumer": []}
    for cell in cells:
        one = outcomes.get((cell.name, SUTLER))
        by_gpu = {} if one is None else one.served_rps if served else one.gpu_usd_per_hour
        total = sum(by_gpu.values())
        if total > 0:
            for kind, known in found.items():
                known.append(sum(part for gpu, part in by_gpu.items() if gpu_class(gpu) == kind) / total)
    return {kind: fmean(known) for kind, known in found.items() if known}
