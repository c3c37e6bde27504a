"""Requests through all replicas of a plan.

Flow: step_times.py, requests.py -> simulate, closed_loop (here), with engine.py, roles.py, routing.py -> outcome.py.

The gateway chooses the replica that prefills and the one that decodes when a request arrives, as vLLM's proxies for
disaggregated prefill do; where roles bend (bending.py), perhaps one for both. A hand-over is an arrival like any
other, due once no replica that has prompts to hand over can come before it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, isnan, nan, nextafter
from types import MappingProxyType
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.simulation.bending import EitherPhase, PhaseLoad, RolePolicy, whole_at
from sutler.solver.simulation.engine import BLOCK_TOKENS, Engine, EngineSettings
from sutler.solver.simulation.outcome import TIME_BINS, Outcome, Recorder
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.roles import PhaseEngine
from sutler.solver.simulation.routing import Router, RoutingPolicy, router
from sutler.solver.simulation.step_times import StepTimes

NEVER: Final[Mapping[int, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SimulatedReplica:
    """`outside_s`: what a request takes before it reaches the engine's queue (HTTP, tokenizer). `either_phase`: of an
    engine of one phase that takes the other as well."""

    name: str
    times: StepTimes
    settings: EngineSettings
    outside_s: float = 0.0
    either_phase: EitherPhase | None = None


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
class Rerouting:
    """From `from_s` on requests go by other `fractions` [num_kinds, num_replicas] and hand-overs."""

    from_s: float
    fractions: FloatArray
    kv_routes: Sequence[KvRoute] = ()


def simulate(
    replicas: Sequence[SimulatedReplica],
    fractions: FloatArray,
    requests: Requests,
    *,
    kv_routes: Sequence[KvRoute] = (),
    routing: RoutingPolicy = "round_robin",
    roles: RolePolicy = "fixed",
    seed: int = 0,
    reroutings: Sequence[Rerouting] = (),
    ends_s: Mapping[int, float] = NEVER,
) -> Outcome:
    """Every request at its arrival, to a replica by `fractions` [num_kinds, num_replicas]; until all are done.

    From a replica of the prefill phase it goes on by `kv_routes`, where roles do not bend. A workload without any
    share, and a request that no cache holds, are served by none. `reroutings`, in their order, change the shares.
    `ends_s`: when replicas, by position, stop with all that they have under way. The same arguments give the same
    outcome.
    """
    run = _Run(replicas, requests, ends_s)
    draw = np.random.default_rng(seed)
    gateway = _gateway(fractions, kv_routes, routing, roles, draw)
    later = deque(reroutings)
    arrivals = zip(requests.kind.tolist(), requests.arrival_s.tolist(), strict=True)
    for number, (kind, at_s) in enumerate(arrivals):
        while later and at_s >= later[0].from_s:
            gateway = _gateway(later[0].fractions, later[0].kv_routes, routing, roles, draw)
            later.popleft()
        run.offer(number, at_s, kind, gateway)
    return run.outcome()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where the requests of a kind may go, and who decides."""

    router: Router
    among: list[int]
    exposed_s: list[float]


@dataclass(frozen=True, slots=True)
class _Gateway:
    """`entries`: by kind; `onward`: by kind and the replica that prefills."""

    entries: Sequence[_Choice | None]
    onward: Mapping[tuple[int, int], _Choice]
    routing: RoutingPolicy
    roles: RolePolicy

    @property
    def sees_load(self) -> bool:
        return self.routing == "least_loaded"

    @property
    def sees_answers(self) -> bool:
        return self.sees_load or self.roles == "opportunistic"


def _gateway(
    fractions: FloatArray,
    kv_routes: Sequence[KvRoute],
    routing: RoutingPolicy,
    roles: RolePolicy,
    draw: np.random.Generator,
) -> _Gateway:
    entries = [_entry(row, routing, draw) for row in fractions]
    onward = _onward(kv_routes, "least_loaded" if roles == "opportunistic" else routing, draw)
    return _Gateway(entries, onward, routing, roles)


def _entry(fractions: FloatArray, routing: RoutingPolicy, draw: np.random.Generator) -> _Choice | None:
    share = np.flatnonzero(fractions > 0)
    return _Choice(router(routing, fractions[share], draw), share.tolist(), []) if len(share) else None


def _onward(
    kv_routes: Sequence[KvRoute], routing: RoutingPolicy, draw: np.random.Generator
) -> dict[tuple[int, int], _Choice]:
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
        self, replicas: Sequence[SimulatedReplica], requests: Requests, ends_s: Mapping[int, float] = NEVER
    ) -> None:
        self._replicas, self._requests = replicas, requests
        self._ends_s = [ends_s.get(position, inf) for position in range(len(replicas))]
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
        self._decode = [-1] * count
        self._under_way = [0] * len(replicas)  # requests that end on each of one phase, ended or not
        self._due: list[tuple[float, int, int]] = []  # (when, request, position): on their way, by time
        self._coming = [0] * len(replicas)  # prompts among them, and their tokens
        self._coming_tokens = [0] * len(replicas)
        self._exposed_s: dict[int, float] = {}  # of those that will be handed over
        self._whole: list[set[int]] = [set() for _ in replicas]  # of both phases at replicas of one
        self._seen = [0] * len(replicas)  # of what ended
        self._engines = list(map(self._engine, replicas, self._recorders))
        self._of_phases = {p: engine for p, engine in enumerate(self._engines) if isinstance(engine, PhaseEngine)}
        self._bending = {p: one for p in self._of_phases if (one := replicas[p].either_phase) is not None}

    def _engine(self, replica: SimulatedReplica, recorder: Recorder) -> Engine:
        kind = Engine if replica.settings.role == "aggregated" else PhaseEngine
        return kind(replica.times, replica.settings, self._inputs, self._outputs, recorder, self._cached)

    def offer(self, number: int, at_s: float, kind: int, gateway: _Gateway) -> None:
        entry = gateway.entries[kind]
        if entry is None:
            return
        if gateway.sees_load or gateway.roles != "fixed":
            self._deliver(at_s)
        among = entry.among
        loads = [self._load(position, at_s) for position in among] if gateway.sees_load else []
        position = among[entry.router.choose(loads)]
        if position in self._of_phases and self._outputs[number] > 1:
            self._offer_in_phases(number, at_s, kind, position, gateway)
        elif self._fits(number, position):
            self._send(number, at_s, position)

    def _offer_in_phases(self, number: int, at_s: float, kind: int, prefill: int, gateway: _Gateway) -> None:
        following = gateway.onward.get((kind, prefill))
        if following is None or not self._of_phases[prefill].fits_prompt(number):
            return
        among = following.among
        which = following.router.choose([self._answers(p, at_s) for p in among] if gateway.sees_answers else [])
        decode = among[which]
        whole = None if gateway.roles == "fixed" else self._bent(gateway.roles, number, at_s, prefill, decode)
        if whole is not None:
            self._whole[whole].add(number)
            self._send(number, at_s, whole)
        elif self._engines[decode].fits(number):
            mean_tokens = self._requests.kinds[kind].input_tokens
            self._exposed_s[number] = following.exposed_s[which] * self._inputs[number] / mean_tokens
            self._decode[number] = decode
            self._under_way[decode] += 1
            self._send(number, at_s, prefill)

    def _fits(self, number: int, position: int) -> bool:
        engine = self._of_phases.get(position)
        return self._engines[position].fits(number) if engine is None else engine.fits_prompt(number)

    def _send(self, number: int, at_s: float, position: int) -> None:
        """To the queue of the replica that serves it first."""
        reached_s = at_s + self._replicas[position].outside_s
        self._chosen[number] = position
        if position in self._of_phases:
            if number not in self._exposed_s:
                self._under_way[position] += 1
            self._coming[position] += 1
            self._coming_tokens[position] += self._inputs[number]
            heappush(self._due, (reached_s, number, position))
            return
        self._advance(position, reached_s)
        if reached_s < self._ends_s[position]:
            self._engines[position].offer(number, reached_s)

    def _load(self, position: int, at_s: float) -> int:
        """Requests that it has when one that is sent at a time gets there."""
        if position in self._of_phases:
            self._advance(position, at_s)
            return self._engines[position].load + self._coming[position]
        self._advance(position, at_s + self._replicas[position].outside_s)
        return self._engines[position].load

    def _answers(self, position: int, at_s: float) -> int:
        """Requests that end there, and have not at a time."""
        self._advance(position, at_s)
        return self._under_way[position] - len(self._recorders[position].ended)

    def _bent(self, roles: RolePolicy, number: int, at_s: float, prefill: int, decode: int) -> int | None:
        """The replica that takes both phases, if any."""
        short = self._bending.get(prefill)
        if short is None:
            return None
        able = [p for p, one in self._bending.items() if one.model == short.model and self._takes(number, p, at_s)]
        if prefill not in able or decode not in able:
            return None
        others = (self._phase_load(position, at_s) for position in able)
        return whole_at(roles, self._phase_load(prefill, at_s), self._phase_load(decode, at_s), others)

    def _takes(self, number: int, position: int, at_s: float) -> bool:
        return self._engines[position].fits(number) and self._ends_s[position] > at_s

    def _phase_load(self, position: int, at_s: float) -> PhaseLoad:
        self._advance(position, at_s)
        engine = self._of_phases[position]
        taken, ended = self._whole[position], self._recorders[position].ended
        taken.difference_update(ended[self._seen[position] :])
        self._seen[position] = len(ended)
        return PhaseLoad(
            position=position,
            prompt_tokens=engine.prompt_tokens + self._coming_tokens[position],
            answers=engine.answers,
            short=self._bending[position],
            is_idle=not engine.load and not self._coming[position],
            is_mixed=bool(taken),
        )

    def _deliver(self, until_s: float) -> None:
        """What is on its way until then, to its engine in order of time.

        Of the engines that have something to hand over the one that is behind goes on first, by no more than one step
        beyond the next: so whatever is handed over finds its engine in the step in which it arrives.
        """
        while True:
            due_s = min(self._due[0][0], until_s) if self._due else until_s
            behind = sorted(
                (after_s, position)
                for position, engine in self._of_phases.items()
                if (after_s := engine.hands_over_after_s) < due_s and engine.now_s < self._ends_s[position]
            )
            if behind:
                after_s, position = behind[0]
                next_s = behind[1][0] if len(behind) > 1 else inf
                self._advance(position, min(due_s, max(next_s, nextafter(after_s, inf))))
            elif self._due and self._due[0][0] <= until_s:
                self._arrive(*heappop(self._due))
            else:
                return

    def _arrive(self, at_s: float, number: int, position: int) -> None:
        """A request at a replica of one phase, which is lost where that has fallen."""
        self._advance(position, at_s)
        engine, is_prompt = self._of_phases[position], isnan(self._first_token_s[number])
        if is_prompt:
            self._coming[position] -= 1
            self._coming_tokens[position] -= self._inputs[number]
        if at_s >= self._ends_s[position]:
            return
        if not is_prompt:
            engine.offer_answer(number, at_s)
        elif number in self._exposed_s:
            engine.offer_prompt(number, at_s, self._exposed_s.pop(number))
        else:
            engine.offer(number, at_s)

    def _advance(self, position: int, until_s: float) -> None:
        """All that a replica does until then, and as long as it stands; what it hands over is on its way then."""
        self._engines[position].advance(min(until_s, self._ends_s[position]))
        handed = self._recorders[position].handed
        while handed:
            at_s, number = handed.pop()
            heappush(self._due, (at_s, number, self._decode[number]))

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
        self._deliver(inf)
        for position in range(len(self._engines)):
            self._advance(position, inf)
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
