"""What an offline application is: models, their requests, and whose output is whose input; frozen, checked at birth.

Flow: service/offline builds it from the caller's file -> sampling.py draws the requests -> costs, search, execution.
The computation graph is SamuLLM's (Fang et al., §3): a node is a model, an edge hands outputs on, a self-loop makes
chains. Loops other than those cannot be run and are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.catalog.entries import ModelSpec, Precision
from sutler.solver.errors import InvalidProblemError

Outputs = Literal["last", "every"]
FanIn = Literal["concatenate", "separate"]


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """A distribution of whole numbers: `values[i]` up to a cumulative share of `cumulative[i]`; both ascend, the last
    share is 1."""

    values: tuple[int, ...]
    cumulative: tuple[float, ...]

    @staticmethod
    def always(value: int) -> "LengthDistribution":
        return LengthDistribution((value,), (1.0,))

    @staticmethod
    def of_sample(values: Sequence[int]) -> "LengthDistribution":
        """The empirical distribution of what was seen."""
        found, counts = np.unique(np.asarray(values, dtype=np.int64), return_counts=True)
        cumulative = np.cumsum(counts) / len(values)
        return LengthDistribution(tuple(found.tolist()), (*cumulative[:-1].tolist(), 1.0))

    @property
    def most(self) -> int:
        return self.values[-1]

    @property
    def mean(self) -> float:
        return float(np.diff(self.cumulative, prepend=0.0) @ np.array(self.values))

    def at(self, uniform: FloatArray) -> IntArray:
        """The lengths at shares in [0, 1) of any shape: numbers drawn evenly make a sample."""
        return np.asarray(np.array(self.values, dtype=np.int64)[np.searchsorted(self.cumulative, uniform, "right")])


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests whose prompts are known one by one; `output_tokens` only where a plan may count on them."""

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """So many items with prompts of these lengths. `chain_length`: how many chunks, one request each, an item has
    where the node reads its own output (a self-loop); each chunk has a prompt of its own."""

    items: int
    input_tokens: LengthDistribution
    chain_length: LengthDistribution | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A model of the application.

    `requests`: its own; None where all come from other nodes. `prompt_tokens`: what is put around an output of
    another node that it reads. A request's answer is as long as is drawn from `output_tokens`, at most
    `max_output_tokens` and what the context leaves (SamuLLM §4.1). `slowdown`: its steps take so many times as long
    as estimated, as observed while it ran. `weights_gb`: what is downloaded and loaded; None: by the precision.
    """

    name: str
    spec: ModelSpec
    precision: Precision
    kv_precision: Precision
    output_tokens: LengthDistribution
    requests: Drawn | Recorded | None = None
    prompt_tokens: LengthDistribution = LengthDistribution.always(0)  # noqa: RUF009 - frozen
    max_output_tokens: int | None = None
    slowdown: float = 1.0
    weights_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` reads outputs of `source`, both by name; a node that names itself has chains.

    `outputs`: of a chain the last output alone, or every one; an item without a chain has one output.
    `fan_in`: `concatenate`: one request of the target reads one output of each such source (and the target's own
    prompt, if it has requests); `separate`: each output is a request by itself. `copies`: requests per output (a
    summary that is judged four times). `share_fraction`: of the outputs, how many are handed on, drawn at random.
    """

    source: str
    target: str
    outputs: Outputs = "last"
    fan_in: FanIn = "separate"
    copies: int = 1
    share_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Application:
    """Raises InvalidProblemError for loops other than self-loops, nodes that nothing reaches, unknown names."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        for position, edge in enumerate(self.edges):
            for end in (edge.source, edge.target):
                if end not in names:
                    raise InvalidProblemError(
                        f"edges[{position}]", end, f"name one of the models: {', '.join(names)}"
                    )
        self.order  # noqa: B018 - raises for a loop
        for position, node in enumerate(self.nodes):
            if node.requests is None and not self.sources(node.name):
                remedy = "give it requests, or an edge from a model that has some: nothing reaches it"
                raise InvalidProblemError(f"models[{position}]", node.name, remedy)

    @property
    def order(self) -> tuple[int, ...]:
        """Positions of the nodes, sources before targets."""
        names = [node.name for node in self.nodes]
        graph = {name: [edge.source for edge in self.sources(name)] for name in names}
        try:
            return tuple(names.index(name) for name in TopologicalSorter(graph).static_order())
        except CycleError as error:
            loop = " -> ".join(reversed(error.args[1]))
            remedy = "only a model that reads its own output may loop (an edge from itself to itself): break the loop"
            raise InvalidProblemError("edges", loop, remedy) from error

    def sources(self, name: str) -> tuple[Edge, ...]:
        """Edges from other nodes."""
        return tuple(edge for edge in self.edges if edge.target == name != edge.source)

    def has_chains(self, name: str) -> bool:
        return any(edge.source == edge.target == name for edge in self.edges)
