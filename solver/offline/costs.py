"""What everything costs on the hardware at hand: the seconds of a model's steps, of loading it, and what fits.

Flow: application, hardware, pile -> Costs (here) -> bounds.py, curves.py, execution.py. Seconds come from the tables
that simulations of plans step by (solver/simulation/step_times.py), one table for each model and tensor-parallel
degree; SamuLLM fits lines to profiles of every model in their place (Fang et al., §4.1, eq. 5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application, Node
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.placement import can_place
from sutler.solver.offline.plan import OfflineOptions
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import ExecutionPlan
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.engine import BLOCK_TOKENS, blocks_of
from sutler.solver.simulation.replicas import lengths_of
from sutler.solver.simulation.step_times import StepTimes, step_times
from sutler.solver.throughput.architecture import PRECISION_BYTES, layer_work
from sutler.solver.throughput.base import Layouts
from sutler.solver.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True)
class FlooredStepTimes(StepTimes):
    """A step with prompts takes no less than the same step without them, which the end of a long prompt's last chunk
    could otherwise do: lower_bound counts on it."""

    def mixed_s(
        self, tokens: float, attention_s: Sequence[float], sequences: int, context: float, *, parts: int = 1
    ) -> float:
        mixed_s = StepTimes.mixed_s(self, tokens, attention_s, sequences, context, parts=parts)
        return max(mixed_s, self.line(sequences, context).at(context)) if sequences else mixed_s


@dataclass(frozen=True, slots=True)
class Shard:
    """A model on `tensor_parallel` GPUs; `load_s`: until a replica serves."""

    times: StepTimes
    tensor_parallel: int
    load_s: float


@dataclass(frozen=True)
class Costs:
    """What one application with its pile costs on one hardware.

    Raises InvalidProblemError for a model that fits on no allowed number of its GPUs.
    """

    application: Application
    hardware: Hardware
    pile: Pile
    options: OfflineOptions

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Nodes, sources before targets."""
        return self.application.order

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The nodes, by node, that hand outputs on to it."""
        names = [node.name for node in self.application.nodes]
        return tuple(
            tuple(sorted({names.index(edge.source) for edge in self.application.sources(name)})) for name in names
        )

    @cached_property
    def shards(self) -> tuple[Mapping[int, Shard], ...]:
        """The shards by node and tensor-parallel degree: where the weights fit with the cache of the node's longest
        request (SamuLLM §3: a plan is valid if one sequence fits)."""
        found = tuple(self._shards(node) for node in range(len(self.application.nodes)))
        for position, shards in enumerate(found):
            if not shards:
                node = self.application.nodes[position]
                remedy = (
                    f"does not fit on {self.hardware.gpus} x {self.hardware.gpu.slug} with its longest request: "
                    "allow more tensor parallelism, a smaller precision or shorter requests, or use larger GPUs"
                )
                raise InvalidProblemError(f"models[{position}]", node.name, remedy)
        return found

    @cached_property
    def plans(self) -> tuple[tuple[ExecutionPlan, ...], ...]:
        """The valid execution plans by node, fewest GPUs first."""
        return tuple(
            tuple(
                sorted(
                    (
                        ExecutionPlan(copies, degree)
                        for degree in shards
                        for copies in _replica_counts(self.hardware.gpus // degree)
                        if can_place(self.hardware, (degree,) * copies)
                    ),
                    key=lambda plan: (plan.gpus, plan.tensor_parallel),
                )
            )
            for shards in self.shards
        )

    @cached_property
    def weights_gb(self) -> tuple[float, ...]:
        """The size of the weights by node."""
        return tuple(map(weights_gb, self.application.nodes))

    def download_s(self, node: int) -> float:
        """The seconds of its weights alone; 0 where they are on the disks."""
        rate = self.hardware.loading.download_gb_per_s
        return self.weights_gb[node] / rate if rate else 0.0

    @cached_property
    def flops(self) -> FloatArray:
        """All that the requests of each node compute, prompts and answers [num_nodes] (SamuLLM eqs. 1 and 2)."""
        found = []
        for position, node in enumerate(self.application.nodes):
            of_node = self.pile.node == position
            inputs, outputs = self.pile.input_tokens[of_node], self.pile.output_tokens[of_node]
            work = layer_work(node.spec, node.precision, node.kv_precision)
            total = (inputs + outputs).astype(np.float64)
            pairs = work.attended_pairs(total, total)
            attention = node.spec.layers * work.attention_flops * pairs.sum()
            found.append(2.0 * node.spec.active_params * total.sum() + attention)
        return np.array(found)

    def _shards(self, position: int) -> dict[int, Shard]:
        node = self.application.nodes[position]
        found = {}
        for degree in sorted(set(self.options.tensor_parallel)):
            if degree > self.hardware.gpus or not can_place(self.hardware, (degree,)):
                continue
            times = self._times(position, degree)
            if times is not None:
                load_s = self.hardware.loading.seconds(node.name, self.weights_gb[position], degree)
                found[degree] = Shard(times, degree, load_s)
        return found

    def _times(self, position: int, degree: int) -> StepTimes | None:
        """Returns None where it does not fit."""
        node, pile = self.application.nodes[position], self.pile
        if node.spec.heads % degree:
            return None
        numbers = pile.of_node(position)
        inputs, outputs = pile.input_tokens[numbers], pile.output_tokens[numbers]
        if not len(numbers):
            inputs = outputs = np.ones(1, dtype=np.int64)
        model = served_model(node, float(inputs.mean()), float(outputs.mean()))
        roofline = self.options.roofline
        lengths = lengths_of(model, inputs, outputs)
        layouts = one_group(self.hardware, degree, node.spec.layers)
        stages, most = roofline.simulation_stages(model), self.options.max_sequences
        times = step_times(model, layouts, stages, lengths, max_sequences=most)
        if times.kv_tokens // BLOCK_TOKENS < blocks_of(int(lengths.longest_tokens)):
            return None
        floored = FlooredStepTimes(**{entry.name: getattr(times, entry.name) for entry in fields(times)})
        return floored.scaled(node.slowdown).slowed(roofline.slower(model, layouts, max_batch=most).tolist())


def _replica_counts(most: int) -> list[int]:
    """All up to 8; beyond, steps of about an eighth, and the largest."""
    counts = list(range(1, min(most, 8) + 1))
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + max(1, counts[-1] // 8)))
    return counts


def weights_gb(node: Node) -> float:
    """What is read from the disk: the given size, or parameters at the node's precision."""
    return node.weights_gb or node.spec.total_params * PRECISION_BYTES[node.precision] / BYTES_PER_GB


def served_model(node: Node, input_tokens: float, output_tokens: float) -> ServedModel:
    """The node as plans of online serving know it, with one workload of these mean lengths."""
    workload = Workload("pile", input_tokens, output_tokens, 1.0)
    return ServedModel(node.name, node.spec, node.precision, node.kv_precision, (workload,))


def one_group(hardware: Hardware, degree: int, layers: int) -> Layouts:
    """A replica of one stage: on an island at its link where one is large enough, else across islands."""
    inside = [island.gb_per_s for island in hardware.islands if len(island.gpus) >= degree]
    link = min(inside) if inside else hardware.across_gb_per_s
    return Layouts(
        gpus=(hardware.gpu,),
        gpu=np.zeros((1, 1), dtype=np.int64),
        tensor_parallel=np.array([[degree]]),
        intra_gb_per_s=np.array([[link]]),
        hop_gb_per_s=np.array([[np.inf]]),
        cross_machine=np.zeros((1, 1), dtype=np.bool_),
        layers=np.array([[layers]]),
    )
