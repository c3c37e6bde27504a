"""Savings over fleets of one GPU type: of Melange by its paper, of its strategy and of sutler by our estimates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.papers.cells import Cell
from benchmarks.papers.claims import MELANGE_COSTS, MELANGE_GPUS
from benchmarks.papers.summaries import SUTLER, Outcomes, value

STRATEGIES: Final = ("melange", SUTLER)
_NOT_IN_THE_PAPER: Final = (None,) * (1 + len(MELANGE_GPUS))


@dataclass(frozen=True, slots=True)
class Row:
    """$/h of one dataset, TPOT and rate; `singles` in the order of MELANGE_GPUS. None: no such fleet or row."""

    dataset: str
    tpot_ms: int
    rate: int
    paper: float | None
    papers_singles: tuple[float | None, ...]
    ours: dict[str, float | None]
    singles: tuple[float | None, ...]


def rows(cells: Sequence[Cell], outcomes: Outcomes) -> list[Row]:
    """Of what has run."""
    found = []
    for cell in cells:
        if cell.part == "melange" and (cell.name, SUTLER) in outcomes:
            dataset, tpot_ms, rate = f"{cell.get('dataset')}", int(cell.get("tpot_ms")), int(cell.get("rate"))
            paper, *singles = MELANGE_COSTS[dataset, tpot_ms].get(rate, _NOT_IN_THE_PAPER)
            ours = {name: value(outcomes, cell, name) for name in STRATEGIES}
            own = tuple(value(outcomes, cell, f"homogeneous/{gpu}") for gpu in MELANGE_GPUS)
            found.append(Row(dataset, tpot_ms, rate, paper, tuple(singles), ours, own))
    return found


def saving(cost: float | None, single: float | None) -> float | None:
    """What of the single fleet's cost is saved."""
    return None if cost is None or not single else 1 - cost / single


def over_best(cost: float | None, singles: Sequence[float | None]) -> float | None:
    """The saving over the cheapest of the single fleets."""
    known = [one for one in singles if one]
    return saving(cost, min(known)) if known else None
