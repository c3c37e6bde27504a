"""Measured rates win, exactly where they were measured."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver import solve, throughput
from sutler.solver.catalog.entries import Gpu
from sutler.solver.problem import LatencyLimit, Limits, MeasuredRate, MeasuredStage, Problem, ServedModel
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.roofline import Roofline
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.throughput.builders import pipelines_of, served

T1, T2 = Gpu("t1", memory_gb=80), Gpu("t2", memory_gb=80)
W1, W2 = a_workload("w1"), a_workload("w2")


def problem_with(*rows: MeasuredRate, only: bool = True, limits: Limits | None = None) -> Problem:
    return a_problem(
        offers=[an_offer("t1")],
        rows=rows,
        models=[a_model(W1, W2)],
        measured_only=only,
        limits=limits or Limits(),
    )


def layouts_of(*pipelines: list[tuple[str, int]]) -> Layouts:
    return pipelines_of(*pipelines, extra_gpus=[T1, T2])


def test_a_row_gives_its_rates_to_layouts_with_its_stages_in_order() -> None:
    problem = problem_with(measured(["t1", "t2:2"], {"w1": 3.0, "w2": 2.0}))
    layouts = layouts_of([("t1", 1), ("t2", 2)], [("t2", 2), ("t1", 1)], [("t1", 1)], [("t1", 1), ("t2", 1)])
    rates, known = throughput.rates(problem, problem.models[0], layouts)
    assert known.tolist() == [True, False, False, False]
    assert rates.rps.tolist() == [[3.0, 2.0], [0, 0], [0, 0], [0, 0]]
    assert rates.fits.tolist() == known.tolist()
    assert (rates.low_rps == rates.rps).all()
    assert (rates.high_rps == rates.rps).all()
    assert not rates.layers.any()


def test_a_workload_left_out_of_a_row_has_rate_zero() -> None:
    problem = problem_with(measured("t1", {"w2": 1.5}))
    rates, _ = throughput.rates(problem, problem.models[0], layouts_of([("t1", 1)]))
    assert rates.rps.tolist() == [[0.0, 1.5]]
    found = throughput.evidence(problem, problem.models[0], layouts_of([("t1", 1)]), rates, np.array([True]), 0, 0)
    assert (found.source, found.version) == ("measured", "")
    assert "leaves this workload out" in found.detail


def test_rows_of_another_model_do_not_count() -> None:
    problem = problem_with(measured("t1", {"w1": 1.0}, model="code"))
    rates, known = throughput.rates(problem, problem.models[0], layouts_of([("t1", 1)]))
    assert not known.any()
    assert not rates.rps.any()


def test_a_row_longer_than_every_layout_matches_none() -> None:
    problem = problem_with(measured(["t1", "t1", "t1"], {"w1": 1.0}))
    _, known = throughput.rates(problem, problem.models[0], layouts_of([("t1", 1)], [("t1", 1), ("t1", 1)]))
    assert not known.any()


def mixed_case() -> tuple[Problem, ServedModel, Layouts]:
    """Llama-3-70B measured on 4 H100 but not on 8."""
    model = served("llama-3-70b", (1024, 256))
    row = MeasuredRate("chat", (MeasuredStage("h100-sxm", 4),), {"w0": 123.0})
    layouts = pipelines_of([("h100-sxm", 4)], [("h100-sxm", 8)])
    problem = a_problem(offers=[an_offer("h100-sxm")], rows=[row], models=[model], measured_only=False)
    return problem, model, layouts


def test_measured_rates_win_over_estimates_and_leave_the_others() -> None:
    problem, model, layouts = mixed_case()
    rates, known = throughput.rates(problem, model, layouts)
    estimate = Roofline().rates(model, layouts)
    assert known.tolist() == [True, False]
    assert rates.rps[0, 0] == rates.low_rps[0, 0] == rates.high_rps[0, 0] == 123.0
    assert rates.batch[0, 0] == 0
    assert rates.rps[1, 0] == estimate.rps[1, 0]
    assert rates.layers.tolist() == estimate.layers.tolist() == [[80], [80]]


def test_evidence_names_the_source_of_each_rate() -> None:
    problem, model, layouts = mixed_case()
    rates, known = throughput.rates(problem, model, layouts)
    sources = [throughput.evidence(problem, model, layouts, rates, known, row, 0).source for row in (0, 1)]
    assert sources == ["measured", "roofline"]


def test_measured_layouts_are_taken_to_fit() -> None:
    model = served("llama-3-70b", (1024, 256))
    row = MeasuredRate("chat", (MeasuredStage("rtx-4090", 1),), {"w0": 1.0})
    problem = a_problem(offers=[an_offer("rtx-4090")], rows=[row], models=[model], measured_only=False)
    rates, _ = throughput.rates(problem, model, pipelines_of([("rtx-4090", 1)]))
    assert rates.fits[0]
    assert rates.rps[0, 0] == 1.0


@pytest.mark.parametrize(
    ("slo", "limits", "expected"),
    [
        ((), Limits(), 1.0),
        ((LatencyLimit("tpot", 90, 0.05),), Limits(), 1.0),
        ((LatencyLimit("ttft", 90, 2.0),), Limits(), 0.85),
        ((LatencyLimit("e2e", 50, 9.0),), Limits(), 0.85),
        ((LatencyLimit("ttft", 90, 2.0),), Limits(max_utilisation_fraction=0.6), 0.6),
        ((LatencyLimit("ttft", 90, 2.0),), Limits(max_utilisation_fraction=0.95), 0.85),
        ((), Limits(max_utilisation_fraction=0.9), 0.9),
    ],
)
def test_measured_replicas_with_a_queue_in_their_limits_are_not_filled(
    slo: tuple[LatencyLimit, ...], limits: Limits, expected: float
) -> None:
    row = MeasuredRate("chat", (MeasuredStage("h100-sxm", 4),), {"w0": 100.0})
    model = served("llama-3-70b", (1024, 256), slo=slo)
    problem = a_problem(offers=[an_offer("h100-sxm")], rows=[row], models=[model], limits=limits)
    points = throughput.points(problem, model, pipelines_of([("h100-sxm", 4)]))
    assert points.rps.tolist() == [[pytest.approx(100 * expected)]]
    assert points.max_batch.tolist() == [0]


def test_of_measured_rates_each_workload_counts_by_its_own_limits() -> None:
    """As many w1 at 0.85 x 3 as w2, without limits, at 1 req/s: 1 / (0.5 / 2.55 + 0.5 / 1) on the replica."""
    slo = (LatencyLimit("ttft", 90, 5.0),)
    model = a_model(a_workload("w1"), replace(a_workload("w2"), slo=()), slo=slo)
    problem = a_problem(offers=[an_offer("a")], rows=[measured("a", {"w1": 3.0, "w2": 1.0})], models=[model])
    plan = solve(problem)
    assert plan.throughput_rps == pytest.approx(1 / (0.5 / 2.55 + 0.5))
    (replica,) = plan.replicas
    assert replica.max_load_fraction == pytest.approx(replica.utilisation_fraction)
    assert 0.85 < replica.utilisation_fraction < 1.0


def test_a_cap_on_loads_never_raises_what_is_counted_on() -> None:
    model = served("llama-3-70b", (1024, 256), slo=[LatencyLimit("ttft", 90, 1.0)])
    layouts, rps = pipelines_of([("h100-sxm", 4)]), []
    for fraction in (0.3, 0.5, 0.98, None):
        limits = Limits(max_utilisation_fraction=fraction)
        problem = a_problem(offers=[an_offer("h100-sxm")], models=[model], measured_only=False, limits=limits)
        rps.append(float(throughput.points(problem, model, layouts).rps.max()))
    assert rps == sorted(rps)
    assert rps[0] < rps[-1] == pytest.approx(rps[-2], rel=2e-3)
