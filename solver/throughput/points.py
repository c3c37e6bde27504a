"""Operating points: how a layout may be run so that every workload which it admits keeps its limits.

A point is a cap on the engine's sequences and a share of them that runs on average. Its rates h are the most of each
workload alone, and any mixture with sum rate / h <= 1 keeps all limits: nothing is worse than the worst workload
alone (behaviour.py), and the wait for prompts decays as the tightest limit needs where

    h <= theta / (e^(theta s) - 1)

since effective bandwidths add up (latency.py). What holds for every mixture wastes up to half of a replica that gets
the offered one. So there are points of fixed mixes, too: workloads in just the proportions in which they are offered,
at the largest rate that keeps their limits together (ceilings.py).

Of each layout are kept the best point of every workload alone, of all that it can serve together and of some smaller
sets, for fleets that specialise, and the best of every mix (mixes.py). The caps looked at are the engine's largest,
under which sequences never wait for each other, and where tokens or answers have limits the largest that keeps them
however long the queue is, and some above it; where nothing but tokens is limited, the best.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray, concatenated, take_rows
from sutler.solver.throughput.behaviour import MOST_EXPONENT, at_worst, summed
from sutler.solver.throughput.ceilings import mix_ceilings
from sutler.solver.throughput.latency import (
    QUEUED_SHARE,
    LimitOfEach,
    decay_needed,
    full_token_s,
    includes_queue,
    longest_wait_s,
)
from sutler.solver.throughput.loaded import GRID, Capped, Loaded
from sutler.solver.throughput.mixes import halves

_OF_TOKENS: Final = ("tpot", "e2e")  # limits of how long tokens take
_LEAST_SHARE: Final = 0.004  # of the sequences that run on average: one of the 256 that engines run at most
_NARROWED: Final = 11  # times by the golden section: to 1/200 of the logarithm's range, a few per cent of the share
_SECTION: Final = (5**0.5 - 1) / 2
_LEAST_LOAD: Final = 2e-3  # of what a cap carries: less is no point (chosen: twice that of ceilings.py)
_ALL_SUBSETS: Final = 3  # workloads of which every set is tried; chosen: the sets of more are many
# Caps that are looked at are chosen: each costs the time of all layouts, and between two of them little is to gain.
_ABOVE: Final = (1.0, 1.08, 1.2, 1.4, 1.8)  # times the largest that keeps tokens in time with all sequences running
_MIXED_CAPS: Final = (12, 24, 44, 72, 112, 168, 256)
_BETWEEN: Final = (1 / 1.24, 1.24)  # times the best of them
_BETTER: Final = 1 + 1e-9  # beyond rounding
_AS_GOOD: Final = 1 - 5e-3  # of every rate: then the other point is enough; chosen: far within the error bands


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """Operating points; arrays [num_points] and [num_points, V]. layout: which of the layouts; cap: sequences at
    most; rps: the most of each workload alone, then of each fixed mix; 0 where it is not admitted."""

    layout: IntArray
    cap: IntArray
    rps: FloatArray


def operating_points(
    loaded: Loaded,
    limits: Sequence[LimitOfEach],
    mixes: FloatArray,
    offered: FloatArray,
    *,
    most_load: float,
    caps: IntArray | None = None,
) -> FoundPoints:
    """`mixes` [V, W]: as of mixes.py; `offered` [W]: shares of the requests; `most_load`: of what the cap carries,
    whatever the limits allow; `caps` [num_layouts]: the only ones to look at, None: all."""
    asked = _Asked(tuple(limits), most_load, not any(includes_queue(limit.metric, loaded.role) for limit in limits))
    columns, workloads = mixes.shape
    able = np.zeros((len(loaded), workloads), dtype=np.bool_)
    known = None if caps is None else np.repeat(caps, workloads)
    alone = _sought(loaded.pairs(), np.ones((1, able.size)), asked, known)
    layout, workload = np.divmod(alone.layout, workloads)
    able[layout, workload] = True
    found = [FoundPoints(layout, alone.cap, np.where(np.arange(columns) == workload[:, None], alone.rps, 0.0))]
    for each in _of_one_size(_together(able, loaded)):
        members, known = each.workloads, None if caps is None else caps[each.layout]
        part = _sought(loaded.of(each.layout, members.T), offered[members.T], asked, known)
        rps = np.zeros((len(part.layout), columns))
        np.put_along_axis(rps, members[part.layout], part.rps, axis=1)
        found.append(FoundPoints(each.layout[part.layout], part.cap, rps))
    if loaded.role == "aggregated":
        found += [_of_mix(loaded, able, mixes, column, asked, caps) for column in range(workloads, columns)]
    return _enough(concatenated(found), mixes)


def unlimited_points(full_rps: FloatArray, batch: IntArray, columns: int, *, most_load: float) -> FoundPoints:
    """Where nothing takes too long: all sequences run, `batch` [num_layouts, W] of them, at `full_rps`
    [num_layouts, W], or with fixed mixes [num_layouts, V], and one point serves all that a layout can."""
    served = np.minimum(full_rps, full_rps * most_load)
    layout = np.flatnonzero((served > 0).any(axis=1))
    rps = np.zeros((len(layout), columns))
    rps[:, : served.shape[1]] = served[layout]
    return FoundPoints(layout, np.where(served[:, : batch.shape[1]] > 0, batch, 1).max(axis=1)[layout], rps)


@dataclass(frozen=True, slots=True)
class _Sets:
    """Workloads [n, size] to be served together on a layout [n]."""

    layout: IntArray
    workloads: IntArray


def _together(able: BoolArray, loaded: Loaded) -> Iterator[_Sets]:
    """What points are looked for, of more than one workload; `able` [num_layouts, W] alone."""
    for members in np.unique(able[able.sum(axis=1) > 1], axis=0):
        layout, whole = np.flatnonzero((able == members).all(axis=1)), np.flatnonzero(members)
        for some in [whole, *_some_of(whole, loaded)]:
            yield _Sets(layout, np.tile(some, (len(layout), 1)))


def _of_one_size(sets: Iterable[_Sets]) -> Iterator[_Sets]:
    """Many small arrays are slow: sets of one size are looked at together, in the order of layouts (composer.py)."""
    alike = defaultdict(list)
    for each in sets:
        alike[each.workloads.shape[1]].append(each)
    for some in alike.values():
        joined = concatenated(some)
        yield take_rows(joined, np.argsort(joined.layout, kind="stable"))


def _some_of(workloads: IntArray, loaded: Loaded) -> Iterator[IntArray]:
    """Two at least and not all: of few every set, else the halves with the shorter and the longer prompts."""
    count = len(workloads)
    if count <= _ALL_SUBSETS:
        for size in range(2, count):
            yield from (np.array(members) for members in combinations(workloads, size))
        return
    yield from halves(workloads, loaded.prepared.pipes.traffic.input_tokens)


def _enough(found: FoundPoints, mixes: FloatArray) -> FoundPoints:
    """Leaves out points that another of their layout is as good as; of several alike, that of the largest set
    stays."""
    workloads = mixes.shape[1]
    order = np.lexsort((-(found.rps[:, :workloads] > 0).sum(axis=1), found.layout))
    layout, rps = found.layout[order], found.rps[order]
    with np.errstate(divide="ignore", invalid="ignore"):  # what a set carries of every mix
        busy = np.where(mixes > 0, mixes / rps[:, None, :workloads], 0.0).sum(axis=2)
    rps = np.maximum(rps, 1.0 / busy)
    kept = np.ones(len(order), dtype=np.bool_)
    most = int(np.bincount(layout).max(initial=0))
    for ahead in range(1, most):
        here = np.flatnonzero(layout[ahead:] == layout[:-ahead])
        for one, other in ((here + ahead, here), (here, here + ahead)):
            covered = (rps[other] >= rps[one] * _AS_GOOD).all(axis=1) & kept[other]
            kept[one[covered]] = False
    return take_rows(found, order[kept])


@dataclass(frozen=True, slots=True)
class _Asked:
    """`is_saturated`: nothing that waits outside counts, so that all sequences may run."""

    limits: tuple[LimitOfEach, ...]
    most_load: float
    is_saturated: bool

    @property
    def of_tokens(self) -> bool:
        return any(limit.metric in _OF_TOKENS for limit in self.limits)

    def of(self, workload: IntArray) -> list[LimitOfEach]:
        """The limits of workloads [W, num_layouts], or [W, 1]."""
        return [replace(limit, seconds=limit.seconds[workload]) for limit in self.limits]


def _sought(loaded: Loaded, mix: FloatArray, asked: _Asked, caps: IntArray | None) -> FoundPoints:
    """The best point of each layout that admits all workloads of `loaded`, offered in shares `mix` [W, layouts]."""
    best = _Best(loaded, mix, asked)
    if caps is not None:
        best.look(caps[:, None])
    else:
        best.look(np.full((len(loaded), 1), GRID[-1]))
        if asked.of_tokens:
            if asked.is_saturated:
                best.look_through_caps()
            best.look(np.ceil(best.largest_caps()[:, None] * _ABOVE).astype(np.int64))
    return best.found()


def _of_mix(
    loaded: Loaded, able: BoolArray, mixes: FloatArray, column: int, asked: _Asked, caps: IntArray | None
) -> FoundPoints:
    """The best cap for a fixed mix of each layout that is `able` [num_layouts, W] to serve all of it."""
    members = np.flatnonzero(mixes[column])
    layout = np.flatnonzero(able[:, members].all(axis=1))
    best = _BestOfMix(
        loaded.of(layout, np.tile(members[:, None], len(layout))),
        mixes[column, members],
        asked.of(members[:, None]),
        asked.most_load,
    )
    if caps is not None:
        best.look(caps[layout, None])
    else:
        best.look(np.tile(_MIXED_CAPS, (len(layout), 1)))
        best.look(np.rint(best.cap[:, None] * _BETWEEN).astype(np.int64))
    served = np.flatnonzero(best.rps > 0)
    rps = np.where(np.arange(len(mixes)) == column, best.rps[served, None], 0.0)
    return FoundPoints(layout[served], best.cap[served], rps)


class _BestOfMix:
    """The best cap of each layout so far for workloads in fixed shares `mix` [W]."""

    def __init__(self, loaded: Loaded, mix: FloatArray, limits: list[LimitOfEach], most_load: float) -> None:
        self._loaded, self._mix, self._limits, self._most_load = loaded, mix[:, None], limits, most_load
        self._slots = loaded.most_slots
        self.rps, self.cap = np.zeros(len(loaded)), self._slots.copy()

    def look(self, caps: IntArray) -> None:
        """Under each of the caps, ascending [num_layouts, n]. Those that cannot carry more than the best, or that
        memory makes alike, are passed by."""
        caps = np.clip(caps, 1, self._slots[:, None])
        rows, column = np.nonzero(np.diff(caps, axis=1, prepend=0) > 0)
        cap = caps[rows, column]
        capped = self._loaded.take(rows).capped(cap)
        with np.errstate(divide="ignore"):
            full_rps = self._most_load / summed(self._mix / capped.full_rps)
        hopeful = np.flatnonzero(full_rps > self.rps[rows] * _BETTER)
        if not len(hopeful):
            return
        rows, cap = rows[hopeful], cap[hopeful]
        rps = mix_ceilings(capped.take(hopeful), self._mix, self._limits, most_load=self._most_load)
        order = np.argsort(rps, kind="stable")
        better = order[rps[order] > self.rps[rows[order]] * _BETTER]
        self.rps[rows[better]], self.cap[rows[better]] = rps[better], cap[better]


class _Best:
    """The best point of each layout so far."""

    def __init__(self, loaded: Loaded, mix: FloatArray, asked: _Asked) -> None:
        self._loaded, self._most_load = loaded, asked.most_load
        self._weight, self._limits = np.maximum(mix, 1e-9), asked.of(loaded.workload)
        self._slots, self._looked = loaded.most_slots, np.zeros(len(loaded), dtype=np.int64)
        self._score = np.zeros(len(loaded))
        self._rps = np.zeros(loaded.most.shape)
        self._cap = np.ones(len(loaded), dtype=np.int64)

    def largest_caps(self) -> IntArray:
        """The most sequences [num_layouts] that keep the limits of tokens when all of them run; at least 1."""
        low = np.ones(len(self._loaded), dtype=np.int64)
        high = np.full(len(self._loaded), GRID[-1] + 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            behaviour = at_worst(self._loaded.capped(middle).running(np.ones(len(middle))))
            keeps = np.ones(len(middle), dtype=np.bool_)
            for limit in self._limits:
                if limit.metric in _OF_TOKENS:
                    keeps &= (full_token_s(behaviour, self._loaded.own, limit) <= limit.seconds).all(axis=0)
            low, high = np.where(keeps, middle, low), np.where(keeps, high, middle)
        return low

    def look(self, caps: IntArray) -> None:
        """The best share under one of the caps, ascending [num_layouts, n]. Those that cannot carry more than the
        best, or that memory or the look before make alike, are passed by. What is carried has one peak: more
        sequences carry more until waits or tokens take too long. It is found by golden section."""
        caps = np.minimum(caps, self._slots[:, None])
        is_new = (np.diff(caps, axis=1, prepend=0) > 0) & (caps != self._looked[:, None])
        rows, column = np.nonzero(is_new)
        cap, self._looked = caps[rows, column], caps[:, -1]
        capped, weight = self._loaded.take(rows).capped(cap), self._weight.take(rows, axis=1)
        hopeful = np.flatnonzero(_carried(weight, capped.full_rps * self._most_load) > self._score[rows])
        if not len(hopeful):
            return
        rows, cap, capped, weight = rows[hopeful], cap[hopeful], capped.take(hopeful), weight.take(hopeful, axis=1)
        limits = [limit.take(rows) for limit in self._limits]

        def rates(log_share: FloatArray) -> FloatArray:
            return self._rates(capped, np.exp(log_share), limits)

        low, high = np.full(len(rows), np.log(_LEAST_SHARE)), np.zeros(len(rows))
        self._keep(rows, cap, rates(_peak(lambda at: _carried(weight, rates(at)), low, high)))

    def look_through_caps(self) -> None:
        """The best cap with all sequences running."""
        everything = np.ones(len(self._loaded))

        def rates(log_cap: FloatArray) -> FloatArray:
            return self._rates(self._loaded.capped(_whole(log_cap)), everything, self._limits)

        low, high = np.log(everything), np.log(GRID[-1] * everything)
        log_cap = _peak(lambda at: _carried(self._weight, rates(at)), low, high)
        self._keep(np.arange(len(everything)), _whole(log_cap), rates(log_cap))

    def _keep(self, rows: IntArray, cap: IntArray, rps: FloatArray) -> None:
        """What is better than before; the best of a layout that is there several times."""
        score = _carried(self._weight.take(rows, axis=1), rps)
        order = np.argsort(score, kind="stable")
        better = order[score[order] > self._score[rows[order]] * _BETTER]
        chosen = rows[better]
        self._score[chosen], self._rps[:, chosen], self._cap[chosen] = score[better], rps[:, better], cap[better]

    def found(self) -> FoundPoints:
        """Layouts without any are left out."""
        rows = np.flatnonzero(self._score > 0)
        return FoundPoints(rows, np.minimum(self._cap, self._slots)[rows], self._rps.T[rows])

    def _rates(self, capped: Capped, share: FloatArray, limits: Sequence[LimitOfEach]) -> FloatArray:
        """Returns the rates [W, num_rows] of the point on some layouts, as capped; 0 where a limit is missed."""
        running, own = capped.running(share), capped.loaded.own
        behaviour, decay = at_worst(running), np.zeros(len(share))
        for limit in limits:
            longest_s = longest_wait_s(behaviour, own, limit)
            decay = np.maximum(decay, decay_needed(behaviour, longest_s, limit.tail))
        kept = np.isfinite(decay)
        any_queue = (share == 1) & (decay == 0)  # what holds with all running, holds whatever waits
        counted = np.where(any_queue, 1.0, QUEUED_SHARE)
        slot_s = capped.loaded.slot_s + own.chunks * behaviour.written_s
        exponent = np.minimum(np.where(kept, decay, 0.0) * slot_s, MOST_EXPONENT)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(exponent > 0, decay / np.expm1(exponent), np.inf)
        rps = np.minimum(np.minimum(running.rps, most) * counted, capped.full_rps * self._most_load)
        kept &= (rps >= capped.full_rps * _LEAST_LOAD).all(axis=0)
        return np.where(kept, rps, 0.0)


def _carried(weight: FloatArray, rps: FloatArray) -> FloatArray:
    """Requests/s [num_rows] of the offered mix, shares and rates [W, num_rows]; 0 where a workload is not served."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / summed(weight / rps))


def _whole(log_cap: FloatArray) -> IntArray:
    return np.asarray(np.exp(log_cap) + 0.5).astype(np.int64)


def _peak(carried: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray) -> FloatArray:
    """Returns where `carried` is largest between low and high, which has one peak, by golden section."""
    best, score = high, carried(high)
    left, right = high - _SECTION * (high - low), low + _SECTION * (high - low)
    of_left, of_right = carried(left), carried(right)
    for _ in range(_NARROWED):
        falls = of_left >= of_right
        low, high = np.where(falls, low, left), np.where(falls, right, high)
        tried = np.where(falls, high - _SECTION * (high - low), low + _SECTION * (high - low))
        of_tried = carried(tried)
        left, right = np.where(falls, tried, right), np.where(falls, left, tried)
        of_left, of_right = np.where(falls, of_tried, of_right), np.where(falls, of_left, of_tried)
    for other, of_other in ((left, of_left), (right, of_right)):
        best, score = np.where(of_other > score, other, best), np.maximum(score, of_other)
    return best
