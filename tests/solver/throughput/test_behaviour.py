"""Replicas that are partly busy: many at once are what each is alone, and one workload is its own worst mixture."""

from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest

from benchmarks.load_laws import limited_model
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.behaviour import Mixture, at_worst
from sutler.solver.throughput.loaded import Loaded, loaded_of
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.prepare import prepare
from sutler.solver.throughput.roofline import Roofline
from tests.solver.throughput.builders import in_role, pipelines_of, points_of

LAYOUTS = pipelines_of(
    [("l4", 2)], [("l40s", 1)] * 2, [("a100-sxm4-80gb", 2), ("h100-sxm", 1)], [("h100-sxm", 4)], [("h200-sxm", 1)] * 3
)


def loaded(model: ServedModel) -> Loaded:
    roofline = Roofline()
    prepared = prepare(model, LAYOUTS, roofline.planning_stages(model), max_sequences=MAX_SEQUENCES)
    return loaded_of(prepared, np.arange(len(LAYOUTS)), base_s=roofline.first_token(model).base_s)


@pytest.mark.parametrize("seed", range(4))
def test_points_of_many_layouts_are_those_of_each_alone(seed: int) -> None:
    model = limited_model(Random(seed))
    for layouts in (LAYOUTS, in_role(LAYOUTS, "decode", kv_gb_per_s=12.5)):
        together = points_of(model, layouts)
        for row in range(len(layouts)):
            apart, here = points_of(model, layouts.only(row)), together.take(np.flatnonzero(together.layout == row))
            assert here.max_batch.tolist() == apart.max_batch.tolist()
            assert here.rps == pytest.approx(apart.rps, rel=1e-12)
            assert here.low_rps == pytest.approx(apart.low_rps, rel=1e-12)
            assert (here.layers[:, : apart.layers.shape[1]] == apart.layers).all()


@pytest.mark.parametrize("seed", range(4))
def test_one_workload_is_its_own_worst_mixture(seed: int) -> None:
    pairs = loaded(limited_model(Random(seed))).pairs()
    pairs = pairs.take(np.flatnonzero(pairs.able[0]))
    draw = np.random.default_rng(seed)
    capped, share = pairs.capped(draw.integers(1, 257, len(pairs))), draw.uniform(0.01, 1.0, len(pairs))
    running = capped.running(share)
    times, mixed = Mixture.of(capped, capped.full_rps / 3).at(share)
    assert times * capped.full_rps[0] / 3 == pytest.approx(running.rps[0])
    worst = at_worst(running)
    for each in fields(worst):
        assert getattr(mixed, each.name) == pytest.approx(getattr(worst, each.name), abs=1e-12), each.name


@pytest.mark.parametrize("seed", range(4))
def test_a_mixture_adds_up(seed: int) -> None:
    draw, some = np.random.default_rng(seed), loaded(replace(limited_model(Random(seed + 20)), slo=()))
    some = some.take(np.flatnonzero(some.able.all(axis=0)))
    capped, share = some.capped(draw.integers(1, 257, len(some))), draw.uniform(0.01, 1.0, len(some))
    rps, running = draw.uniform(0.0, 1.0, some.most.shape), capped.running(share)
    mixture = Mixture.of(capped, rps)
    times, behaviour = mixture.at(share)
    assert times == pytest.approx(mixture.times(share))
    assert times * (rps / running.rps).sum(axis=0) == pytest.approx(1.0)
    whole_s = some.slot_s + some.own.chunks * behaviour.written_s
    assert behaviour.queue == pytest.approx((times * rps * whole_s).sum(axis=0))
    assert behaviour.interruption_s == pytest.approx((times * rps * some.slot_s**2).sum(axis=0))
    worst = at_worst(running)
    for name in ("step_s", "written_s", "delay", "queue", "interruption_s"):
        assert (getattr(behaviour, name) <= getattr(worst, name) * (1 + 1e-9)).all(), name
    assert mixture.busy_share(times) == pytest.approx(share, abs=2e-4)
