"""Tokens that are guessed: what a step gives then, and what it takes."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.catalog import resolve_gpu
from sutler.solver.estimate import estimate, one_layout
from sutler.solver.problem import ServedModel, Speculation
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.stages import SPECULATION_BAND, stage_kinds, traffic_of
from tests.solver.throughput.builders import served

THREE = Speculation(draft_tokens=3, acceptance_fraction=0.7, draft_cost_fraction=0.05, method="eagle3")
H100: Layouts = one_layout(resolve_gpu("h100-sxm"), tensor_parallel=4, pipeline_parallel=1)


def step_s(model: ServedModel, batch: int) -> float:
    kinds, _ = stage_kinds(H100)
    found = Roofline().stages(model).decode(kinds, traffic_of(model), max_batch=batch)
    layers = model.spec.layers if model.spec else 0
    return float(layers * found.per_layer[0, 0, batch] + found.per_pass[0] + found.head[0, batch])


def test_a_step_gives_what_is_accepted_in_a_row_and_one_more() -> None:
    assert THREE.tokens_per_step == pytest.approx(1 + 0.7 + 0.7**2 + 0.7**3)
    assert replace(THREE, acceptance_fraction=0.0).tokens_per_step == 1.0


def test_a_sequence_alone_writes_nearly_as_many_times_faster_as_tokens_are_accepted() -> None:
    """Weights are read once for all guesses; only guessing them takes longer."""
    plain = served("llama-3.3-70b")
    ratio = step_s(plain, 1) / step_s(replace(plain, speculation=THREE), 1)
    assert 0.95 < ratio * THREE.seconds_per_token <= 1.0


def test_where_arithmetic_is_the_limit_guesses_gain_little_or_lose() -> None:
    plain = served("llama-3.3-70b", (64, 64))
    gains = [step_s(plain, batch) / step_s(replace(plain, speculation=THREE), batch) for batch in (1, 16, 64, 1024)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 1.2
    wrong = replace(plain, speculation=replace(THREE, acceptance_fraction=0.0))
    assert step_s(wrong, 256) > step_s(plain, 256)


def test_the_estimate_says_so_and_is_stated_more_widely() -> None:
    plain = served("llama-3.3-70b", (1000, 300), precision="fp8")
    before, after = (
        estimate(Roofline(), model, H100, concurrency=8) for model in (plain, replace(plain, speculation=THREE))
    )
    assert after.tpot_s < before.tpot_s / 1.8
    assert after.req_per_s > before.req_per_s
    assert "2.53 tokens a step by speculation" in after.detail
    widths = [np.log(one.high_req_per_s / one.req_per_s) for one in (before, after)]
    assert widths[1] == pytest.approx(widths[0] + np.log(SPECULATION_BAND))
