"""Who estimates what: roofline, operator database or the user's runs, by their bands or as asked for."""

import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.calibration.factors import Compared, shipped_calibration
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.problem import Estimates, Objective, Offer, Problem, ServedModel
from sutler.solver.simulation.replicas import simulated_replicas
from sutler.solver.simulation.step_times import Lengths
from sutler.solver.throughput.aiconfigurator import BAND
from sutler.solver.throughput.base import Layouts, Rates
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.refit import refit
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.runs import ServingRun, predict, run_groups
from sutler.solver.verify import verify
from tests.solver.throughput.builders import pipelines_of, served

MISSING = missing()
needs_database = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def asked(estimates: Estimates, layouts: Layouts, model: ServedModel | None = None) -> tuple[str, Rates, str]:
    """Source, rates and detail of the first workload on the first layout."""
    model, roofline = model or served("qwen3-8b"), Roofline(estimates=estimates)
    rates = roofline.rates(model, layouts)
    basis = roofline.basis(model, layouts, rates, 0, 0)
    return basis.source, rates, basis.detail


@needs_database
@pytest.mark.parametrize(
    ("estimates", "gpu", "source"),
    [
        ("narrowest_band", "h100-sxm", "roofline"),
        ("narrowest_band", "l40s", "aiconfigurator"),
        ("narrowest_band", "rtx-4090", "roofline"),
        ("aiconfigurator", "h100-sxm", "aiconfigurator"),
        ("aiconfigurator", "rtx-4090", "roofline"),
        ("roofline", "l40s", "roofline"),
    ],
)
def test_the_narrower_band_answers_unless_one_is_asked_for(estimates: Estimates, gpu: str, source: str) -> None:
    found, rates, detail = asked(estimates, pipelines_of(((gpu, 1),)))
    assert found == source
    assert ("operators measured" in detail) == (source == "aiconfigurator")
    assert 0 < rates.low_rps[0, 0] < rates.rps[0, 0] < rates.high_rps[0, 0]
    if (estimates, gpu) == ("narrowest_band", "l40s"):
        assert rates.high_rps[0, 0] / rates.rps[0, 0] == pytest.approx(BAND)


@needs_database
@pytest.mark.parametrize(("operators_error", "source"), [(0.02, "aiconfigurator"), (0.08, "roofline")])
@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s"])
def test_whoever_was_nearer_on_runs_like_these_answers(gpu: str, operators_error: float, source: str) -> None:
    """With the band that its errors ask for, whatever the other states."""
    known = Compared(gpu, False, 20, 0.05, operators_error, operators_band=1.77)
    roofline = Roofline(replace(shipped_calibration(), compared=(known,)))
    model, layouts = served("qwen3-8b"), pipelines_of(((gpu, 1),))
    rates = roofline.rates(model, layouts)
    assert roofline.basis(model, layouts, rates, 0, 0).source == source
    if source == "aiconfigurator":
        assert rates.high_rps[0, 0] / rates.rps[0, 0] == pytest.approx(1.77)


def test_every_comparison_that_is_shipped_rests_on_enough_runs() -> None:
    for one in shipped_calibration().compared:
        assert one.runs >= 15
        assert one.operators_band > 1 + one.operators_error_fraction / 2
        assert resolve_gpu(one.gpu).slug == one.gpu


@needs_database
def test_stages_of_a_mixed_pipeline_are_answered_one_by_one() -> None:
    source, rates, detail = asked("narrowest_band", pipelines_of((("h100-sxm", 1), ("l40s", 1))))
    assert source == "roofline+aiconfigurator"
    assert rates.rps[0, 0] > 0
    assert "calibrated roofline and operator database" in detail


@needs_database
def test_a_users_runs_on_a_gpu_win_over_its_operators() -> None:
    runs = [
        ServingRun(resolve_gpu("l40s"), resolve_model("qwen3-8b"), "bf16", "bf16", "vllm", 1, i, o, c, 1.0, 1.0, 1.0)
        for i, o, c in product((512, 1024), (128, 256), (16, 64))
    ]
    found = predict(run_groups(runs), shipped_calibration())
    seen = [
        replace(run, req_per_s=float(x) * 0.6, ttft_s=float(t) / 0.6, tpot_s=float(p) / 0.6)
        for run, x, t, p in zip(runs, found.req_per_s, found.ttft_s, found.tpot_s, strict=True)
    ]
    roofline = Roofline(refit(seen, [], shipped_calibration()).calibration)
    model, layouts = served("qwen3-8b", (1024, 256)), pipelines_of((("l40s", 1),))
    rates = roofline.rates(model, layouts)
    shipped = Roofline(estimates="roofline").rates(model, layouts)
    assert roofline.basis(model, layouts, rates, 0, 0).source == "profiles"
    assert rates.rps[0, 0] == pytest.approx(0.6 * shipped.rps[0, 0], rel=0.1)


def a_problem(estimates: Estimates = "narrowest_band") -> Problem:
    offer = Offer("acme", "one", "l40s", 1, 2, 0.8)
    return Problem(
        objective=Objective("max_throughput"),
        models=(served("qwen3-8b", (1024, 256)),),
        offers=(offer,),
        gpus={"l40s": resolve_gpu("l40s")},
        budget_usd_per_hour=2.0,
        estimates=estimates,
    )


@needs_database
def test_a_plan_on_operators_verifies_and_is_not_the_rooflines() -> None:
    problem = a_problem()
    plan = solve(problem)
    assert {evidence.source for evidence in plan.evidence} == {"aiconfigurator"}
    assert verify(problem, plan) == ()
    assert solve(a_problem("roofline")).throughput_rps != pytest.approx(plan.throughput_rps, rel=1e-3)


def test_a_plan_on_operators_can_be_simulated_where_they_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rates are then taken as measured ones are: everything takes as long as they say."""
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    problem = a_problem("roofline")
    plan = solve(problem)
    halved = [replace(e, source="aiconfigurator", rps=e.rps / 2) for e in plan.evidence]
    steps = [
        simulated_replicas(
            plan.replicas,
            models={"chat": problem.models[0]},
            gpus=problem.gpus,
            evidence=evidence,
            lengths={"chat": Lengths(1280.0, 1152.0)},
        )[0]
        .times.line(8, 1152.0)
        .at(1152.0)
        for evidence in (plan.evidence, halved)
    ]
    assert steps[1] == pytest.approx(2 * steps[0])


def test_without_the_package_evidence_says_what_it_would_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    source, rates, detail = asked("narrowest_band", pipelines_of((("l40s", 1),)))
    assert source == "roofline"
    assert np.isfinite(rates.rps).all()
    assert "pip install 'sutler[aiconfigurator]'" in detail
    for gpu in ("h100-sxm", "rtx-4090"):  # known well already, or not by the database either
        assert "sutler[aiconfigurator]" not in asked("narrowest_band", pipelines_of(((gpu, 1),)))[2]
