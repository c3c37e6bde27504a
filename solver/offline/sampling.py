"""Draws the requests of an application: SamuLLM's output length sampler (Fang et al., §4.1), along the graph.

Flow: application.py -> sample (here) -> Pile. Every node draws from a stream of its own, made of the seed and its
name, so what one model draws does not depend on the others or on how it is run.

An answer is as long as is drawn, at most `max_output_tokens` and what the context leaves beside the prompt.
"""

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application, Drawn, Edge, LengthDistribution, Node, Recorded
from sutler.solver.offline.request_set import Pile

NONE = -1
ANSWERS = "answers"


def sample(application: Application, *, seed: int, answers_seed: int | None = None) -> Pile:
    """The same for the same application and seeds; `answers_seed` draws other answers to the same requests.

    Raises InvalidProblemError where a prompt leaves no room in its model's context, or where outputs that are to be
    concatenated do not match in number.
    """
    drawn: dict[str, _Requests] = {}
    seeds = (seed, seed if answers_seed is None else answers_seed)
    for position in application.order:
        drawn[application.nodes[position].name] = _Sampler(application, position, seeds, drawn).requests()
    names = [node.name for node in application.nodes]
    counts = [len(drawn[name]) for name in names]
    first = dict(zip(names, np.cumsum([0, *counts]).tolist(), strict=False))
    return _joined([(position, drawn[name]) for position, name in enumerate(names)], first)


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests of one node, arrays [n]; last [num_items]: the request whose output is an item's. parents: by
    source node, the requests of it that are waited for [n], NONE where there is none."""

    item: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    last: IntArray
    parents: tuple[tuple[str, IntArray], ...] = ()

    def __len__(self) -> int:
        return len(self.item)


@dataclass(slots=True)
class _Sampler:
    application: Application
    position: int
    seeds: tuple[int, int]
    drawn: dict[str, _Requests]
    found: list[_Requests] = field(default_factory=list)

    @property
    def node(self) -> Node:
        return self.application.nodes[self.position]

    def uniform(self, purpose: str, count: int) -> FloatArray:
        seed = self.seeds[purpose.startswith(ANSWERS)]
        stream = [seed, crc32(self.node.name.encode()), crc32(purpose.encode())]
        return np.random.default_rng(stream).random(count)

    def requests(self) -> _Requests:
        edges = self.application.sources(self.node.name)
        joint = [edge for edge in edges if edge.fan_in == "concatenate"]
        if joint:
            self.found.append(self._concatenated(joint))
        elif self.node.requests is not None:
            self.found.append(self._own())
        for edge in edges:
            if edge.fan_in == "separate":
                self.found.append(self._separate(edge))
        return _stacked(self.found)

    def _own(self) -> _Requests:
        asked = self.node.requests
        if isinstance(asked, Recorded):
            inputs = np.array(asked.input_tokens, dtype=np.int64)
            known = None if asked.output_tokens is None else np.array(asked.output_tokens, dtype=np.int64)
            items = np.arange(len(inputs))
            return _Requests(items, inputs, self._answers(inputs, "own", known), items)
        assert asked is not None
        if asked.chain_length is not None:
            return self._chains(asked, asked.chain_length)
        items = np.arange(asked.items)
        inputs = np.maximum(asked.input_tokens.at(self.uniform("prompts", asked.items)), 1)
        return _Requests(items, inputs, self._answers(inputs, "own"), items)

    def _chains(self, asked: Drawn, chain_length: LengthDistribution) -> _Requests:
        """Chunk by chunk, since a chunk's prompt holds the answer to the one before it."""
        lengths = np.maximum(chain_length.at(self.uniform("chains", asked.items)), 1)
        starts = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        inputs = np.maximum(asked.input_tokens.at(self.uniform("prompts", total)), 1)
        uniform = self.uniform(f"{ANSWERS} own", total)
        outputs, before = np.zeros(total, dtype=np.int64), np.full(total, NONE)
        for level in range(int(lengths.max(initial=0))):
            now = starts[lengths > level] + level
            if level:
                before[now] = now - 1
                inputs[now] += outputs[now - 1]
            outputs[now] = self._limited(self.node.output_tokens.at(uniform[now]), inputs[now])
        items = np.repeat(np.arange(asked.items), lengths)
        return _Requests(items, inputs, outputs, starts + lengths - 1, ((self.node.name, before),))

    def _concatenated(self, edges: list[Edge]) -> _Requests:
        if self.application.has_chains(self.node.name):
            remedy = (
                "reads its own output and others' at once: hand the others on as requests of their own (separate)"
            )
            raise InvalidProblemError(f"models[{self.position}]", self.node.name, remedy)
        read = [self._outputs(edge) for edge in edges]
        counts = {len(requests) for requests in read}
        own = None if self.node.requests is None else self._own()
        if own is not None:
            counts.add(len(own.last))
        if len(counts) > 1:
            each = ", ".join(f"{edge.source}: {len(requests)}" for edge, requests in zip(edges, read, strict=True))
            remedy = f"outputs that are concatenated go together one by one: make them as many ({each})"
            raise InvalidProblemError(
                f"models[{self.position}].requests", None if own is None else len(own.last), remedy
            )
        kept = self._handed_on(edges[0], counts.pop())
        total = [self.drawn[edge.source].output_tokens[requests] for edge, requests in zip(edges, read, strict=True)]
        inputs = self._around(len(kept), edges[0].source) + np.sum(total, axis=0)[kept]
        if own is not None:
            inputs = inputs + own.input_tokens[kept]
        parents = tuple((edge.source, requests[kept]) for edge, requests in zip(edges, read, strict=True))
        items = np.arange(len(kept))
        return _Requests(items, inputs, self._answers(inputs, "joint"), items, parents)

    def _separate(self, edge: Edge) -> _Requests:
        read = self._outputs(edge)
        kept = read[self._handed_on(edge, len(read))]
        inputs = self._around(len(kept), edge.source) + self.drawn[edge.source].output_tokens[kept]
        items = np.arange(len(kept))
        return _Requests(items, inputs, self._answers(inputs, edge.source), items, ((edge.source, kept),))

    def _outputs(self, edge: Edge) -> IntArray:
        source = self.drawn[edge.source]
        return source.last if edge.outputs == "last" else np.arange(len(source))

    def _handed_on(self, edge: Edge, count: int) -> IntArray:
        """Which of so many outputs, each as often as it is copied."""
        kept = np.arange(count)
        if edge.share_fraction < 1:
            kept = kept[self.uniform(f"share {edge.source}", count) < edge.share_fraction]
        return np.repeat(kept, edge.copies)

    def _around(self, count: int, source: str) -> IntArray:
        return self.node.prompt_tokens.at(self.uniform(f"around {source}", count))

    def _answers(self, inputs: IntArray, purpose: str, known: IntArray | None = None) -> IntArray:
        if known is None:
            known = self.node.output_tokens.at(self.uniform(f"{ANSWERS} {purpose}", len(inputs)))
        return self._limited(known, inputs)

    def _limited(self, wanted: IntArray, inputs: IntArray) -> IntArray:
        context = self.node.spec.max_context_tokens
        if len(inputs) and inputs.max() >= context:
            remedy = f"the context of {self.node.spec.id} is {context} tokens: shorten prompts or what they read"
            raise InvalidProblemError(f"models[{self.position}]", int(inputs.max()), remedy)
        most = context - inputs
        if self.node.max_output_tokens is not None:
            most = np.minimum(most, self.node.max_output_tokens)
        return np.asarray(np.clip(wanted, 1, most))


def _stacked(parts: list[_Requests]) -> _Requests:
    """One after the other; items and numbers count on. Chains are a node's own requests and come first, so numbers of
    requests of the node itself stay what they are."""
    total, items, requests = sum(map(len, parts)), 0, 0
    item, last, parents = [], [], []
    for part in parts:
        item.append(part.item + items)
        last.append(part.last + requests)
        for source, of_part in part.parents:
            everywhere = np.full(total, NONE)
            everywhere[requests : requests + len(part)] = of_part
            parents.append((source, everywhere))
        items += len(part.last)
        requests += len(part)
    return _Requests(
        np.concatenate(item),
        np.concatenate([part.input_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        np.concatenate(last),
        tuple(parents),
    )


def _joined(pieces: list[tuple[int, _Requests]], first: dict[str, int]) -> Pile:
    """`first`: the number of every node's first request."""
    counts, parents = [], []
    for _, requests in pieces:
        columns = [
            np.where(of_source == NONE, NONE, of_source + first[source]) for source, of_source in requests.parents
        ]
        table = np.column_stack(columns) if columns else np.zeros((len(requests), 0), dtype=np.int64)
        counts.append((table != NONE).sum(axis=1))
        parents.append(table[table != NONE])
    return Pile(
        node=np.concatenate([np.full(len(requests), position) for position, requests in pieces]),
        item=np.concatenate([requests.item for _, requests in pieces]),
        input_tokens=np.concatenate([requests.input_tokens for _, requests in pieces]),
        output_tokens=np.concatenate([requests.output_tokens for _, requests in pieces]),
        parent_start=np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
        parents=np.concatenate(parents),
    )
