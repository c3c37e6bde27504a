"""What a layout is counted on for within its limits: any mixture of it keeps them; what allows more, carries more."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.load_laws import limited_model
from sutler.solver.arrays import FloatArray
from sutler.solver.problem import LatencyLimit, ServedModel
from sutler.solver.throughput.base import Points
from sutler.solver.throughput.latency import waiting_probability
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.mixes import mixes_of
from sutler.solver.throughput.roofline import Roofline
from tests.solver.throughput.builders import (
    in_role,
    most_alone,
    most_of_each,
    most_of_mix,
    pipelines_of,
    points_of,
    rates_of,
    served,
)

LAYOUTS = pipelines_of(
    [("l4", 2)], [("l40s", 1)], [("a100-sxm4-80gb", 2)], [("h100-sxm", 4)], [("h200-sxm", 1)], [("l40s", 2)] * 2
)
APART = in_role(LAYOUTS, "decode", kv_gb_per_s=12.5)
ONE = pipelines_of([("h100-sxm", 2)])
KEPT = 0.98  # two ways to compute the same interpolate differently
FOUND = 1.02  # points are sought, not solved for

LIMITS = [
    (LatencyLimit("ttft", 90, 0.5),),
    (LatencyLimit("tpot", 90, 0.03),),
    (LatencyLimit("e2e", 95, 9.0),),
    (LatencyLimit("ttft", 99, 1.0), LatencyLimit("tpot", 50, 0.025)),
]

seeds = st.integers(min_value=0, max_value=100_000)
law = settings(derandomize=True, max_examples=4, database=None)


def ceilings_of(model: ServedModel, points: Points, rps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[num_points] the load of `rps` under the caps of the points, and the largest that keeps the limits."""
    layouts = replace(LAYOUTS.take(points.layout), layers=points.layers)
    full = Roofline().rates(model, layouts, caps=points.max_batch).rps
    load = np.divide(rps, full, out=np.zeros_like(rps), where=rps > 0).sum(axis=1)
    return load, Roofline().ceilings(model, layouts, caps=points.max_batch, rps=rps, most_load=1.0)


@given(seeds)
@law
def test_every_mixture_within_a_point_keeps_its_limits(seed: int) -> None:
    model = limited_model(Random(seed))
    points, workloads = points_of(model, LAYOUTS), len(model.workloads)
    alone = points.rps[:, :workloads]
    shares = np.random.default_rng(seed).dirichlet(np.full(workloads, 0.5), len(points)) * (alone > 0)
    total = shares.sum(axis=1)
    points, shares = points.take(np.flatnonzero(total > 0)), shares[total > 0] / total[total > 0, None]
    load, ceiling = ceilings_of(model, points, shares * points.rps[:, :workloads])
    assert (ceiling >= load * KEPT).all()


@pytest.mark.slow
@given(seeds)
@law
def test_fixed_mixes_keep_their_limits_and_carry_more_than_sets_do(seed: int) -> None:
    model, points = with_mixes(Random(seed))
    workloads, mixes = len(model.workloads), mixes_of(model)
    point, column = np.nonzero(points.rps[:, workloads:])
    rps = points.rps[point, workloads + column]
    load, ceiling = ceilings_of(model, points.take(point), rps[:, None] * mixes[workloads + column])
    assert (ceiling >= load * KEPT).all()
    for of, mix, own_rps in zip(points.layout[point], mixes[workloads + column], rps, strict=True):
        assert own_rps > most_of_mix(points, len(LAYOUTS), mix.tolist())[of]


def with_mixes(draw: Random) -> tuple[ServedModel, Points]:
    """A random model that some layout serves a fixed mix of."""
    while True:
        model = limited_model(draw)
        points = points_of(model, LAYOUTS)
        if points.rps[:, len(model.workloads) :].any():
            return model, points


@pytest.mark.parametrize("slo", LIMITS, ids=["ttft", "tpot", "e2e", "both"])
def test_no_cap_from_1_to_256_carries_much_more_of_a_mix(slo: tuple[LatencyLimit, ...]) -> None:
    model = served("llama-3-8b", (1024, 256), (4096, 32), (64, 800), slo=slo)
    caps, mix = np.arange(1, MAX_SEQUENCES + 1), mixes_of(model)[3]
    layouts = ONE.take(np.zeros(len(caps), dtype=np.int64))
    full_rps = 1.0 / (mix / Roofline().rates(model, layouts, caps=caps).rps).sum(axis=1)
    rps = np.tile(mix, (len(caps), 1))
    carried = full_rps * Roofline().ceilings(model, layouts, caps=caps, rps=rps, most_load=1.0)
    found = most_of_each(points_of(model, ONE), 1, model)[0, 3]
    assert found * KEPT <= carried.max() <= found * 1.05


def test_all_of_the_offered_mix_is_better_served_together_than_by_what_must_be_ready_for_any_mixture() -> None:
    """Few long prompts beside many short ones: a set is bound by its worst mixture, almost all long ones."""
    slo = (LatencyLimit("ttft", 90, 4.0), LatencyLimit("tpot", 90, 0.12))
    model = served("llama-3.1-8b", (100, 800), (12000, 20), slo=slo)
    often, seldom = model.workloads
    model = replace(model, workloads=(replace(often, demand=70.0), replace(seldom, demand=30.0)))
    points = points_of(model, ONE)
    assert most_of_each(points, 1, model)[0, 2] > 3 * most_of_mix(points, 1, (0.7, 0.3))[0]


def test_mixes_are_of_what_is_offered() -> None:
    slo = (LatencyLimit("ttft", 90, 4.0),)
    model = served("llama-3-8b", (100, 10), (9000, 10), (200, 10), (500, 10), slo=slo)
    demands = (1.0, 3.0, 0.0, 4.0)
    workloads = tuple(replace(w, demand=d) for w, d in zip(model.workloads, demands, strict=True))
    model = replace(model, workloads=workloads)
    found = mixes_of(model)
    assert found[:4].tolist() == np.eye(4).tolist()
    assert found[4:].tolist() == [[0.125, 0.375, 0, 0.5], [0.2, 0, 0, 0.8], [0, 3 / 7, 0, 4 / 7]]
    assert len(mixes_of(replace(model, slo=()))) == 4
    assert len(mixes_of(replace(model, workloads=model.workloads[:1]))) == 1


@pytest.mark.slow
@given(seeds, st.sampled_from(["ttft", "tpot", "e2e"]), st.sampled_from([1.1, 1.5, 3.0]))
@law
def test_looser_fewer_and_less_strict_limits_never_lower_a_rate(seed: int, metric: str, factor: float) -> None:
    model = limited_model(Random(seed))

    def with_limits(limits: Sequence[LatencyLimit]) -> FloatArray:
        workloads = tuple(replace(workload, slo=None) for workload in model.workloads)
        changed = replace(model, slo=tuple(limits), workloads=workloads)
        return most_of_each(points_of(changed, LAYOUTS), len(LAYOUTS), model)

    most = with_limits(model.slo)
    for limits in (
        [replace(limit, seconds=limit.seconds * factor) for limit in model.slo],
        [limit for limit in model.slo if limit.metric != metric],
        [replace(limit, percentile=50) for limit in model.slo],
    ):
        assert (most <= with_limits(limits) * FOUND).all(), limits


@given(seeds, st.floats(0.3, 0.97))
@law
def test_a_cap_on_the_load_never_raises_a_rate(seed: int, most_load: float) -> None:
    model = limited_model(Random(seed))
    capped = most_of_each(points_of(model, LAYOUTS, most_load=most_load), len(LAYOUTS), model)
    assert (capped <= most_of_each(points_of(model, LAYOUTS), len(LAYOUTS), model) * FOUND).all()


@given(seeds)
@law
def test_a_workload_less_never_lowers_a_rate(seed: int) -> None:
    """On a single stage; over several the layers are balanced for all that is offered."""
    model = limited_model(Random(seed))
    layouts = LAYOUTS.take(slice(0, 5))
    all_of_them = most_alone(points_of(model, layouts), len(layouts), 1)
    fewer = replace(model, workloads=model.workloads[:1])
    assert (all_of_them <= most_alone(points_of(fewer, layouts), len(layouts), 1) * FOUND).all()


@pytest.mark.parametrize("slo", LIMITS, ids=["ttft", "tpot", "e2e", "both"])
@pytest.mark.parametrize("request_tokens", [(1024.0, 256.0), (4096.0, 32.0), (64.0, 800.0)])
def test_no_cap_from_1_to_256_carries_more_than_the_point(
    slo: tuple[LatencyLimit, ...], request_tokens: tuple[float, float]
) -> None:
    """Every cap, loaded as far as its ceiling: another way to the same figure, which knows nothing of points."""
    model = served("llama-3-8b", request_tokens, slo=slo)
    caps = np.arange(1, MAX_SEQUENCES + 1)
    layouts = ONE.take(np.zeros(len(caps), dtype=np.int64))
    full = Roofline().rates(model, layouts, caps=caps).rps
    carried = full[:, 0] * Roofline().ceilings(model, layouts, caps=caps, rps=full, most_load=1.0)
    found = points_of(model, ONE).rps.max(initial=0.0)
    assert found > 0
    assert found * KEPT <= carried.max() <= found * 1.015


def test_without_limits_there_is_one_point_with_all_sequences_busy() -> None:
    model = served("llama-3-8b", (1024, 256), (200, 50))
    points = points_of(model, ONE)
    assert points.rps.max(axis=0) == pytest.approx(rates_of(model, ONE).rps[0])
    assert (points.max_batch == min(int(rates_of(model, ONE).batch.max()), MAX_SEQUENCES)).any()


def test_limits_are_those_of_each_workload() -> None:
    """Batch work without limits beside chat keeps all that it can carry alone."""
    tight = (LatencyLimit("ttft", 99, 0.3),)
    model = served("llama-3-8b", (1024, 256), (1024, 256), slo=tight)
    free = replace(model, workloads=(model.workloads[0], replace(model.workloads[1], slo=())))
    most = most_alone(points_of(free, ONE), 1, 2)[0]
    assert most[1] == pytest.approx(rates_of(model, ONE).rps[0, 1])
    assert most[0] < 0.95 * most[1]
    assert most_alone(points_of(model, ONE), 1, 2)[0] == pytest.approx([most[0]] * 2)


def test_where_no_layout_holds_the_model_there_are_no_points() -> None:
    model = served("llama-3-70b", (1000, 100), (50, 50), slo=[LatencyLimit("tpot", 90, 0.05)])
    assert len(points_of(model, pipelines_of([("l4", 1)]))) == 0


def test_a_limit_below_one_prefill_cannot_be_met() -> None:
    assert len(points_of(served("llama-3-8b", (8000, 10), slo=[LatencyLimit("ttft", 50, 0.02)]), LAYOUTS)) == 0


@pytest.mark.parametrize("cap", [1, 7, 64])
def test_at_a_given_cap_there_is_no_other(cap: int) -> None:
    model = served("llama-3-8b", (1024, 256), slo=[LatencyLimit("e2e", 90, 20.0)])
    points = points_of(model, LAYOUTS, caps=[cap] * len(LAYOUTS))
    assert set(points.max_batch.tolist()) == {cap}
    most = most_alone(points_of(model, LAYOUTS), len(LAYOUTS), 1)
    assert (most_alone(points, len(LAYOUTS), 1) <= most * FOUND).all()


def test_points_of_decode_keep_their_limits_too() -> None:
    model = served("llama-3-8b", (1024, 256), (300, 600), slo=[LatencyLimit("tpot", 90, 0.03)])
    points = points_of(model, APART)
    layouts = replace(APART.take(points.layout), layers=points.layers)
    full = Roofline().rates(model, layouts, caps=points.max_batch).rps
    assert not points.rps[:, 2:].any()  # mixes are of whole requests
    mixed = points.rps[:, :2] / np.maximum((points.rps > 0).sum(axis=1, keepdims=True), 1)
    load = np.divide(mixed, full, out=np.zeros_like(mixed), where=mixed > 0).sum(axis=1)
    ceiling = Roofline().ceilings(model, layouts, caps=points.max_batch, rps=mixed, most_load=1.0)
    assert (ceiling >= load * KEPT).all()


def test_the_more_sequences_are_free_the_less_is_waited_for_one() -> None:
    free = np.array([0.0, 5.0, 20.0, 60.0])
    found = waiting_probability(free, np.full(4, 10.0), np.array([0.99, 0.95, 0.8, 0.4]))
    assert (np.diff(found) < 0).all()
    assert found[-1] < 1e-6
    assert waiting_probability(np.zeros(1), np.ones(1), np.ones(1)).tolist() == [1.0]
