"""What is timed, counted without torch."""

import ast
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.errors import InvalidProblemError
from sutler.solver.profiling.counts import MOST_COPIES, all_reduce_bytes, copies, layer_bytes, layer_flops
from sutler.solver.profiling.shapes import LayerShard, full_grid, measurements, quick_grid, shard_of
from sutler.solver.throughput.architecture import layer_work
from sutler.solver.throughput.stage_times import stage_work
from tests.solver.profiling.builders import a_decode, a_point

ROOT = Path(__file__).parents[3]
NORMS_AND_ROUNDING = 2e-4  # the architecture's parameters include norms and biases


def shard(model: str, degree: int) -> LayerShard:
    found = shard_of(resolve_model(model), degree)
    assert isinstance(found, LayerShard)
    return found


def test_only_one_file_of_the_solver_imports_torch() -> None:
    importing = [
        path.name
        for path in (ROOT / "solver").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "torch" for alias in node.names)
    ]
    assert importing == ["device.py"]


def test_every_point_comes_once_and_those_that_share_weights_are_neighbours() -> None:
    specs = [resolve_model("llama-3-8b"), resolve_model("llama-3-70b")]
    points = measurements(specs, (1, 2, 2), ("bf16", "fp8"), full_grid())
    assert len(set(points)) == len(points)
    weights = [(p.model, p.precision, p.tensor_parallel) for p in points if p.phase != "all_reduce"]
    changes = sum(before != after for before, after in pairwise(weights))
    assert changes + 1 == len(set(weights)) == 8


def test_each_prefill_and_decode_batch_is_also_timed_without_attention() -> None:
    points = measurements([resolve_model("llama-3-8b")], (1,), ("bf16",), full_grid())
    for phase in ("prefill", "decode"):
        sizes = {
            attends: {(p.new_tokens, p.batch) for p in points if p.phase == phase and p.with_attention == attends}
            for attends in (True, False)
        }
        assert sizes[True] == sizes[False] != set()
    assert all((p.context_tokens > 0) == p.with_attention for p in points)


def test_one_gpu_has_nobody_to_reduce_with_and_fp8_reduces_as_bf16_does() -> None:
    points = measurements([resolve_model("llama-3-8b")], (1, 2), ("bf16", "fp8"), quick_grid())
    sums = [p for p in points if p.phase == "all_reduce"]
    assert {(p.tensor_parallel, p.precision) for p in sums} == {(2, "bf16")}
    assert len(sums) == len(quick_grid().all_reduce_tokens)


def test_no_point_is_longer_than_the_model_allows() -> None:
    points = measurements([resolve_model("llama-2-7b")], (1,), ("fp16",), full_grid())
    assert max(p.context_tokens for p in points) == 4096
    assert {p.kv_precision for p in points} == {"fp16"}


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("mixtral-8x7b", "experts"),
        ("deepseek-v3", "latent attention"),
        ("mistral-7b-v0.1", "sliding windows"),
        ("opt-13b", "without a gate"),
    ],
)
def test_other_kinds_of_layers_are_refused_by_name_with_a_remedy(model: str, what: str) -> None:
    with pytest.raises(InvalidProblemError, match=rf"'{model}': .*{what}.* profile a dense model"):
        measurements([resolve_model(model)], (1,), ("bf16",), quick_grid())


def test_key_value_heads_are_repeated_once_there_are_more_gpus() -> None:
    assert [shard("llama-3-8b", degree).kv_heads for degree in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(("model", "degree", "why"), [("qwen2.5-7b", 8, "query heads, 28"), ("phi-4", 4, "10 key")])
def test_what_cannot_be_divided_says_why(model: str, degree: int, why: str) -> None:
    reason = shard_of(resolve_model(model), degree)
    assert isinstance(reason, str)
    assert why in reason


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3-70b", "qwen3-32b"])
@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_operations_and_bytes_are_those_of_the_architecture(model: str, degree: int) -> None:
    spec = resolve_model(model)
    layer = layer_work(spec, "bf16", "bf16")
    work = stage_work(layer, np.array([degree]))
    own = shard(model, degree)
    near = pytest.approx
    plain = a_point(new_tokens=512, context_tokens=0, with_attention=False)
    assert layer_flops(plain, own) == near(512 * work.dense_flops[0], rel=NORMS_AND_ROUNDING)
    pairs = layer.attended_pairs(np.array(512.0), np.array(512.0))
    attended = layer_flops(a_point(new_tokens=512, context_tokens=512), own) - layer_flops(plain, own)
    assert attended == near(pairs * work.attention_flops[0])
    step = a_decode(batch=8, context=1000)
    expected_bytes = work.dense_bytes[0] + 8000 * work.kv_bytes[0]
    assert layer_bytes(step, own) == near(expected_bytes, rel=NORMS_AND_ROUNDING)
    expected_flops = 8 * work.dense_flops[0] + 8000 * work.decode_attention_flops[0]
    assert layer_flops(step, own) == near(expected_flops, rel=NORMS_AND_ROUNDING)


def test_fp8_weights_halve_the_bytes_but_not_the_operations() -> None:
    own = shard("llama-3-8b", 1)
    points = [a_point(precision=p, context_tokens=0, with_attention=False) for p in ("bf16", "fp8")]
    assert layer_bytes(points[0], own) == 2 * layer_bytes(points[1], own)
    assert layer_flops(points[0], own) == layer_flops(points[1], own)


def test_an_all_reduce_moves_16_bit_hidden_states() -> None:
    assert all_reduce_bytes(a_point(phase="all_reduce", new_tokens=8), 4096) == 8 * 4096 * 2


def test_weights_take_turns_until_the_cache_has_seen_three_times_its_size() -> None:
    assert copies(50e6, 50e6) == 3
    assert copies(400e6, 50e6) == 1
    assert copies(1.0, 50e6) == MOST_COPIES
    assert copies(1e6, 0.0) == 1


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_names_that_drivers_give_are_in_the_catalogue(name: str, slug: str) -> None:
    assert resolve_gpu(name).slug == slug
