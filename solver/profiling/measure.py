"""The loop over all measurements: builds what each needs, times it, or says why it cannot be timed here.

Flow: shapes.py -> outcomes, one per measurement, in order (here) -> the service keeps every outcome as it comes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.profiling.all_reduce import all_reduced
from sutler.solver.profiling.counts import (
    activation_bytes,
    all_reduce_bytes,
    copies,
    kv_cache_bytes,
    rotating_bytes,
    weight_bytes,
)
from sutler.solver.profiling.device import Device
from sutler.solver.profiling.layer import KvCache, Layer, activation_type, random_cache, random_weights, rotary
from sutler.solver.profiling.shapes import LayerShard, Measurement, shard_of
from sutler.solver.profiling.timing import LEAST_STEPS, Repeats, Timed, by_clock, by_events, captured, timed
from sutler.solver.units import BYTES_PER_GB

Clock = Callable[[], float]
USABLE_FRACTION: Final = 0.9  # of the free memory; chosen: the rest is for torch's fragments and workspaces
FP8_MULTIPLE: Final = 16  # torch._scaled_mm takes no other sizes


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """`timed` is None where nothing could be measured; `note` then says why, else how, or nothing."""

    measurement: Measurement
    timed: Timed | None
    note: str = ""


def measured(
    device: Device,
    specs: Mapping[str, ModelSpec],
    points: Sequence[Measurement],
    *,
    effort: Repeats,
    clock: Clock,
) -> Iterator[PointOutcome]:
    """One outcome per point, in order; `specs` by model id. `clock` is monotonic, in seconds, for processors."""
    for _, group in groupby(points, key=_group):
        alike = tuple(group)
        spec = specs[alike[0].model]
        if alike[0].phase == "all_reduce":
            yield from _all_reduce_outcomes(device, spec, alike, effort=effort, clock=clock)
        else:
            yield from _layer_outcomes(device, spec, alike, effort=effort, clock=clock)


def _group(point: Measurement) -> tuple[object, ...]:
    return (point.model, point.precision, point.tensor_parallel, point.phase == "all_reduce")


def _all_reduce_outcomes(
    device: Device, spec: ModelSpec, points: Sequence[Measurement], *, effort: Repeats, clock: Clock
) -> Iterator[PointOutcome]:
    degree = points[0].tensor_parallel
    largest = max(all_reduce_bytes(point, spec.hidden_size) for point in points)
    shard = shard_of(spec, degree)
    refusal = device.refusal(points[0].precision) or _too_large("the all-reduce", largest, device)
    if isinstance(shard, str):
        refusal = shard
    elif degree > device.gpus:
        refusal = f"an all-reduce over {degree} GPUs needs a machine with as many alike; this one has {device.gpus}"
    if refusal:
        yield from (PointOutcome(point, None, refusal) for point in points)
        return
    times, note = all_reduced(device, points, spec.hidden_size, effort=effort, clock=clock)
    for point in points:
        yield PointOutcome(point, times.get(point), note)


def _layer_outcomes(
    device: Device, spec: ModelSpec, points: Sequence[Measurement], *, effort: Repeats, clock: Clock
) -> Iterator[PointOutcome]:
    shard = shard_of(spec, points[0].tensor_parallel)
    refusal = shard if isinstance(shard, str) else _refusal(device, shard, points[0])
    if refusal or isinstance(shard, str):
        yield from (PointOutcome(point, None, refusal) for point in points)
        return
    bench = Bench(device, shard, points)
    for point in points:
        yield bench.outcome(point, effort=effort, clock=clock)


def _refusal(device: Device, shard: LayerShard, point: Measurement) -> str:
    """Why nothing can be timed with these weights; "" if something can."""
    sizes = (
        shard.hidden_size,
        shard.heads * shard.head_dim,
        shard.kv_heads * shard.head_dim,
        shard.intermediate_size,
    )
    if reason := device.refusal(point.precision):
        return reason
    if point.precision == "fp8" and any(size % FP8_MULTIPLE for size in sizes):
        return f"{point.model} over {point.tensor_parallel} GPUs has sizes that fp8 products do not take: {sizes}"
    needed = rotating_bytes(weight_bytes(point, shard), device.cache_bytes)
    return _too_large("its weights", needed, device)


def _too_large(what: str, needed_bytes: float, device: Device) -> str:
    usable = USABLE_FRACTION * device.free_bytes()
    if needed_bytes <= usable:
        return ""
    return f"{what} would take {needed_bytes / BYTES_PER_GB:.1f} GB of {usable / BYTES_PER_GB:.1f} GB that are free"


class Bench:
    """The layers of one shard, whose weights take turns, and what times them."""

    def __init__(self, device: Device, shard: LayerShard, points: Sequence[Measurement]) -> None:
        first, torch = points[0], device.torch
        self._device, self._shard = device, shard
        count = copies(weight_bytes(first, shard), device.cache_bytes)
        positions = max(max(point.context_tokens, point.new_tokens) for point in points)
        kind = activation_type(torch, first.precision)
        with torch.inference_mode():
            turned = rotary(torch, shard, positions, dtype=kind, device=device.kind)
            self._layers = [
                Layer(
                    torch,
                    shard,
                    random_weights(torch, shard, first.precision, device.kind),
                    turned,
                    repeat_heads=not device.has_flash_attention,
                )
                for _ in range(count)
            ]

    def outcome(self, point: Measurement, *, effort: Repeats, clock: Clock) -> PointOutcome:
        """Times one point, unless it does not fit."""
        needed = rotating_bytes(kv_cache_bytes(point, self._shard), self._device.cache_bytes)
        needed += activation_bytes(point, self._shard)
        if reason := _too_large(f"{point.phase} of {_size(point)}", needed, self._device):
            return PointOutcome(point, None, reason)
        torch = self._device.torch
        try:
            with torch.inference_mode():
                return self._timed(point, effort, clock)
        except torch.cuda.OutOfMemoryError:
            return PointOutcome(point, None, f"{point.phase} of {_size(point)} does not fit into the GPU's memory")

    def _timed(self, point: Measurement, effort: Repeats, clock: Clock) -> PointOutcome:
        run, steps = self._steps(point)
        if self._device.kind == "cpu":
            return PointOutcome(point, timed(by_clock(run, clock), steps=steps, effort=effort))
        replay, note = captured(self._device.torch, run)
        return PointOutcome(point, timed(by_events(self._device.torch, replay), steps=steps, effort=effort), note)

    def _steps(self, point: Measurement) -> tuple[Callable[[], None], int]:
        """What one repetition runs, and how many layers that is: each copy of weights and cache at least once."""
        torch, kind = self._device.torch, self._device.kind
        shape = (point.batch, point.new_tokens, self._shard.hidden_size)
        hidden = torch.randn(shape, device=kind, dtype=activation_type(torch, point.precision))
        caches = self._caches(point)
        least = LEAST_STEPS if kind == "cuda" else 1
        steps = max(least, len(self._layers), len(caches))

        def run() -> None:
            for i in range(steps):
                self._layers[i % len(self._layers)](hidden, caches[i % len(caches)])

        return run, steps

    def _caches(self, point: Measurement) -> Sequence[KvCache | None]:
        if not point.with_attention:
            return [None]
        # A prefill writes its cache and finds it where it wrote it.
        is_read = point.phase == "decode"
        count = copies(kv_cache_bytes(point, self._shard), self._device.cache_bytes) if is_read else 1
        return [
            random_cache(
                self._device.torch,
                self._shard,
                point.precision,
                batch=point.batch,
                context=point.context_tokens,
                device=self._device.kind,
            )
            for _ in range(count)
        ]


def _size(point: Measurement) -> str:
    if point.phase == "prefill":
        return f"{point.new_tokens} tokens"
    return f"{point.batch} sequences of {point.context_tokens} tokens"
