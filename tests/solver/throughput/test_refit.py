"""A user's runs move the estimates to themselves, no further than they reach, and never against good sense."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.calibration.corrections import MOST_POINTS, RunPoints, krige
from sutler.solver.calibration.factors import Calibration, shipped_calibration
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.estimate import estimate, one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.throughput.base import Layouts, Rates
from sutler.solver.throughput.corrected import CorrectedStages
from sutler.solver.throughput.operating import OperatingPoint, learnt, speed_errors
from sutler.solver.throughput.refit import errors, refit
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.runs import LayerRun, ServingRun, points_of, predict, predict_layers, run_groups
from sutler.solver.throughput.stages import stage_kinds, traffic_of

SHIPPED = shipped_calibration()


def a_run(**others: object) -> ServingRun:
    run = ServingRun(
        gpu=resolve_gpu("h100-sxm"),
        spec=resolve_model("llama-3.1-8b"),
        precision="bf16",
        kv_precision="bf16",
        engine="vllm",
        tensor_parallel=1,
        input_tokens=1024,
        output_tokens=256,
        concurrency=32,
        req_per_s=1.0,
        ttft_s=1.0,
        tpot_s=1.0,
    )
    return replace(run, **others)  # type: ignore[arg-type]


def as_if(runs: list[ServingRun], faster: float, truth: Calibration = SHIPPED) -> list[ServingRun]:
    """Measured on a stack that does everything so many times as fast as `truth` says."""
    found = predict(run_groups(runs), truth)
    columns = zip(runs, found.req_per_s, found.ttft_s, found.tpot_s, strict=True)
    return [
        replace(run, req_per_s=float(x) * faster, ttft_s=float(t) / faster, tpot_s=float(p) / faster)
        for run, x, t, p in columns
    ]


def a_few(**others: object) -> list[ServingRun]:
    cases = product((512, 2048), (128, 512), (8, 64))
    return [a_run(input_tokens=i, output_tokens=o, concurrency=c, **others) for i, o, c in list(cases)[::2]]


def error(runs: list[ServingRun], calibration: Calibration) -> float:
    return float(np.abs(np.exp(errors(runs, calibration).req_per_s) - 1).max())


@pytest.mark.parametrize("faster", [0.5, 0.8, 1.25])
def test_four_runs_tell_how_fast_a_stack_is(faster: float) -> None:
    seen = as_if(a_few(), faster)
    unseen = as_if([a_run(input_tokens=1024, output_tokens=256, concurrency=c) for c in (16, 32, 48)], faster)
    before, after = error(unseen, SHIPPED), error(unseen, refit(seen, [], SHIPPED).calibration)
    assert before > 0.19
    assert after < before / 3


def test_runs_that_are_as_expected_change_next_to_nothing() -> None:
    found = refit(as_if(a_few(), 1.0), [], SHIPPED)
    assert error(as_if(a_few(tensor_parallel=2), 1.0), found.calibration) < 1e-6


def test_far_away_the_roofline_holds() -> None:
    """One run of another GPU, model and precision says something, but not everything."""
    seen = as_if(a_few(), 0.7)
    far = as_if(
        [a_run(gpu=resolve_gpu("l40s"), spec=resolve_model("qwen3-32b"), precision="fp8", tensor_parallel=4)], 1.0
    )
    moved = errors(far, refit(seen, [], SHIPPED).calibration).req_per_s[0]
    near = errors(as_if([a_run()], 1.0), refit(seen, [], SHIPPED).calibration).req_per_s[0]
    assert near < -0.25
    assert abs(moved) < abs(near)


def test_runs_that_contradict_each_other_leave_the_calibration_alone() -> None:
    """Of every pair of neighbours one is three times as fast as expected and one three times as slow."""
    runs = [a_run(concurrency=c) for c in (16, 17, 32, 33, 64, 65)]
    wild = [one for at, run in enumerate(runs) for one in as_if([run], 3.0 if at % 2 else 1 / 3)]
    for engine in ("vllm", "sglang"):
        asked = [replace(run, engine=engine) for run in wild]
        found = refit(asked, [], SHIPPED)
        assert found.rates_share == 0.0
        assert found.calibration.serves == engine
        moved = errors(asked, found.calibration).req_per_s - errors(asked, SHIPPED).req_per_s
        assert np.abs(moved).max() < 1e-3


@pytest.mark.slow
def test_left_out_errors_never_rise() -> None:
    """However runs differ: a fit is followed as far as it helps those that it did not see."""
    for seed in range(6):
        noise = np.exp(np.random.default_rng(seed).normal(0.2, 0.4, 6))
        runs = [a_run(concurrency=c) for c in (8, 16, 24, 32, 48, 64)]
        found = refit([one for run, by in zip(runs, noise, strict=True) for one in as_if([run], by)], [], SHIPPED)
        assert 0.0 <= found.rates_share <= 1.0
        before, after = (float(np.mean(np.square(one.req_per_s))) for one in (found.before, found.left_out))
        assert after <= 1.01 * before


def test_first_tokens_of_an_engine_that_is_slow_with_them_alone_are_learnt() -> None:
    waits = replace(SHIPPED.engine("vllm"), first_token_base=4.0, first_token_prefills=1.5)
    truth = replace(SHIPPED, engines={**SHIPPED.engines, "vllm": waits})
    found = refit(as_if(a_few(), 1.0, truth), [], SHIPPED)
    unseen = as_if([a_run(input_tokens=1024, output_tokens=256, concurrency=c) for c in (16, 32, 48)], 1.0, truth)
    before, after = (np.abs(errors(unseen, one).ttft_s) for one in (SHIPPED, found.calibration))
    assert after.max() < before.max() / 2
    assert found.calibration.engine("vllm").first_token_base > 1.5 * SHIPPED.engine("vllm").first_token_base


def test_an_engine_that_is_asked_without_http_is_learnt_to_have_next_to_no_base_time() -> None:
    truth = replace(
        SHIPPED, engines={**SHIPPED.engines, "vllm": replace(SHIPPED.engine("vllm"), first_token_base=0.05)}
    )
    loops = [a_run(input_tokens=i, output_tokens=o, concurrency=c) for i, o in ((64, 32), (512, 64)) for c in (1, 4)]
    found = refit(as_if(loops, 1.0, truth), [], SHIPPED).calibration
    unseen = as_if([a_run(input_tokens=256, output_tokens=64, concurrency=c) for c in (1, 4, 8)], 1.0, truth)
    assert np.abs(errors(unseen, SHIPPED).ttft_s).min() > 1.0
    assert np.abs(errors(unseen, found).ttft_s).max() < 0.1


def slow_in_decode() -> tuple[Calibration, list[ServingRun]]:
    """A stack whose steps have eight times the overhead, which prompts hardly see, asked without HTTP; its loops."""
    slow = replace(SHIPPED.engine("vllm"), overhead=8.0 * SHIPPED.engine("vllm").overhead, first_token_base=0.02)
    truth = replace(SHIPPED, engines={**SHIPPED.engines, "vllm": slow})
    lengths = ((512, 64), (2048, 256))
    loops = [a_run(input_tokens=i, output_tokens=o, concurrency=c) for i, o in lengths for c in (1, 4, 16)]
    return truth, as_if(loops, 1.0, truth)


def test_runs_with_one_request_in_flight_tell_prompts_from_decode_steps() -> None:
    truth, loops = slow_in_decode()
    some = [run for run in loops if run.concurrency > 1]
    unseen = as_if([a_run(input_tokens=1024, output_tokens=128, concurrency=c) for c in (1, 2, 8, 16)], 1.0, truth)
    told, untold = (errors(unseen, refit(runs, [], SHIPPED).calibration) for runs in (loops, some))
    assert np.abs(told.tpot_s).max() < 0.05
    assert np.abs(untold.tpot_s).max() > 0.15
    assert np.abs(told.ttft_s).mean() < 0.6 * np.abs(untold.ttft_s).mean()
    assert np.abs(told.req_per_s).max() < 0.05


def test_prompts_that_are_nothing_beside_what_is_waited_for_say_nothing() -> None:
    found = refit(as_if([a_run(input_tokens=i, concurrency=1) for i in (16, 32)], 0.7), [], SHIPPED).calibration
    assert found.corrections is not None
    assert found.corrections.phases is not None
    assert (found.corrections.phases.noise > 1.0).all()
    assert np.abs(found.corrections.phases.at(found.corrections.points)[0]).max() < 0.05


def test_where_a_request_spends_its_time_does_not_change_how_many_there_are() -> None:
    _, loops = slow_in_decode()
    calibration = refit(loops, [], SHIPPED).calibration
    corrections = calibration.corrections
    assert corrections is not None
    assert corrections.phases is not None
    points, share = points_of(loops, SHIPPED), np.linspace(0.0, 1.0, len(loops))
    whole = np.exp(-corrections.mean(points))
    prompts, steps = corrections.split(points, whole, share)
    assert prompts * (1 - share) + steps * share == pytest.approx(whole)
    assert (steps > prompts).all()
    alike = replace(calibration, corrections=replace(corrections, phases=None))
    (together, _, _), (apart, _, _) = planned(alike, loops[0]), planned(calibration, loops[0])
    assert apart.rps == pytest.approx(together.rps, rel=0.03)


def test_what_a_deployment_learns_leaves_prompts_and_decode_steps_as_runs_told_them() -> None:
    _, loops = slow_in_decode()
    calibration = refit(loops, [], SHIPPED).calibration
    [run] = [one for one in loops if one.concurrency == 16 and one.input_tokens == 512]
    told = OperatingPoint(
        run.gpu, run.spec, "bf16", "bf16", "vllm", 1, ((512, 64, 100),), residence_s=2.0, in_flight=16.0
    )
    seen = speed_errors([told], calibration)
    found = learnt([told], seen, np.array([0.05]), calibration, name="learnt", readings=1).corrections
    assert found is not None
    assert calibration.corrections is not None
    assert found.phases is calibration.corrections.phases is not None


def test_kernels_of_experts_are_learnt_apart_from_dense_models() -> None:
    experts = a_few(spec=resolve_model("qwen3-30b-a3b"))
    found = refit(as_if(experts, 0.6), [], SHIPPED).calibration
    assert error(as_if(experts, 0.6), found) < 0.1
    assert found.kernels_at("vllm", "hopper", "bf16") != SHIPPED.kernels_at("vllm", "hopper", "bf16")


def test_one_wrong_run_among_good_ones_counts_for_little() -> None:
    good = as_if(a_few(), 1.0)
    wrong = as_if([a_run(input_tokens=4096, output_tokens=64, concurrency=128)], 10.0)
    assert error(good, refit([*good, *wrong], [], SHIPPED).calibration) < 0.08


def test_each_engine_is_calibrated_on_its_own() -> None:
    with pytest.raises(ValueError, match="sglang, vllm"):
        refit([*as_if([a_run()], 1.0), *as_if([a_run(engine="sglang")], 1.0)], [], SHIPPED)


def test_an_engine_without_factors_gets_its_own() -> None:
    seen = as_if(a_few(engine="lmdeploy"), 0.6)
    found = refit(seen, [], SHIPPED).calibration
    assert found.serves == "lmdeploy"
    assert "lmdeploy" in found.engines
    assert found.engines["vllm"] == SHIPPED.engines["vllm"]
    assert error(seen, found) < 0.1


def test_requests_of_one_token_have_no_time_between_tokens() -> None:
    runs = [replace(run, tpot_s=0.0) for run in as_if([a_run(output_tokens=1, concurrency=c) for c in (4, 8)], 0.8)]
    found = refit(runs, [], SHIPPED)
    assert np.isnan(found.before.tpot_s).all()
    assert error(runs, found.calibration) < 0.1


def layer_error(runs: list[LayerRun], calibration: Calibration) -> float:
    return float(np.abs(predict_layers(runs, calibration) / [run.seconds for run in runs] - 1).mean())


def test_layer_times_alone_move_the_factors_of_their_class() -> None:
    """As Vidur and `sutler profile` measure them: with and without attention."""
    runs = [
        LayerRun(resolve_gpu("l40s"), resolve_model("llama-3.1-8b"), "bf16", 1, tokens, 1.0, **attention)
        for tokens in (64.0, 512.0, 4096.0)
        for attention in ({}, {"prefill_pairs": tokens**2 / 2}, {"decode_seen": tokens * 1000})
    ]
    slow = replace(
        SHIPPED,
        gpu_classes=tuple(
            replace(one, compute=one.compute * 0.7) if one.name == "ada_full_rate" else one
            for one in SHIPPED.gpu_classes
        ),
    )
    seen = [replace(run, seconds=float(s)) for run, s in zip(runs, predict_layers(runs, slow), strict=True)]
    found = refit([], seen, SHIPPED)
    before, after = (layer_error(seen, calibration) for calibration in (SHIPPED, found.calibration))
    assert after < 0.6 * before
    assert found.calibration.corrections is None


@given(
    st.lists(
        st.tuples(st.floats(0, 14), st.floats(0, 12), st.floats(0, 10), st.floats(0, 3)), min_size=1, max_size=30
    )
)
@settings(max_examples=20)
def test_runs_leave_less_than_all_of_the_variance_and_more_than_none(places: list[tuple[float, ...]]) -> None:
    labels = tuple(("g", "m", "bf16") for _ in places)
    points = RunPoints(np.array(places), labels, np.ones(len(places)))
    found = krige(SHIPPED.correlation, "vllm", points, np.zeros(len(places)))
    asked = RunPoints(np.array([[10.0, 8.0, 5.0, 0.0], places[0]]), (labels[0],) * 2, np.ones(2))
    mean, left = found.at(asked)
    assert np.abs(mean).max() < 1e-9
    assert (left > 0).all()
    assert (left <= 1).all()
    assert left[1] < 0.5


def test_thousands_of_runs_are_merged_with_their_neighbours() -> None:
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 10, (3000, 4))
    points = RunPoints(places, (("g", "m", "bf16"),) * 3000, np.ones(3000))
    found = krige(SHIPPED.correlation, "vllm", points, np.full(3000, 0.1))
    assert len(found.points) <= MOST_POINTS
    assert found.runs == 3000
    mean, _ = found.at(RunPoints(np.full((1, 4), 5.0), (("g", "m", "bf16"),), np.ones(1)))
    assert mean[0] == pytest.approx(0.1, rel=0.1)


def planned(calibration: Calibration, run: ServingRun) -> tuple[Rates, ServedModel, Layouts]:
    model = ServedModel(
        "m", run.spec, run.precision, run.kv_precision, (Workload("w", run.input_tokens, run.output_tokens, 1.0),)
    )
    layouts = one_layout(run.gpu, tensor_parallel=run.tensor_parallel, pipeline_parallel=1)
    return Roofline(calibration, estimates="roofline").rates(model, layouts), model, layouts


def test_a_plan_counts_on_what_was_measured_in_a_narrower_band() -> None:
    runs = as_if([a_run(concurrency=c) for c in (64, 128, 256)], 0.8)
    calibration = replace(refit(runs, [], SHIPPED).calibration, name="mine")
    (before, _, _), (after, model, layouts) = planned(SHIPPED, runs[0]), planned(calibration, runs[0])
    ratio = after.rps[0, 0] / before.rps[0, 0]
    assert ratio == pytest.approx(0.8, rel=0.04)
    assert after.high_rps[0, 0] / after.rps[0, 0] < before.high_rps[0, 0] / before.rps[0, 0]
    assert after.low_rps[0, 0] < after.rps[0, 0]
    roofline = Roofline(calibration, estimates="roofline")
    basis = roofline.basis(model, layouts, after, 0, 0)
    assert basis.source == "profiles"
    assert "3 runs of calibration mine" in basis.detail


def test_an_estimate_meets_the_run_it_was_calibrated_on() -> None:
    """The estimate simulates the benchmark; the calibration was fitted in closed form."""
    runs = as_if(a_few(), 0.75)
    calibration = refit(runs, [], SHIPPED).calibration
    for run in runs:
        _, model, layouts = planned(calibration, run)
        found = estimate(Roofline(calibration), model, layouts, concurrency=int(run.concurrency))
        assert found.req_per_s == pytest.approx(run.req_per_s, rel=0.06)


@cache
def fitted(faster: float) -> Calibration:
    """To a few runs that were that much faster than expected."""
    return refit(as_if(a_few(), faster), [], SHIPPED).calibration


@pytest.mark.slow
@given(st.integers(1, 8000), st.integers(1, 2000), st.sampled_from([0.5, 2.0]))
@settings(max_examples=20)
def test_corrected_seconds_stay_above_zero(inputs: int, outputs: int, faster: float) -> None:
    calibration = fitted(faster)
    rates, model, layouts = planned(calibration, a_run(input_tokens=inputs, output_tokens=outputs))
    stages = Roofline(calibration, estimates="roofline").planning_stages(model)
    assert isinstance(stages, CorrectedStages)
    kinds, traffic = stage_kinds(layouts)[0], traffic_of(model)
    for found in (stages.prefill(kinds, traffic), stages.decode(kinds, traffic, max_batch=256)):
        assert np.isfinite(found.per_layer).all()
        assert (found.per_layer > 0).all()
    assert np.isfinite(rates.rps).all()
    assert (rates.rps > 0).all()


def test_a_calibration_speaks_for_its_own_engine_only() -> None:
    calibration = fitted(0.5)
    _, model, _ = planned(calibration, a_run())
    assert isinstance(Roofline(calibration, "vllm", "roofline").planning_stages(model), CorrectedStages)
    assert not isinstance(Roofline(calibration, "sglang", "roofline").planning_stages(model), CorrectedStages)


def test_where_points_lie_is_what_the_runs_say() -> None:
    points = points_of([a_run(gpu=resolve_gpu("l40s"))], SHIPPED)
    assert points.log2.tolist() == [[10.0, 8.0, 5.0, 0.0]]
    assert points.labels == (("l40s", "llama-3.1-8b", "bf16"),)
    assert points.spread[0] > 1  # no run of that class is at hand


def test_an_engine_is_no_better_known_by_runs_that_have_no_room() -> None:
    """The weights of a 70B model in bf16 fill two H100, so their rate says how much memory the engine kept."""
    tight = a_run(spec=resolve_model("llama-3.1-70b"), tensor_parallel=2, engine="lmdeploy", ttft_s=0.5, tpot_s=0.05)
    found = refit([tight], [], SHIPPED).calibration
    assert found.serves == "lmdeploy"
    assert "lmdeploy" not in found.engines
    assert found.corrections is None


def test_as_many_questions_as_there_may_be_are_answered_in_blocks() -> None:
    points = RunPoints(np.zeros((2, 4)), (("g", "m", "bf16"),) * 2, np.ones(2))
    found = krige(SHIPPED.correlation, "vllm", points, np.array([0.1, 0.3]))
    many = RunPoints(np.zeros((20_000, 4)), (("g", "m", "bf16"),) * 20_000, np.ones(20_000))
    mean, left = found.at(many)
    assert mean.shape == left.shape == (20_000,)
    assert np.ptp(mean) < 1e-12
