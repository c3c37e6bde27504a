"""What is timed: one GPU's share of a layer, and the points it is timed at. Pure; knows no torch.

Flow: ModelSpec, degrees, precisions -> measurements (here) -> measure.py times them in this order.

Tensor parallelism as Megatron-LM does it (arXiv 1909.08053 §3): query heads and the feed-forward width are divided,
key/value heads too until one is left per GPU, after which they are repeated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Final, Literal

from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.errors import InvalidProblemError
from sutler.solver.throughput.architecture import layer_work

Phase = Literal["prefill", "decode", "all_reduce"]
ProfiledPrecision = Literal["bf16", "fp16", "fp8"]
PRECISIONS: Final[tuple[ProfiledPrecision, ...]] = ("bf16", "fp16", "fp8")
# Norms, biases and rounding make a gated layer differ from its seven matrices by less; OPT and BLOOM, with two
# feed-forward matrices, by 25 %.
GATED_TOLERANCE_FRACTION: Final = 0.05
INSTEAD: Final = "profile a dense model of similar width instead, such as llama-3-8b or llama-3-70b"


@dataclass(frozen=True, slots=True)
class LayerShard:
    """One GPU's share of a layer: heads, kv_heads and intermediate_size are per GPU, hidden_size is whole."""

    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int

    @property
    def params(self) -> int:
        """Counts those of the projections; the two norms (2 · hidden_size) are left out."""
        attention = self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.hidden_size * (attention + 3 * self.intermediate_size)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One point. new_tokens are per sequence; of each sequence the last token attends to context_tokens, itself
    included (0 where nothing attends: `with_attention` is False, or an all-reduce of new_tokens hidden states).
    `precision` is that of the weights; the cache is kept at `kv_precision`, which the activations have too."""

    model: str
    precision: ProfiledPrecision
    kv_precision: Literal["bf16", "fp16"]
    tensor_parallel: int
    phase: Phase
    new_tokens: int
    batch: int
    context_tokens: int
    with_attention: bool

    @property
    def tokens(self) -> int:
        """The tokens that pass through the layer at once."""
        return self.batch * self.new_tokens


@dataclass(frozen=True, slots=True)
class Grid:
    """Points of every degree and precision: prompts, decode batches, contexts and all-reduces, in tokens."""

    prefill_tokens: tuple[int, ...]
    decode_batches: tuple[int, ...]
    decode_contexts: tuple[int, ...]
    all_reduce_tokens: tuple[int, ...]


def full_grid() -> Grid:
    """Goes from single tokens to the largest steps that engines run by default (vLLM: 256 sequences, 8,192
    tokens)."""
    return Grid(
        prefill_tokens=(128, 256, 512, 1024, 2048, 4096, 8192),
        decode_batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        decode_contexts=(512, 2048, 8192),
        all_reduce_tokens=(1, 8, 64, 512, 2048, 8192),
    )


def quick_grid() -> Grid:
    """A few points, to see within a minute or two that everything works."""
    return Grid((512, 2048), (1, 16, 64), (1024,), (1, 512))


def measurements(
    specs: Sequence[ModelSpec], degrees: Sequence[int], precisions: Sequence[ProfiledPrecision], grid: Grid
) -> tuple[Measurement, ...]:
    """Every point once, those that share weights or a group of GPUs next to each other.

    Raises InvalidProblemError for a model of another kind of layer.
    """
    points: list[Measurement] = []
    for spec in specs:
        check_profiled(spec)
        for precision, degree in product(dict.fromkeys(precisions), dict.fromkeys(degrees)):
            points += _layer_points(spec, precision, degree, grid)
        for kept, degree in product(dict.fromkeys(map(_kept_at, precisions)), dict.fromkeys(degrees)):
            points += _all_reduce_points(spec, kept, degree, grid)
    return tuple(dict.fromkeys(points))


def check_profiled(spec: ModelSpec) -> None:
    """Raises InvalidProblemError where a layer of `spec` is not grouped-query attention and a gated feed-forward."""
    kinds = (
        ("experts", spec.moe),
        ("latent attention", spec.mla),
        ("sliding windows", spec.sliding_window),
        ("linear attention", spec.linear_attention),
        ("sparse attention", spec.sparse_attention),
    )
    found = [name for name, part in kinds if part is not None]
    if not found and not _is_gated(spec):
        found = ["a feed-forward part without a gate"]
    if found:
        remedy = f"has {' and '.join(found)}, and only dense layers with full attention are timed: {INSTEAD}"
        raise InvalidProblemError("model", spec.id, remedy)


def _is_gated(spec: ModelSpec) -> bool:
    params = _share(spec, 1).params
    return abs(layer_work(spec, "bf16", "bf16").dense_params / params - 1.0) < GATED_TOLERANCE_FRACTION


def _share(spec: ModelSpec, degree: int) -> LayerShard:
    return LayerShard(
        hidden_size=spec.hidden_size,
        heads=spec.heads // degree,
        kv_heads=ceil(spec.kv_heads / degree),
        head_dim=spec.head_dim,
        intermediate_size=spec.intermediate_size // degree,
    )


def shard_of(spec: ModelSpec, degree: int) -> LayerShard | str:
    """The share of each of `degree` GPUs, or why the layer cannot be divided so (engines refuse it too)."""
    counts = {"query heads": spec.heads, "feed-forward width": spec.intermediate_size}
    for what, count in counts.items():
        if count % degree:
            return f"{spec.id} cannot be shared by {degree} GPUs: its {what}, {count}, is no multiple of {degree}"
    if spec.kv_heads % degree and degree % spec.kv_heads:
        return f"{spec.id} cannot be shared by {degree} GPUs: it has {spec.kv_heads} key/value heads"
    return _share(spec, degree)


def _kept_at(precision: ProfiledPrecision) -> Literal["bf16", "fp16"]:
    """The precision of activations and cache: torch's attention reads no fp8 cache, and engines keep activations
    16-bit."""
    return "fp16" if precision == "fp16" else "bf16"


def _layer_points(spec: ModelSpec, precision: ProfiledPrecision, degree: int, grid: Grid) -> Iterator[Measurement]:
    """Prefills, then decode steps; each with and without attention, which does not depend on the context."""
    kept, longest = _kept_at(precision), spec.max_context_tokens
    for new in (tokens for tokens in grid.prefill_tokens if tokens <= longest):
        yield Measurement(spec.id, precision, kept, degree, "prefill", new, 1, new, True)
        yield Measurement(spec.id, precision, kept, degree, "prefill", new, 1, 0, False)
    for batch in grid.decode_batches:
        for context in (tokens for tokens in grid.decode_contexts if tokens <= longest):
            yield Measurement(spec.id, precision, kept, degree, "decode", 1, batch, context, True)
        yield Measurement(spec.id, precision, kept, degree, "decode", 1, batch, 0, False)


def _all_reduce_points(
    spec: ModelSpec, kept: Literal["bf16", "fp16"], degree: int, grid: Grid
) -> Iterator[Measurement]:
    for tokens in grid.all_reduce_tokens if degree > 1 else ():
        yield Measurement(spec.id, kept, kept, degree, "all_reduce", tokens, 1, 0, False)
