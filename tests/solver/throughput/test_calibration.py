"""Fitting finds the factors that made the runs and leaves alone what no run touches."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.fitting import fit
from benchmarks.accuracy.held_out import prior_calibration
from benchmarks.calibration_file import calibration_toml
from sutler.solver.calibration.factors import (
    REFERENCE_ENGINE,
    Calibration,
    calibration_from_toml,
    shipped_calibration,
)
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.estimate import estimate, one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.runs import ServingRun, predict, run_groups, with_room

PRIOR = prior_calibration()


def grid(engine: str = REFERENCE_ENGINE) -> list[ServingRun]:
    """Configurations whose measured values are to be filled in."""
    cases = product(["h100-sxm", "a100-sxm4-80gb"], [1, 4], [(512, 128), (2048, 512)], [1, 16, 64])
    return [
        ServingRun(
            gpu=resolve_gpu(gpu),
            spec=resolve_model("llama-3.1-8b"),
            precision="bf16",
            kv_precision="bf16",
            engine=engine,
            tensor_parallel=tensor_parallel,
            input_tokens=inputs,
            output_tokens=outputs,
            concurrency=concurrency,
            req_per_s=1.0,
            ttft_s=1.0,
            tpot_s=1.0,
        )
        for gpu, tensor_parallel, (inputs, outputs), concurrency in cases
    ]


def as_if_measured(runs: list[ServingRun], truth: Calibration) -> list[ServingRun]:
    made = predict(run_groups(runs), truth)
    columns = zip(made.req_per_s, made.ttft_s, made.tpot_s, strict=True)
    return [
        replace(run, req_per_s=float(rate), ttft_s=float(ttft), tpot_s=float(tpot))
        for run, (rate, ttft, tpot) in zip(runs, columns, strict=True)
    ]


def median_error(runs: list[ServingRun], calibration: Calibration) -> float:
    predicted = predict(run_groups(runs), calibration).req_per_s
    return float(np.median(np.abs(predicted / np.array([run.req_per_s for run in runs]) - 1)))


def test_a_fit_reproduces_the_runs_of_a_slower_engine() -> None:
    factors = replace(PRIOR.factors, compute_fraction=0.5, layer_overhead_s=90e-6, bandwidth_fraction=0.7)
    runs = as_if_measured(grid(), replace(PRIOR, factors=factors))
    assert median_error(runs, PRIOR) > 0.2
    assert median_error(runs, fit(runs, [], PRIOR, REFERENCE_ENGINE)) < 0.02


def test_without_a_deviation_nothing_moves() -> None:
    runs = as_if_measured(grid(), PRIOR)
    found = fit(runs, [], PRIOR, REFERENCE_ENGINE)
    assert replace(found, kernels=()) == PRIOR
    assert {(one.compute, one.bandwidth) for one in found.kernels} == {(1.0, 1.0)}


def test_classes_and_engines_without_runs_keep_their_assumptions() -> None:
    factors = replace(PRIOR.factors, compute_fraction=0.5)
    fitted = fit(as_if_measured(grid(), replace(PRIOR, factors=factors)), [], PRIOR, REFERENCE_ENGINE)
    before = {one.name: one for one in PRIOR.gpu_classes}
    after = {one.name: one for one in fitted.gpu_classes}
    assert after["ada"] == before["ada"]
    assert after["hopper"] != before["hopper"]
    assert fitted.engines == PRIOR.engines


def test_another_engine_is_a_deviation_of_its_own() -> None:
    slow = replace(PRIOR.engines["sglang"], overhead=2.0)
    truth = replace(PRIOR, engines={**PRIOR.engines, "sglang": slow})
    runs = as_if_measured(grid() + grid("sglang"), truth)
    fitted = fit(runs, [], PRIOR, REFERENCE_ENGINE)
    assert fitted.engines["sglang"].overhead > 1.3
    assert fitted.engines[REFERENCE_ENGINE] == PRIOR.engines[REFERENCE_ENGINE]


def test_runs_whose_weights_fill_the_memory_are_not_fitted() -> None:
    (tight, roomy) = (
        replace(grid()[0], spec=resolve_model("qwen3-32b"), tensor_parallel=degree) for degree in (1, 2)
    )
    assert with_room([tight, roomy]) == [roomy]


def test_what_is_fitted_and_what_is_simulated_agree() -> None:
    """Factors are fitted by a closed form; the estimates that rest on them simulate the benchmark."""
    runs = [run for run in grid() if run.concurrency > 1]
    predicted = predict(run_groups(runs), shipped_calibration())
    for index, run in enumerate(runs):
        model = ServedModel("m", run.spec, "bf16", "bf16", (Workload("w", run.input_tokens, run.output_tokens, 1.0),))
        layouts = one_layout(run.gpu, tensor_parallel=run.tensor_parallel, pipeline_parallel=1)
        found = estimate(Roofline(), model, layouts, concurrency=int(run.concurrency))
        assert found.req_per_s == pytest.approx(predicted.req_per_s[index], rel=0.03)
        assert found.ttft_s == pytest.approx(predicted.ttft_s[index], rel=0.4)
        assert found.tpot_s == pytest.approx(predicted.tpot_s[index], rel=0.05)


def test_a_written_calibration_reads_back_as_it_was(tmp_path: Path) -> None:
    serving = tmp_path / "serving.csv"
    serving.write_text("gpu\n", encoding="utf-8")
    text = calibration_toml(PRIOR, serving, [], [])
    assert calibration_from_toml(text) == PRIOR


def test_the_shipped_file_covers_the_classes_of_the_prior() -> None:
    shipped = shipped_calibration()
    assert [one.name for one in shipped.gpu_classes] == [one.name for one in PRIOR.gpu_classes]
    measured = {"expert_band": PRIOR.priors.expert_band, "weight_only_band": PRIOR.priors.weight_only_band}
    assert replace(shipped.priors, **measured) == PRIOR.priors
