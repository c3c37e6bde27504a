"""How long a step takes: warm-up, repetitions, median. Knows no layer; torch comes in as an argument.

Flow: measure.py, all_reduce.py -> one repetition's clock (`by_clock`, `by_events`) -> Timed.

On a GPU a repetition is one CUDA graph of several steps between two events, so that neither launching kernels nor
the host's speed is part of it: engines decode from graphs too. Where capturing fails the steps are launched one by
one, and the caller is told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sutler.solver.units import MILLISECONDS_PER_SECOND

# Steps of one repetition, so that the gaps before the first and after the last kernel are small beside it.
LEAST_STEPS: Final = 8
LAUNCHED: Final = "CUDA graphs cannot be captured here ({reason}): times include the launch of every kernel"


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeat at least `least` and at most `most` times, until the repetitions add up to `enough_s`."""

    warm_up: int
    least: int
    most: int
    enough_s: float


# Chosen: medians of ten and more are steady, and a grid takes minutes; the quick one only shows that it works.
FULL: Final = Repeats(warm_up=3, least=10, most=50, enough_s=0.3)
QUICK: Final = Repeats(warm_up=1, least=5, most=10, enough_s=0.1)


@dataclass(frozen=True, slots=True)
class Timed:
    """`seconds`: median of one step. `spread_fraction`: the interquartile range as a share of the median."""

    seconds: float
    repetitions: int
    spread_fraction: float


def timed(repetition_s: Callable[[], float], *, steps: int, effort: Repeats) -> Timed:
    """Calls `repetition_s`, the seconds of `steps` steps, until `effort` is spent."""
    for _ in range(effort.warm_up):
        repetition_s()
    seen: list[float] = []
    while len(seen) < effort.least or (len(seen) < effort.most and sum(seen) < effort.enough_s):
        seen.append(repetition_s())
    low, median, high = (float(value) for value in np.quantile(seen, (0.25, 0.5, 0.75)))
    return Timed(median / steps, len(seen), (high - low) / median if median > 0 else 0.0)


def by_clock(run: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    """Seconds that `run` takes by a monotonic clock; for work that is done when it returns."""

    def repetition_s() -> float:
        before = clock()
        run()
        return clock() - before

    return repetition_s


def by_events(torch: Any, run: Callable[[], object]) -> Callable[[], float]:
    """Seconds between CUDA events around `run`, on the device's own clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def repetition_s() -> float:
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / MILLISECONDS_PER_SECOND

    return repetition_s


def captured(torch: Any, run: Callable[[], object]) -> tuple[Callable[[], object], str]:
    """`run` as a CUDA graph, or itself with a note where it cannot be captured.

    It runs once before, on a stream of its own, so that libraries set themselves up outside the graph
    (docs.pytorch.org, CUDA semantics, CUDA Graphs). Raises torch.cuda.OutOfMemoryError.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        return run, LAUNCHED.format(reason=reason)
    return graph.replay, ""
