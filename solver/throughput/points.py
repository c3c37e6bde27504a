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
however long the queue is, and some above it. A cap is soon passed by: what a number of running sequences carries is
the same under each, so that one look at as many as run at the best so far tells whether another could be better.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
# Times the largest that keeps tokens in time with all sequences running; first those that are the best most often.
_ABOVE: Final = (1.0, 1.8, 1.4, 1.2, 1.08)
_MIXED_CAPS: Final = (256, 24, 168, 44, 112, 12, 72)
_BETWEEN: Final = (1 / 1.24, 1.24)  # times the best of them
_BETTER: Final = 1 + 1e-9  # beyond rounding
_WORTH: Final = 1.003  # times the best: what is no better is not looked for; chosen: looking is as much off
_FEW: Final = 0.7  # of those that are looked at: fewer are cut out, which takes the time of one look; chosen
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
    asked = _Asked(tuple(limits), most_load)
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
        found += _of_mixes(loaded, able, mixes, asked, caps)
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
    layout, rps = found.layout[order], np.ascontiguousarray(found.rps[order].T)
    for column in np.flatnonzero((mixes > 0).sum(axis=1) > 1):  # what a set carries of every mix
        members = np.flatnonzero(mixes[column])
        with np.errstate(divide="ignore"):
            busy = (mixes[column, members, None] / rps[members]).sum(axis=0)
        rps[column] = np.maximum(rps[column], 1.0 / busy)
    kept = np.ones(len(order), dtype=np.bool_)
    for ahead in range(1, int(np.bincount(layout).max(initial=0))):
        earlier, later = slice(None, -ahead), slice(ahead, None)
        here = layout[later] == layout[earlier]
        for one, other in ((later, earlier), (earlier, later)):
            covered = here & kept[other]
            for own, others in zip(rps[:, one], rps[:, other], strict=True):
                covered &= others >= own * _AS_GOOD
            kept[one] &= ~covered
    return take_rows(found, order[kept])


@dataclass(frozen=True, slots=True)
class _Asked:
    limits: tuple[LimitOfEach, ...]
    most_load: float

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
        best.look(caps)
    else:
        best.look(np.full(len(loaded), GRID[-1]))
        if asked.of_tokens:
            largest = best.largest_caps()
            for times in _ABOVE:
                best.look(np.ceil(largest * times).astype(np.int64))
    return best.found()


def _of_mixes(
    loaded: Loaded, able: BoolArray, mixes: FloatArray, asked: _Asked, caps: IntArray | None
) -> Iterator[FoundPoints]:
    """The best cap for each fixed mix [V, W] of each layout that is `able` [num_layouts, W] to serve all of it; mixes
    of as many workloads at once, as sets are."""
    size = (mixes > 0).sum(axis=1)
    for count in np.unique(size[size > 1])[::-1]:  # the largest first, as they stand in `mixes`
        columns = np.flatnonzero(size == count)
        layout, which = np.nonzero((able[:, None] | (mixes[columns] == 0)).all(axis=2))
        workloads = np.nonzero(mixes[columns])[1].reshape(-1, count)[which].T
        column = columns[which]
        best = _BestOfMix(
            loaded.of(layout, workloads), mixes[column, workloads], asked.of(workloads), asked.most_load
        )
        if caps is not None:
            best.look(caps[layout])
        else:
            for cap in _MIXED_CAPS:
                best.look(np.full(len(layout), cap))
            middle = best.cap.copy()
            for times in _BETWEEN:
                best.look(np.rint(middle * times).astype(np.int64))
        served = np.flatnonzero(best.rps > 0)
        rps = np.where(np.arange(len(mixes)) == column[served, None], best.rps[served, None], 0.0)
        yield FoundPoints(layout[served], best.cap[served], rps)


class _BestOfMix:
    """The best cap of each layout so far for workloads in fixed shares `mix` [W, num_layouts]."""

    def __init__(self, loaded: Loaded, mix: FloatArray, limits: list[LimitOfEach], most_load: float) -> None:
        self._loaded, self._mix, self._limits, self._most_load = loaded, mix, limits, most_load
        self._looked = _Looked(loaded.most_slots)
        self.rps, self.cap = np.zeros(len(loaded)), loaded.most_slots
        self._running = np.zeros(loaded.most.shape)  # sequences of each workload at the best

    def look(self, caps: IntArray) -> None:
        """Under a cap each [num_layouts]. Those that cannot carry more than the best, or that memory makes alike, are
        passed by."""
        rows, cap = self._looked.new(caps)
        capped = self._loaded.take(rows).capped(cap)
        with np.errstate(divide="ignore"):
            full_rps = self._most_load / summed(self._mix[:, rows] / capped.full_rps)
        hopeful = np.flatnonzero(full_rps > self.rps[rows] * _WORTH)
        if not len(hopeful):
            return
        rows, cap, capped = rows[hopeful], cap[hopeful], capped.take(hopeful)
        rps, share = mix_ceilings(
            capped,
            self._mix[:, rows],
            [limit.take(rows) for limit in self._limits],
            most_load=self._most_load,
            known_rps=self.rps[rows] * _WORTH,
            known_share=_busy_share(self._running[:, rows], capped),
        )
        better = np.flatnonzero(rps > self.rps[rows] * _BETTER)
        chosen = rows[better]
        self.rps[chosen], self.cap[chosen] = rps[better], cap[better]
        self._running[:, chosen] = capped.slots[:, better] * share[better]


class _Looked:
    """Caps that were looked at, each `slots` [num_layouts] at most."""

    def __init__(self, slots: IntArray) -> None:
        self._slots, self._caps = slots, np.zeros((0, len(slots)), dtype=np.int64)

    def new(self, caps: IntArray) -> tuple[IntArray, IntArray]:
        """Those of the layouts, and their caps, whose cap of `caps` [num_layouts] was not looked at before."""
        caps = np.clip(caps, 1, self._slots)
        rows = np.flatnonzero((caps != self._caps).all(axis=0))
        self._caps = np.vstack([self._caps, caps])
        return rows, caps[rows]


def _busy_share(running: FloatArray, capped: Capped) -> FloatArray:
    """The share of the sequences with which a little more run of each workload than `running` [W, num_layouts], 1 at
    most; 1 where none is known to run."""
    share = (running / capped.slots).max(axis=0)
    return np.where(share > 0, np.minimum(share * _WORTH, 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class _Under:
    """Layouts of a search, those `rows` of it, each under a cap; weight [W, num_rows]: shares of what is offered."""

    rows: IntArray
    cap: IntArray
    capped: Capped
    weight: FloatArray
    limits: tuple[LimitOfEach, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: IntArray) -> "_Under":
        """Cuts it to some of them."""
        limits = tuple(limit.take(chosen) for limit in self.limits)
        weight = self.weight.take(chosen, axis=1)
        return _Under(self.rows[chosen], self.cap[chosen], self.capped.take(chosen), weight, limits)

    def carried(self, rps: FloatArray) -> FloatArray:
        """Requests/s [num_rows] of what is offered, at rates [W, num_rows]; 0 where a workload is not served."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / summed(self.weight / rps), dtype=np.float64)


class _Best:
    """The best point so far of each layout that admits all workloads, offered in shares `mix` [W, num_layouts]."""

    def __init__(self, loaded: Loaded, mix: FloatArray, asked: _Asked) -> None:
        self._loaded, self._most_load = loaded, asked.most_load
        self._weight = np.broadcast_to(np.maximum(mix, 1e-9), loaded.most.shape)
        self._limits = tuple(asked.of(loaded.workload))
        self._looked = _Looked(loaded.most_slots)
        self._score = np.zeros(len(loaded))
        self._rps = np.zeros(loaded.most.shape)
        self._cap = np.ones(len(loaded), dtype=np.int64)
        self._running = np.zeros(loaded.most.shape)  # sequences of each workload

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
        """The best share under a cap each [num_layouts]. Those that cannot carry more than the best, or that memory
        makes alike, are passed by."""
        rows, cap = self._looked.new(caps)
        limits = tuple(limit.take(rows) for limit in self._limits)
        under = _Under(rows, cap, self._loaded.take(rows).capped(cap), self._weight.take(rows, axis=1), limits)
        under = self._hopeful(under, under.carried(under.capped.full_rps * self._most_load))
        if not len(under):
            return
        self._try(under, np.ones(len(under)))
        # With as many running as at the best, rates are the same: what may be better is what the limits allow.
        share = _busy_share(self._running[:, under.rows], under.capped)
        _, most, allowed = self._try(under, share, is_kept=False)
        is_known = (self._score[under.rows] > 0) & (share < 1)
        self._narrow(self._hopeful(under, np.where(is_known, np.maximum(most / _WORTH, allowed), np.inf)))

    def _hopeful(self, under: _Under, most: FloatArray) -> _Under:
        """Those that may carry more than the best, where they carry this at most [num_rows]."""
        return under.take(np.flatnonzero(most > self._score[under.rows] * _WORTH))

    def _narrow(self, under: _Under) -> None:
        """Looks for the best share by golden section: what is carried has one peak, since more sequences carry more
        until waits or tokens take too long. Rows end where no share that is left can carry more than the best."""
        low, high = np.full(len(under), np.log(_LEAST_SHARE)), np.zeros(len(under))
        most, allowed = under.carried(under.capped.full_rps), np.full(len(under), np.inf)
        is_open = np.ones(len(under), dtype=np.bool_)

        def carried(log_share: FloatArray) -> FloatArray:
            return self._try(under, np.exp(log_share), is_kept=is_open)

        left, right = high - _SECTION * (high - low), low + _SECTION * (high - low)
        of_left, of_right = carried(left), carried(right)
        for _ in range(_NARROWED):
            falls = of_left[0] >= of_right[0]
            low, allowed = np.where(falls, low, left), np.where(falls | (of_left[0] == 0), allowed, of_left[2])
            high, most = np.where(falls, right, high), np.where(falls, of_right[1], most)
            is_open &= np.minimum(most, allowed) > self._score[under.rows] * _WORTH
            if is_open.sum() < _FEW * len(is_open):
                some = np.flatnonzero(is_open)
                under, is_open = under.take(some), is_open[some]
                low, high, most, allowed = low[some], high[some], most[some], allowed[some]
                left, right, falls = left[some], right[some], falls[some]
                of_left, of_right = of_left[:, some], of_right[:, some]
                if not len(some):
                    return
            tried = np.where(falls, high - _SECTION * (high - low), low + _SECTION * (high - low))
            of_tried = carried(tried)
            left, right = np.where(falls, tried, right), np.where(falls, left, tried)
            of_left, of_right = np.where(falls, of_tried, of_right), np.where(falls, of_left, of_tried)

    def found(self) -> FoundPoints:
        """Layouts without any are left out."""
        rows = np.flatnonzero(self._score > 0)
        return FoundPoints(rows, self._cap[rows], self._rps.T[rows])

    def _try(self, under: _Under, share: FloatArray, *, is_kept: BoolArray | bool = True) -> FloatArray:
        """Returns three kinds of requests/s of what is offered [3, num_rows]: what a share [num_rows] of the slots
        carries, 0 where it misses a limit; what as many or fewer carry at most; and what the limits allow with as
        many or more. What is better than the best, and may be kept, is the best from now on."""
        capped, running, own = under.capped, under.capped.running(share), under.capped.loaded.own
        behaviour, decay = at_worst(running), np.zeros(len(share))
        for limit in under.limits:
            longest_s = longest_wait_s(behaviour, own, limit)
            decay = np.maximum(decay, decay_needed(behaviour, longest_s, limit.tail))
        in_time = np.isfinite(decay)
        any_queue = (share == 1) & (decay == 0)  # what holds with all running, holds whatever waits
        counted = np.where(any_queue, 1.0, QUEUED_SHARE)
        slot_s = capped.loaded.slot_s + own.chunks * behaviour.written_s
        exponent = np.minimum(np.where(in_time, decay, 0.0) * slot_s, MOST_EXPONENT)
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = np.where(exponent > 0, decay / np.expm1(exponent), np.inf)
        allowed = np.where(in_time, allowed, 0.0)
        rps = np.minimum(np.minimum(running.rps, allowed) * counted, capped.full_rps * self._most_load)
        rps = rps * (rps >= capped.full_rps * _LEAST_LOAD).all(axis=0)
        carried = under.carried(rps)
        better = np.flatnonzero((carried > self._score[under.rows] * _BETTER) & is_kept)
        rows = under.rows[better]
        self._score[rows], self._rps[:, rows], self._cap[rows] = carried[better], rps[:, better], under.cap[better]
        self._running[:, rows] = running.n[:, better]
        return np.array([carried, under.carried(running.rps * counted), under.carried(allowed * counted)])
