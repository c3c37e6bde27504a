"""The loop over measurements, in miniature on a processor. Needs torch."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sutler.solver.catalog import resolve_model
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.profiling.device import cpu_device
from sutler.solver.profiling.measure import PointOutcome, measured
from sutler.solver.profiling.shapes import Grid, Measurement, measurements
from sutler.solver.profiling.timing import Repeats
from tests.solver.profiling.builders import TORCH_NEEDED, a_decode, a_point, a_tiny_spec

torch: Any = pytest.importorskip("torch", reason=TORCH_NEEDED)

BRIEF = Repeats(warm_up=1, least=3, most=5, enough_s=10.0)
GRID = Grid(prefill_tokens=(4, 8), decode_batches=(1, 3), decode_contexts=(16,), all_reduce_tokens=(1, 8))


def outcomes(spec: ModelSpec, points: Sequence[Measurement], **changes: Any) -> list[PointOutcome]:
    device = replace(cpu_device(), gpus=2, **changes)
    return list(measured(device, {spec.id: spec}, points, effort=BRIEF, clock=time.perf_counter))


def test_every_point_has_an_outcome_in_order_and_two_processes_reduce_together() -> None:
    spec = a_tiny_spec()
    points = measurements([spec], (1, 2), ("bf16",), GRID)
    found = outcomes(spec, points)
    assert [one.measurement for one in found] == list(points)
    times = {one.measurement: one.timed for one in found if one.timed is not None}
    assert len(times) == len(points)
    assert all(timed.seconds > 0 for timed in times.values())
    repetitions = {point: timed.repetitions for point, timed in times.items()}
    sums = [point for point in points if point.phase == "all_reduce"]
    assert len(sums) == 2
    assert repetitions == {point: 3 if point in sums else 5 for point in points}  # processes repeat in step


def test_what_cannot_be_timed_says_why_and_the_rest_goes_on() -> None:
    spec = a_tiny_spec()
    points = measurements([spec], (1, 4, 16), ("fp8", "fp16"), replace(GRID, all_reduce_tokens=(1,)))
    notes = {(one.measurement.tensor_parallel, one.measurement.precision): one.note for one in outcomes(spec, points)}
    assert "GPUs only" in notes[1, "fp8"]
    assert notes[1, "fp16"] == ""
    assert "over 4 GPUs needs a machine with as many alike; this one has 2" in notes[4, "fp16"]
    assert "query heads, 8, is no multiple of 16" in notes[16, "fp16"]


def test_what_does_not_fit_is_left_out_with_its_size() -> None:
    """4 PB of cache for one point; then 64 copies of weights of 6.4 GB each."""
    spec = a_tiny_spec()
    small, large = outcomes(spec, [a_decode(batch=1, context=16), a_decode(batch=10**9, context=16_000)])
    assert small.timed is not None
    assert large.timed is None
    assert large.note.startswith("decode of 1000000000 sequences of 16000 tokens would take ")
    big = resolve_model("llama-3.1-405b")
    (found,) = outcomes(big, [a_point(model=big.id)], cache_bytes=1e15)
    assert found.timed is None
    assert found.note.startswith("its weights would take ")


def test_sizes_that_fp8_products_do_not_take_are_left_out() -> None:
    spec = a_tiny_spec(intermediate_size=104)
    (found,) = outcomes(spec, [a_point(precision="fp8")], fp8_refusal="")
    assert "sizes that fp8 products do not take" in found.note


def test_weights_and_caches_that_fit_the_cache_take_turns() -> None:
    (found,) = outcomes(a_tiny_spec(), [a_decode(batch=2, context=8)], cache_bytes=1e5)
    assert found.timed is not None
