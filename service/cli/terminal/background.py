"""Runs a solve in the background, so that Ctrl-C works while compiled code is busy, and shows how far it is."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from sutler.service.cli.terminal.output import console_for
from sutler.service.cli.views.wording import number, objective_unit, percent
from sutler.solver.plan import Plan
from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.progress import Progress

T = TypeVar("T")
Solve = Callable[[Problem, Callable[[Progress], None]], Plan]
QUIET_S = 0.5  # a solve that ends sooner would only make the display flicker
REDRAW_S = 0.1
SPINNER_COLUMNS = 3


def solve_in_background(problem: Problem, solve: Solve) -> Plan:
    """The plan, with progress on stderr where that is a terminal.

    Raises KeyboardInterrupt on Ctrl-C at once; the solve is then left to die with the process.
    """
    latest: list[Progress] = []

    def words(seconds: float) -> str:
        seen = latest[-1] if latest else Progress("solving", 0.0)
        return progress_line(replace(seen, seconds=seconds), problem.objective.kind)

    return in_background(lambda: solve(problem, latest.append), words)


def in_background(work: Callable[[], T], words: Callable[[float], str]) -> T:
    """What `work` returns; meanwhile what `words` says, given the seconds, is on stderr where that is a terminal.

    Raises what `work` raises, and KeyboardInterrupt on Ctrl-C at once; the work is then left to die with the process.
    """
    future: Future[T] = Future()
    worker = Thread(target=_run, args=(future, work), daemon=True, name="solve")
    worker.start()
    worker.join(QUIET_S)
    if worker.is_alive():
        _watch(worker, words, console_for("stderr"))
    return future.result()


def _run(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _watch(worker: Thread, words: Callable[[float], str], console: Console) -> None:
    if console.color_system is None:
        while worker.is_alive():
            worker.join(REDRAW_S)
        return
    started = time.monotonic() - QUIET_S
    with console.status(Text("solving")) as status:
        while worker.is_alive():
            worker.join(REDRAW_S)
            line = Text(words(time.monotonic() - started))
            line.truncate(console.width - SPINNER_COLUMNS, overflow="ellipsis")
            status.update(line)


def progress_line(progress: Progress, kind: ObjectiveKind) -> str:
    """One line such as `1.2 s · incumbent · best 7.1 req/s · proven 7.14 (gap 0.56 %) · 2,055 candidates`."""
    parts = [f"{progress.seconds:.1f} s", progress.phase]
    if progress.value is not None:
        parts.append(f"best {number(progress.value)} {objective_unit(kind)}")
    if progress.bound is not None:
        gap = "" if progress.relative_gap is None else f" (gap {percent(progress.relative_gap)})"
        parts.append(f"proven {number(progress.bound)}{gap}")
    if progress.candidates is not None:
        parts.append(f"{progress.candidates:,} candidates")
    return " · ".join(parts)
