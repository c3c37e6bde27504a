"""How long the steps of one replica take, as tables that a simulation reads one number at a time.

Flow: a stage source (solver/throughput/stages.py) -> step_times (here) -> engine.py. The tables are made of the
composer's two questions, so a simulated replica and the closed form rest on the same seconds.

A decode step of b sequences on S stages moves n = min(b, S) micro-batches of b / n sequences each. It takes as long
as the way of one through all stages, or n times its time on one stage, whichever is longest; each of these grows
linearly with the mean context, since attention reads every token that a sequence holds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.composer import Pipelines, pipelines
from sutler.solver.throughput.memory import sequences_in_memory, stage_memory
from sutler.solver.throughput.stages import ModelStages, StageKinds, Traffic, stage_kinds

PROMPT_LENGTHS: Final = 256  # between two of them seconds are interpolated: within 0.1 % of the roofline


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
    prompts: ascending lengths; through_s: their prefill from the first stage to the last; slots_s: on each stage,
    which is how long it keeps others waiting there. kv_tokens: what fits into the cache of the fullest stage.
    """

    decode: tuple[tuple[Line, ...], ...]
    prompts: tuple[float, ...]
    through_s: tuple[float, ...]
    slots_s: tuple[tuple[float, ...], ...]
    kv_tokens: int

    @property
    def max_sequences(self) -> int:
        return len(self.decode) - 1

    @property
    def stages(self) -> int:
        return len(self.slots_s)

    def scaled(self, factor: float) -> "StepTimes":
        """Returns them with seconds that are so many times as long."""
        return replace(
            self,
            decode=tuple(
                tuple(Line(line.fixed_s * factor, line.per_token_s * factor) for line in lines)
                for lines in self.decode
            ),
            through_s=tuple(seconds * factor for seconds in self.through_s),
            slots_s=tuple(tuple(seconds * factor for seconds in slot) for slot in self.slots_s),
        )

    def line(self, sequences: int, context: float) -> Line:
        """The line of a step without prompts: the longest at a mean context."""
        lines = self.decode[sequences]
        return lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.at(context))

    def prefill_s(self, tokens: float) -> tuple[float, list[float]]:
        """Seconds of a prompt: through all stages, and on each."""
        at = min(max(bisect_right(self.prompts, tokens) - 1, 0), len(self.prompts) - 2)
        share = (tokens - self.prompts[at]) / (self.prompts[at + 1] - self.prompts[at])
        through_s = self.through_s[at] + share * (self.through_s[at + 1] - self.through_s[at])
        return through_s, [slot[at] + share * (slot[at + 1] - slot[at]) for slot in self.slots_s]

    def mixed_s(self, prompts_s: Sequence[float], sequences: int, context: float) -> float:
        """A step with prompts that take so long on each stage, beside a token of each of the sequences.

        Those cost what they do in a full batch: the weights are read for the prompts anyway.
        """
        share = sequences / self.max_sequences
        through, *slots = self.decode[self.max_sequences]
        on_stages = (
            prompt_s + share * slot.at(context) for prompt_s, slot in zip(prompts_s, slots or [through], strict=True)
        )
        return max(share * through.at(context), *on_stages)


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
    cached = model.prefix_cache_hit_fraction
    prompts = np.unique(np.round(np.geomspace(1.0, max(lengths.longest_tokens, 2.0), PROMPT_LENGTHS)))
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

    through, slots = _prefills(pipes(prompts, np.maximum(prompts * (1.0 - cached), 1.0), 1))
    decode = _decodes(pipes(contexts, np.ones(2), max_sequences), contexts, max_sequences)
    return StepTimes(
        decode=decode,
        prompts=tuple(prompts.tolist()),
        through_s=tuple(through.tolist()),
        slots_s=tuple(tuple(slot.tolist()) for slot in slots),
        kv_tokens=_kv_tokens(source, kinds, layouts, lengths.typical_tokens),
    )


def _prefills(pipes: Pipelines) -> tuple[FloatArray, list[FloatArray]]:
    """Seconds of a prompt of every length: through all stages and the hops between them, and on each stage."""
    stages, tokens = int(pipes.stages[0]), pipes.traffic.new_tokens
    each = [
        pipes.layers[s, 0] * pipes.prefill.per_layer[pipes.kind[s, 0]] + pipes.prefill.per_pass[pipes.kind[s, 0]]
        for s in range(stages)
    ]
    each[-1] = each[-1] + pipes.prefill.head[pipes.kind[stages - 1, 0]]
    hops = [tokens * pipes.hop_s_per_token[s, 0] + pipes.hop_latency_s[s, 0] for s in range(stages - 1)]
    return np.sum([*each, *hops], axis=0), each


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
