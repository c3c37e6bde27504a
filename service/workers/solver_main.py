"""The solver process: questions come in by its link, progress and answers go out.

It ends with its worker: when its link closes, even in the middle of a solve. What libraries print goes to stderr.
"""

import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final, Union

from sutler.service.documents.errors import DocumentError
from sutler.service.workers.frames import packed, read
from sutler.solver import solve
from sutler.solver.clearing import Clearing, clear
from sutler.solver.errors import InvalidProblemError
from sutler.solver.problem import Problem
from sutler.solver.progress import Progress
from sutler.solver.replanning import Consideration, consider

if TYPE_CHECKING:
    from sutler.service.offline.questions import OfflineQuestion
    from sutler.service.simulation.questions import ValidationQuestion
    from sutler.service.studies.questions import Study

NICENESS: Final = 10  # the API's answers come first
TELL_S: Final = 0.1  # chosen: several times as often as progress is stored; each report wakes the worker

Question = Union[Problem, Consideration, Clearing, "OfflineQuestion", "ValidationQuestion", "Study"]


def main(link: socket.socket) -> None:
    os.nice(NICENESS)
    os.dup2(2, 1)
    out = link.makefile("wb")
    questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(link.makefile("rb"), questions), daemon=True).start()
    while True:
        _tell(out, _answered(questions.get(), out))


def _receive(stream: BinaryIO, questions: "queue.SimpleQueue[Question]") -> None:
    while True:
        try:
            questions.put(read(stream))
        except EOFError:
            os._exit(0)  # nobody is left to tell


def _answered(question: Question, out: BinaryIO) -> tuple[str, object]:
    telling = _Telling(out).progress
    try:
        if isinstance(question, Consideration):
            return "considered", consider(question, on_progress=telling)
        if isinstance(question, Problem):
            return "plan", solve(question, on_progress=telling)
        answer = clear(question) if isinstance(question, Clearing) else _document(question, telling)
        return "document", answer
    except InvalidProblemError as error:
        return "invalid", (error.field, error.value, error.remedy)
    except DocumentError as error:
        return "wrong", error.problems
    except Exception:
        return "defect", traceback.format_exc()


def _document(
    question: "OfflineQuestion | ValidationQuestion | Study", on_progress: Callable[[Progress], None]
) -> object:
    """What these need is imported with the first question: most solver processes never get one."""
    from sutler.service.offline import questions as offline
    from sutler.service.simulation import questions as simulation

    if isinstance(question, simulation.ValidationQuestion):
        return simulation.answered(question, on_progress)
    from sutler.service.studies import questions as studies

    if isinstance(question, studies.Study):
        from sutler.service.studies import answering

        return answering.answered(question, on_progress).model_dump_json(by_alias=True)
    return offline.answered(question)


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
