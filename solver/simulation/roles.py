"""Engines that take a phase of a request or all of it, as each request asks: replicas that prefill, and that decode.

Flow: fleet.py -> PhaseEngine.offer_prompt -> a hand-over -> PhaseEngine.offer_answer -> outcome.py. Requests flow as
in Splitwise (section IV.A): the prompt machine computes the first token, its KV cache goes to the token machine,
which writes the rest. What is offered whole stays: prompts and answers share steps, as in any aggregated replica.

- A prompt's blocks are held until its keys and values are over. Of the transfer only what the prefill does not hide
  takes time (Splitwise, section IV.C: layer by layer, while later layers compute); what one replica sends goes one
  after the other. The first token reaches its reader with the transfer.
- What arrives waits for a place among the sequences that decode and for blocks of its own, and joins them without a
  step of its own; while it waits it takes none of the cache. A sequence that is preempted is computed anew where it
  decodes, as vLLM does.
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Protocol

from sutler.solver.simulation.engine import Admitted, Engine, EngineSettings, Journal, blocks_of
from sutler.solver.simulation.step_times import StepTimes


class PhaseJournal(Journal, Protocol):
    """What an engine tells besides that hands requests over."""

    def handed_over(self, request: int, at_s: float) -> None: ...

    def idle(self, start_s: float, end_s: float, waiting: int, blocks: int) -> None: ...


class PhaseEngine(Engine):
    """Takes whole requests as any engine does, prompts that it hands over, and answers whose prompts it is handed."""

    def __init__(
        self,
        times: StepTimes,
        settings: EngineSettings,
        input_tokens: list[int],
        output_tokens: list[int],
        journal: PhaseJournal,
        cached_fraction: Sequence[float],
    ) -> None:
        super().__init__(times, settings, input_tokens, output_tokens, journal, cached_fraction)
        if settings.role == "prefill":
            self._most *= times.stages  # a pipeline has a batch on every stage
        self._hand_overs = journal
        self._exposed_s: dict[int, float] = {}  # of what is to be handed over, what prefill does not hide of that
        self._arrived: set[int] = set()  # with keys and values, and waiting for a place
        self._leaving: deque[tuple[float, int]] = deque()  # (when its transfer is over, blocks)
        self._link_free_s = 0.0
        self._waits_until_s = 0.0  # for its own transfers and later stages
        self._waiting_tokens = 0  # of prompts

    def offer(self, request: int, at_s: float, *, written: int = 0) -> None:
        self._waits_until_s = 0.0
        if self._is_prefilled_here(request):
            self._waiting_tokens += self._inputs[request]
        super().offer(request, at_s, written=written)

    def offer_prompt(self, request: int, at_s: float, exposed_s: float) -> None:
        """A request that is handed over after its first token, as `offer`."""
        self._exposed_s[request] = exposed_s
        self.offer(request, at_s)

    def offer_answer(self, request: int, at_s: float) -> None:
        """A request whose first token is written and whose prompt's keys and values are here, as `offer`."""
        self._arrived.add(request)
        self.offer(request, at_s)

    def fits_prompt(self, request: int) -> bool:
        """Whether the cache holds its prompt."""
        return blocks_of(self._inputs[request]) <= self.blocks and self._most > 0

    @property
    def load(self) -> int:
        """Requests that wait, run, or are being handed over."""
        return super().load + len(self._leaving)

    @property
    def hands_over_after_s(self) -> float:
        """Nothing is handed over before that, unless something comes; inf: nothing is to be."""
        return max(self.now_s, self._waits_until_s) if self._exposed_s else inf

    @property
    def answers(self) -> int:
        """Requests that are here and end here."""
        return super().load - len(self._exposed_s)

    @property
    def prompt_tokens(self) -> int:
        """Of prompts that wait or are being computed."""
        return self._waiting_tokens + sum(sequence.left for sequence in self._prefilling)

    def _next_event(self, until_s: float) -> bool:
        self._release()
        if not self.load:
            return False
        if self._prefills() and (self._decoding or not self._is_blocked()):
            return self._step_with_prompts()
        through_s = self._passing[0][0] if self._passing else inf
        over_s = self._leaving[0][0] if self._leaving else inf
        self._waits_until_s = 0.0 if self._decoding else min(through_s, over_s)
        at_s = max(self.now_s, min(through_s, over_s, until_s))
        if self._decoding:
            ended = self._jump(at_s)
            return self._pass_through() or ended
        if self._running:
            self._spend(at_s - self.now_s, decoded=0)
        else:
            self._hand_overs.idle(self.now_s, at_s, len(self._waiting), self.blocks - self._free)
        self.now_s = at_s
        return self._pass_through()

    def _prefills(self) -> bool:
        while self._waiting and self._takes(self._waiting[0]):
            self._join(self._waiting.popleft())
        if self._waiting and not self._is_prefilled_here(self._waiting[0]):
            return bool(self._prefilling)
        return super()._prefills()

    def _takes(self, request: int) -> bool:
        if self._is_prefilled_here(request) or self._running >= self._most:
            return False
        return blocks_of(self._inputs[request] + 1) <= self._free - self._needed(1)

    def _is_prefilled_here(self, request: int) -> bool:
        return request not in self._arrived

    def _join(self, request: int) -> None:
        self._arrived.remove(request)  # from here on it is as any other: preempted, it is computed anew
        prompt = self._inputs[request]
        sequence = self._admit(request, prompt, blocks_of(prompt))
        self._free -= sequence.blocks
        self._decode(sequence, self._outputs[request] - 1)

    def _admit(self, request: int, length: int, blocks: int, *, left: int = 0) -> Admitted:
        if left:
            self._waiting_tokens -= self._inputs[request]
        return super()._admit(request, length, blocks, left=left)

    def _preempt(self) -> None:
        super()._preempt()
        self._waiting_tokens += self._inputs[self._waiting[0]]

    def _is_blocked(self) -> bool:
        """Whether what comes next has to wait until others give blocks back."""
        return bool(self._leaving or self._passing) and self._free < self._blocks_of_next_chunk()

    def _blocks_of_next_chunk(self) -> int:
        if not self._prefilling:
            return self._blocks_of_first_chunk(self._waiting[0])
        first = self._prefilling[0]
        return blocks_of(first.length + min(first.left, self._settings.max_batched_tokens)) - first.blocks

    def _begin_to_decode(self, sequence: Admitted, at_s: float) -> bool:
        """Its prompt is through, and with it this replica's part of a request that is handed over."""
        request = sequence.request
        exposed_s = self._exposed_s.pop(request, None)
        if exposed_s is None:
            return super()._begin_to_decode(sequence, at_s)
        over_s = self._link_free_s = max(self._link_free_s, at_s) + exposed_s
        self._leaving.append((over_s, sequence.blocks))
        self._journal.first_token(request, over_s)
        self._hand_overs.handed_over(request, over_s)
        return True

    def _release(self) -> None:
        while self._leaving and self._leaving[0][0] <= self.now_s:
            self._free += self._leaving.popleft()[1]
