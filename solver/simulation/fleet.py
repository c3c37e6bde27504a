"""Requests through all replicas of a plan.

Flow: step_times.py, requests.py -> simulate, closed_loop (here), with engine.py, roles.py, routing.py -> outcome.py.

The gateway chooses the replica that prefills and the one that decodes when a request arrives, as vLLM's proxies for
disaggregated prefill do. Nothing flows back from decoding to prefill, so a hand-over is an arrival like any other,
due as soon as every replica that prefills has got that far.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, nan

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.simulation.engine import BLOCK_TOKENS, Engine, EngineSettings
from sutler.solver.simulation.outcome import TIME_BINS, Outcome, Recorder
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.roles import DecodeEngine, PrefillEngine
from sutler.solver.simulation.routing import Router, RoutingPolicy, router
from sutler.solver.simulation.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class SimulatedReplica:
    """`outside_s`: what a request takes before it reaches the engine's queue (HTTP, tokenizer)."""

    name: str
    times: StepTimes
    settings: EngineSettings
    outside_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KvRoute:
    """Requests of a kind that go from one replica to another after their prompt, by index; `fraction` of all of them.

    `exposed_s`: what prefill does not hide of the transfer of a prompt of the kind's mean length.
    """

    kind: int
    prefill: int
    decode: int
    fraction: float
    exposed_s: float


@dataclass(frozen=True, slots=True)
class FleetLoss:
    """Replicas `fallen`, by position, stop at `at_s` with all that they have under way; from `detected_s` on requests
    go by other `fractions` [num_kinds, num_replicas] and hand-overs."""

    fallen: frozenset[int]
    at_s: float
    detected_s: float
    fractions: FloatArray
    kv_routes: Sequence[KvRoute] = ()


def simulate(
    replicas: Sequence[SimulatedReplica],
    fractions: FloatArray,
    requests: Requests,
    *,
    kv_routes: Sequence[KvRoute] = (),
    routing: RoutingPolicy = "round_robin",
    seed: int = 0,
    loss: FleetLoss | None = None,
) -> Outcome:
    """Every request at its arrival, to a replica by `fractions` [num_kinds, num_replicas]; until all are done.

    From a replica that only prefills it goes on by `kv_routes`. A workload without any share, and a request that no
    cache holds, are served by none; nor is what a lost replica has, or gets until the loss is detected. The same
    arguments give the same outcome.
    """
    run = _Run(replicas, requests, loss)
    draw = np.random.default_rng(seed)
    entries = [_entry(row, routing, draw) for row in fractions]
    onward = _onward(kv_routes, routing, draw)
    sees_load = routing == "least_loaded"
    arrivals = zip(requests.kind.tolist(), requests.arrival_s.tolist(), strict=True)
    for number, (kind, at_s) in enumerate(arrivals):
        if loss is not None and at_s >= loss.detected_s:
            entries = [_entry(row, routing, draw) for row in loss.fractions]
            onward, loss = _onward(loss.kv_routes, routing, draw), None
        entry = entries[kind]
        if entry is not None:
            run.offer(number, at_s, kind, entry, onward, sees_load=sees_load)
    return run.outcome()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where the requests of a kind may go, and who decides."""

    router: Router
    among: list[int]
    exposed_s: list[float]


_Onward = dict[tuple[int, int], _Choice]  # by kind and the replica that prefills


def _entry(fractions: FloatArray, routing: RoutingPolicy, draw: np.random.Generator) -> _Choice | None:
    share = np.flatnonzero(fractions > 0)
    return _Choice(router(routing, fractions[share], draw), share.tolist(), []) if len(share) else None


def _onward(kv_routes: Sequence[KvRoute], routing: RoutingPolicy, draw: np.random.Generator) -> _Onward:
    found: dict[tuple[int, int], list[KvRoute]] = {}
    for route in kv_routes:
        if route.fraction > 0:
            found.setdefault((route.kind, route.prefill), []).append(route)
    return {
        key: _Choice(
            router(routing, np.array([route.fraction for route in routes]), draw),
            [route.decode for route in routes],
            [route.exposed_s for route in routes],
        )
        for key, routes in found.items()
    }


def closed_loop(replica: SimulatedReplica, requests: Requests, *, concurrency: int) -> Outcome:
    """Serves requests as engines are benchmarked: so many clients, each of which sends its next request when its last
    one is done.

    The requests are taken in their order; their arrivals are set by the clients.
    """
    return _Run([replica], requests).closed(concurrency)


class _Run:
    def __init__(
        self, replicas: Sequence[SimulatedReplica], requests: Requests, loss: FleetLoss | None = None
    ) -> None:
        self._replicas, self._requests = replicas, requests
        self._ends_s = [inf if loss is None or p not in loss.fallen else loss.at_s for p in range(len(replicas))]
        count = len(requests)
        self._arrival_s = requests.arrival_s.tolist()
        self._first_token_s, self._finish_s, self._chosen = [nan] * count, [nan] * count, [-1] * count
        span_s = (self._arrival_s[-1] if count else 0.0) * 1.05 / TIME_BINS
        self._recorders = [
            Recorder(
                self._first_token_s, self._finish_s, span_s=span_s, blocks=replica.times.kv_tokens // BLOCK_TOKENS
            )
            for replica in replicas
        ]
        self._inputs, self._outputs = requests.input_tokens.tolist(), requests.output_tokens.tolist()
        cached = np.array([kind.cached_fraction for kind in requests.kinds])
        self._cached: list[float] = cached[requests.kind].tolist() if cached.any() else []
        self._exposed_s, self._decode = [0.0] * count, [-1] * count
        self._under_way = [0] * len(replicas)  # requests that were sent to each for decoding, ended or not
        self._due: list[tuple[float, int]] = []  # hand-overs, by time
        self._engines = list(map(self._engine, replicas, self._recorders))
        self._prefilling = [
            position for position, engine in enumerate(self._engines) if isinstance(engine, PrefillEngine)
        ]
        self._decoding = [
            position for position, engine in enumerate(self._engines) if isinstance(engine, DecodeEngine)
        ]

    def _engine(self, replica: SimulatedReplica, recorder: Recorder) -> Engine:
        times, settings = replica.times, replica.settings
        if settings.role == "prefill":
            return PrefillEngine(
                times, settings, self._inputs, self._outputs, recorder, self._cached, self._exposed_s
            )
        kind = DecodeEngine if settings.role == "decode" else Engine
        return kind(times, settings, self._inputs, self._outputs, recorder, self._cached)

    def offer(self, number: int, at_s: float, kind: int, entry: _Choice, onward: _Onward, *, sees_load: bool) -> None:
        if sees_load:
            for position in entry.among:
                self._advance(position, at_s + self._replicas[position].outside_s)
        among = entry.among
        position = among[entry.router.choose([self._engines[p].load for p in among] if sees_load else [])]
        engine, reached_s = self._engines[position], at_s + self._replicas[position].outside_s
        if not engine.fits(number):
            return
        if isinstance(engine, PrefillEngine) and self._outputs[number] > 1:
            following = onward.get((kind, position))
            if following is None or not self._sends_on(number, at_s, kind, following, sees_load=sees_load):
                return
        self._chosen[number] = position
        self._offer(position, number, reached_s)

    def _sends_on(self, number: int, at_s: float, kind: int, following: _Choice, *, sees_load: bool) -> bool:
        """Whether the cache of the replica that is chosen for decoding holds the request."""
        if sees_load:
            self._hand_over(at_s)
        among = following.among
        loads = [self._under_way[p] - len(self._recorders[p].ended) for p in among] if sees_load else []
        which = following.router.choose(loads)
        position = among[which]
        if not self._engines[position].fits(number):
            return False
        mean_tokens = self._requests.kinds[kind].input_tokens
        self._exposed_s[number] = following.exposed_s[which] * self._inputs[number] / mean_tokens
        self._decode[number] = position
        self._under_way[position] += 1
        return True

    def _hand_over(self, until_s: float) -> None:
        """What is handed over until then, in its order, and what becomes of it until then."""
        for position in self._prefilling:
            self._advance(position, until_s)
            for handed in self._recorders[position].handed:
                heappush(self._due, handed)
            self._recorders[position].handed.clear()
        while self._due and self._due[0][0] <= until_s:
            at_s, number = heappop(self._due)
            self._offer(self._decode[number], number, at_s)
        for position in self._decoding:
            self._advance(position, until_s)

    def _offer(self, position: int, number: int, at_s: float) -> None:
        """A request at a replica, which is lost where that has fallen."""
        self._advance(position, at_s)
        if at_s < self._ends_s[position]:
            self._engines[position].offer(number, at_s)

    def _advance(self, position: int, until_s: float) -> None:
        """All that a replica does until then, and as long as it stands."""
        self._engines[position].advance(min(until_s, self._ends_s[position]))

    def closed(self, concurrency: int) -> Outcome:
        engine, ended, outside_s = self._engines[0], self._recorders[0].ended, self._replicas[0].outside_s
        numbers = iter([number for number in range(len(self._requests)) if engine.fits(number)])
        coming: list[tuple[float, int]] = []

        def send(at_s: float) -> None:
            number = next(numbers, None)
            if number is not None:
                self._chosen[number], self._arrival_s[number] = 0, at_s
                heappush(coming, (at_s + outside_s, number))

        for _ in range(concurrency):
            send(0.0)
        seen = 0
        while coming or engine.load:
            engine.advance(coming[0][0] if coming else inf, to_an_end=True)
            for number in ended[seen:]:
                send(self._finish_s[number])
            seen = len(ended)
            while coming and (coming[0][0] <= engine.now_s or not engine.load):
                at_s, number = heappop(coming)
                engine.offer(number, at_s)
        return self.outcome()

    def outcome(self) -> Outcome:
        for position in range(len(self._engines)):
            self._advance(position, inf)
        self._hand_over(inf)
        end_s = max((engine.now_s for engine in self._engines), default=0.0)
        requests = self._requests
        arrival_s = np.array(self._arrival_s)
        order = np.argsort(arrival_s, kind="stable")
        return Outcome(
            requests=Requests(
                requests.kinds,
                requests.kind[order],
                arrival_s[order],
                requests.input_tokens[order],
                requests.output_tokens[order],
            ),
            replica=np.array(self._chosen, dtype=np.int64)[order],
            decode=np.array(self._decode, dtype=np.int64)[order],
            first_token_s=np.array(self._first_token_s)[order],
            finish_s=np.array(self._finish_s)[order],
            preemptions=np.array([recorder.preemptions for recorder in self._recorders], dtype=np.int64),
            timelines=tuple(recorder.timeline(end_s) for recorder in self._recorders),
        )
