"""Latency limits: they hold at the batch that is chosen, and asking for more never gives more."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.problem import LatencyLimit, LatencyMetric, ServedModel
from solver.throughput.base import Layouts
from solver.throughput.composer import Pairs
from solver.throughput.latency import closed_loop, limit_parts
from solver.throughput.limits import BATCH_STEPS, load_at
from solver.throughput.memory import MAX_SEQUENCES
from solver.throughput.prepare import prepare
from solver.throughput.roofline import Roofline
from tests.solver.throughput_builders import detail_of, pipelines_of, rates_of, served

LAYOUTS = pipelines_of(
    [("h100-sxm", 4)],
    [("h100-sxm", 2), ("a100-sxm4-80gb", 2)],
    [("l40", 2)] * 4,
    [("a100-sxm4-80gb", 8)],
)
REQUESTS = ((2455.0, 18.0), (1024.0, 256.0), (496.0, 510.0))


def ttft(seconds: float, percentile: int = 90) -> LatencyLimit:
    return LatencyLimit("ttft", percentile, seconds)


def tpot(seconds: float, percentile: int = 90) -> LatencyLimit:
    return LatencyLimit("tpot", percentile, seconds)


def limited(*slo: LatencyLimit) -> ServedModel:
    return served("llama-3-70b", *REQUESTS, slo=slo)


def holding_batches(
    model: ServedModel, layouts: Layouts, batches: list[int], utilisation_fraction: float
) -> list[int]:
    """Of `batches` those at which the first layout keeps every limit for the first workload."""
    roofline = Roofline()
    prepared = prepare(model, layouts, roofline.stages(model), max_sequences=MAX_SEQUENCES)
    zeros = np.zeros(len(batches), dtype=np.int64)
    load = load_at(prepared, Pairs(zeros, zeros), np.array(batches))
    holds = np.ones(len(batches), dtype=np.bool_)
    for limit in model.slo:
        parts = limit_parts(load, roofline.first_token, limit, utilisation_fraction)
        holds &= parts.growing + parts.slot <= limit.seconds
    return [batch for batch, one in zip(batches, holds, strict=True) if one]


limits = st.lists(
    st.builds(
        LatencyLimit,
        st.sampled_from(["ttft", "tpot", "e2e"]),
        st.sampled_from([50, 90, 95, 99]),
        st.floats(0.01, 60.0),
    ),
    min_size=1,
    max_size=3,
)


@given(limits, st.floats(1.0, 5.0), st.floats(0.3, 0.99))
@settings(max_examples=60, deadline=None)
def test_a_tighter_limit_never_raises_a_rate(slo: list[LatencyLimit], factor: float, utilisation: float) -> None:
    looser = [replace(limit, seconds=limit.seconds * factor) for limit in slo]
    tight = rates_of(limited(*slo), LAYOUTS, utilisation_fraction=utilisation).rps
    loose = rates_of(limited(*looser), LAYOUTS, utilisation_fraction=utilisation).rps
    assert (tight <= loose).all()


@given(limits, st.floats(0.3, 1.0), st.floats(0.3, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_higher_load_never_raises_a_rate(slo: list[LatencyLimit], one: float, other: float) -> None:
    low, high = sorted([one, other])
    relaxed = rates_of(limited(*slo), LAYOUTS, utilisation_fraction=low).rps
    loaded = rates_of(limited(*slo), LAYOUTS, utilisation_fraction=high).rps
    assert (loaded <= relaxed).all()


@given(limits)
@settings(max_examples=30, deadline=None)
def test_a_further_limit_never_raises_a_rate(slo: list[LatencyLimit]) -> None:
    fewer = rates_of(limited(*slo[1:]), LAYOUTS, utilisation_fraction=0.85).rps
    assert (rates_of(limited(*slo), LAYOUTS, utilisation_fraction=0.85).rps <= fewer).all()


@given(st.sampled_from(["ttft", "tpot", "e2e"]), st.floats(0.02, 30.0))
@settings(max_examples=40, deadline=None)
def test_a_higher_percentile_never_raises_a_rate(metric: LatencyMetric, seconds: float) -> None:
    rps = [
        rates_of(limited(LatencyLimit(metric, percentile, seconds)), LAYOUTS, utilisation_fraction=0.85).rps
        for percentile in (50, 90, 95, 99)
    ]
    assert all((rare <= usual).all() for usual, rare in pairwise(rps))


@given(limits, st.floats(0.3, 0.99))
@settings(max_examples=40, deadline=None)
def test_the_chosen_batch_is_the_largest_that_holds(slo: list[LatencyLimit], utilisation: float) -> None:
    layouts = pipelines_of([("h100-sxm", 2), ("a100-sxm4-80gb", 2)])
    model = served("llama-3-70b", (1024, 256), slo=slo)
    chosen = int(rates_of(model, layouts, utilisation_fraction=utilisation).batch[0, 0])
    largest = int(rates_of(replace(model, slo=()), layouts).batch[0, 0])
    tried = sorted({*(int(step) for step in BATCH_STEPS if step < largest), largest})
    holding = holding_batches(model, layouts, tried, utilisation)
    assert chosen == max(holding, default=0)


def test_no_limit_means_the_largest_batch() -> None:
    assert (rates_of(limited(), LAYOUTS).batch >= rates_of(limited(tpot(0.05)), LAYOUTS).batch).all()


def test_a_limit_below_one_prefill_cannot_be_met() -> None:
    model = limited(ttft(0.02))
    assert (rates_of(model, LAYOUTS, utilisation_fraction=0.85).rps == 0).all()
    assert "no batch holds ttft_p90_s 0.02" in detail_of(model, LAYOUTS, utilisation_fraction=0.85)


def test_a_queue_without_end_meets_no_first_token_limit() -> None:
    assert (rates_of(limited(ttft(1000.0)), LAYOUTS, utilisation_fraction=1.0).rps == 0).all()
    assert (rates_of(limited(tpot(1000.0)), LAYOUTS, utilisation_fraction=1.0).rps > 0).any()


def test_limits_do_not_change_what_fits() -> None:
    strict = rates_of(limited(ttft(0.001)), LAYOUTS, utilisation_fraction=0.85)
    assert (strict.fits == rates_of(limited(), LAYOUTS).fits).all()


def test_the_evidence_of_a_limited_rate_names_limit_and_queueing_model() -> None:
    model = served("llama-3-70b", (1024, 256), slo=[tpot(0.03)])
    detail = detail_of(model, pipelines_of([("h100-sxm", 8)]))
    assert "tpot_p90_s 0.03" in detail
    assert "M/M/b" in detail


def test_the_wait_for_a_sequence_follows_the_formula_of_the_module() -> None:
    # 200 slots at 98 %: P(wait) = 0.98^(sqrt(402) - 1) = 0.680; p90 wait = ln(6.80) / (0.02 rate).
    model, layouts = served("llama-3.1-8b", (200, 1000)), pipelines_of([("h100-sxm", 1)])
    roofline = Roofline()
    prepared = prepare(model, layouts, roofline.stages(model), max_sequences=MAX_SEQUENCES)
    load = load_at(prepared, Pairs(np.array([0]), np.array([0])), np.array([200]))
    parts = limit_parts(load, roofline.first_token, ttft(1.0), 0.98)
    rate = float(load.composed.rate_rps[0])
    expected = math.log(0.98 ** (math.sqrt(402) - 1) / 0.1) / (0.02 * rate)
    assert parts.slot[0] == pytest.approx(expected)
    assert limit_parts(load, roofline.first_token, ttft(1.0), 0.9).slot[0] < expected / 20


def test_a_closed_loop_obeys_littles_law() -> None:
    model = served("llama-3-70b", *REQUESTS)
    roofline = Roofline()
    prepared = prepare(model, LAYOUTS, roofline.stages(model), max_sequences=MAX_SEQUENCES)
    pairs = Pairs(np.repeat(np.arange(len(LAYOUTS)), 3), np.tile(np.arange(3), len(LAYOUTS)))
    served_pairs = pairs.only(np.flatnonzero(prepared.max_batch.reshape(-1) >= 8))
    batch = np.full(len(served_pairs), 8)
    loop = closed_loop(load_at(prepared, served_pairs, batch), roofline.first_token)
    steps = prepared.pipes.traffic.decode_steps[served_pairs.workload]
    assert loop.rate_rps * (loop.ttft_s + steps * loop.tpot_s) == pytest.approx(batch)
