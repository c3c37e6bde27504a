"""Runs cells by the strategies that they name, in processes of their own, and keeps what is done.

Every outcome is a line of JSON in a file under build/: an interrupted run goes on where it was ended. Outcomes of
another version of sutler, or of other options, are not taken for those of this one.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.cells import OPTIONS, Cell, Outcome, from_json
from benchmarks.papers.comparing import compared
from sutler.solver.version import VERSION

RUN: Final = f"{VERSION}, gap {OPTIONS.relative_gap:g}, {OPTIONS.time_limit_s:g} s"
Tell = Callable[[str], None]
_Compare = Callable[[Cell], Sequence[Outcome]]
# The solver uses one thread; libraries under NumPy would otherwise start one per core.
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(cells: Sequence[Cell], *, jobs: int, kept: Path, tell: Tell, compare: _Compare = compared) -> list[Outcome]:
    """The outcomes of all cells, in the order of the cells and of their strategies."""
    done = {(one.cell, one.strategy): one for one in read(kept)}
    left = [short for cell in cells if (short := _left(cell, done)).strategies]
    tell(f"{len(cells)} cells, {len(left)} to run, {jobs} at a time")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        for number, (cell, outcomes) in enumerate(_ran(left, jobs, compare), start=1):
            for one in outcomes:
                done[one.cell, one.strategy] = one
                file.write(json.dumps({"run": RUN, **asdict(one)}) + "\n")
            file.flush()
            tell(f"{number}/{len(left)} {cell.name}: {sum(one.seconds for one in outcomes):.1f} s")
    return [done[key] for cell in cells for name in cell.strategies if (key := (cell.name, name)) in done]


def read(kept: Path) -> list[Outcome]:
    """What earlier runs of this version left; a last line that was not finished is passed over."""
    if not kept.exists():
        return []
    return [outcome for line in kept.read_text(encoding="utf-8").splitlines() if (outcome := _outcome(line))]


def _outcome(line: str) -> Outcome | None:
    try:
        row: dict[str, Any] = json.loads(line)
        return from_json(row) if row.pop("run") == RUN else None
    except (ValueError, TypeError, KeyError):
        return None


def _left(cell: Cell, done: Iterable[tuple[str, str]]) -> Cell:
    """With the strategies that have not run."""
    known = set(done)
    return replace(cell, strategies=tuple(name for name in cell.strategies if (cell.name, name) not in known))


def _ran(cells: Sequence[Cell], jobs: int, compare: _Compare) -> Iterator[tuple[Cell, Sequence[Outcome]]]:
    if jobs == 1:
        yield from ((cell, compare(cell)) for cell in cells)
        return
    # A fork would share HiGHS's and the BLAS's state with the parent.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        running = {pool.submit(compare, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()


def _one_thread() -> None:
    for name in _ONE_THREAD:
        os.environ[name] = "1"
