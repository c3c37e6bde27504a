"""Rates of the engine that serves, and of its version."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.problem import EngineName
from sutler.solver.throughput.roofline import FACTORS_OF, Roofline
from tests.solver.throughput.builders import pipelines_of, served

SHIPPED = shipped_calibration()
H100 = pipelines_of((("h100-sxm", 2),))


@pytest.mark.parametrize(
    ("version", "factors"),
    [
        ("0.6.3", "vllm-2024"),
        ("v0.4.2.post1", "vllm-2024"),
        ("0.6", "vllm-2024"),
        ("0.7.0", "vllm"),
        ("0.19.0", "vllm"),
        ("vllm/vllm-openai:v0.5.1", "vllm-2024"),
        ("latest", "vllm"),
        ("nightly-5b8c30d6", "vllm"),
        ("", "vllm"),
    ],
)
def test_a_version_has_the_factors_of_its_time(version: str, factors: str) -> None:
    assert SHIPPED.version_of("vllm", version) == factors
    assert SHIPPED.version_of("sglang", version) == "sglang"  # no older ones are known


def test_of_several_older_ones_the_oldest_that_stands_for_a_version_is_meant() -> None:
    older = replace(SHIPPED.engines["vllm-2024"], name="vllm-2023", until="0.3")
    both = replace(SHIPPED, engines={**SHIPPED.engines, "vllm-2023": older})
    versions = ("0.2.9", "0.3", "0.6.9", "0.7", "0.10.1")
    assert [both.version_of("vllm", one) for one in versions] == [
        "vllm-2023",
        "vllm-2024",
        "vllm-2024",
        "vllm",
        "vllm",
    ]


def test_an_old_version_is_slower_and_less_is_known_of_it() -> None:
    now = served("llama-3-70b", (1024, 256))
    then = replace(now, engine_version="0.6.3")
    new, old = (Roofline().rates(model, H100) for model in (now, then))
    assert old.rps[0, 0] < 0.97 * new.rps[0, 0]
    assert old.high_rps[0, 0] / old.rps[0, 0] > new.high_rps[0, 0] / new.rps[0, 0]
    assert "vllm before 0.7" in Roofline().basis(then, H100, old, 0, 0).detail


def test_every_engine_has_its_own_rates() -> None:
    model = served("llama-3-70b", (1024, 256))
    engines: tuple[EngineName, ...] = ("vllm", "sglang", "tensorrt-llm", "any-layout")
    rates = {one: float(Roofline().rates(replace(model, engine=one), H100).rps[0, 0]) for one in engines}
    assert rates["any-layout"] == rates["vllm"]
    assert len(set(rates.values())) == 3
    assert set(FACTORS_OF) == set(engines)


def test_whose_calibration_is_given_decides_whatever_the_model_says() -> None:
    model = served("llama-3-70b", (1024, 256))
    asked = (replace(model, engine="sglang"), replace(model, engine_version="0.6.3"), model)
    rates = [Roofline(SHIPPED, "trtllm").rates(one, H100).rps for one in asked]
    np.testing.assert_array_equal(rates[0], rates[2])
    np.testing.assert_array_equal(rates[1], rates[2])
