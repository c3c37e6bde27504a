"""From documents to the solver's problem: names, demands, limits and traces arrive where they belong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.errors import InvalidProblemError, UnknownNameError
from sutler.solver.problem import LatencyLimit, MeasuredStage, Objective, ObjectiveKind
from tests.service.builders import (
    NOW,
    a_model,
    a_problem,
    a_row,
    a_snapshot,
    a_workload,
    an_inline_model,
    an_offer,
)


def translated(folder: Path | None = None, **others: Any) -> Translation:
    return to_problem(validate(ProblemDocument, a_problem(**others)), folder=folder, now=NOW)


def estimated(**others: Any) -> Translation:
    """Without a table of measured rates."""
    return translated(throughput={}, **others)


def test_offers_arrive_whole() -> None:
    offer = translated().problem.offers[0]
    assert (offer.provider, offer.gpu, offer.gpus, offer.price_usd_per_hour) == ("vastai", "h100-sxm", 4, 9.0)


def test_every_gpu_that_is_named_comes_with_its_facts() -> None:
    gpus = translated(gpus={"t1": {"memory_gb": 80}}, throughput={"table": [a_row(), a_row("t1", 1)]}).problem.gpus
    assert set(gpus) == {"h100-sxm", "t1"}
    assert gpus["t1"].memory_gb == 80
    assert gpus["h100-sxm"].memory_bandwidth_gb_per_s == 3350


def test_rates_are_the_demand() -> None:
    workload = translated().problem.models[0].workloads[0]
    assert (workload.name, workload.input_tokens, workload.output_tokens, workload.demand) == (
        "long-short",
        2455,
        18,
        2.2,
    )


def test_requests_are_the_demand_of_a_batch() -> None:
    workload = {"name": "long-short", "input_tokens": 10, "output_tokens": 10, "requests": 80}
    problem = translated(objective={"kind": "min_makespan"}, models=[a_model(workloads=[workload])]).problem
    assert problem.models[0].workloads[0].demand == 80


@pytest.mark.parametrize("kind", ["max_throughput", "min_cost", "min_power"])
@pytest.mark.parametrize("given", [{"give_up_fraction": 0.01}, {"robust": True}])
def test_what_low_ends_are_worth_arrives_with_the_objective(kind: ObjectiveKind, given: dict[str, Any]) -> None:
    objective = translated(objective={"kind": kind, **given}).problem.objective
    assert objective == replace(Objective("max_throughput"), kind=kind, **given)


def test_headroom_arrives_with_the_objective() -> None:
    problem = translated(objective={"kind": "min_cost", "headroom_fraction": 0.1}).problem
    assert problem.objective == Objective("min_cost", 0.1)


def test_latency_limits_come_from_their_keys() -> None:
    slo = {"ttft_p90_s": 2.0, "tpot_p50_s": 0.05, "e2e_p99_s": 30}
    problem = translated(models=[a_model(slo=slo)]).problem
    assert set(problem.models[0].slo) == {
        LatencyLimit("ttft", 90, 2.0),
        LatencyLimit("tpot", 50, 0.05),
        LatencyLimit("e2e", 99, 30),
    }


SLO = {"ttft_p90_s": 2.0, "ttft_p99_s": 5.0, "tpot_p50_s": 0.05}
TTFT = (LatencyLimit("ttft", 90, 2.0), LatencyLimit("ttft", 99, 5.0))
TPOT = LatencyLimit("tpot", 50, 0.05)


@pytest.mark.parametrize(
    ("slo", "limits"),
    [
        (None, None),
        ({}, None),
        ({"ttft_p90_s": 1.0}, {TPOT, LatencyLimit("ttft", 90, 1.0)}),
        ({"ttft_p95_s": None}, {TPOT}),
        ({"e2e_p99_s": 60.0}, {*TTFT, TPOT, LatencyLimit("e2e", 99, 60.0)}),
        ({"ttft_p50_s": None, "tpot_p50_s": None}, set()),
    ],
)
def test_a_workloads_limits_replace_those_of_its_model_metric_by_metric(
    slo: dict[str, Any] | None, limits: set[LatencyLimit] | None
) -> None:
    workloads = [a_workload(), a_workload("own", slo=slo)]
    [model] = translated(models=[a_model(slo=SLO, workloads=workloads)]).problem.models
    assert model.workloads[0].slo is None
    assert set(model.limits_of(model.workloads[0])) == {*TTFT, TPOT}
    assert (None if model.workloads[1].slo is None else set(model.workloads[1].slo)) == limits


def test_a_limit_that_is_lifted_stays_lifted_once_it_is_stored() -> None:
    """Stored is what the caller gave, without defaults."""
    given = a_problem(models=[a_model(slo=SLO, workloads=[a_workload(slo={"ttft_p90_s": None})])])
    stored = validate(ProblemDocument, given).model_dump(mode="json", by_alias=True, exclude_unset=True)
    [model] = to_problem(validate(ProblemDocument, stored), folder=None, now=NOW).problem.models
    assert model.workloads[0].slo == (TPOT,)


def test_load_ceilings_are_capped_for_all_and_for_a_model() -> None:
    problem = translated(
        models=[a_model(max_utilisation_fraction=0.6)], limits={"max_utilisation_fraction": 0.8}
    ).problem
    assert (problem.models[0].max_utilisation_fraction, problem.limits.max_utilisation_fraction) == (0.6, 0.8)


def test_limits_search_and_solver_arrive() -> None:
    problem = translated(
        limits={"max_gpus": {"h100-sxm": 8}, "max_gpus_per_provider": {"vastai": 4}, "max_power_watts": 5000},
        search={"tensor_parallel": [1, 4], "max_pipeline_stages": 2, "mixed_gpu_pipelines": False},
        solver={"method": "binary_search", "time_limit_s": 3, "alternatives": False},
    ).problem
    assert dict(problem.limits.max_gpus) == {"h100-sxm": 8}
    assert dict(problem.limits.max_gpus_per_provider) == {"vastai": 4}
    assert problem.limits.max_power_watts == 5000
    assert problem.search.tensor_parallel == (1, 4)
    assert not problem.search.mixed_gpu_pipelines
    assert (problem.options.method, problem.options.time_limit_s) == ("binary_search", 3)
    assert not problem.options.alternatives


def test_measured_rates_arrive() -> None:
    problem = translated().problem
    assert problem.measured_only
    assert problem.measured[0].stages == (MeasuredStage("h100-sxm", 4),)
    assert dict(problem.measured[0].rps) == {"long-short": 3.0}


@pytest.mark.parametrize(("weights", "kv"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "bf16"), ("int4", "bf16")])
def test_the_kv_cache_is_16_bit_unless_told_otherwise(weights: str, kv: str) -> None:
    assert translated(models=[a_model(precision=weights)]).problem.models[0].kv_precision == kv


@pytest.mark.parametrize(
    ("name", "weights", "kv"),
    [
        ("llama-3.3-70b", "fp4", "fp8"),
        ("llama-3.3-70b", "fp8", "bf16"),
        ("gpt-oss-120b", "fp4", "bf16"),
    ],
)
def test_the_kv_cache_is_what_the_checkpoint_asks_for(name: str, weights: str, kv: str) -> None:
    assert estimated(models=[a_model(model=name, precision=weights)]).problem.models[0].kv_precision == kv
    stated = a_model(model=name, precision=weights, kv_precision="bf16")
    assert estimated(models=[stated]).problem.models[0].kv_precision == "bf16"


def test_the_kv_scheme_of_a_config_counts() -> None:
    sizes = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2}
    config = {**sizes, "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 4096}
    weights = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    given = {"config": {**config, "quantization_config": weights}, "hf_id": "org/mine"}
    model = estimated(models=[a_model(model=given, precision=["fp8", "bf16"])]).problem.models[0]
    assert (model.precision, model.kv_precision, model.more_precisions) == ("fp8", "fp8", (("bf16", "bf16"),))


def test_a_list_of_precisions_arrives_and_measured_rates_are_of_the_first() -> None:
    models, row = [a_model(precision=["bf16", "fp8"])], a_row()
    problem = translated(models=models, throughput={"table": [row, a_row(precision="fp8")]}).problem
    assert problem.models[0].precisions == ("bf16", "fp8")
    assert [each.precision for each in problem.measured] == ["bf16", "fp8"]
    with pytest.raises(DocumentError, match=r"table\[1\].stages.*repeats"):
        translated(models=models, throughput={"table": [row, a_row(precision="bf16")]})
    with pytest.raises(DocumentError, match=r"models\[0\]\.precision: 'fp8': gpt-oss-20b is served as fp4, bf16"):
        estimated(models=[a_model(model="gpt-oss-20b", precision=["bf16", "fp8"])])


def test_a_catalogue_model_comes_with_its_architecture() -> None:
    spec = estimated().problem.models[0].spec
    assert spec is not None
    assert (spec.id, spec.layers, spec.kv_heads) == ("llama-3-70b", 80, 8)


def test_a_repository_name_is_read_and_kept_for_the_engine() -> None:
    translation = estimated(models=[a_model(model="meta-llama/Llama-3.3-70B-Instruct")])
    spec = translation.problem.models[0].spec
    assert spec is not None
    assert (spec.id, spec.hf_id) == ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct")
    assert any("planned as llama-3.3-70b" in note for note in translation.notes)


def test_a_model_has_the_problems_engine_unless_it_names_its_own() -> None:
    models = [a_model(), a_model(name="other", engine="sglang")]
    problem = translated(models=models, engine="tensorrt-llm").problem
    assert [model.engine for model in problem.models] == ["tensorrt-llm", "sglang"]
    assert translated().problem.models[0].engine == "vllm"
    assert translated().problem.search.mixed_gpu_pipelines is None


def test_servers_accept_no_more_context_than_the_model_has() -> None:
    assert estimated(models=[a_model(max_context_tokens=8192)]).problem.models[0].max_context_tokens == 8192
    with pytest.raises(DocumentError, match=r"max_context_tokens: 8193: is beyond the context of llama-3-70b"):
        estimated(models=[a_model(max_context_tokens=8193)])


def test_the_requests_of_a_trace_fit_the_context_that_servers_accept(tmp_path: Path) -> None:
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", *(f"2026-01-01 00:00:0{i},900,100" for i in range(3))]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    model = {**a_model(max_context_tokens=999), "trace": {"file": "t.csv"}}
    del model["workloads"]
    with pytest.raises(DocumentError, match=r"models\[0\]\.max_context_tokens: 999: .* give at least 1000"):
        translated(tmp_path, models=[model], throughput={})


def test_an_unknown_model_is_named_with_those_that_are_near() -> None:
    with pytest.raises(UnknownNameError, match=r"models\[0\]\.model: 'llama-3-71b'.*llama-3-70b"):
        estimated(models=[a_model(model="llama-3-71b")])


def test_measured_rates_alone_need_no_known_model() -> None:
    assert translated(models=[a_model(model="our-own")]).problem.models[0].spec is None


def test_a_precision_that_the_catalogue_does_not_allow_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"models\[0\]\.precision: 'fp8': gpt-oss-20b is served as fp4, bf16"):
        estimated(models=[a_model(model="gpt-oss-20b", precision="fp8")])


def test_an_inline_model_is_counted() -> None:
    spec = estimated(models=[a_model(model=an_inline_model())]).problem.models[0].spec
    assert spec is not None
    # attention 512*64*(2*8 + 2*2) = 655,360, feed-forward 3*512*1024 = 1,572,864, embeddings 2*1000*512 = 1,024,000
    assert (spec.id, spec.head_dim, spec.total_params) == ("chat", 64, 1_024_000 + 4 * (655_360 + 1_572_864))


def test_stated_parameters_win_over_counted_ones() -> None:
    moe = {"experts": 8, "experts_per_token": 2, "expert_intermediate_size": 256}
    model = an_inline_model(total_params=5e9, active_params=1e9, moe=moe, sliding_window=None)
    spec = estimated(models=[a_model(model=model)]).problem.models[0].spec
    assert spec is not None
    assert (spec.total_params, spec.active_params) == (5e9, 1e9)
    assert spec.moe is not None
    assert spec.moe.experts == 8


CONFIG = {
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "quantization_config": {"quant_method": "fp8"},
}


def test_a_pasted_config_is_an_architecture_with_its_own_precision() -> None:
    model = a_model(model={"config": CONFIG, "hf_id": "org/mine"}, precision="fp8")
    translation = estimated(models=[model])
    spec = translation.problem.models[0].spec
    assert spec is not None
    assert (spec.id, spec.layers, spec.head_dim, spec.max_context_tokens) == ("chat", 4, 64, 8192)
    assert (spec.hf_id, spec.checkpoint("fp8")) == ("org/mine", "org/mine")
    assert any("models[0].model: config.json adds up to" in note and "fp8" in note for note in translation.notes)


def test_a_config_may_be_a_file_beside_the_problem(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    by_path = [a_model(model={"config_file": "config.json", "hf_id": "org/mine"})]
    pasted = estimated(models=[a_model(model={"config": CONFIG, "hf_id": "org/mine"})])
    assert estimated(folder=tmp_path, models=by_path).problem.models == pasted.problem.models
    with pytest.raises(DocumentError, match=r"models\[0\]\.model\.config_file: .*command line only"):
        estimated(models=by_path)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({"config": {**CONFIG, "vocab_size": None}}, r"models\[0\]\.model\.config\.vocab_size: .*is missing"),
        ({"config": {**CONFIG, "mamba_d_state": 16}}, r"models\[0\]\.model\.config\.mamba_d_state: .*Mamba"),
        ({"config": CONFIG, "config_file": "x"}, r"models\[0\]\.model\.config: .*not both"),
        ({"config": None}, r"models\[0\]\.model\.config: .*give the content"),
        ({"config": CONFIG, "layers": 4}, r"models\[0\]\.model\.layers"),
        ({"config": [1]}, r"models\[0\]\.model\.config"),
    ],
)
def test_a_config_that_cannot_be_read_is_named(model: dict[str, Any], named: str) -> None:
    with pytest.raises((DocumentError, InvalidProblemError), match=named):
        estimated(models=[a_model(model=model)])


@pytest.mark.parametrize(
    ("others", "field"),
    [
        ({"limits": {"max_gpus": {"h100": 8}}}, r"limits\.max_gpus\.h100"),
        ({"market": {"offers": a_snapshot(an_offer(gpu="H100 SXM"))}}, r"market\.offers\.offers\[0\]\.gpu"),
        ({"market": {"offers": a_snapshot(), "filter": {"gpus": ["h100"]}}}, r"market\.filter\.gpus\[0\]"),
        ({"throughput": {"table": [a_row("h100")]}}, r"throughput\.table\[0\]\.stages\[0\]\.gpu"),
    ],
)
def test_an_unknown_gpu_is_named_with_the_one_that_was_meant(others: dict[str, Any], field: str) -> None:
    with pytest.raises(DocumentError, match=rf"{field}: .*did you mean h100-sxm\?"):
        translated(**others)


def test_an_offer_that_the_filter_drops_may_be_of_an_unknown_gpu() -> None:
    snapshot = a_snapshot(an_offer(), an_offer(offer_id="2", gpu="abacus"))
    translation = translated(market={"offers": snapshot, "filter": {"gpus": ["h100-sxm"]}})
    assert len(translation.problem.offers) == 1


def test_the_papers_catalogue_knows_its_own_slugs_only() -> None:
    with pytest.raises(DocumentError, match="use one of 4090, a40, a6000, l40, a100, h100"):
        translated(catalog="paper_table1")


def test_a_gpu_of_the_callers_own_replaces_the_catalogues() -> None:
    translation = translated(gpus={"h100-sxm": {"memory_gb": 64}})
    assert translation.problem.gpus["h100-sxm"].memory_gb == 64
    assert any("replaces" in note for note in translation.notes)


def test_a_gpu_without_figures_is_good_for_measured_rates_only() -> None:
    market = {"offers": a_snapshot(an_offer(gpu="t1"))}
    gpus = {"t1": {"memory_gb": 80}}
    with pytest.raises(DocumentError, match=r"gpus\.t1\.memory_bandwidth_gb_per_s: is missing: estimates need it"):
        estimated(gpus=gpus, market=market)
    assert (
        translated(gpus=gpus, market=market, throughput={"table": [a_row("t1")]}).problem.gpus["t1"].memory_gb == 80
    )


@pytest.mark.parametrize(
    "others",
    [{"objective": {"kind": "min_power"}}, {"limits": {"max_power_watts": 1000}}],
    ids=["objective", "limit"],
)
def test_power_needs_the_watts_of_every_gpu(others: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match=r"gpus\.t1\.tdp_watts: is missing"):
        translated(gpus={"t1": {"memory_gb": 80}}, market={"offers": a_snapshot(an_offer(gpu="t1"))}, **others)


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2026-11-20 12:00:{second:02d}.0,{100 + 50 * second},{10 + second}\n" for second in range(21)
)


def traced(folder: Path | None, **others: Any) -> Translation:
    model = {"name": "chat", "model": "llama-3-8b", "trace": {"file": "trace.csv", "buckets": 4}}
    return translated(folder, models=[model], throughput={}, **others)


def test_a_trace_becomes_workloads_and_the_notes_say_how(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    translation = traced(tmp_path)
    workloads = translation.problem.models[0].workloads
    assert sum(w.demand for w in workloads) == pytest.approx(21 / 20)
    assert any(note.startswith("models[0].trace: 21 requests") for note in translation.notes)


def test_a_trace_counts_requests_for_a_batch(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    workloads = traced(tmp_path, objective={"kind": "min_makespan"}).problem.models[0].workloads
    assert sum(w.demand for w in workloads) == 21


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match=r"models\[0\]\.trace\.file"):
        traced(tmp_path)


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").mkdir()
    with pytest.raises(DocumentError, match="is no ordinary file"):
        traced(tmp_path)


def test_a_trace_is_refused_where_there_are_no_files() -> None:
    with pytest.raises(DocumentError, match=r"models\[0\]\.trace\.file: .*command line only"):
        traced(None)


def test_a_row_for_a_bucket_that_the_trace_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    model = {"name": "chat", "model": "llama-3-8b", "trace": {"file": "trace.csv"}}
    with pytest.raises(DocumentError, match=r"throughput\.table\[0\]\.rps: 'long-short': is no workload of chat"):
        translated(tmp_path, models=[model], throughput={"table": [a_row()]})


def test_names_of_workloads_are_each_models_own() -> None:
    models = [a_model("chat"), a_model("code", workloads=[a_workload("long-short", rate_rps=1.0)])]
    assert [m.workloads[0].demand for m in translated(models=models).problem.models] == [2.2, 1.0]
