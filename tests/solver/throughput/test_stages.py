"""Bytes, operations and seconds of single layers, against sums done by hand."""

import numpy as np
import pytest

from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog import load_gpus, load_models, resolve_gpu, resolve_model
from sutler.solver.catalog.entries import Gpu, LatentAttention, MixtureOfExperts, SlidingWindow
from sutler.solver.throughput.architecture import layer_work
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.throughput.stage_times import StageSpeeds, decode_layer_s, gemm_s, prefill_layer_s, stage_work
from tests.solver.throughput.builders import a_dense_spec


def speeds(**changes: float) -> StageSpeeds:
    """A machine that does everything at once, but for what a test slows down."""
    free = {
        "flops": 1e30,
        "expert_flops": 1e30,
        "attention_flops": 1e30,
        "bandwidth": 1e30,
        "expert_bandwidth": 1e30,
        "kv_bandwidth": 1e30,
        "allreduce_bandwidth": 1e30,
        "allreduce_latency_s": 0.0,
        "layer_overhead_s": 0.0,
        "step_overhead_s": 0.0,
        "sequence_overhead_s": 0.0,
        "ridge_exponent": 4.0,
    }
    return StageSpeeds(**{name: np.array([value]) for name, value in {**free, **changes}.items()})


def of(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value])


def test_a_token_of_llama_3_70b_keeps_320_kib_of_cache() -> None:
    # 80 layers x 2 (key, value) x 8 heads x 128 x 2 bytes = 327,680
    work = layer_work(resolve_model("llama-3-70b"), "fp8", "bf16")
    assert 80 * work.kv_bytes_per_token(np.array([1]))[0] == 327_680
    assert 80 * work.kv_bytes_per_token(np.array([8]))[0] == 327_680 / 8


def test_key_value_heads_are_repeated_once_tensor_parallelism_exceeds_them() -> None:
    work = layer_work(a_dense_spec(kv_heads=2), "bf16", "bf16")
    one, two, eight = work.kv_bytes_per_token(np.array([1, 2, 8]))
    assert two == one / 2
    assert eight == two


def test_a_compressed_cache_is_not_divided_by_tensor_parallelism() -> None:
    # DeepSeek-V3: 512 + 64 values of two bytes per token and layer on every GPU.
    work = layer_work(resolve_model("deepseek-v3"), "fp8", "bf16")
    assert list(work.kv_bytes_per_token(np.array([1, 8]))) == [1152, 1152]


def test_an_fp8_cache_takes_half_the_bytes() -> None:
    spec = resolve_model("llama-3-70b")
    halves = [layer_work(spec, "fp8", kv).kv_bytes_per_token(np.array([1]))[0] for kv in ("fp8", "bf16")]
    assert halves[0] * 2 == halves[1]


def test_layers_and_embeddings_add_up_to_all_parameters() -> None:
    for spec in load_models().values():
        work = layer_work(spec, "bf16", "bf16")
        embeddings = work.head_params * (1 if spec.tied_embeddings else 2)
        total = work.layers * (work.dense_params + work.expert_params) + embeddings
        assert total == pytest.approx(spec.total_params, rel=0.02), spec.id


def test_windowed_layers_see_no_more_than_their_window() -> None:
    spec = a_dense_spec(layers=4, sliding_window=SlidingWindow(window_tokens=100, global_layers=1))
    work = layer_work(spec, "bf16", "bf16")
    # One layer sees 1,000 tokens and three see 100.
    assert work.seen_context(of(1000.0))[0] == pytest.approx((1000 + 3 * 100) / 4)
    assert work.seen_context(of(50.0))[0] == 50


def test_a_cached_prefix_is_attended_to_but_not_computed() -> None:
    work = layer_work(a_dense_spec(), "bf16", "bf16")
    # The last 2 of 4 tokens see 3 and 4 tokens; the integral over positions gives 2 x (4 - 1) = 6.
    assert work.attended_pairs(of(2.0), of(4.0))[0] == 6
    assert work.attended_pairs(of(4.0), of(4.0))[0] == 8


def test_a_small_decode_step_takes_as_long_as_reading_the_weights() -> None:
    spec = a_dense_spec(total_params=4 * 10e6 + 2 * 1024e3)
    work = stage_work(layer_work(spec, "bf16", "bf16"), np.array([2]))
    # 10 M parameters a layer x 2 bytes / 2 GPUs = 10 MB at 1 GB/s.
    assert gemm_s(work, speeds(bandwidth=1e9), of(1.0))[0] == pytest.approx(0.010)


def test_a_long_prefill_takes_as_long_as_its_operations() -> None:
    spec = a_dense_spec(total_params=4 * 10e6 + 2 * 1024e3)
    work = stage_work(layer_work(spec, "bf16", "bf16"), np.array([1]))
    # 2 operations x 10 M parameters x 1,000 tokens = 20 GFLOP at 1 TFLOPS.
    assert prefill_layer_s(work, speeds(flops=1e12), of(1000.0), of(0.0))[0] == pytest.approx(0.020)


def test_one_token_reads_its_experts_and_many_tokens_read_them_all() -> None:
    moe = MixtureOfExperts(experts=8, experts_per_token=2, expert_intermediate_size=1024)
    experts_per_layer = 8 * 3 * 1024 * 1024
    total = 4 * (experts_per_layer + 5e6) + 2 * 1024e3
    work = stage_work(layer_work(a_dense_spec(moe=moe, total_params=total), "bf16", "bf16"), np.array([1]))
    slow = speeds(bandwidth=1e9, expert_bandwidth=1e9)
    dense_s = 2 * 5e6 / 1e9
    all_experts_s = 2 * experts_per_layer / 1e9
    assert gemm_s(work, slow, of(1.0))[0] == pytest.approx(dense_s + all_experts_s * 2 / 8)
    assert gemm_s(work, slow, of(2.0))[0] == pytest.approx(dense_s + all_experts_s * (1 - 0.75**2))
    assert gemm_s(work, slow, of(1000.0))[0] == pytest.approx(dense_s + all_experts_s)


def test_an_all_reduce_moves_the_ring_share_of_two_messages_per_layer() -> None:
    work = stage_work(layer_work(a_dense_spec(), "bf16", "bf16"), np.array([4]))
    # 100 tokens x 1,024 values x 2 bytes, twice, times 2 x 3/4, at 1 GB/s.
    expected = 2 * 1.5 * 100 * 1024 * 2 / 1e9
    assert prefill_layer_s(work, speeds(allreduce_bandwidth=1e9), of(100.0), of(0.0))[0] == pytest.approx(expected)


def test_a_single_gpu_does_not_all_reduce() -> None:
    work = stage_work(layer_work(a_dense_spec(), "bf16", "bf16"), np.array([1]))
    slow = speeds(allreduce_bandwidth=1.0, allreduce_latency_s=1.0)
    assert prefill_layer_s(work, slow, of(100.0), of(0.0))[0] < 1e-9


def test_decoding_reads_the_cache_of_every_sequence() -> None:
    work = stage_work(layer_work(a_dense_spec(kv_heads=2), "bf16", "bf16"), np.array([1]))
    # 10 sequences x 500 tokens x 2 x 2 heads x 128 x 2 bytes at 1 GB/s.
    expected = 10 * 500 * 1024 / 1e9
    assert decode_layer_s(work, speeds(kv_bandwidth=1e9), of(10.0), of(500.0))[0] == pytest.approx(expected)


def test_latent_attention_decodes_in_the_compressed_space() -> None:
    latent = LatentAttention(
        kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
    )
    work = layer_work(a_dense_spec(mla=latent), "bf16", "bf16")
    assert work.decode_attention_flops == 2 * 8 * (2 * 512 + 64)
    assert work.attention_flops == 2 * 8 * (128 + 64 + 128)


def test_gpus_compute_at_the_precisions_their_tensor_cores_have() -> None:
    hopper, ampere, turing = (resolve_gpu(name) for name in ("h100-sxm", "a100-sxm4-80gb", "t4"))
    assert arithmetic(hopper, "fp8").tflops == hopper.peak_tflops_fp8_dense
    assert arithmetic(hopper, "int4").tflops == hopper.peak_tflops_bf16_dense
    assert "weight-only" in arithmetic(ampere, "fp8").note
    assert arithmetic(ampere, "fp8").tflops == ampere.peak_tflops_bf16_dense
    assert "use precision fp16" in str(arithmetic(turing, "bf16").error)
    assert arithmetic(turing, "fp16").error is None
    assert "use int4 or fp16" in str(arithmetic(turing, "fp8").error)


def test_a_gpu_without_figures_names_what_is_missing() -> None:
    error = arithmetic(Gpu("t1", memory_gb=80), "bf16").error
    assert error is not None
    assert "memory_bandwidth_gb_per_s" in error
    assert "peak_tflops_bf16_dense" in error


def test_every_gpu_of_the_catalogue_has_a_class_of_its_own_architecture() -> None:
    calibration = shipped_calibration()
    for gpu in load_gpus().values():
        assert calibration.gpu_class(gpu).architecture == str(gpu.architecture).lower(), gpu.slug


def test_the_classes_name_gpus_that_exist() -> None:
    named = {slug for one in shipped_calibration().gpu_classes for slug in one.slugs}
    assert named <= set(load_gpus())


def test_an_unknown_architecture_is_stated_within_a_factor_of_two() -> None:
    odd = Gpu("x", memory_gb=80, architecture="Tensor9000", memory_bandwidth_gb_per_s=1000)
    assert shipped_calibration().gpu_class(odd).band == 2


def test_fitted_classes_state_a_narrower_band_than_assumed_ones() -> None:
    calibration = shipped_calibration()
    bands = [calibration.gpu_class(resolve_gpu(name)).band for name in ("h100-sxm", "a100-sxm4-80gb", "l4")]
    assert bands == sorted(bands)
    assert len(set(bands)) == 3
