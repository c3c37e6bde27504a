"""Operations and bytes of one measurement on one GPU, counted as solver/throughput/architecture.py counts them.

Flow: Measurement, LayerShard -> measure.py sees what fits into memory; the service sets times beside datasheet peaks.
"""

from math import ceil
from typing import Final

from sutler.solver.profiling.shapes import LayerShard, Measurement
from sutler.solver.throughput.architecture import ACTIVATION_BYTES, PRECISION_BYTES

# Weights and caches rotate until this many caches' worth of other bytes have passed: none is left from last time.
CACHES_BETWEEN_USES: Final = 3.0
MOST_COPIES: Final = 64  # chosen: building more takes longer than timing them; larger caches are not rotated through


def layer_flops(measurement: Measurement, shard: LayerShard) -> float:
    """Two per weight and token, and four per head value and (query, key) pair; 0 for an all-reduce."""
    if measurement.phase == "all_reduce":
        return 0.0
    new, total = measurement.new_tokens, measurement.context_tokens
    pairs = 0.0
    if measurement.with_attention:
        pairs = measurement.batch * (new * (total - new / 2) if measurement.phase == "prefill" else total)
    return 2.0 * shard.params * measurement.tokens + 4.0 * shard.heads * shard.head_dim * pairs


def layer_bytes(measurement: Measurement, shard: LayerShard) -> float:
    """Weights and cache that a pass reads from memory; activations are left out. 0 for an all-reduce."""
    if measurement.phase == "all_reduce":
        return 0.0
    read = kv_cache_bytes(measurement, shard) if measurement.phase == "decode" else 0.0
    return weight_bytes(measurement, shard) + read


def weight_bytes(measurement: Measurement, shard: LayerShard) -> float:
    return shard.params * PRECISION_BYTES[measurement.precision]


def kv_cache_bytes(measurement: Measurement, shard: LayerShard) -> float:
    """The bytes of the cache of all sequences; 0 where nothing attends."""
    per_token = 2.0 * shard.kv_heads * shard.head_dim * ACTIVATION_BYTES
    return measurement.batch * measurement.context_tokens * per_token


def all_reduce_bytes(measurement: Measurement, hidden_size: int) -> float:
    """The message that each GPU holds before and after."""
    return measurement.tokens * hidden_size * ACTIVATION_BYTES


def copies(bytes_each: float, cache_bytes: float) -> int:
    """How many sets of `bytes_each` take turns so that each comes from memory, at most MOST_COPIES."""
    if bytes_each <= 0:
        return 1
    return max(1, min(MOST_COPIES, ceil(CACHES_BETWEEN_USES * cache_bytes / bytes_each)))


def rotating_bytes(bytes_each: float, cache_bytes: float) -> float:
    """The bytes of all copies together."""
    return bytes_each * copies(bytes_each, cache_bytes)


def activation_bytes(measurement: Measurement, shard: LayerShard) -> float:
    """What one pass holds at most beside weights and cache; twice of it, since fragments of a pool are lost."""
    heads = shard.heads + 2 * shard.kv_heads
    width = 4 * shard.hidden_size + 3 * heads * shard.head_dim + 4 * shard.intermediate_size
    return 2.0 * measurement.tokens * width * ACTIVATION_BYTES
