"""The engine, which jumps from event to event, against one that takes every single step."""

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from sutler.solver.simulation.engine import BLOCK_TOKENS, EngineSettings
from sutler.solver.simulation.fleet import SimulatedReplica, simulate
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.step_times import Line, StepTimes
from tests.looped import for_each
from tests.solver.simulation.builders import (
    KIND,
    everything_to,
    linear_prompts,
    random_requests,
    requests,
    toy_replica,
    toy_times,
)


@dataclass
class Running:
    number: int
    prompt: int
    written: int
    computed: int = 0
    length: int = 0  # tokens in the cache

    @property
    def is_prefilling(self) -> bool:
        return self.computed < self.prompt

    @property
    def blocks(self) -> int:
        return -(-self.length // BLOCK_TOKENS)


@dataclass
class StepByStep:
    """vLLM's scheduler for chunked prefill, one step at a time, with nothing kept but lists."""

    replica: SimulatedReplica
    requests: Requests
    now_s: float = 0.0
    running: list[Running] = field(default_factory=list)
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    first_token_s: dict[int, float] = field(default_factory=dict)
    finish_s: dict[int, float] = field(default_factory=dict)
    preemptions: int = 0

    def run(self) -> None:
        coming = deque(range(len(self.requests)))
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_s = max(self.now_s, float(self.requests.arrival_s[coming[0]]))
            while coming and self.requests.arrival_s[coming[0]] <= self.now_s:
                self.waiting.append((coming.popleft(), 0))
            self.step()

    @property
    def free(self) -> int:
        total = self.replica.times.kv_tokens // BLOCK_TOKENS
        return total - sum(running.blocks for running in self.running)

    def step(self) -> None:
        times, settings = self.replica.times, self.replica.settings
        while self.needed() > self.free:
            last = self.running.pop()
            self.waiting.appendleft((last.number, last.written))
            self.preemptions += 1
        reserved = self.needed()
        decoding = [one for one in self.running if not one.is_prefilling]
        budget = max(1, settings.max_batched_tokens - len(decoding))
        chunks: list[tuple[Running, int]] = []
        blocked = False
        for one in [one for one in self.running if one.is_prefilling]:
            blocked = not self.add_chunk(chunks, one, budget, reserved) or blocked
            budget -= chunks[-1][1] if chunks else 0
        while self.waiting and not blocked and budget > 0 and len(self.running) < times.max_sequences:
            number, written = self.waiting[0]
            one = Running(number, int(self.requests.input_tokens[number]) + written, written)
            self.running.append(one)
            if not self.add_chunk(chunks, one, budget, reserved):
                self.running.pop()
                break
            self.waiting.popleft()
            budget -= chunks[-1][1]
        seconds = sum(times.prefill_s(one.prompt)[0] * tokens / one.prompt for one, tokens in chunks)
        if decoding:
            mean = sum(one.length for one in decoding) / len(decoding) + 1
            [line] = times.decode[len(decoding)]
            seconds += line.fixed_s + line.per_token_s * mean
        self.now_s += seconds
        for one in decoding:
            one.length += 1
            one.written += 1
        for one, _ in chunks:
            if not one.is_prefilling:
                self.first_token_s.setdefault(one.number, self.now_s)
                one.written += 1
        for one in [*decoding, *(one for one, _ in chunks)]:
            if not one.is_prefilling and one.written >= self.requests.output_tokens[one.number]:
                self.running.remove(one)
                self.finish_s[one.number] = self.now_s

    def needed(self) -> int:
        return sum(1 for one in self.running if not one.is_prefilling and one.length % BLOCK_TOKENS == 0)

    def add_chunk(self, chunks: list[tuple[Running, int]], one: Running, budget: int, reserved: int) -> bool:
        tokens = min(one.prompt - one.computed, budget)
        if tokens <= 0 or -(-(one.length + tokens) // BLOCK_TOKENS) - one.blocks > self.free - reserved:
            return False
        one.computed += tokens
        one.length += tokens
        chunks.append((one, tokens))
        return True


def stepped(replica: SimulatedReplica, asked: Requests) -> StepByStep:
    reference = StepByStep(replica, asked)
    reference.run()
    return reference


@pytest.mark.parametrize("kv_tokens", [600, 1200, 100_000], ids=["tiny cache", "small cache", "ample cache"])
@pytest.mark.parametrize("max_batched_tokens", [64, 2048], ids=["many chunks", "whole prompts"])
@pytest.mark.parametrize("rate_rps", [2.0, 20.0, 200.0])
@for_each("seed", range(3))
def test_jumps_end_where_single_steps_do(seed: int, rate_rps: float, max_batched_tokens: int, kv_tokens: int) -> None:
    asked = random_requests(seed, 120, rate_rps=rate_rps)
    replica = toy_replica(toy_times(kv_tokens=kv_tokens), max_batched_tokens=max_batched_tokens)
    reference = stepped(replica, asked)
    outcome = simulate([replica], everything_to(1), asked)
    assert outcome.preemptions.tolist() == [reference.preemptions]
    assert outcome.finish_s == pytest.approx([reference.finish_s[n] for n in range(len(asked))], rel=1e-9)
    assert outcome.first_token_s == pytest.approx([reference.first_token_s[n] for n in range(len(asked))], rel=1e-9)


def test_a_cache_that_is_too_small_for_all_preempts_and_still_serves_everyone() -> None:
    asked = random_requests(1, 120, rate_rps=200.0)
    replica = toy_replica(toy_times(kv_tokens=600))
    outcome = simulate([replica], everything_to(1), asked)
    assert outcome.preemptions[0] > 0
    assert outcome.is_served.all()


def test_one_request_alone_takes_its_prompt_and_its_steps() -> None:
    """100 tokens at 0.1 ms; then four steps of 11 ms + 1 us x the 101, 102, 103, 104 tokens that it holds."""
    outcome = simulate([toy_replica()], everything_to(1), requests([(0.0, 100, 5)]))
    assert outcome.first_token_s[0] == pytest.approx(0.01)
    assert outcome.finish_s[0] == pytest.approx(0.01 + 4 * 0.011 + 1e-6 * (101 + 102 + 103 + 104))


def test_a_prompt_beside_a_decoding_sequence_delays_it_by_its_prefill() -> None:
    """The second arrives during the first step, so it shares the second one."""
    outcome = simulate([toy_replica()], everything_to(1), requests([(0.0, 100, 10), (0.012, 200, 1)]))
    first_step_s = 0.011 + 1e-6 * 101
    shared_s = 0.011 + 1e-6 * 102
    assert outcome.first_token_s[1] == pytest.approx(0.01 + first_step_s + shared_s + 0.02)


def test_a_prompt_longer_than_a_step_is_computed_in_chunks() -> None:
    """150 tokens in steps of 64 are three chunks that take what the whole prompt does."""
    replica = toy_replica(max_batched_tokens=64)
    outcome = simulate([replica], everything_to(1), requests([(0.0, 150, 1)]))
    assert outcome.finish_s[0] == pytest.approx(0.015)


def test_prefill_first_lets_running_sequences_wait() -> None:
    """Three prompts of 100 tokens, two of which fit into a step of 200: no token is decoded before all are through,
    so the first ends with two steps of three sequences each holding 101 and 102 tokens after 30 ms of prompts."""
    replica = toy_replica(scheduling="prefill_first", max_batched_tokens=200)
    outcome = simulate([replica], everything_to(1), requests([(0.0, 100, 3), (0.0, 100, 3), (0.0, 100, 3)]))
    step_s = [0.01 + 3 * (0.001 + 1e-6 * context) for context in (101, 102)]
    assert outcome.first_token_s.tolist() == pytest.approx([0.02, 0.02, 0.03])
    assert outcome.finish_s.tolist() == pytest.approx([0.03 + sum(step_s)] * 3)


def test_what_is_in_the_prefix_cache_takes_room_but_no_budget() -> None:
    """Of 128 tokens 64 are cached: the other 64 go into one step."""
    replica, kind = toy_replica(max_batched_tokens=64), replace(KIND, cached_fraction=0.5)
    outcome = simulate([replica], everything_to(1), requests([(0.0, 128, 2)], (kind,)))
    assert outcome.first_token_s[0] == pytest.approx(0.0064)


def test_kinds_of_requests_have_caches_of_their_own() -> None:
    kinds = (KIND, replace(KIND, workload="again", cached_fraction=0.75))
    asked = requests([(0.0, 100, 1), (1.0, 100, 1)], kinds)
    outcome = simulate([toy_replica()], np.ones((2, 1)), replace(asked, kind=np.array([0, 1])))
    assert (outcome.first_token_s - asked.arrival_s).tolist() == pytest.approx([0.01, 0.0025])


def test_a_request_that_no_cache_holds_is_served_by_none() -> None:
    """500 tokens in and 101 out need 38 blocks; there are 37."""
    replica = toy_replica(toy_times(kv_tokens=37 * BLOCK_TOKENS))
    outcome = simulate([replica], everything_to(1), requests([(0.0, 500, 101), (0.0, 500, 92)]))
    assert outcome.replica.tolist() == [-1, 0]
    assert outcome.is_served.tolist() == [False, True]


def test_what_a_request_takes_outside_the_engine_comes_first() -> None:
    outcome = simulate([toy_replica(outside_s=0.5)], everything_to(1), requests([(0.0, 100, 1)]))
    assert outcome.finish_s[0] == pytest.approx(0.51)


def test_a_prompt_on_its_way_through_a_pipeline_decodes_only_at_its_end() -> None:
    """Two stages: a prompt keeps the first for 1 s and is through after 2; steps of both stages take 0.1 s."""
    lines = tuple((Line(0.1, 0.0), Line(0.05, 0.0), Line(0.05, 0.0)) for _ in range(3))
    times = StepTimes(lines, **linear_prompts(0.01, 0.01), kv_tokens=1000)
    replica = SimulatedReplica("pipeline", times, EngineSettings(2, 2048), 0.0)
    outcome = simulate([replica], everything_to(1), requests([(0.0, 100, 3), (0.5, 100, 1)]))
    assert outcome.ttft_s.tolist() == pytest.approx([2.0, 2.5])
    assert (outcome.finish_s - outcome.requests.arrival_s).tolist() == pytest.approx([2.2, 2.5])
