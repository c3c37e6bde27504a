"""Rates, batches and layer splits of whole replicas: worked cases and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.catalog import load_gpus
from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import InvalidProblemError
from sutler.solver.problem import LatencyLimit, ServedModel
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.stages import stage_kinds, traffic_of
from tests.solver.throughput.builders import (
    ETHERNET_GB_PER_S,
    a_dense_spec,
    detail_of,
    pipelines_of,
    rates_of,
    served,
)

MIXED = [("h100-sxm", 4), ("a100-sxm4-80gb", 4)]
SLUGS = ["h100-sxm", "a100-sxm4-80gb", "l40", "a40", "rtx-4090"]


def test_the_batch_is_what_memory_leaves_for_full_length_sequences() -> None:
    gpu = Gpu("x", memory_gb=10, architecture="Hopper", memory_bandwidth_gb_per_s=1000, peak_tflops_bf16_dense=100)
    spec = a_dense_spec(total_params=4 * 1.0625e9 + 2 * 1024e3)
    rates = rates_of(served(spec, (9000, 1000)), pipelines_of([("x", 1)], extra_gpus=[gpu]))
    # Usable: 0.9 x 10 GB - 0.5 GB runtime - 2,048 tokens x 2 bytes x (4 x 1024 + 3 x 4096 + 2 x 1024) = 8.4245 GB,
    # less 2 x 2.048 MB of vocabulary and less weights of 8.5 GB: nothing is left.
    assert rates.batch[0, 0] == 0
    assert not rates.fits[0]
    lighter = a_dense_spec(total_params=4 * 0.9625e9 + 2 * 1024e3)
    rates = rates_of(served(lighter, (9000, 1000)), pipelines_of([("x", 1)], extra_gpus=[gpu]))
    # 8.4245 - 0.0041 - 7.7 = 0.7204 GB; a sequence takes 4 layers x 1,024 bytes x 10,000 tokens = 40.96 MB.
    assert rates.batch[0, 0] == 17
    assert rates.fits[0]


def test_the_batch_never_exceeds_what_engines_run_at_once() -> None:
    rates = rates_of(served("llama-3.1-8b", (100, 10)), pipelines_of([("h200-sxm", 8)]))
    assert rates.batch[0, 0] == 256


def test_weights_that_do_not_fit_leave_no_rate_and_a_reason() -> None:
    model, layouts = served("llama-3-70b"), pipelines_of([("rtx-4090", 1)])
    assert rates_of(model, layouts).rps[0, 0] == 0
    assert "do not fit" in detail_of(model, layouts)


@pytest.mark.parametrize(
    ("pipeline", "model", "reason"),
    [
        ([("t4", 1)], served("qwen3-4b", precision="bf16"), "use precision fp16"),
        ([("h100-sxm", 3)], served("llama-3.1-8b"), "does not divide the 32 attention heads"),
        ([("h100-sxm", 8)], served("qwen2.5-7b"), "does not divide the 28 attention heads"),
        ([("h100-sxm", 1)], served("llama-2-7b", (4000, 200)), "exceed the context of llama-2-7b, 4096"),
        ([("h100-sxm", 1)] * 5, served(a_dense_spec(layers=4)), "do not fit on the stages"),
    ],
)
def test_what_cannot_run_says_why(pipeline: list[tuple[str, int]], model: ServedModel, reason: str) -> None:
    layouts = pipelines_of(pipeline)
    assert rates_of(model, layouts).rps[0, 0] == 0
    assert reason in detail_of(model, layouts)


def test_a_gpu_known_by_memory_alone_has_no_estimate() -> None:
    bare = Gpu("t1", memory_gb=80)
    model, layouts = served("llama-3.1-8b"), pipelines_of([("t1", 1)], extra_gpus=[bare])
    rates = rates_of(model, layouts)
    assert rates.rps[0, 0] == 0
    assert not rates.fits[0]
    assert "give the figure under `gpus`, or a measured rate" in detail_of(model, layouts)


def test_tensor_parallelism_needs_a_bandwidth_between_its_gpus() -> None:
    model, layouts = served("llama-3.1-8b"), pipelines_of([("h100-sxm", 2)], intra_gb_per_s=0.0)
    assert rates_of(model, layouts).rps[0, 0] == 0
    assert "give intra_machine_gb_per_s" in detail_of(model, layouts)


@pytest.mark.parametrize("hop", [0.0, float("nan")])
def test_stages_need_a_bandwidth_between_them(hop: float) -> None:
    model, layouts = served("llama-3-70b"), pipelines_of(MIXED)
    cut = replace(layouts, hop_gb_per_s=np.array([[hop, np.inf]]))
    rates = rates_of(model, cut)
    assert rates.rps[0, 0] == rates.batch[0, 0] == 0
    assert "give inter_machine_gb_per_s" in detail_of(model, cut)


def test_a_model_without_an_architecture_is_refused() -> None:
    model = replace(served("llama-3.1-8b"), spec=None)
    with pytest.raises(InvalidProblemError, match="measured rates"):
        rates_of(model, pipelines_of([("h100-sxm", 1)]))


def test_the_evidence_names_basis_bottleneck_and_band() -> None:
    detail = detail_of(served("llama-3-70b", precision="fp8"), pipelines_of(MIXED))
    assert "bottleneck" in detail
    assert "of 2" in detail
    assert "layer profiles of A100" in detail
    assert "error within a factor 1.50" in detail
    assert "weight-only" in detail


def test_equal_stages_get_equal_layers() -> None:
    rates = rates_of(served("llama-3-70b", (2455, 18)), pipelines_of([("h100-sxm", 2)] * 4))
    assert rates.layers.sum() == 80
    assert max(rates.layers[0]) - min(rates.layers[0]) <= 1


def test_a_faster_stage_gets_more_layers_than_its_memory_share() -> None:
    model = served("llama-3-70b", (2455, 18))
    balanced = rates_of(model, pipelines_of(MIXED, cross_machine=True))
    by_memory = rates_of(model, pipelines_of(MIXED, cross_machine=True, layers=[[40, 40]]))
    assert balanced.layers[0, 0] > 50
    # The stages have the same memory, so the memory split leaves the A100s with half of the work.
    assert balanced.rps[0, 0] > 1.5 * by_memory.rps[0, 0]


@pytest.mark.parametrize("request_tokens", [(2455, 18), (496, 510), (1024, 256)])
@pytest.mark.parametrize("pipeline", [MIXED, [("a100-sxm4-80gb", 4), ("h100-sxm", 2)], [("l40", 8), ("h100-sxm", 4)]])
def test_no_other_split_is_much_faster(pipeline: list[tuple[str, int]], request_tokens: tuple[int, int]) -> None:
    model = served("llama-3-70b", request_tokens)
    chosen = rates_of(model, pipelines_of(pipeline)).rps[0, 0]
    splits = [[first, 80 - first] for first in range(1, 80)]
    every = rates_of(model, pipelines_of(*[pipeline] * len(splits), layers=splits))
    assert chosen >= 0.97 * every.rps.max()


def test_a_split_that_was_given_is_used() -> None:
    rates = rates_of(served("llama-3-70b"), pipelines_of(MIXED, layers=[[50, 30]]))
    assert rates.layers.tolist() == [[50, 30]]


def test_a_split_of_another_number_of_layers_serves_nothing() -> None:
    rates = rates_of(served("llama-3-70b"), pipelines_of(MIXED, layers=[[50, 20]]))
    assert rates.rps[0, 0] == 0


def test_a_full_stage_passes_its_layers_on() -> None:
    # By speed the H100 would take most layers; at 16 bits it has room for 36 of them with hardly any cache.
    rates = rates_of(served("llama-3-70b", (1024, 64)), pipelines_of([("h100-sxm", 1), ("a100-sxm4-80gb", 4)]))
    assert rates.layers[0].sum() == 80
    assert rates.layers[0, 0] < 40
    assert rates.rps[0, 0] > 0


def test_the_answer_does_not_depend_on_company_or_order() -> None:
    model = served("llama-3-70b", (2455, 18), (496, 510), slo=[LatencyLimit("ttft", 90, 3.0)])
    pipelines = [MIXED, [("h100-sxm", 8)], [("l40", 4)] * 3, [("a100-sxm4-80gb", 4)], [("rtx-4090", 8)] * 2]
    together = rates_of(model, pipelines_of(*pipelines))
    for row, pipeline in enumerate(pipelines):
        alone = rates_of(model, pipelines_of(pipeline))
        assert alone.rps[0] == pytest.approx(together.rps[row], rel=1e-12)
        assert alone.batch[0].tolist() == together.batch[row].tolist()
        stages = len(pipeline)
        assert alone.layers[0].tolist() == together.layers[row, :stages].tolist()
        assert not together.layers[row, stages:].any()


def test_layouts_beyond_one_block_get_the_same_answers() -> None:
    model = served("llama-3.1-8b", (1024, 256))
    many = rates_of(model, pipelines_of(*[[("h100-sxm", 1)], [("l40", 2)]] * 20_000))
    assert np.unique(many.rps[0::2]).size == np.unique(many.rps[1::2]).size == 1
    assert np.unique(many.rps).size == 2


def test_no_layouts_give_no_rates() -> None:
    layouts = pipelines_of([("h100-sxm", 1)])
    none = Layouts(
        gpus=layouts.gpus,
        gpu=layouts.gpu[:0],
        tensor_parallel=layouts.tensor_parallel[:0],
        intra_gb_per_s=layouts.intra_gb_per_s[:0],
        hop_gb_per_s=layouts.hop_gb_per_s[:0],
        cross_machine=layouts.cross_machine[:0],
    )
    assert rates_of(served("llama-3.1-8b"), none).rps.shape == (0, 1)


def test_every_gpu_of_the_catalogue_with_room_serves_a_small_model() -> None:
    gpus = load_gpus()
    rates = rates_of(served("qwen3-0.6b", precision="fp16"), pipelines_of(*[[(slug, 1)] for slug in gpus]))
    assert (rates.rps > 0).all()
    assert (rates.low_rps < rates.rps).all()
    assert (rates.rps < rates.high_rps).all()


def test_every_model_of_the_catalogue_runs_on_enough_gpus() -> None:
    layouts = pipelines_of([("b300", 8)], [("b300", 4)], [("b300", 1)])
    for name in ("deepseek-v3", "kimi-k2", "gpt-oss-120b", "gemma-3-27b", "mixtral-8x22b", "qwen3-235b-a22b"):
        assert rates_of(served(name, precision="fp8"), layouts).rps[:, 0].max() > 0, name


def test_experts_widen_the_band() -> None:
    layouts = pipelines_of([("h100-sxm", 8)])
    dense, experts = (rates_of(served(name, precision="fp8"), layouts) for name in ("llama-3-70b", "mixtral-8x22b"))
    assert dense.high_rps[0, 0] / dense.rps[0, 0] < experts.high_rps[0, 0] / experts.rps[0, 0]


def test_a_slow_link_between_machines_limits_long_prompts() -> None:
    model = served("llama-3.1-8b", (8000, 2))
    layouts = pipelines_of([("h100-sxm", 8)] * 2, cross_machine=True)
    rates = rates_of(model, layouts)
    # 8,001 tokens x 4,096 values x 2 bytes over 0.625 GB/s.
    assert rates.rps[0, 0] == pytest.approx(ETHERNET_GB_PER_S * 1e9 / (8001 * 4096 * 2), rel=1e-6)


def test_a_single_token_answer_costs_only_its_prefill() -> None:
    """Two prompts of half the length share a step, and save one that reads the weights."""
    model, layouts = served("llama-3.1-8b", (2048, 1), (1024, 1)), pipelines_of([("h100-sxm", 1)])
    kinds, _ = stage_kinds(layouts)
    prefill = Roofline().stages(model).prefill(kinds, traffic_of(model))
    alone = 1 / (32 * prefill.per_layer[0] + prefill.head[0])
    rates = rates_of(model, layouts)
    assert rates.rps[0, 0] == pytest.approx(alone[0], rel=0.01)
    assert alone[1] < rates.rps[0, 1] < 2.1 * alone[0]


def test_cached_prefixes_never_cost_throughput() -> None:
    layouts = pipelines_of([("h100-sxm", 2)], MIXED)
    rps = [
        rates_of(served("llama-3-70b", (4096, 128), precision="fp8", prefix_cache_hit_fraction=hit), layouts).rps
        for hit in (0.0, 0.5, 0.9)
    ]
    assert (rps[0] < rps[1]).all()
    assert (rps[1] < rps[2]).all()


def test_a_workloads_own_cache_counts_in_place_of_its_models() -> None:
    layouts = pipelines_of([("h100-sxm", 2)])
    model = served("llama-3-70b", (4096, 128), (4096, 128), precision="fp8", prefix_cache_hit_fraction=0.5)
    first, second = model.workloads
    mixed = replace(model, workloads=(replace(first, prefix_cache_hit_fraction=0.9), second))
    rps = [rates_of(one, layouts).rps[0] for one in (model, mixed)]
    assert rps[1][1] == rps[0][1]
    assert rps[1][0] > 1.2 * rps[0][0]


def test_fewer_bytes_per_weight_never_fit_worse() -> None:
    layouts = pipelines_of([("a100-sxm4-80gb", 2)])
    batches = [rates_of(served("llama-3-70b", precision=p), layouts).batch[0, 0] for p in ("bf16", "fp8", "int4")]
    assert batches == sorted(batches)


@st.composite
def layouts_and_models(draw: st.DrawFn) -> tuple[list[tuple[str, int]], ServedModel]:
    stages = draw(st.lists(st.tuples(st.sampled_from(SLUGS), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=4))
    name = draw(st.sampled_from(["llama-3-70b", "llama-3.1-8b", "mixtral-8x7b", "gemma-3-27b"]))
    tokens = draw(st.tuples(st.integers(1, 6000), st.integers(1, 2000)))
    return stages, served(name, tokens)


@given(layouts_and_models())
@settings(max_examples=60)
def test_numbers_are_consistent(case: tuple[list[tuple[str, int]], ServedModel]) -> None:
    stages, model = case
    assert model.spec is not None
    rates = rates_of(model, pipelines_of(stages))
    assert np.isfinite(rates.rps).all()
    assert ((rates.rps > 0) == (rates.batch > 0)).all()
    assert (rates.fits | (rates.rps == 0).all(axis=1)).all()
    if rates.rps[0, 0] > 0:
        assert rates.layers[0].sum() == model.spec.layers
        assert rates.layers[0, : len(stages)].min() >= 1
        assert rates.low_rps[0, 0] <= rates.rps[0, 0] <= rates.high_rps[0, 0]


# Factors small enough that no card leaves its class.
@given(layouts_and_models(), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
@settings(max_examples=40)
def test_faster_gpus_are_never_slower(
    case: tuple[list[tuple[str, int]], ServedModel], compute: float, bandwidth: float
) -> None:
    stages, model = case
    layouts = pipelines_of(stages)
    split = rates_of(model, layouts).layers
    layouts = replace(layouts, layers=split)
    better = tuple(
        replace(
            gpu,
            memory_bandwidth_gb_per_s=(gpu.memory_bandwidth_gb_per_s or 0) * bandwidth,
            peak_tflops_bf16_dense=(gpu.peak_tflops_bf16_dense or 0) * compute,
        )
        for gpu in layouts.gpus
    )
    before, after = rates_of(model, layouts).rps, rates_of(model, replace(layouts, gpus=better)).rps
    assert (after >= before * (1 - 1e-9)).all()


def test_an_engine_without_runs_stands_for_itself_with_a_wider_band() -> None:
    model, layouts = served("llama-3-70b"), pipelines_of([("h100-sxm", 4)])
    known = Roofline().rates(model, layouts)
    unknown = Roofline(engine_name="lmdeploy").rates(model, layouts)
    assert unknown.rps[0, 0] == known.rps[0, 0]
    assert unknown.high_rps[0, 0] > known.high_rps[0, 0]
    assert "standing in for lmdeploy" in Roofline(engine_name="lmdeploy").basis(model, layouts, unknown, 0, 0).detail


def test_links_decide_how_far_tensor_parallelism_pays() -> None:
    model = served("llama-3.1-8b", (2048, 32))
    nvlink, pcie = (
        rates_of(model, pipelines_of([("a100-sxm4-80gb", 8)], intra_gb_per_s=link)).rps[0, 0]
        for link in (300.0, 32.0)
    )
    assert nvlink > 2 * pcie
