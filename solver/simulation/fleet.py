"""Requests through all replicas of a plan.

Flow: step_times.py, requests.py -> simulate, closed_loop (here), with engine.py and routing.py -> outcome.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, nan

import numpy as np

from solver.simulation.engine import BLOCK_TOKENS, Engine, EngineSettings
from solver.simulation.outcome import TIME_BINS, Outcome, Recorder
from solver.simulation.requests import Requests
from solver.simulation.routing import Router, RoutingPolicy, router
from solver.simulation.step_times import StepTimes
from solver.throughput.base import FloatArray


@dataclass(frozen=True, slots=True)
class SimulatedReplica:
    """`outside_s`: what a request takes before it reaches the engine's queue (HTTP, tokenizer)."""

    name: str
    times: StepTimes
    settings: EngineSettings
    outside_s: float = 0.0


def simulate(
    replicas: Sequence[SimulatedReplica],
    fractions: FloatArray,
    requests: Requests,
    *,
    routing: RoutingPolicy = "round_robin",
    seed: int = 0,
) -> Outcome:
    """Every request at its arrival, to a replica by `fractions` [num_kinds, num_replicas]; until all are done.

    A workload without any share, and a request that no cache holds, are served by none. The same arguments give the
    same outcome.
    """
    run = _Run(replicas, requests)
    shares = [np.flatnonzero(row > 0) for row in fractions]
    draw = np.random.default_rng(seed)
    routers = [
        router(routing, row[share], draw) if len(share) else None
        for row, share in zip(fractions, shares, strict=True)
    ]
    sees_load = routing == "least_loaded"
    for number, kind, at_s in zip(
        range(len(requests)), requests.kind.tolist(), requests.arrival_s.tolist(), strict=True
    ):
        chosen = routers[kind]
        if chosen is not None:
            run.offer(number, at_s, chosen, shares[kind].tolist(), sees_load=sees_load)
    return run.outcome()


def closed_loop(replica: SimulatedReplica, requests: Requests, *, concurrency: int) -> Outcome:
    """As engines are benchmarked: so many clients, each of which sends its next request when its last one is done.

    The requests are taken in their order; their arrivals are set by the clients.
    """
    run = _Run([replica], requests)
    return run.closed(concurrency)


class _Run:
    def __init__(self, replicas: Sequence[SimulatedReplica], requests: Requests) -> None:
        self._replicas, self._requests = replicas, requests
        count = len(requests)
        self._arrival_s = requests.arrival_s.tolist()
        self._first_token_s, self._finish_s, self._chosen = [nan] * count, [nan] * count, [-1] * count
        inputs, outputs = requests.input_tokens.tolist(), requests.output_tokens.tolist()
        span_s = (self._arrival_s[-1] if count else 0.0) * 1.05 / TIME_BINS
        self._recorders = [
            Recorder(
                self._first_token_s, self._finish_s, span_s=span_s, blocks=replica.times.kv_tokens // BLOCK_TOKENS
            )
            for replica in replicas
        ]
        self._engines = [
            Engine(replica.times, replica.settings, inputs, outputs, recorder)
            for replica, recorder in zip(replicas, self._recorders, strict=True)
        ]

    def offer(self, number: int, at_s: float, chosen: Router, among: list[int], *, sees_load: bool) -> None:
        if sees_load:
            for position in among:
                self._engines[position].advance(at_s + self._replicas[position].outside_s)
        position = among[chosen.choose([self._engines[p].load for p in among] if sees_load else [])]
        engine, reached_s = self._engines[position], at_s + self._replicas[position].outside_s
        if not engine.fits(number):
            return
        self._chosen[number] = position
        engine.advance(reached_s)
        engine.offer(number, reached_s)

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
        for engine in self._engines:
            engine.advance(inf)
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
            first_token_s=np.array(self._first_token_s)[order],
            finish_s=np.array(self._finish_s)[order],
            preemptions=np.array([recorder.preemptions for recorder in self._recorders], dtype=np.int64),
            timelines=tuple(recorder.timeline(end_s) for recorder in self._recorders),
        )
