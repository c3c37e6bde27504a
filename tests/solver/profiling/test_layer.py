"""The layer computes what a transformer layer computes, however many GPUs share it. Needs torch, on any processor."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from sutler.solver.profiling.counts import layer_flops
from sutler.solver.profiling.layer import (
    EPSILON,
    KvCache,
    Layer,
    Matrix,
    Weights,
    project,
    random_cache,
    random_weights,
    rotary,
)
from sutler.solver.profiling.shapes import LayerShard, Measurement, shard_of
from tests.solver.profiling.builders import TORCH_NEEDED, a_decode, a_point, a_tiny_spec

torch: Any = pytest.importorskip("torch", reason=TORCH_NEEDED)

SPEC = a_tiny_spec()
TOKENS = 12
FULL_PRECISION = {"rtol": 1e-4, "atol": 1e-5}


def a_shard(degree: int = 1) -> LayerShard:
    found = shard_of(SPEC, degree)
    assert isinstance(found, LayerShard)
    return found


def whole_weights() -> Weights:
    """In 32 bits, with norms that are not all ones."""
    torch.manual_seed(0)
    drawn = random_weights(torch, a_shard(), "bf16", "cpu")

    def matrix(one: Matrix) -> Matrix:
        return Matrix(one.weight.float())

    return Weights(
        attention_norm=torch.rand(SPEC.hidden_size),
        qkv=matrix(drawn.qkv),
        out=matrix(drawn.out),
        feed_forward_norm=torch.rand(SPEC.hidden_size),
        gate_up=matrix(drawn.gate_up),
        down=matrix(drawn.down),
    )


def of_rank(whole: Weights, degree: int, rank: int) -> Weights:
    """The rows and columns of one GPU of a group."""
    dim, heads, kept = SPEC.head_dim, SPEC.heads // degree, ceil(SPEC.kv_heads / degree)
    query, key, value = whole.qkv.weight.split([SPEC.heads * dim, SPEC.kv_heads * dim, SPEC.kv_heads * dim])
    first = rank * SPEC.kv_heads // degree
    mine = slice(rank * heads * dim, (rank + 1) * heads * dim)
    kv = slice(first * dim, (first + kept) * dim)
    width = SPEC.intermediate_size // degree
    part = slice(rank * width, (rank + 1) * width)
    gate, up = whole.gate_up.weight.chunk(2)
    return replace(
        whole,
        qkv=Matrix(torch.cat((query[mine], key[kv], value[kv]))),
        out=Matrix(whole.out.weight[:, mine]),
        gate_up=Matrix(torch.cat((gate[part], up[part]))),
        down=Matrix(whole.down.weight[:, part]),
    )


def a_layer(weights: Weights, degree: int = 1, *, repeat_heads: bool = False) -> Layer:
    turned = rotary(torch, a_shard(degree), TOKENS, dtype=torch.float32, device="cpu")
    return Layer(torch, a_shard(degree), weights, turned, repeat_heads=repeat_heads)


def an_empty_cache(degree: int = 1, tokens: int = TOKENS) -> KvCache:
    shape = (2, a_shard(degree).kv_heads, tokens, SPEC.head_dim)
    return KvCache(torch.full(shape, torch.nan), torch.full(shape, torch.nan))


def hidden_states() -> Any:
    return torch.randn(2, TOKENS, SPEC.hidden_size, generator=torch.Generator().manual_seed(1))


def plain_attention_half(weights: Weights, hidden: Any) -> Any:
    """Written out: complex rotation, repeated heads, an explicit mask."""
    normed = hidden / (hidden.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt() * weights.attention_norm
    batch, tokens = hidden.shape[:2]
    dim = SPEC.head_dim
    sizes = [count * dim for count in (SPEC.heads, SPEC.kv_heads, SPEC.kv_heads)]
    query, key, value = (
        part.view(batch, tokens, -1, dim) for part in (normed @ weights.qkv.weight.T).split(sizes, -1)
    )
    frequencies = 500_000.0 ** (-torch.arange(dim // 2) / (dim // 2))
    turn = torch.polar(torch.ones(tokens, dim // 2), torch.outer(torch.arange(tokens).float(), frequencies))

    def rotated(heads: Any) -> Any:
        turned = torch.complex(heads[..., : dim // 2], heads[..., dim // 2 :]) * turn[:, None, :]
        return torch.cat((turned.real, turned.imag), dim=-1)

    group = SPEC.heads // SPEC.kv_heads
    key, value = (part.repeat_interleave(group, dim=2) for part in (rotated(key), value))
    scores = torch.einsum("bqhd,bkhd->bhqk", rotated(query), key) / dim**0.5
    scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
    seen = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value)
    return seen.reshape(batch, tokens, -1) @ weights.out.weight.T


def test_attention_is_the_one_that_textbooks_write_out() -> None:
    weights, hidden = whole_weights(), hidden_states()
    found = a_layer(weights).attend(hidden, an_empty_cache())
    torch.testing.assert_close(found, plain_attention_half(weights, hidden), **FULL_PRECISION)


def test_repeated_heads_change_nothing() -> None:
    weights, hidden = whole_weights(), hidden_states()
    found = [a_layer(weights, repeat_heads=way).attend(hidden, an_empty_cache()) for way in (False, True)]
    torch.testing.assert_close(found[0], found[1], **FULL_PRECISION)


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_the_parts_of_a_group_add_up_to_the_whole_layer(degree: int) -> None:
    """With 8 GPUs each of the 4 key/value heads is kept twice."""
    whole, hidden = whole_weights(), hidden_states()
    layers = [a_layer(of_rank(whole, degree, rank), degree) for rank in range(degree)]
    middle = hidden + sum(layer.attend(hidden, an_empty_cache(degree)) for layer in layers)
    found = middle + sum(layer.feed_forward(middle) for layer in layers)
    torch.testing.assert_close(found, a_layer(whole)(hidden, an_empty_cache()), **FULL_PRECISION)


@pytest.mark.parametrize("degree", [1, 2, 8])
def test_a_decode_step_is_the_last_position_of_a_prefill(degree: int) -> None:
    hidden, layer = hidden_states(), a_layer(of_rank(whole_weights(), degree, 0), degree)
    filled, grown = an_empty_cache(degree), an_empty_cache(degree)
    expected = layer(hidden, filled)[:, -1:]
    grown.keys[:, :, :-1], grown.values[:, :, :-1] = filled.keys[:, :, :-1], filled.values[:, :, :-1]
    torch.testing.assert_close(layer(hidden[:, -1:], grown), expected, **FULL_PRECISION)
    torch.testing.assert_close(grown.keys, filled.keys, **FULL_PRECISION)


def test_fp8_products_are_close_to_those_of_the_same_weights_in_full_precision() -> None:
    torch.manual_seed(0)
    matrix = random_weights(torch, a_shard(), "fp8", "cpu").gate_up
    inputs = torch.randn(2, 3, SPEC.hidden_size, dtype=torch.bfloat16)
    exact = inputs.float() @ (matrix.weight.float() * matrix.scale).T
    found = project(torch, inputs, matrix)
    assert (found.shape, found.dtype) == (exact.shape, torch.bfloat16)
    assert ((found.float() - exact).norm() / exact.norm()).item() < 0.05  # e4m3 keeps 3 bits: 2-3 % a value


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("point", [a_point(new_tokens=4, context_tokens=4), a_decode(batch=3, context=9)])
def test_random_layers_stay_finite_and_of_one_size(point: Measurement, precision: Any) -> None:
    torch.manual_seed(0)
    weights = random_weights(torch, a_shard(2), precision, "cpu")
    cache = random_cache(torch, a_shard(2), precision, batch=point.batch, context=point.context_tokens, device="cpu")
    kind = cache.keys.dtype
    layer = Layer(torch, a_shard(2), weights, rotary(torch, a_shard(2), 16, dtype=kind, device="cpu"))
    hidden = torch.randn(point.batch, point.new_tokens, SPEC.hidden_size, dtype=kind)
    found = layer(hidden, cache)
    assert (found.shape, found.dtype) == (hidden.shape, kind)
    assert 0.5 < (found.float().norm() / hidden.float().norm()).item() < 3.0


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize(("batch", "new"), [(1, 8), (5, 1)])
def test_torch_counts_the_operations_that_are_counted_here(degree: int, batch: int, new: int) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    layer = a_layer(of_rank(whole_weights(), degree, 0), degree)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(batch, new, SPEC.hidden_size), None)
    point = a_point(batch=batch, new_tokens=new, context_tokens=0, with_attention=False)
    assert counter.get_total_flops() == layer_flops(point, a_shard(degree))
