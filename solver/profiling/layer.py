"""One GPU's share of a transformer layer in PyTorch: what engines compute, written as plainly as it stays fast.

Flow: measure.py builds a layer of random weights and runs it; timing.py times that.

Pre-norm decoder layer of Llama (arXiv 2302.13971 §2.2) with grouped-query attention (arXiv 2305.13245). Both halves
give what the tensor-parallel group still has to add up (arXiv 1909.08053 §3): here each is added to the residual as
it is, since the all-reduce is timed apart. fp8 products are torch._scaled_mm with one scale per tensor, activations
cast in one pass with a static scale of 1.
"""

from dataclasses import dataclass
from typing import Any

from sutler.solver.profiling.shapes import LayerShard, ProfiledPrecision

Tensor = Any  # torch.Tensor; torch is optional
EPSILON = 1e-5
ROTARY_BASE = 500_000.0  # Llama 3's; no bearing on speed


@dataclass(frozen=True, slots=True)
class Matrix:
    """A projection's weight [outputs, inputs]; `scale` and `one` are scalars of an fp8 weight and its input."""

    weight: Tensor
    scale: Tensor | None = None
    one: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one shard. qkv: query, key, then value heads; gate_up: gate, then up."""

    attention_norm: Tensor
    qkv: Matrix
    out: Matrix
    feed_forward_norm: Tensor
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class KvCache:
    """keys, values [batch, kv_heads, context_tokens, head_dim]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Rotary:
    """cos, sin [positions, 1, head_dim]; the first half of sin is negated."""

    cos: Tensor
    sin: Tensor


class Layer:
    """One shard's layer; hidden states are [batch, new_tokens, hidden_size].

    `repeat_heads`: give prefill attention one key/value head per query head, where torch's fast kernels ask for it.
    """

    def __init__(
        self, torch: Any, shard: LayerShard, weights: Weights, rotary: Rotary, *, repeat_heads: bool = False
    ) -> None:
        self._torch, self._shard, self._weights, self._rotary = torch, shard, weights, rotary
        self._repeat_heads = repeat_heads

    def __call__(self, hidden: Tensor, cache: KvCache | None) -> Tensor:
        """The layer for the last new_tokens positions of `cache`; without one nothing attends."""
        hidden = hidden + self.attend(hidden, cache)
        return hidden + self.feed_forward(hidden)

    def attend(self, hidden: Tensor, cache: KvCache | None) -> Tensor:
        """This shard's part of the attention half. Writes the new keys and values to the end of `cache`.

        Without a cache the rotated queries stand in for what attention gives. Several new tokens must be all of
        the cache; a single one sees all of it.
        """
        shard, (batch, new, _) = self._shard, hidden.shape
        normed = self._norm(hidden, self._weights.attention_norm)
        heads = shard.heads + 2 * shard.kv_heads
        qkv = project(self._torch, normed, self._weights.qkv).view(batch, new, heads, shard.head_dim)
        start = cache.keys.shape[2] - new if cache is not None else 0
        rotated = self._rotate(qkv[:, :, : shard.heads + shard.kv_heads], start)
        queries = rotated[:, :, : shard.heads]
        if cache is not None:
            cache.keys[:, :, start:] = rotated[:, :, shard.heads :].transpose(1, 2)
            cache.values[:, :, start:] = qkv[:, :, shard.heads + shard.kv_heads :].transpose(1, 2)
            queries = self._decode(queries, cache) if new == 1 else self._prefill(queries, cache)
        return project(self._torch, queries.reshape(batch, new, -1), self._weights.out)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """This shard's part of the feed-forward half."""
        normed = self._norm(hidden, self._weights.feed_forward_norm)
        gate, up = project(self._torch, normed, self._weights.gate_up).chunk(2, dim=-1)
        gated = self._torch.nn.functional.silu(gate).mul_(up)
        return project(self._torch, gated, self._weights.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return self._torch.nn.functional.rms_norm(hidden, (hidden.shape[-1],), weight, EPSILON)

    def _rotate(self, heads: Tensor, start: int) -> Tensor:
        """Rotary embedding (arXiv 2104.09864) of `heads` [batch, new, any, head_dim] at positions from `start`."""
        end = start + heads.shape[1]
        other_half = self._torch.roll(heads, heads.shape[-1] // 2, dims=-1)
        return (heads * self._rotary.cos[start:end]).addcmul_(other_half, self._rotary.sin[start:end])

    def _prefill(self, queries: Tensor, cache: KvCache) -> Tensor:
        group = self._shard.heads // self._shard.kv_heads
        keys, values = cache.keys, cache.values
        if self._repeat_heads:
            keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
        attention = self._torch.nn.functional.scaled_dot_product_attention
        grouped = group > 1 and not self._repeat_heads
        return attention(queries.transpose(1, 2), keys, values, is_causal=True, enable_gqa=grouped).transpose(1, 2)

    def _decode(self, queries: Tensor, cache: KvCache) -> Tensor:
        """The queries of a group stand where a sequence's would: each cached key is then read once per group."""
        shard = self._shard
        grouped = queries.reshape(-1, shard.kv_heads, shard.heads // shard.kv_heads, shard.head_dim)
        return self._torch.nn.functional.scaled_dot_product_attention(grouped, cache.keys, cache.values)


def project(torch: Any, inputs: Tensor, matrix: Matrix) -> Tensor:
    """inputs [..., inputs] times the transposed weight; an fp8 product comes back as bf16."""
    if matrix.scale is None:
        return torch.nn.functional.linear(inputs, matrix.weight)
    flat = inputs.reshape(-1, inputs.shape[-1]).to(matrix.weight.dtype)
    outputs = torch._scaled_mm(
        flat, matrix.weight.t(), scale_a=matrix.one, scale_b=matrix.scale, out_dtype=torch.bfloat16
    )
    return outputs.view(*inputs.shape[:-1], -1)


def random_weights(torch: Any, shard: LayerShard, precision: ProfiledPrecision, device: str) -> Weights:
    """Normal values that keep the scale of what passes through: power, and so clocks, depend on the data."""
    heads = shard.heads + 2 * shard.kv_heads
    hidden, width, attended = shard.hidden_size, shard.intermediate_size, shard.heads * shard.head_dim

    def matrix(outputs: int, inputs: int) -> Matrix:
        return _random_matrix(torch, outputs, inputs, precision, device)

    norms = [torch.ones(hidden, device=device, dtype=activation_type(torch, precision)) for _ in range(2)]
    return Weights(
        attention_norm=norms[0],
        qkv=matrix(heads * shard.head_dim, hidden),
        out=matrix(hidden, attended),
        feed_forward_norm=norms[1],
        gate_up=matrix(2 * width, hidden),
        down=matrix(hidden, width),
    )


def _random_matrix(torch: Any, outputs: int, inputs: int, precision: ProfiledPrecision, device: str) -> Matrix:
    values = torch.randn(outputs, inputs, device=device, dtype=activation_type(torch, precision))
    scale = inputs**-0.5
    if precision != "fp8":
        return Matrix(values.mul_(scale))
    scalars = [torch.tensor(value, device=device, dtype=torch.float32) for value in (scale, 1.0)]
    return Matrix(values.to(torch.float8_e4m3fn), *scalars)


def random_cache(
    torch: Any, shard: LayerShard, precision: ProfiledPrecision, *, batch: int, context: int, device: str
) -> KvCache:
    shape = (batch, shard.kv_heads, context, shard.head_dim)
    kind = activation_type(torch, precision)
    return KvCache(*(torch.randn(shape, device=device, dtype=kind) for _ in range(2)))


def rotary(torch: Any, shard: LayerShard, positions: int, *, dtype: Any, device: str) -> Rotary:
    half = shard.head_dim // 2
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(positions, device=device, dtype=torch.float32), frequencies)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    return Rotary(torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype))


def activation_type(torch: Any, precision: ProfiledPrecision) -> Any:
    return torch.float16 if precision == "fp16" else torch.bfloat16
