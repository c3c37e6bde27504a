"""What reading one benchmark file gives: the runs it states, and those that cannot be used, each with its reasons.

Flow: vllm.py, guidellm.py, aiperf.py, table.py -> collected, run by run -> RunsRead -> checks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.profiles.runs import BenchmarkRun

MOST_PROBLEMS_SHOWN: Final = 20  # chosen: as many as the command line shows

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class RejectedRun:
    """A run with wrong values; each reason names the field, what stands there and what it must be."""

    place: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunsRead:
    """`format` is vllm, guidellm, aiperf, genai-perf, inferencemax or csv. At least one run; both in the order of the
    file."""

    format: str
    runs: tuple[BenchmarkRun, ...]
    rejected: tuple[RejectedRun, ...] = ()


def collected(
    name: str, format_name: str, stated: Iterable[tuple[str, Given]], read: Callable[[str, Given], BenchmarkRun]
) -> RunsRead:
    """What `read` makes of every (place, what the file states there); one bad run does not lose the others.

    Raises DocumentError where no run is left, with the reasons of all.
    """
    runs, rejected = [], []
    for place, given in stated:
        try:
            runs.append(read(place, given))
        except DocumentError as error:
            rejected.append(RejectedRun(place, tuple(str(problem) for problem in error.problems)))
    if not runs:
        raise DocumentError(_problems(name, format_name, rejected))
    return RunsRead(format_name, tuple(runs), tuple(rejected))


def _problems(name: str, format_name: str, rejected: Iterable[RejectedRun]) -> list[FieldProblem]:
    reasons = [FieldProblem(run.place, None, reason) for run in rejected for reason in run.reasons]
    if not reasons:
        return [FieldProblem("file", short_repr(name), f"holds no {format_name} run: run the benchmark to its end")]
    more = len(reasons) - MOST_PROBLEMS_SHOWN
    rest = [FieldProblem("file", short_repr(name), f"holds {more} more problems")] if more > 0 else []
    return [*reasons[:MOST_PROBLEMS_SHOWN], *rest]
