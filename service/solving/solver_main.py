"""The solver process: `python -m service.solving.solver_main`. Problems come in, progress and plans go out.

It ends with its worker: when its input closes, even in the middle of a solve. What libraries print goes to stderr.
"""

import os
import queue
import sys
import threading
import time
import traceback
from typing import BinaryIO, Final

from service.solving.frames import packed, read
from solver import solve
from solver.errors import InvalidProblemError
from solver.plan import Plan
from solver.problem import Problem
from solver.progress import Progress

NICENESS: Final = 10  # the API's answers come first
TELL_S: Final = 0.1


def main() -> None:
    os.nice(NICENESS)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    problems: queue.SimpleQueue[Problem] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, problems), daemon=True).start()
    while True:
        _tell(out, _solved(problems.get(), out))


def _receive(stream: BinaryIO, problems: "queue.SimpleQueue[Problem]") -> None:
    while True:
        try:
            problems.put(read(stream))
        except EOFError:
            os._exit(0)  # nobody is left to tell


def _solved(problem: Problem, out: BinaryIO) -> tuple[str, object]:
    try:
        plan: Plan = solve(problem, on_progress=_Telling(out).progress)
    except InvalidProblemError as error:
        return "invalid", (error.field, error.value, error.remedy)
    except Exception:
        return "defect", traceback.format_exc()
    return "plan", plan


class _Telling:
    """Passes progress on, but not more often than anybody looks."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._told_at, self._phase = out, 0.0, ""

    def progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != self._phase or now - self._told_at >= TELL_S:
            self._told_at, self._phase = now, progress.phase
            _tell(self._out, ("progress", progress))


def _tell(out: BinaryIO, message: tuple[str, object]) -> None:
    try:
        out.write(packed(message))
        out.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
