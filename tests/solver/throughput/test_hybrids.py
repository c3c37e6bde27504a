"""Linear and sparse attention: bytes per token and per sequence that are known, and what they cost, by hand."""

import numpy as np
import pytest

from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.catalog.entries import LinearAttention, Precision, SparseAttention
from sutler.solver.throughput.architecture import LayerWork, layer_work
from sutler.solver.throughput.memory import sequences_in_memory, stage_memory
from sutler.solver.throughput.stage_times import decode_layer_s, prefill_layer_s, stage_work
from sutler.solver.throughput.stages import StageKinds, kind_errors
from tests.builders import a_gpu
from tests.solver.throughput.builders import a_dense_spec
from tests.solver.throughput.test_stages import of, speeds

ONE = np.array([1])
# One of 4 layers has full attention; the others a state of 8 x 16 x 32 values and 3 inputs of their channels.
DELTA_NET = LinearAttention(
    full_layers=1, key_heads=4, value_heads=8, key_head_dim=16, value_head_dim=32, conv_kernel_tokens=4
)
STATE_BYTES = 2 * (8 * 16 * 32 + 3 * (2 * 4 * 16 + 8 * 32))


def cache_bytes(work: LayerWork, tokens: float) -> float:
    """Of one sequence on one GPU, all layers."""
    per_layer = float(work.kv_bytes_per_token(ONE)[0]) * float(work.held_context(of(tokens))[0])
    return work.layers * (per_layer + work.state_bytes)


@pytest.mark.parametrize(
    ("model", "kv", "bytes_per_token"),
    [
        ("qwen3-next-80b-a3b", "bf16", 12 * 2 * 2 * 256 * 2),  # 24 KiB: 12 of 48 layers
        ("qwen3.5-122b-a10b", "bf16", 24_576),
        ("qwen3.5-9b", "bf16", 32_768),
        ("deepseek-v3", "bf16", 70_272),  # 61 x 576 x 2
        ("deepseek-v3.2", "bf16", 70_272 + 61 * 132),  # the index key in FP8 with its scale
        ("glm-5", "fp8", 78 * (576 + 132)),
        ("kimi-k2", "bf16", 70_272),
    ],
)
def test_a_further_token_takes_the_bytes_that_are_known(model: str, kv: Precision, bytes_per_token: int) -> None:
    work = layer_work(resolve_model(model), "fp8", kv)
    assert cache_bytes(work, 100_001) - cache_bytes(work, 100_000) == pytest.approx(bytes_per_token)


def test_the_state_of_qwen3_5_9b_takes_50_megabytes_however_short_the_sequence() -> None:
    # 24 layers x 32 heads x 128 x 128 x 4 bytes, and 3 inputs of 8,192 channels x 2 bytes
    work = layer_work(resolve_model("qwen3.5-9b"), "bf16", "bf16")
    assert cache_bytes(work, 0) == pytest.approx(24 * 32 * 128 * 128 * 4 + 24 * 3 * 8192 * 2)


def test_windows_and_full_layers_of_gpt_oss_hold_what_they_see() -> None:
    # 18 layers keep every token and 18 at most 128, each 2 x 8 x 64 values
    work = layer_work(resolve_model("gpt-oss-120b"), "fp4", "bf16")
    assert cache_bytes(work, 10_000) == pytest.approx(18 * (10_000 + 128) * 2 * 8 * 64 * 2)


def test_a_state_takes_memory_beside_the_tokens() -> None:
    spec = a_dense_spec(linear_attention=DELTA_NET)
    work = layer_work(spec, "bf16", "bf16")
    gpus = (a_gpu("a", memory_gb=1.0),)
    kinds = StageKinds(gpus, np.array([0, 0]), np.array([1, 2]), np.array([0.0, 100.0]), np.ones(2, dtype=np.int64))
    memory = stage_memory(work, kinds)
    held = np.array([100.0, 1000.0])
    found = sequences_in_memory(
        memory, np.array([[0], [1]]), np.array([[4], [4]]), np.array([1, 1]), work.held_context(held)
    )
    for kind, degree in ((0, 1), (1, 2)):
        left = memory.free[kind] - memory.vocabulary[kind] - memory.vocabulary[kind] - 4 * memory.layer[kind]
        # one of four layers holds tokens of 2 heads x 2 x 128 x 2 bytes; three hold a state; both are divided
        each = (1024 * held + 3 * STATE_BYTES) / degree
        assert found[kind] == pytest.approx(left / each)


def test_states_are_read_and_written_once_per_sequence_and_step() -> None:
    spec = a_dense_spec(linear_attention=DELTA_NET)
    work = layer_work(spec, "bf16", "bf16")
    each = [decode_layer_s(stage_work(work, ONE), speeds(kv_bandwidth=1e9), of(n), of(0.0))[0] for n in (1.0, 5.0)]
    assert each[1] - each[0] == pytest.approx(4 * 2 * 0.75 * STATE_BYTES / 1e9)


def test_a_prompt_passes_linear_layers_in_proportion_to_its_length() -> None:
    spec = a_dense_spec(linear_attention=LinearAttention(0, 4, 8, 16, 32, 4))
    work = stage_work(layer_work(spec, "bf16", "bf16"), ONE)
    pairs = layer_work(spec, "bf16", "bf16").attended_pairs(of(1000.0), of(1000.0))
    took = prefill_layer_s(work, speeds(attention_flops=1e9), of(1000.0), pairs)[0]
    assert took == pytest.approx(1000 * 7 * 8 * 16 * 32 / 1e9)


def test_sparse_attention_reads_what_it_picks_and_the_whole_index() -> None:
    spec = a_dense_spec(sparse_attention=SparseAttention(top_tokens=100, index_heads=2, index_head_dim=60))
    work = layer_work(spec, "bf16", "bf16")
    # A token takes 2 x 2 x 128 x 2 = 1,024 bytes and 60 + 4 in the index.
    assert work.held_context(of(1000.0))[0] == pytest.approx(1000 * (1 + 64 / 1024))
    assert work.seen_context(of(1000.0))[0] == pytest.approx(100 + 1000 * 64 / 1024)
    assert work.seen_context(of(50.0))[0] == pytest.approx(50 + 50 * 64 / 1024)
    # A pair takes 4 x 8 x 128 = 4,096 operations, one with the index 2 x 2 x 60.
    full = 1000 * 500
    assert work.attended_pairs(of(1000.0), of(1000.0))[0] == pytest.approx(1000 * 100 + full * 240 / 4096)


def test_heads_of_linear_attention_are_divided_evenly_or_not_at_all() -> None:
    spec = a_dense_spec(linear_attention=DELTA_NET)
    kinds = StageKinds(
        (resolve_gpu("h100-sxm"),),
        np.array([0, 0]),
        np.array([4, 8]),
        np.array([100.0, 100.0]),
        np.ones(2, dtype=np.int64),
    )
    fine, refused = kind_errors(kinds, spec, "bf16")
    assert fine is None
    assert refused is not None
    assert "4 heads of linear attention" in refused
