"""The benchmark of a serving engine, simulated."""

from dataclasses import replace

import pytest

from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.estimate import one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.benchmark import PROTOCOLS, Benchmarked, Protocol, benchmarked, with_all_layers
from sutler.solver.throughput.roofline import Roofline

GPU, MODEL = load_gpus()["h100-sxm"], load_models()["llama-3-8b"]


def of(concurrency: int, protocol: Protocol | None = None, *, tokens: tuple[int, int] = (1000, 200)) -> Benchmarked:
    model = ServedModel("m", MODEL, "bf16", "bf16", (Workload("w", *tokens, 1.0),))
    layouts = with_all_layers(one_layout(GPU, tensor_parallel=1, pipeline_parallel=1), MODEL.layers)
    return benchmarked(Roofline(), model, layouts, concurrency=concurrency, protocol=protocol)


def test_every_calibrated_engine_has_a_protocol() -> None:
    assert {one.engine for one in shipped_calibration().engines.values()} <= set(PROTOCOLS)


def test_the_rate_is_what_little_says() -> None:
    found = of(16)
    assert found.req_per_s == pytest.approx(16 / (found.ttft_s + 199 * found.tpot_s))


def test_a_lone_client_waits_for_nobody() -> None:
    """Its prompts vary by a tenth, and so little does its first token."""
    alone, many = of(1), of(64)
    assert alone.ttft_s < 0.2 < many.ttft_s


def test_clients_whose_requests_are_all_of_one_length_stay_in_step() -> None:
    """They end together, so that every first token waits for the prompts of half of the others."""
    same, drifting = (of(64, Protocol("prefill_first", 8192, spread)) for spread in (0.0, 0.2))
    assert same.ttft_s > 2 * drifting.ttft_s


def test_prompts_that_go_first_are_answered_sooner_and_stretch_the_others() -> None:
    chunked, first = of(64, PROTOCOLS["vllm"]), of(64, replace(PROTOCOLS["sglang"], spread_fraction=0.1))
    assert first.ttft_s < chunked.ttft_s
    assert first.tpot_s > chunked.tpot_s


def test_the_same_question_has_the_same_answer() -> None:
    assert of(32) == of(32)


def test_a_single_token_has_the_tpot_that_a_second_one_would_take() -> None:
    assert 0.0 < of(8, tokens=(500, 1)).tpot_s < 0.1
