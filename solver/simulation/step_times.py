"""How long the steps of one replica take, as tables that a simulation reads one number at a time.

Flow: a stage source (solver/throughput/stages.py) -> step_times (here) -> engine.py. The tables are made of the
composer's questions, so a simulated replica and the closed form rest on the same seconds.

A decode step of b sequences on S stages moves n = min(b, S) micro-batches of b / n sequences each. It takes as long
as the way of one through all stages, or n times its time on one stage, whichever is longest; each of these grows
linearly with the mean context, since attention reads every token that a sequence holds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.composer import Pipelines, pipelines
from sutler.solver.throughput.memory import sequences_in_memory, stage_memory
from sutler.solver.throughput.stages import ModelStages, StageKinds, Traffic, stage_kinds

TOKEN_COUNTS: Final = 256  # between two of them seconds are interpolated: within 0.1 % of the roofline
LARGEST_STEP_TOKENS: Final = 16_384.0  # chosen: twice what engines put into a step by default


@dataclass(frozen=True, slots=True)
class Line:
    """fixed_s + per_token_s x the mean context of the sequences."""

    fixed_s: float
    per_token_s: float

    def at(self, context: float) -> float:
        return self.fixed_s + self.per_token_s * context


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The step times of one replica.

    decode [max_sequences + 1]: what a step of 0, 1, 2, ... sequences takes on the whole way, and on each stage.
    tokens: ascending counts; products_s: what of a step on each stage grows with so many tokens; attention_s: what
    attention of a prompt of so many takes there beside; once_s: what a step with prompts alone takes there, too;
    hops_s: what a prompt of so many takes between the stages. kv_tokens: what fits into the cache of the fullest
    stage.
    """

    decode: tuple[tuple[Line, ...], ...]
    tokens: tuple[float, ...]
    products_s: tuple[tuple[float, ...], ...]
    attention_s: tuple[tuple[float, ...], ...]
    once_s: tuple[float, ...]
    hops_s: tuple[float, ...]
    kv_tokens: int

    @property
    def max_sequences(self) -> int:
        return len(self.decode) - 1

    @property
    def stages(self) -> int:
        return len(self.products_s)

    def scaled(self, factor: float) -> Self:
        """Returns them with seconds that are so many times as long."""
        return self.slowed([factor] * (len(self.decode) + 1))

    def slowed(self, factors: Sequence[float]) -> Self:
        """Returns them with seconds that are so many times as long [max_sequences + 2]: decode steps of 0, 1, 2, ...
        sequences, and last prompts (Roofline.slower)."""
        *of_decode, of_prompts = factors
        return replace(
            self,
            decode=tuple(
                tuple(Line(line.fixed_s * factor, line.per_token_s * factor) for line in lines)
                for lines, factor in zip(self.decode, of_decode, strict=True)
            ),
            products_s=_scaled(self.products_s, of_prompts),
            attention_s=_scaled(self.attention_s, of_prompts),
            once_s=tuple(seconds * of_prompts for seconds in self.once_s),
            hops_s=tuple(seconds * of_prompts for seconds in self.hops_s),
        )

    def line(self, sequences: int, context: float) -> Line:
        """The line of a step without prompts: the longest at a mean context."""
        lines = self.decode[sequences]
        return lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.at(context))

    def prefill_s(self, prompt: float, cached: float = 0.0) -> tuple[float, list[float]]:
        """Seconds of a prompt that is alone: through all stages, and on each. `cached`: how many of its tokens are in
        the prefix cache."""
        new = prompt - cached
        stages = zip(self.once_s, self._each(self.products_s, new), self.attention_of(prompt, cached), strict=True)
        slots_s = [once_s + one_s + attention_s for once_s, one_s, attention_s in stages]
        return sum(slots_s) + self._each((self.hops_s,), new)[0], slots_s

    def attention_of(self, prompt: float, cached: float = 0.0) -> list[float]:
        """Seconds of a prompt's attention on each stage: of all its tokens, less that of those in the cache."""
        whole_s = self._each(self.attention_s, prompt)
        if not cached:
            return whole_s
        return [of_all - before for of_all, before in zip(whole_s, self._each(self.attention_s, cached), strict=True)]

    def mixed_s(
        self, tokens: float, attention_s: Sequence[float], sequences: int, context: float, *, parts: int = 1
    ) -> float:
        """A step with so many tokens of prompts, whose attention takes so long on each stage, beside a token of each
        of the sequences: the weights are read once. `parts`: of prompts, each of which is with one micro-batch."""
        if not sequences:
            alone = zip(self.once_s, self._each(self.products_s, tokens), attention_s, strict=True)
            return max(map(sum, alone))
        through, *slots = self.decode[sequences]
        beside, parts = max(sequences / self.stages, 1.0), min(parts, self.stages)
        before, after = (self._each(self.products_s, count) for count in (beside, beside + tokens / parts))
        stages = zip(slots or [through], before, after, attention_s, strict=True)
        on_stages = (slot.at(context) + parts * (b - a) + more_s for slot, a, b, more_s in stages)
        return max(through.at(context), *on_stages)

    def _each(self, tables: Sequence[Sequence[float]], tokens: float) -> list[float]:
        """Every table's entry for so many tokens."""
        at = min(max(bisect_right(self.tokens, tokens) - 1, 0), len(self.tokens) - 2)
        share = (tokens - self.tokens[at]) / (self.tokens[at + 1] - self.tokens[at])
        return [table[at] + share * (table[at + 1] - table[at]) for table in tables]


def _scaled(tables: tuple[tuple[float, ...], ...], factor: float) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(seconds * factor for seconds in table) for table in tables)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the longest request, and of a typical one while it decodes."""

    longest_tokens: float
    typical_tokens: float


def step_times(
    model: ServedModel, layouts: Layouts, source: ModelStages, lengths: Lengths, *, max_sequences: int
) -> StepTimes:
    """Makes the tables of the one layout, whose layers are given, for requests of these lengths."""
    layers = layouts.layers
    assert layers is not None
    kinds, kind = stage_kinds(layouts)
    most = max(lengths.longest_tokens, LARGEST_STEP_TOKENS)
    tokens = np.unique(np.round(np.geomspace(1.0, most, TOKEN_COUNTS)))
    contexts = np.array([lengths.typical_tokens / 2, lengths.typical_tokens * 2])

    def pipes(inputs: FloatArray, new: FloatArray, most: int) -> Pipelines:
        return pipelines(
            layouts,
            kinds=kinds,
            kind=kind,
            layers=layers,
            traffic=Traffic(input_tokens=inputs, output_tokens=np.zeros(len(inputs)), new_tokens=new),
            source=source,
            max_batch=most,
        )

    prompts = pipes(tokens, tokens, 1)
    products = source.products(kinds, tokens)
    decode = _decodes(pipes(contexts, np.ones(2), max_sequences), contexts, max_sequences)
    stages, products_s, attention_s, once_s = range(int(prompts.stages[0])), [], [], []
    for s in stages:
        of_kind, on_stage = prompts.kind[s, 0], prompts.layers[s, 0]
        products_s.append(on_stage * products[of_kind])
        whole = on_stage * prompts.prefill.per_layer[of_kind] + prompts.prefill.per_pass[of_kind]
        rest = whole - np.interp(prompts.traffic.new_tokens, tokens, products_s[-1])
        once_s.append(rest[0] + (prompts.prefill.head[of_kind] if s == stages[-1] else 0.0))
        attention_s.append(np.maximum(rest - rest[0], 0.0))
    hops = [
        prompts.traffic.new_tokens * prompts.hop_s_per_token[s, 0] + prompts.hop_latency_s[s, 0] for s in stages[:-1]
    ]
    return StepTimes(
        decode=decode,
        tokens=tuple(tokens.tolist()),
        products_s=_tables(products_s),
        attention_s=_tables(attention_s),
        once_s=tuple(float(seconds) for seconds in once_s),
        hops_s=tuple(np.sum([np.zeros(len(tokens)), *hops], axis=0).tolist()),
        kv_tokens=_kv_tokens(source, kinds, layouts, lengths.typical_tokens),
    )


def _tables(of_stages: Sequence[FloatArray]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(table.tolist()) for table in of_stages)


def _decodes(pipes: Pipelines, contexts: FloatArray, max_sequences: int) -> tuple[tuple[Line, ...], ...]:
    stages = int(pipes.stages[0])
    sequences = np.arange(max_sequences + 1)
    moving = np.clip(sequences, 1, stages)
    micro = np.maximum(sequences / stages, 1.0)
    low = np.minimum(micro.astype(np.int64), max_sequences)
    share = micro - low
    high = np.minimum(low + 1, max_sequences)
    seconds = []  # of a micro-batch on each stage [stages][2 contexts, max_sequences + 1]
    for s in range(stages):
        kind = pipes.kind[s, 0]
        table = pipes.layers[s, 0] * pipes.decode.per_layer[kind] + pipes.decode.per_pass[kind]
        if s == stages - 1:
            table = table + pipes.decode.head[kind]
        seconds.append(table[:, low] + share * (table[:, high] - table[:, low]))
    hops = sum(micro * pipes.hop_s_per_token[s, 0] + pipes.hop_latency_s[s, 0] for s in range(stages - 1))
    through = _lines(np.sum(seconds, axis=0) + hops, contexts)
    if stages == 1:
        return tuple((line,) for line in through)
    slots = [_lines(moving * one, contexts) for one in seconds]
    return tuple(zip(through, *slots, strict=True))


def _lines(seconds: FloatArray, contexts: FloatArray) -> list[Line]:
    """Lines [num_batches] through the seconds [2, num_batches] at the two contexts."""
    slope = (seconds[1] - seconds[0]) / (contexts[1] - contexts[0])
    fixed = seconds[0] - slope * contexts[0]
    return [Line(float(f), float(s)) for f, s in zip(fixed, slope, strict=True)]


def _kv_tokens(source: ModelStages, kinds: StageKinds, layouts: Layouts, typical_tokens: float) -> int:
    """Returns what the cache holds. Where a window bounds what is kept, the cache holds longer sequences by as much
    as they exceed it; a state of fixed size counts as the tokens that it takes the place of."""
    assert layouts.layers is not None
    _, kind = stage_kinds(layouts)
    stages = (layouts.gpu >= 0).sum(axis=1)
    held = source.work.held_context(np.array([typical_tokens]))
    sequences = sequences_in_memory(stage_memory(source.work, kinds), kind, layouts.layers, stages, held)
    return int(float(sequences[0, 0]) * typical_tokens) * int(layouts.ranks[0])
