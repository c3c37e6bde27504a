"""What fits: weights, KV cache and activations of every stage against the memory of its GPUs.

Flow: prepare.py asks for the largest batch and for the most layers a stage can hold (split.py).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.throughput.architecture import ACTIVATION_BYTES, LayerWork
from sutler.solver.throughput.stage_times import CHUNK_TOKENS
from sutler.solver.throughput.stages import StageKinds
from sutler.solver.units import BYTES_PER_GB

# Share of a card that serving engines use by default (vLLM's gpu_memory_utilization, docs.vllm.ai).
USABLE_FRACTION: Final = 0.9
# CUDA context, graphs and communication buffers, per GPU. Engine logs show 0.6-2 GB; part of it fits into what most
# cards hold beyond the 10^9 bytes per GB that the catalogue counts.
RUNTIME_GB: Final = 0.5
# Concurrent sequences of one replica (vLLM's max_num_seqs).
MAX_SEQUENCES: Final = 256


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes per GPU of each stage kind, arrays [num_kinds].

    free: usable memory less runtime and activations. layer: weights of one layer. vocabulary: embedding or output
    head; tied: what is saved where one stage holds both. kv: per token and layer. state: per sequence and
    layer, whatever its length.
    """

    free: FloatArray
    layer: FloatArray
    vocabulary: FloatArray
    tied: FloatArray
    kv: FloatArray
    state: FloatArray


def stage_memory(work: LayerWork, kinds: StageKinds) -> StageMemory:
    tp = np.maximum(kinds.tensor_parallel, 1).astype(np.float64)
    total = np.array([gpu.memory_gb for gpu in kinds.gpus])[kinds.gpu] * BYTES_PER_GB
    activations = CHUNK_TOKENS * ACTIVATION_BYTES * (4.0 * work.hidden_size + work.activation_width / tp)
    vocabulary = work.head_params * ACTIVATION_BYTES / tp
    return StageMemory(
        free=USABLE_FRACTION * total - RUNTIME_GB * BYTES_PER_GB - activations,
        layer=(work.dense_params + work.expert_params / kinds.ranks) * work.weight_bytes / tp,
        vocabulary=vocabulary,
        tied=vocabulary if work.tied_embeddings else np.zeros_like(vocabulary),
        kv=work.kv_bytes_per_token(kinds.tensor_parallel),
        state=work.state_bytes / tp,
    )


def free_after_vocabulary(memory: StageMemory, kind: IntArray, stages: IntArray) -> FloatArray:
    """Bytes per GPU left for layers [num_layouts, max_stages] once embedding and output head are placed.

    `kind` [num_layouts, max_stages] indexes the kinds, num_kinds in padding (0 bytes there); `stages`
    [num_layouts] counts the stages.
    """
    free = padded(memory.free)[kind]
    position = np.arange(kind.shape[1])
    is_first = position[None, :] == 0
    is_last = position[None, :] == stages[:, None] - 1
    vocabulary = padded(memory.vocabulary)[kind]
    free = free - is_first * vocabulary - is_last * vocabulary
    return np.asarray(free + (is_first & is_last) * padded(memory.tied)[kind])


def sequences_in_memory(
    memory: StageMemory, kind: IntArray, layers: IntArray, stages: IntArray, held_tokens: FloatArray
) -> FloatArray:
    """Sequences whose cache every stage can hold, of one rank [num_layouts, W]; 0 where the weights do not fit.

    `kind`, `layers` [num_layouts, max_stages], as in `free_after_vocabulary`; `held_tokens` [W] as of
    LayerWork.held_context.
    """
    free = free_after_vocabulary(memory, kind, stages) - layers * padded(memory.layer)[kind]
    state_tokens = padded(memory.state / memory.kv)[kind]
    with np.errstate(divide="ignore", invalid="ignore"):
        tokens = np.where(kind < len(memory.kv), free / (layers * padded(memory.kv)[kind]), np.inf)
        sequences = np.full((len(kind), len(held_tokens)), np.inf)
        for stage in range(kind.shape[1]):
            per_sequence = held_tokens[None, :] + state_tokens[:, stage, None]
            np.minimum(sequences, tokens[:, stage, None] / per_sequence, out=sequences)
    return np.asarray(np.maximum(np.nan_to_num(sequences), 0.0))


def padded(values: FloatArray) -> FloatArray:
    """`values` [num_kinds, ...] with zeros for padding."""
    return np.concatenate([values, np.zeros((1, *values.shape[1:]))])
