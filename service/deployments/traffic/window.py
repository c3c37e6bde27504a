"""From what was observed to rates: sums over a sliding window, by workload, with a word on how well they are known.

Pure. Neither the order of the observations nor sending one twice changes anything. A source (an engine, a gateway) is
only counted for the time of which it has told, so that a gap in its reports is no lull in its traffic.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf, log, sqrt
from typing import Final, Literal

from sutler.service.deployments.traffic.trend import SLICES, Trend, trend_of

ENOUGH_REQUESTS: Final = 100  # their number is known to a tenth (one standard deviation)
LEAST_COVERED: Final = 0.5  # of the shortest window
SILENT_AFTER: Final = 3.0  # windows, or lengths of the last observation
PEAK_PARTS: Final = 6  # of the time that a lull has to last: means over them are the peaks in it
RISE_FRACTION: Final = 0.2  # by which one half of a window has more than the other where traffic rises or falls
PARTS_OF_WINDOW: Final = 8  # chosen: a climb that doubles traffic within a window is seen in half of it
OUTPUT_WEIGHT: Final = 4.0  # what an output token costs in input tokens, about as hosted models are priced
CLOCKS_DIFFER_S: Final = 60.0  # of two sources
NEVER: Final = timedelta(0)
AHEAD: Final = timedelta(seconds=5)  # clocks that differ by more than that are not believed

State = Literal["never", "silent", "thin", "live"]
_Part = tuple[int, float, float, float]


@dataclass(frozen=True, slots=True)
class Observation:
    """Some requests between two instants. `buckets`: (input tokens, output tokens, requests), means of each."""

    model: str
    source: str
    started_at: datetime
    ended_at: datetime
    requests: float
    buckets: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """A workload of the problem, by its planned size."""

    name: str
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class WorkloadTraffic:
    """What was seen of a workload: requests in the window, per second, and their mean size (if none, the planned)."""

    workload: str
    requests: float
    rate_rps: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Quiet:
    """`asked_at`: when the last request was reported, at the latest; `told`: for how long until the last report every
    source has reported that there was none."""

    asked_at: datetime | None = None
    told: timedelta = NEVER


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """What is known of a model's traffic over `window_s`.

    `state` is never: nothing was ever seen; silent: nothing is any more; thin: too little to tell; live: it is known.
    `older_rps` and `newer_rps`: in the two halves of the window; the rate where these do not differ beyond chance.
    `peak_work`: the most work in the time that a lull has to last, in input tokens/s; infinite where it is not known
    for so long, and `seen_work`: the most of what is known. `raised_by`: what is expected beyond what was seen, if
    anything is. `trend`: where it is climbing to. `quiet`: for how long there were no requests, where that matters.
    `heard`: the state of what is heard, where the rates are none that were seen.
    """

    model: str
    state: State
    window_s: float
    requests: float
    rate_rps: float
    last_at: datetime | None
    workloads: tuple[WorkloadTraffic, ...]
    peak_work: float = 0.0
    seen_work: float = 0.0
    older_rps: float = 0.0
    newer_rps: float = 0.0
    raised_by: str = ""
    trend: Trend | None = None
    heard: State | None = None
    quiet: Quiet = Quiet()


def model_traffic(
    model: str,
    shapes: Sequence[WorkloadShape],
    observations: Sequence[Observation],
    *,
    now: datetime,
    window_s: float,
    longest_s: float,
    planned_rps: float,
    lull_s: float = 0.0,
) -> ModelTraffic:
    """The traffic over the shortest window, doubled from `window_s` to `longest_s`, that holds enough requests.

    Enough are a hundred, seen or, at the planned rate, to be expected: a feed that sees far fewer may say so. Each
    bucket belongs to the workload whose size is nearest in the logarithms of its tokens.
    """
    known = {o for o in observations if o.started_at < now + AHEAD}
    if not known:
        return ModelTraffic(model, "never", window_s, 0.0, 0.0, None, _nothing(shapes))
    newest = max(known, key=lambda o: (o.ended_at, o.ended_at - o.started_at))
    last_at = min(newest.ended_at, now)
    patience_s = SILENT_AFTER * max(window_s, (newest.ended_at - newest.started_at).total_seconds())
    if (now - last_at).total_seconds() > patience_s:
        return ModelTraffic(model, "silent", window_s, 0.0, 0.0, last_at, _nothing(shapes))
    told = _Told(shapes, known, last_at)
    length_s = window_s
    while not (sums := told.between(-length_s, 0.0)).is_enough(planned_rps, window_s) and length_s < longest_s:
        length_s = min(2 * length_s, longest_s)
    state: State = "live" if sums.is_enough(planned_rps, window_s) else "thin"
    workloads = sums.workloads()
    rate = sum(workload.rate_rps for workload in workloads)
    peak, most = _peak(told, window_s=window_s, lull_s=lull_s)
    (older, newer), differ = _halves(told, length_s)
    slice_s = max(window_s / PARTS_OF_WINDOW, (newest.ended_at - newest.started_at).total_seconds())
    trend = _trend(told, slice_s) if state == "live" and newer > older else None
    older, newer = (older, newer) if differ else (rate, rate)
    return ModelTraffic(
        model, state, length_s, sums.requests, rate, last_at, workloads, peak, most, older, newer, trend=trend
    )


def _trend(told: "_Told", slice_s: float) -> Trend | None:
    slices = [told.between(-(number + 1) * slice_s, -number * slice_s) for number in range(max(SLICES))]
    return trend_of([one.told_requests for one in slices], [one.covered_s for one in slices], slice_s)


def _halves(told: "_Told", length_s: float) -> tuple[tuple[float, float], bool]:
    """Requests/s of the older and the newer half of the window, and whether one of them has clearly more."""
    older, newer = told.between(-length_s, -length_s / 2), told.between(-length_s / 2, 0.0)
    rates = tuple(sum(workload.rate_rps for workload in half.workloads()) for half in (older, newer))
    is_told = min(older.covered_s, newer.covered_s) >= LEAST_COVERED * length_s / 2
    chance = 2 * sqrt(2 / max(1.0, older.requests))
    differ = is_told and max(rates) > min(rates) * (1 + RISE_FRACTION + chance)
    return (rates[0], rates[1]), differ


def work(rate_rps: float, input_tokens: float, output_tokens: float) -> float:
    """The work of requests of that size, by which mixes are compared: in input tokens/s."""
    return rate_rps * (input_tokens + OUTPUT_WEIGHT * output_tokens)


def _peak(told: "_Told", *, window_s: float, lull_s: float) -> tuple[float, float]:
    """The most work of the means over parts of `lull_s`, none shorter than a window; 0 for a lull of no time, and
    infinite where not all of it is known; and the most of the parts that are known."""
    part_s = max(window_s, lull_s / PEAK_PARTS)
    highest = 0.0
    for number in range(round(lull_s / part_s)):
        sums = told.between(-(number + 1) * part_s, -number * part_s)
        if sums.covered_s < LEAST_COVERED * part_s:
            return inf, highest
        highest = max(highest, sum(work(w.rate_rps, w.input_tokens, w.output_tokens) for w in sums.workloads()))
    return highest, highest


class _Told:
    """All that was told, by source, to be added up between any two instants: seconds after `last_at`, below zero."""

    def __init__(
        self, shapes: Sequence[WorkloadShape], observations: Iterable[Observation], last_at: datetime
    ) -> None:
        self._shapes = shapes
        by_source: dict[str, list[Observation]] = defaultdict(list)
        for observation in observations:
            by_source[observation.source].append(observation)
        self._sources = [_Source(members, last_at) for _, members in sorted(by_source.items())]
        self._sorter = _Sorter(shapes)

    def between(self, since_s: float, until_s: float) -> "_Sums":
        """What came then."""
        sums = _Sums(self._shapes)
        for source in self._sources:
            source.add_to(sums, self._sorter, since_s, until_s)
        return sums


class _Source:
    """What one source has told, in the order of its ends; sorted into workloads where that is asked for."""

    def __init__(self, members: Iterable[Observation], last_at: datetime) -> None:
        ordered = sorted(members, key=lambda o: (o.ended_at, o.started_at, o.buckets))
        self._starts_s = [(o.started_at - last_at).total_seconds() for o in ordered]
        self._ends_s = [(o.ended_at - last_at).total_seconds() for o in ordered]
        self._longest_s = max(end - start for start, end in zip(self._starts_s, self._ends_s, strict=True))
        self._buckets = [o.buckets for o in ordered]
        self._parts: list[tuple[_Part, ...] | None] = [None] * len(ordered)

    def add_to(self, sums: "_Sums", sorter: "_Sorter", since_s: float, until_s: float) -> None:
        """What lies between two instants, and the part of it that does.

        Two counts of the same stretch add up, as of two processes that do not tell themselves apart. Stretches that
        overlap in part are one process's sliding window: what they share is counted, and told of, twice.
        """
        counted: list[tuple[float, tuple[_Part, ...]]] = []
        stretches: set[tuple[float, float]] = set()
        last_s, usual_s = -inf, 0.0
        for number in self._about(since_s, until_s):
            start_s, end_s = self._starts_s[number], self._ends_s[number]
            if start_s >= until_s:
                continue
            begin_s, stop_s = max(start_s, since_s), min(end_s, until_s)
            length_s = end_s - start_s
            share = max(0.0, min(1.0, (stop_s - begin_s) / length_s)) if length_s > 0 else 1.0
            counted.append((share, self._sorted(number, sorter)))
            stretches.add((begin_s, stop_s))
            last_s, usual_s = max(last_s, end_s), max(usual_s, length_s)
        if counted:
            told_s = sum(stop_s - begin_s for begin_s, stop_s in sorted(stretches))
            told_s += _ended_s(until_s - last_s, usual_s)
            sums.add(counted, told_s, whole_s=until_s - since_s)

    def _about(self, since_s: float, until_s: float) -> range:
        """The numbers of what ends after the one instant, with all that begins before the other."""
        first = bisect_right(self._ends_s, since_s)
        return range(first, bisect_left(self._ends_s, until_s + self._longest_s, first))

    def _sorted(self, number: int, sorter: "_Sorter") -> tuple[_Part, ...]:
        parts = self._parts[number]
        if parts is None:
            parts = self._parts[number] = sorter.parts_of(self._buckets[number])
        return parts


class _Sorter:
    """Sorts buckets into workloads; the same sizes come again and again."""

    def __init__(self, shapes: Sequence[WorkloadShape]) -> None:
        self._shapes = shapes
        self._numbers = {shape.name: number for number, shape in enumerate(shapes)}
        self._known: dict[tuple[float, float], int] = {}

    def parts_of(self, buckets: Iterable[tuple[float, float, float]]) -> tuple[_Part, ...]:
        """The workload's number, requests, input and output tokens of each bucket."""
        parts = []
        for input_tokens, output_tokens, requests in buckets:
            number = self._known.get((input_tokens, output_tokens))
            if number is None:
                number = self._numbers[nearest(self._shapes, input_tokens, output_tokens).name]
                self._known[input_tokens, output_tokens] = number
            parts.append((number, requests, requests * input_tokens, requests * output_tokens))
        return tuple(parts)


class _Sums:
    """Requests, tokens and rates by workload between two instants."""

    def __init__(self, shapes: Sequence[WorkloadShape]) -> None:
        self._shapes = shapes
        self._counts = [[0.0, 0.0, 0.0, 0.0] for _ in shapes]
        self.covered_s = 0.0  # of the source that has told most, at most the window

    def add(self, counted: Iterable[tuple[float, tuple[_Part, ...]]], told_s: float, *, whole_s: float) -> None:
        """What a source has counted in the seconds that it has told of."""
        self.covered_s = max(self.covered_s, min(told_s, whole_s))
        for share, parts in counted:
            for number, requests, input_tokens, output_tokens in parts:
                sums = self._counts[number]
                sums[0] += requests * share
                sums[1] += requests * share / told_s if told_s > 0 else 0.0
                sums[2] += input_tokens * share
                sums[3] += output_tokens * share

    @property
    def requests(self) -> float:
        return sum(sums[0] for sums in self._counts)

    @property
    def told_requests(self) -> float:
        """Those that come in the time that is told of, at the rate of all sources."""
        return sum(sums[1] for sums in self._counts) * self.covered_s

    def is_enough(self, planned_rps: float, window_s: float) -> bool:
        expected = max(self.requests, planned_rps * self.covered_s)
        return self.covered_s >= LEAST_COVERED * window_s and expected >= ENOUGH_REQUESTS

    def workloads(self) -> tuple[WorkloadTraffic, ...]:
        return tuple(_workload(shape, *sums) for shape, sums in zip(self._shapes, self._counts, strict=True))


def _workload(
    shape: WorkloadShape, requests: float, rate_rps: float, input_sum: float, output_sum: float
) -> WorkloadTraffic:
    if requests <= 0:
        return WorkloadTraffic(shape.name, 0.0, 0.0, shape.input_tokens, shape.output_tokens)
    return WorkloadTraffic(shape.name, requests, rate_rps, input_sum / requests, output_sum / requests)


def nearest(shapes: Sequence[WorkloadShape], input_tokens: float, output_tokens: float) -> WorkloadShape:
    """The workload that requests of this size belong to."""

    def distance(shape: WorkloadShape) -> float:
        across = log(max(input_tokens, 1.0) / shape.input_tokens)
        up = log(max(output_tokens, 1.0) / shape.output_tokens)
        return across * across + up * up

    return min(shapes, key=distance)


def _ended_s(silent_s: float, usual_s: float) -> float:
    """Seconds since a source has ended, as engines that are replaced do: silent for long, while others are not."""
    return silent_s if silent_s > max(SILENT_AFTER * usual_s, CLOCKS_DIFFER_S) else 0.0


def _nothing(shapes: Sequence[WorkloadShape]) -> tuple[WorkloadTraffic, ...]:
    return tuple(WorkloadTraffic(s.name, 0.0, 0.0, s.input_tokens, s.output_tokens) for s in shapes)
