"""One replica under continuous batching, from event to event: what vLLM's scheduler does, at the speed of the tables.

Flow: fleet.py routes requests -> Engine (here), which reads step_times.py -> outcome.py.

Sequences that decode advance together, one token a step. So between two events (an arrival, a prompt's chunk, the
end of a sequence, a full cache) n steps are one jump: with c the mean context before it and fixed, per_token the line
of the batch, it takes  n fixed + per_token (n c + n (n + 1) / 2)  seconds.

The rules are those of vLLM's scheduler (docs.vllm.ai, "Chunked prefill" and "Preemption"):

- requests wait in order of arrival; at most `max_sequences` run, and a step has at most `max_batched_tokens`;
- `chunked`: a step first decodes one token of every running sequence, then fills what is left with prompts, which
  may take several steps; `prefill_first`: whole prompts go before any decoding, as many as fit into a step;
- the cache consists of blocks; where none is left, the sequence admitted last is taken out, gives its blocks back,
  and is computed anew from its prompt and what it has written, as the first of those that wait.

A step with prompts in it reads the weights once, for their tokens and those that are decoded beside them, as in the
closed form; what their attention takes adds up over the chunks of a prompt to that of the whole.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, sqrt
from typing import Final, Literal, Protocol

from sutler.solver.problem import Role
from sutler.solver.simulation.step_times import StepTimes

Scheduling = Literal["chunked", "prefill_first"]

BLOCK_TOKENS: Final = 16  # of the cache: vLLM's default block_size


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """vLLM's max_num_seqs and max_num_batched_tokens; `role`: what of a request is done here (roles.py)."""

    max_sequences: int
    max_batched_tokens: int = 2048
    scheduling: Scheduling = "chunked"
    role: Role = "aggregated"


class Journal(Protocol):
    """What an engine tells as it goes; requests by their numbers, times in seconds."""

    def first_token(self, request: int, at_s: float) -> None: ...

    def finished(self, request: int, at_s: float) -> None: ...

    def preempted(self, request: int) -> None: ...

    def busy(self, start_s: float, end_s: float, running: int, waiting: int, blocks: int) -> None: ...


@dataclass(slots=True)
class Admitted:
    """A request that runs. `admission` counts admissions; `length`: tokens in the cache when it began to decode, at
    step `joined`; `left`: tokens of its `prompt` that are not computed yet."""

    request: int
    admission: int
    length: int
    blocks: int
    left: int
    prompt: int
    joined: int = 0
    finish_step: int = 0


class Engine:
    """`now_s`: the end of the last step. Whoever offers a request at a time advances to that time first.

    `cached_fraction`: by request, what of its prompt is in the prefix cache; empty: nothing.
    """

    def __init__(
        self,
        times: StepTimes,
        settings: EngineSettings,
        input_tokens: list[int],
        output_tokens: list[int],
        journal: Journal,
        cached_fraction: Sequence[float] = (),
    ) -> None:
        self.now_s = 0.0
        self._times, self._settings, self._journal = times, settings, journal
        self._inputs, self._outputs, self._cached_fraction = input_tokens, output_tokens, cached_fraction
        self._most = min(settings.max_sequences, times.max_sequences)
        self.blocks = times.kv_tokens // BLOCK_TOKENS
        self._free = self.blocks
        self._waiting: deque[int] = deque()
        self._written: dict[int, int] = {}  # tokens that a preempted request has answered already
        self._prefilling: list[Admitted] = []
        self._passing: deque[tuple[float, Admitted]] = deque()  # prompts on the later stages, until when
        self._decoding: dict[int, Admitted] = {}  # by admission, the newest last
        self._ends: list[tuple[int, int]] = []  # (finish step, admission), with some that were preempted
        self._turns = [0] * BLOCK_TOKENS  # sequences that need a block at steps of this remainder
        self._context = 0
        self._step = 0
        self._admissions = 0

    def fits(self, request: int) -> bool:
        """Whether the cache holds it at its full length."""
        return blocks_of(self._inputs[request] + self._outputs[request]) <= self.blocks and self._most > 0

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + self._running

    @property
    def _running(self) -> int:
        return len(self._prefilling) + len(self._passing) + len(self._decoding)

    def offer(self, request: int, at_s: float, *, written: int = 0) -> None:
        """A request that fits, at or before `now_s`, or at any time where nothing is under way. `written`: tokens of
        its answer that are there already and are computed anew with its prompt."""
        if not self.load:
            self.now_s = max(self.now_s, at_s)
        if written:
            self._written[request] = written
        self._waiting.append(request)

    def resume(self, request: int, written: int) -> None:
        """A request that is under way: its prompt and what it has written are in the cache already. Where there is no
        room for that, it waits and is computed anew."""
        length = self._inputs[request] + written
        blocks = blocks_of(length)
        if self._running >= self._most or blocks > self._free - self._needed(1):
            self.offer(request, self.now_s, written=written)
            return
        self._free -= blocks
        self._decode(self._admit(request, length, blocks), self._outputs[request] - written)

    def take_back(self) -> dict[int, int]:
        """The requests that wait, in their order, with the tokens that each has written; they are gone from here."""
        waiting = {request: self._written.pop(request, 0) for request in self._waiting}
        self._waiting.clear()
        return waiting

    def undone(self) -> dict[int, int]:
        """All requests that wait or run, with the tokens that each has written."""
        left = {request: self._written.get(request, 0) for request in self._waiting}
        for sequence in (*self._prefilling, *(passing for _, passing in self._passing)):
            left[sequence.request] = self._written.get(sequence.request, 0)
        for sequence in self._decoding.values():
            left[sequence.request] = self._outputs[sequence.request] - (sequence.finish_step - self._step)
        return left

    def advance(self, until_s: float, *, to_an_end: bool = False) -> bool:
        """All steps that begin before `until_s`; `to_an_end`: until a request finishes. Whether one has."""
        while self.now_s < until_s and self.load:
            if self._next_event(until_s) and to_an_end:
                return True
        return False

    def _next_event(self, until_s: float) -> bool:
        """Whether a request has finished."""
        if self._prefills():
            return self._step_with_prompts()
        through_s = self._passing[0][0] if self._passing else inf
        if self._decoding:
            ended = self._jump(min(until_s, through_s))
        else:
            ended = self._spend(through_s - self.now_s, decoded=0)
        return self._pass_through() or ended

    def _prefills(self) -> bool:
        if self._prefilling:
            return True
        if not self._waiting or self._running >= self._most:
            return False
        return self._blocks_of_first_chunk(self._waiting[0]) <= self._free - self._needed(1) or not self._running

    def _blocks_of_first_chunk(self, request: int) -> int:
        prompt = self._inputs[request] + self._written.get(request, 0)
        if self._settings.scheduling == "prefill_first":
            return blocks_of(prompt)
        cached = self._cached(request, prompt)
        return blocks_of(min(prompt, cached + max(1, self._settings.max_batched_tokens - len(self._decoding))))

    def _needed(self, steps: int) -> int:
        """Blocks that the running sequences fill up in so many steps: each needs one in BLOCK_TOKENS of them."""
        if steps == 1:
            return self._turns[-self._step % BLOCK_TOKENS]
        rounds, rest = divmod(steps, BLOCK_TOKENS)
        return rounds * len(self._decoding) + sum(self._turns[-(self._step + i) % BLOCK_TOKENS] for i in range(rest))

    def _steps_that_fit(self) -> int:
        running = len(self._decoding)
        rounds, left = divmod(self._free, running)
        steps = 0
        while steps < BLOCK_TOKENS:
            left -= self._turns[-(self._step + steps) % BLOCK_TOKENS]
            if left < 0:
                break
            steps += 1
        return rounds * BLOCK_TOKENS + steps

    def _jump(self, until_s: float) -> bool:
        """Takes as many decode steps as come before the next event; whether a sequence has ended."""
        fitting = self._steps_that_fit()
        if fitting == 0:
            self._preempt()
            return False
        running = len(self._decoding)
        mean = self._context / running
        line = self._times.line(running, mean)
        steps = min(self._next_end() - self._step, fitting)
        steps = min(steps, _steps_within(until_s - self.now_s, line.fixed_s, line.per_token_s, mean))
        seconds = steps * line.fixed_s + line.per_token_s * (steps * mean + steps * (steps + 1) / 2)
        self._spend(seconds, decoded=steps)
        return self._finish_those_at_their_end()

    def _next_end(self) -> int:
        while self._ends[0][1] not in self._decoding:
            heappop(self._ends)
        return self._ends[0][0]

    def _spend(self, seconds: float, *, decoded: int) -> bool:
        """Ends no request."""
        start_s, self.now_s = self.now_s, self.now_s + seconds
        running = len(self._decoding)
        self._journal.busy(start_s, self.now_s, self._running, len(self._waiting), self.blocks - self._free)
        if decoded and running:
            self._free -= self._needed(decoded)
            self._context += running * decoded
        self._step += decoded
        return False

    def _finish_those_at_their_end(self) -> bool:
        ended = False
        while self._ends and self._ends[0][0] <= self._step:
            _, admission = heappop(self._ends)
            sequence = self._decoding.get(admission)
            if sequence is not None:
                self._leave(sequence)
                self._journal.finished(sequence.request, self.now_s)
                ended = True
        return ended

    def _leave(self, sequence: Admitted) -> None:
        """Takes a sequence out of those that decode."""
        del self._decoding[sequence.admission]
        length = sequence.length + self._step - sequence.joined
        self._turns[(sequence.length - sequence.joined) % BLOCK_TOKENS] -= 1
        self._context -= length
        self._free += blocks_of(length)

    def _preempt(self) -> None:
        """The one admitted last gives its blocks back and waits as the first."""
        newest = next(reversed(self._decoding.values()), None)
        if self._prefilling and (newest is None or self._prefilling[-1].admission > newest.admission):
            sequence = self._prefilling.pop()
            self._free += sequence.blocks
        else:
            assert newest is not None
            sequence = newest
            self._leave(sequence)
            self._written[sequence.request] = self._outputs[sequence.request] - (sequence.finish_step - self._step)
        self._waiting.appendleft(sequence.request)
        self._journal.preempted(sequence.request)

    def _step_with_prompts(self) -> bool:
        """One step with chunks of prompts in it; whether a request has finished."""
        chunked = self._settings.scheduling == "chunked"
        if chunked:
            while self._needed(1) > self._free:
                self._preempt()
        reserved = self._needed(1) if chunked else 0
        decoding = len(self._decoding) if chunked else 0
        most = self._settings.max_batched_tokens
        budget = max(1, self._times.stages * most - decoding)  # each micro-batch has as many
        attention_s, tokens, extra_s, done = [0.0] * self._times.stages, 0.0, 0.0, []
        chunks = self._chunks(budget, reserved)
        for sequence, share in chunks:
            cached = self._cached(sequence.request, sequence.prompt)
            own_s = self._times.attention_of(sequence.prompt, cached)
            attention_s = [one_s + share * more_s for one_s, more_s in zip(attention_s, own_s, strict=True)]
            tokens += share * (sequence.prompt - cached)
            if not sequence.left:
                done.append(sequence)
                through_s, slots_s = self._times.prefill_s(sequence.prompt, cached)
                extra_s = max(extra_s, through_s - max(slots_s))
        context = self._context / decoding + 1.0 if decoding else 0.0
        if chunks:
            parts = max(len(chunks), ceil(tokens / most))
            seconds = self._times.mixed_s(tokens, attention_s, decoding, context, parts=parts)
        else:
            seconds = self._times.line(decoding, context).at(context)
        self._spend(seconds, decoded=1 if decoding else 0)
        for sequence in done:
            self._prefilling.remove(sequence)
            self._passing.append((self.now_s + extra_s, sequence))
        ended = self._pass_through()
        return self._finish_those_at_their_end() or ended

    def _pass_through(self) -> bool:
        """Prompts that have left the last stage decode from now on; whether one of them has finished with that."""
        ended = False
        while self._passing and self._passing[0][0] <= self.now_s:
            at_s, sequence = self._passing.popleft()
            ended |= self._begin_to_decode(sequence, at_s)
        return ended

    def _chunks(self, budget: int, reserved: int) -> list[tuple[Admitted, float]]:
        """The sequences that get a part of this step, with the share of their prompt; those that wait are admitted
        in order while there is room."""
        found = []
        for sequence in self._prefilling:
            tokens = min(sequence.left, budget)
            blocks = blocks_of(sequence.length + tokens) - sequence.blocks
            if tokens <= 0 or blocks > self._free - reserved:
                break
            found.append((sequence, self._take(sequence, tokens, blocks)))
            budget -= tokens
        while self._waiting and len(found) >= len(self._prefilling):
            if budget <= 0 or self._running >= self._most:
                break
            request = self._waiting[0]
            if not self._is_prefilled_here(request):
                break
            prompt = self._inputs[request] + self._written.get(request, 0)
            cached = self._cached(request, prompt)
            whole = self._settings.scheduling == "prefill_first"
            tokens = prompt - cached if whole else min(prompt - cached, budget)
            blocks = blocks_of(cached + tokens)
            if blocks > self._free - reserved or (whole and found and tokens > budget):
                break
            self._waiting.popleft()
            sequence = self._admit(request, cached, 0, left=prompt - cached)
            self._prefilling.append(sequence)
            found.append((sequence, self._take(sequence, tokens, blocks)))
            budget -= tokens
        return found

    def _admit(self, request: int, length: int, blocks: int, *, left: int = 0) -> Admitted:
        """A request that runs from now on with `length` tokens in the cache; so many of its prompt are `left`."""
        self._admissions += 1
        return Admitted(request, self._admissions, length, blocks, left, length + left)

    def _is_prefilled_here(self, request: int) -> bool:
        return True

    def _take(self, sequence: Admitted, tokens: int, blocks: int) -> float:
        """The share of its prompt that these tokens are."""
        share = tokens / (sequence.prompt - self._cached(sequence.request, sequence.prompt))
        self._free -= blocks
        sequence.blocks += blocks
        sequence.left -= tokens
        sequence.length += tokens
        return share

    def _cached(self, request: int, prompt: int) -> int:
        """What of a prompt's tokens need not be computed; the last one always is."""
        return min(int(prompt * self._cached_fraction[request]), prompt - 1) if self._cached_fraction else 0

    def _begin_to_decode(self, sequence: Admitted, at_s: float) -> bool:
        """Its prompt is through: the first token, or the next one of a sequence that was preempted; whether that was
        all of it."""
        request = sequence.request
        written = self._written.pop(request, 0)
        if not written:
            self._journal.first_token(request, at_s)
        left = self._outputs[request] - written - 1
        if left == 0:
            self._free += sequence.blocks
            self._journal.finished(request, at_s)
            return True
        self._decode(sequence, left)
        return False

    def _decode(self, sequence: Admitted, left: int) -> None:
        """So many tokens from now on."""
        sequence.joined, sequence.finish_step = self._step, self._step + left
        self._decoding[sequence.admission] = sequence
        self._turns[(sequence.length - self._step) % BLOCK_TOKENS] += 1
        self._context += sequence.length
        heappush(self._ends, (sequence.finish_step, sequence.admission))


def blocks_of(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def _steps_within(seconds: float, fixed_s: float, per_token_s: float, mean: float) -> int:
    """The least number of steps that take at least so long: the next event is seen at the end of a step."""
    if seconds == inf:
        return 1 << 62
    linear = fixed_s + per_token_s * (mean + 0.5)
    if per_token_s <= 0:
        return max(1, ceil(seconds / linear))
    half = per_token_s / 2
    return max(1, ceil((sqrt(linear * linear + 4 * half * seconds) - linear) / (2 * half)))
