"""Older versions of an engine get the factors that their batches show, and nothing else moves."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.accuracy.errors import closed_form
from benchmarks.accuracy.old_engines import old_engines, with_old_engines
from sutler.solver.calibration.factors import Calibration, EngineFactors, shipped_calibration
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.throughput.runs import ServingRun

SHIPPED = shipped_calibration()


def batches(engine: EngineFactors, *gpus: str) -> list[ServingRun]:
    """As fast as an engine of these factors makes them."""
    truth: Calibration = replace(SHIPPED, engines={**SHIPPED.engines, engine.name: engine})
    cases = product(gpus, ("llama-3.1-8b", "llama-2-7b"), (128, 1024), (1, 16, 64))
    runs = [
        ServingRun(
            gpu=resolve_gpu(gpu),
            spec=resolve_model(model),
            precision="bf16",
            kv_precision="bf16",
            engine=engine.name,
            tensor_parallel=1,
            input_tokens=tokens,
            output_tokens=tokens,
            concurrency=batch,
            req_per_s=1.0,
            ttft_s=np.nan,
            tpot_s=np.nan,
            is_static=True,
        )
        for gpu, model, tokens, batch in cases
    ]
    rates = closed_form(runs, truth).req_per_s
    return [replace(run, req_per_s=float(rate)) for run, rate in zip(runs, rates, strict=True)]


def test_what_an_old_version_took_is_found_and_nothing_else_moves() -> None:
    slow = replace(SHIPPED.engines["vllm-2024"], overhead=4.0, compute=0.7)
    runs = batches(slow, "h100-sxm", "a100-sxm4-80gb")
    found = with_old_engines(SHIPPED, runs)
    judged = old_engines(found, runs)
    assert judged is not None
    assert np.median(judged.current) > 0.3
    assert np.max(judged.shipped) < 0.1
    assert np.median(judged.left_out["model"]) < 0.1
    assert found.engines["vllm-2024"].overhead == pytest.approx(4.0, rel=0.15)
    assert 1.0 <= found.engines["vllm-2024"].band < 1.3
    assert {**found.engines, "vllm-2024": slow} == {**SHIPPED.engines, "vllm-2024": slow}
    assert (found.factors, found.gpu_classes) == (SHIPPED.factors, SHIPPED.gpu_classes)


def test_a_static_batch_of_one_is_a_client_alone_without_what_lies_outside_the_engine() -> None:
    engine = SHIPPED.engines["vllm-2024"]
    runs = batches(engine, "h100-sxm")
    looped = closed_form([replace(run, is_static=False) for run in runs], SHIPPED).req_per_s
    static = np.array([run.req_per_s for run in runs])
    outside_s = (1.0 / looped - 1.0 / static)[::3]
    assert outside_s == pytest.approx(SHIPPED.factors.first_token_base_s * engine.first_token_base, rel=0.2)
    assert (static[1::3] > 5 * static[::3]).all()  # 16 at once against one
