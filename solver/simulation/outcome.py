"""What came of every request, and what the replicas were doing meanwhile.

Flow: engine.py tells a Recorder (here) -> Outcome -> summary.py.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.simulation.requests import Requests

TIME_BINS: Final = 512  # chosen: a plot is hardly wider


@dataclass(frozen=True, slots=True)
class Timeline:
    """Means over equal spans of time, arrays [num_bins]: sequences that run, requests that wait, and the used part of
    the cache; `busy_fraction` of each span."""

    span_s: float
    running: FloatArray
    waiting: FloatArray
    cache_fraction: FloatArray
    busy_fraction: FloatArray

    @property
    def busy_s(self) -> float:
        return float(self.busy_fraction.sum() * self.span_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Arrays [num_requests], in the order of `requests`; times count from the first arrival.

    replica: which it went to, -1: none could take it; decode: which it was handed over to after its prompt, -1: none.
    first_token_s, finish_s: NaN where there was none. preemptions [num_replicas]; timelines, one per replica.
    """

    requests: Requests
    replica: IntArray
    decode: IntArray
    first_token_s: FloatArray
    finish_s: FloatArray
    preemptions: IntArray
    timelines: tuple[Timeline, ...]

    @property
    def is_served(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        return np.isfinite(self.finish_s)

    @property
    def ttft_s(self) -> FloatArray:
        return np.asarray(self.first_token_s - self.requests.arrival_s)

    @property
    def e2e_s(self) -> FloatArray:
        return np.asarray(self.finish_s - self.requests.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """Per token after the first; NaN for a single one."""
        after = self.requests.output_tokens - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            tpot = (self.finish_s - self.first_token_s) / after
        return np.where(after > 0, tpot, np.nan)


class Recorder:
    """Keeps what one replica does. Time is kept in TIME_BINS spans, which double whenever it runs out of them, so
    that memory does not grow with what is simulated."""

    def __init__(self, first_token_s: list[float], finish_s: list[float], *, span_s: float, blocks: int) -> None:
        self._first_token_s, self._finish_s, self._blocks = first_token_s, finish_s, blocks
        self._span_s = max(span_s, 1e-3)
        self._sums = [[0.0] * TIME_BINS for _ in range(4)]
        self.preemptions = 0
        self.ended: list[int] = []
        self.handed: list[tuple[float, int]] = []

    def first_token(self, request: int, at_s: float) -> None:
        self._first_token_s[request] = at_s

    def finished(self, request: int, at_s: float) -> None:
        self._finish_s[request] = at_s
        self.ended.append(request)

    def preempted(self, request: int) -> None:
        self.preemptions += 1

    def handed_over(self, request: int, at_s: float) -> None:
        self.handed.append((at_s, request))

    def busy(self, start_s: float, end_s: float, running: int, waiting: int, blocks: int) -> None:
        self._add(start_s, end_s, (running, waiting, blocks, 1.0))

    def idle(self, start_s: float, end_s: float, waiting: int, blocks: int) -> None:
        self._add(start_s, end_s, (0, waiting, blocks, 0.0))

    def _add(self, start_s: float, end_s: float, values: tuple[float, float, float, float]) -> None:
        while end_s > self._span_s * TIME_BINS:
            self._double()
        at = int(start_s / self._span_s)
        while start_s < end_s and at < TIME_BINS:
            until_s = min(end_s, (at + 1) * self._span_s)
            seconds = until_s - start_s
            for sums, value in zip(self._sums, values, strict=True):
                sums[at] += value * seconds
            start_s, at = until_s, at + 1

    def timeline(self, end_s: float) -> Timeline:
        """Returns what was kept up to `end_s`."""
        used = min(TIME_BINS, max(1, int(np.ceil(end_s / self._span_s))))
        running, waiting, blocks, busy = (np.array(sums[:used]) / self._span_s for sums in self._sums)
        return Timeline(self._span_s, running, waiting, blocks / max(self._blocks, 1), busy)

    def _double(self) -> None:
        self._span_s *= 2
        half = [0.0] * (TIME_BINS // 2)
        self._sums = [[a + b for a, b in zip(s[::2], s[1::2], strict=True)] + half for s in self._sums]
