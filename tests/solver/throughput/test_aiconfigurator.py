"""The operator database behind the stage questions: against direct calls of its package, and without the package."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sutler.solver.arrays import FloatArray
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.aiconfigurator import OperatorStages
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.operator_database import operator_times
from sutler.solver.throughput.operator_models import SYSTEMS, link_error
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.prepare import known_spec, prepare
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.stages import StageKinds, StageSeconds, Traffic
from tests.solver.throughput.builders import a_dense_spec, pipelines_of, served

MISSING = missing()
needs_database = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
CONTEXTS = (1024.0, 3000.0)
TRAFFIC = Traffic(np.array([1000.0, 2900.0]), np.array([48.0, 200.0]), np.array([1000.0, 900.0]))
MOST = 64


def kinds_of(*stages: tuple[str, int], intra_gb_per_s: float | None = None) -> StageKinds:
    gpus = tuple(resolve_gpu(slug) for slug, _ in stages)
    links = [gpu.link_gb_per_s or 0.0 if intra_gb_per_s is None else intra_gb_per_s for gpu in gpus]
    degrees, ranks = np.array([degree for _, degree in stages]), np.ones(len(gpus), dtype=np.int64)
    return StageKinds(gpus, np.arange(len(gpus)), degrees, np.array(links), ranks)


def stages_of(model: str = "llama-3.1-8b", precision: Precision = "bf16", kv: Precision = "bf16") -> OperatorStages:
    asked = served(model, precision=precision, kv_precision=kv)
    return operators_over(Roofline(), asked)


def operators_over(roofline: Roofline, model: ServedModel) -> OperatorStages:
    return OperatorStages(roofline.stages(model), known_spec(model), model.kv_precision, everywhere=True)


def seconds_of(found: StageSeconds, kind: int, layers: int) -> FloatArray:
    """A last stage of `layers` layers [W] or [W, num_batches]."""
    return np.asarray(layers * found.per_layer[kind] + found.per_pass[kind] + found.head[kind])


def are_the_same(one: StageSeconds, other: StageSeconds) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("per_layer", "per_pass", "head"))


class Direct:
    """The package itself, by its own name of a model it bundles."""

    def __init__(self, name: str, system: str, degree: int, **modes: str) -> None:
        from aiconfigurator_core.sdk import common
        from aiconfigurator_core.sdk.backends.factory import get_backend
        from aiconfigurator_core.sdk.perf_database import get_database_view

        gemm, experts = modes.get("gemm", "bfloat16"), modes.get("experts", "bfloat16")
        self.name = name
        self.modes: dict[str, Any] = {
            "tp_size": degree,
            "moe_tp_size": degree,
            "moe_ep_size": 1,
            "gemm_quant_mode": common.GEMMQuantMode[gemm],
            "moe_quant_mode": common.MoEQuantMode[experts],
            "kvcache_quant_mode": common.KVCacheQuantMode[modes.get("kv", "bfloat16")],
            "fmha_quant_mode": common.FMHAQuantMode.bfloat16,
        }
        self.backend: Any = get_backend("vllm")
        self.database: Any = get_database_view(system, "vllm", "current", database_mode="SILICON")

    def seconds(self, mode: str, layers: int, batch: int, tokens: int, cached: int = 0) -> float:
        from aiconfigurator_core.sdk.config import ModelConfig, RuntimeConfig
        from aiconfigurator_core.sdk.models import get_model

        model = get_model(self.name, ModelConfig(overwrite_num_layers=layers, **self.modes), "vllm")
        asked = RuntimeConfig(batch_size=batch, isl=tokens, osl=2, prefix=cached)
        return float(self.backend.run_static_latency_only(model, self.database, asked, mode=mode)) / 1e3


CASES = [
    ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", "h100-sxm", 1, "bf16", "bf16", {}),
    ("llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B", "h200-sxm", 4, "fp8", "fp8", {"gemm": "fp8", "kv": "fp8"}),
    ("qwen3-32b", "Qwen/Qwen3-32B", "b200", 2, "fp4", "bf16", {"gemm": "nvfp4"}),
    ("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "h100-sxm", 2, "bf16", "bf16", {}),
    ("gpt-oss-120b", "openai/gpt-oss-120b", "h100-sxm", 2, "fp4", "bf16", {"experts": "w4a16_mxfp4"}),
    (
        "deepseek-v3",
        "deepseek-ai/DeepSeek-V3",
        "h200-sxm",
        8,
        "fp8",
        "bf16",
        {"gemm": "fp8_block", "experts": "fp8_block"},
    ),
]


@needs_database
@pytest.mark.parametrize(("ours", "theirs", "gpu", "degree", "precision", "kv", "modes"), CASES)
def test_tables_say_what_the_database_says(
    ours: str, theirs: str, gpu: str, degree: int, precision: Precision, kv: Precision, modes: dict[str, str]
) -> None:
    stages, direct = stages_of(ours, precision, kv), Direct(theirs, SYSTEMS[gpu], degree, **modes)
    kinds, layers = kinds_of((gpu, degree)), resolve_model(ours).layers
    assert stages.answers(kinds).tolist() == [True]
    prompts = seconds_of(stages.prefill(kinds, TRAFFIC), 0, layers)
    for at, (tokens, cached) in enumerate(((1000, 0), (2900, 2000))):
        assert prompts[at] == pytest.approx(direct.seconds("static_ctx", layers, 1, tokens, cached), rel=1e-6)
    steps = seconds_of(stages.decode(kinds, TRAFFIC, max_batch=MOST), 0, layers)
    for batch in (1, 8, 48, 64):
        for at, context in enumerate(CONTEXTS):
            expected = direct.seconds("static_gen", layers, batch, int(context))
            assert steps[at, batch] == pytest.approx(expected, rel=1e-6)


@needs_database
def test_between_the_batches_it_asks_for_attention_is_smooth() -> None:
    stages, direct = stages_of(precision="fp8"), Direct(CASES[0][1], "b200_sxm", 2, gemm="fp8")
    steps = seconds_of(stages.decode(kinds_of(("b200", 2)), TRAFFIC, max_batch=MOST), 0, 32)
    for batch in (5, 9, 33, 57):  # of which 5 and 33 follow a step of the matrix products
        assert steps[1, batch] == pytest.approx(direct.seconds("static_gen", 32, batch, 3000), rel=0.01)


@needs_database
def test_the_stages_of_a_pipeline_add_up() -> None:
    # Two stages of one kind are the whole model; two of different kinds share no projection: one is the first's.
    stages, kinds = stages_of(), kinds_of(("h100-sxm", 1), ("h200-sxm", 2))
    h100, h200 = Direct(CASES[0][1], "h100_sxm", 1), Direct(CASES[0][1], "h200_sxm", 2)
    prompt, step = stages.prefill(kinds, TRAFFIC), stages.decode(kinds, TRAFFIC, max_batch=MOST)
    same = 12 * step.per_layer[0] + 20 * step.per_layer[0] + step.head[0]
    assert same[1, 16] == pytest.approx(h100.seconds("static_gen", 32, 16, 3000), rel=1e-6)
    mixed = 12 * step.per_layer[0] + seconds_of(step, 1, 20)
    both = h100.seconds("static_gen", 12, 16, 3000) + h200.seconds("static_gen", 20, 16, 3000)
    assert mixed[1, 16] == pytest.approx(both - step.head[0, 16], rel=1e-6)
    mixed = 12 * prompt.per_layer[0] + seconds_of(prompt, 1, 20)
    both = h100.seconds("static_ctx", 12, 1, 1000) + h200.seconds("static_ctx", 20, 1, 1000)
    assert mixed[0] == pytest.approx(both - prompt.head[0], rel=5e-3)


@needs_database
def test_two_systems_and_two_models_do_not_repeat_numbers() -> None:
    kinds = kinds_of(("h100-sxm", 2), ("h200-sxm", 2), ("b200", 2), ("h100-sxm", 4))
    found = {
        round(float(stages_of(model).decode(kinds, TRAFFIC, max_batch=8).per_layer[kind, 0, 8]), 12)
        for model in ("llama-3.1-8b", "qwen3-32b")
        for kind in range(len(kinds))
    }
    assert len(found) == 8


@needs_database
@pytest.mark.parametrize(
    ("gpu", "degree", "model", "precision", "kv", "part"),
    [
        ("h100-pcie", 1, "llama-3.1-8b", "bf16", "bf16", "h100-pcie"),
        ("rtx-4090", 1, "llama-3.1-8b", "bf16", "bf16", "rtx-4090"),
        ("l40s", 2, "llama-3.1-8b", "bf16", "bf16", "all-reduces"),
        ("h100-sxm", 1, "llama-3.1-8b", "int4", "bf16", "int4"),
        ("h100-sxm", 1, "llama-3.1-8b", "fp4", "bf16", "MissingSystemFlopsError"),
        ("a100-sxm4-80gb", 1, "llama-3.1-8b", "fp8", "bf16", "MissingSystemFlopsError"),
        ("h100-sxm", 1, "llama-3.1-8b", "bf16", "int8", "KV cache of int8"),
        ("h100-sxm", 1, "gemma-2-9b", "bf16", "bf16", "sliding windows"),
        ("h100-sxm", 1, "opt-13b", "bf16", "bf16", "not gated"),
        ("h100-sxm", 8, "glm-4.5", "bf16", "bf16", "shared experts"),
    ],
)
def test_what_it_does_not_know_stays_the_roofline(
    gpu: str, degree: int, model: str, precision: Precision, kv: Precision, part: str
) -> None:
    stages, kinds = stages_of(model, precision, kv), kinds_of((gpu, degree))
    assert part in str(operator_times(resolve_gpu(gpu), resolve_model(model), precision, kv, degree))
    assert stages.answers(kinds).tolist() == [False]
    assert are_the_same(stages.prefill(kinds, TRAFFIC), stages.base.prefill(kinds, TRAFFIC))
    asked, base = (one.decode(kinds, TRAFFIC, max_batch=8) for one in (stages, stages.base))
    assert are_the_same(asked, base)


@needs_database
def test_known_kinds_leave_their_neighbours_alone() -> None:
    stages, kinds = stages_of(), kinds_of(("h100-sxm", 1), ("l4", 1))
    asked, base = stages.prefill(kinds, TRAFFIC), stages.base.prefill(kinds, TRAFFIC)
    assert stages.answers(kinds).tolist() == [True, False]
    assert np.array_equal(asked.per_layer[1], base.per_layer[1])
    assert not np.array_equal(asked.per_layer[0], base.per_layer[0])


@needs_database
def test_slower_links_and_other_engines_are_not_known() -> None:
    assert "not over 25 GB/s" in str(link_error(resolve_gpu("h100-sxm"), 2, 25.0))
    assert stages_of().answers(kinds_of(("h100-sxm", 2), intra_gb_per_s=25.0)).tolist() == [False]
    asked = served("llama-3.1-8b")
    sglang = operators_over(Roofline(engine_name="sglang"), asked)
    assert sglang.answers(kinds_of(("h100-sxm", 2))).tolist() == [False]


@needs_database
def test_a_rate_composed_of_it_is_finite_and_positive() -> None:
    model = served("llama-3.1-70b", (2000, 300), (500, 1), precision="fp8")
    layouts = pipelines_of((("h100-sxm", 4),), (("h100-sxm", 2), ("l40s", 4)))
    prepared = prepare(model, layouts, operators_over(Roofline(), model), max_sequences=64)
    pairs = Pairs(np.repeat(np.arange(2), 2), np.tile(np.arange(2), 2))
    rates = compose(prepared.pipes, pairs, np.full(4, 16.0)).rate_rps
    assert np.isfinite(rates).all()
    assert (rates > 0).all()


@needs_database
def test_it_is_quiet_and_needs_no_network() -> None:
    # A model that the package does not bundle, on a system whose data it warns about, without sockets.
    code = (
        "import socket; socket.socket.connect = socket.getaddrinfo = None\n"
        "from tests.solver.throughput.test_aiconfigurator import *\n"
        "for gpu in ('h200-sxm', 'a100-sxm4-80gb', 'l40s'):\n"
        "    assert stages_of('qwen2.5-7b').answers(kinds_of((gpu, 1))).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_odd_model_never_raises() -> None:
    spec = a_dense_spec(heads=7, kv_heads=7)
    assert isinstance(operator_times(resolve_gpu("h100-sxm"), spec, "bf16", "bf16", 2), str)


def test_without_the_package_everything_is_the_roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    stages, kinds = stages_of(), kinds_of(("h100-sxm", 1), ("h200-sxm", 4))
    assert "pip install 'sutler[aiconfigurator]'" in str(missing())
    assert not stages.answers(kinds).any()
    assert are_the_same(stages.prefill(kinds, TRAFFIC), stages.base.prefill(kinds, TRAFFIC))
    asked, base = (one.decode(kinds, TRAFFIC, max_batch=8) for one in (stages, stages.base))
    assert are_the_same(asked, base)
    assert (stages.work, stages.precision, stages.engine) == (stages.base.work, "bf16", stages.base.engine)
