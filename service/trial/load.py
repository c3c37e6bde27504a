"""A closed loop of clients on one replica: each sends its next request when the last one has ended.

Flow: Load -> measured (here, requests by engine.py) -> Measured. Clients begin together on an idle engine, as in the
benchmarks that estimates are fitted to. Prompts are drawn at random and never twice, so that no prefix cache helps.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from statistics import fmean
from threading import Barrier, BrokenBarrierError, Event, Lock, Thread
from typing import Final

from sutler.service.trial.engine import Address, Engine, Timed
from sutler.service.trial.errors import TrialError

MOST_CLIENTS: Final = 1024  # chosen: threads of one process; no engine's default batch is larger
LEAST_EACH: Final = 3  # requests of a client; chosen: the first meets an idle engine, and must not be most of them
WARMING: Final = 8  # clients that send a request before; chosen: enough for an engine to have made its graphs
WARM_TOKENS: Final = 16  # of the answers to these
FIRST_TOKEN: Final = 1_000  # ids below may be special ones; those above the vocabulary's middle rarely are
MOST_CACHED_FRACTION: Final = 0.05  # of the prompt tokens; chosen: less does not show in a rate
# Chosen: templates and special tokens add a few; a server that adds more does not serve the planned lengths.
MOST_ADDED_TOKENS: Final = 4
BUSY_FRACTION: Final = 0.8  # of a core; chosen: beyond, requests wait for this process and not for the engine


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. `seconds`: for how long requests are begun; every client sends some, however long they take."""

    model: str
    vocabulary: int
    input_tokens: int
    output_tokens: int
    concurrency: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; latencies are means over all requests. `busy_fraction`: of a core, what sending took."""

    started_at: datetime
    duration_s: float
    completed: int
    ttft_s: float
    tpot_s: float | None
    e2e_s: float
    busy_fraction: float

    @property
    def req_per_s(self) -> float:
        """Completed per second."""
        return self.completed / self.duration_s


def measured(address: Address, load: Load, *, on_done: Callable[[int], None] = lambda _: None) -> Measured:
    """Runs the clients and waits for them; `on_done` hears how many requests have ended.

    Raises TrialError as soon as one request goes wrong, or the server's counts are not those of the load.
    """
    loop = _Loop(address, load, on_done)
    clients = [
        Thread(target=loop.client, args=(number,), daemon=True, name=f"trial client {number}")
        for number in range(load.concurrency)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return loop.result()


class _Loop:
    """What the clients of one run share."""

    def __init__(self, address: Address, load: Load, on_done: Callable[[int], None]) -> None:
        self._address, self._load, self._on_done = address, load, on_done
        self._ready, self._stop, self._lock = Barrier(load.concurrency, self._begin), Event(), Lock()
        self._done: list[Timed] = []
        self._error: BaseException | None = None
        self._started_at, self._started, self._ended, self._cpu = datetime.now(UTC), 0.0, 0.0, 0.0

    def client(self, number: int) -> None:
        """One client, in its thread; the first error ends all of them."""
        try:
            with Engine(self._address) as engine:
                self._warm_up(engine, number)
                self._ready.wait()
                self._send(engine)
        except BrokenBarrierError:
            return  # another client says why
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stop.set()
            self._ready.abort()

    def result(self) -> Measured:
        """Raises what a client raised."""
        if self._error is not None:
            raise self._error
        done = self._done
        cached = sum(one.cached_tokens for one in done)
        if cached > MOST_CACHED_FRACTION * sum(one.input_tokens for one in done):
            reason = (
                f"{self._address.name} had {cached} prompt tokens in its prefix cache, though none was sent twice"
            )
            raise TrialError(reason, "clear its cache, and let nobody else send to it meanwhile")
        steps = self._load.output_tokens - 1
        return Measured(
            started_at=self._started_at,
            duration_s=self._ended - self._started,
            completed=len(done),
            ttft_s=fmean(one.ttft_s for one in done),
            tpot_s=fmean((one.e2e_s - one.ttft_s) / steps for one in done) if steps else None,
            e2e_s=fmean(one.e2e_s for one in done),
            busy_fraction=(time.process_time() - self._cpu) / (self._ended - self._started),
        )

    def _begin(self) -> None:
        self._started_at, self._started, self._cpu = datetime.now(UTC), time.perf_counter(), time.process_time()

    def _warm_up(self, engine: Engine, number: int) -> None:
        """Every client has its connection, and the engine has run such a batch, before time counts."""
        if number < WARMING:
            tokens = min(self._load.output_tokens, WARM_TOKENS)
            self._check(engine.timed(self._load.model, self._prompt(Random()), tokens), tokens)
        else:
            engine.served()

    def _send(self, engine: Engine) -> None:
        draw, sent, load = Random(), 0, self._load
        while not self._stop.is_set():
            if sent >= LEAST_EACH and time.perf_counter() - self._started >= load.seconds:
                return
            found = engine.timed(load.model, self._prompt(draw), load.output_tokens)
            self._check(found, load.output_tokens)
            sent += 1
            with self._lock:
                self._done.append(found)
                self._ended = time.perf_counter()
                self._on_done(len(self._done))

    def _prompt(self, draw: Random) -> Sequence[int]:
        tokens = range(min(FIRST_TOKEN, self._load.vocabulary // 4), max(self._load.vocabulary // 2, 2))
        return draw.choices(tokens, k=self._load.input_tokens)

    def _check(self, found: Timed, output_tokens: int) -> None:
        name, asked = self._address.name, self._load.input_tokens
        if not asked <= found.input_tokens <= asked + MOST_ADDED_TOKENS:
            reason = f"{name} counted {found.input_tokens} prompt tokens of the {asked} that were sent"
            raise TrialError(reason, "give the address of the engine itself, not of what rewrites prompts")
        if found.output_tokens != output_tokens:
            reason = f"{name} answered {found.output_tokens} tokens of the {output_tokens} that were asked for"
            raise TrialError(reason, "start an engine that takes `ignore_eos` (vLLM, SGLang), with room for them")
