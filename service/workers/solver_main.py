"""The solver process: questions come in by its link, progress and answers go out."""

import os
import socket
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Union

from sutler.service.answering import Message, is_short_of_memory, serve
from sutler.service.documents.errors import DocumentError
from sutler.solver import solve
from sutler.solver.clearing import Clearing, clear
from sutler.solver.errors import EngineError, InvalidProblemError
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


def main(link: socket.socket, most_bytes: int) -> None:
    os.nice(NICENESS)
    serve(link, _answered, most_bytes=most_bytes)


def _answered(question: Question, tell: Callable[[Progress], None]) -> Message:
    telling = _Telling(tell).progress
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
    except MemoryError:
        raise  # no defect: `serve` tells of it
    except Exception as error:
        if isinstance(error, EngineError) and is_short_of_memory():
            raise MemoryError from None
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

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell, self._told_at, self._phase = tell, 0.0, ""

    def progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != self._phase or now - self._told_at >= TELL_S:
            self._told_at, self._phase = now, progress.phase
            self._tell(progress)
