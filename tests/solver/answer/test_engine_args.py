"""How a replica of each role is started."""

import json
from dataclasses import replace

import pytest

from sutler.solver.answer.engine_args import bends, engine_args
from sutler.solver.catalog import load_models
from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import Role, ServedModel, Speculation, Workload

MODEL = ServedModel("chat", load_models()["llama-3-8b"], "bf16", "bf16", (Workload("w", 800, 200, 1.0),))


def test_a_replica_that_does_both_phases_hands_nothing_over() -> None:
    plain = engine_args(MODEL, tensor_parallel=(1,), max_batch=64)
    assert plain == engine_args(MODEL, tensor_parallel=(1,), max_batch=64, role="aggregated")
    assert "kv_transfer_config" not in dict(plain)


def test_servers_have_the_limits_that_rates_and_simulations_count_on() -> None:
    args = dict(engine_args(MODEL, tensor_parallel=(2, 2), max_batch=None))
    assert (args["max_num_seqs"], args["max_num_batched_tokens"]) == (256, 2048)
    assert (args["tensor_parallel_size"], args["pipeline_parallel_size"]) == (2, 2)


def test_servers_accept_the_context_that_is_asked_for_and_else_what_the_workloads_need() -> None:
    assert dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=1))["max_model_len"] == 2048
    longer = replace(MODEL, max_context_tokens=5000)
    assert dict(engine_args(longer, tensor_parallel=(1,), max_batch=1))["max_model_len"] == 5000


@pytest.mark.parametrize(
    ("weights", "cache", "flag"),
    [
        ("bf16", "bf16", None),
        ("fp8", "bf16", None),
        ("fp8", "fp8", "fp8"),
        ("fp4", "fp8", "fp8"),
        ("fp4", "bf16", "bfloat16"),
        ("fp4", "fp16", "float16"),
    ],
)
def test_the_cache_is_named_where_the_engine_would_choose_another(
    weights: Precision, cache: Precision, flag: str | None
) -> None:
    model = replace(MODEL, spec=load_models()["llama-3.3-70b"], precision=weights, kv_precision=cache)
    assert dict(engine_args(model, tensor_parallel=(1,), max_batch=1)).get("kv_cache_dtype") == flag


def test_guesses_are_told_to_whoever_writes_tokens() -> None:
    model = replace(MODEL, speculation=Speculation(3, 0.7, 0.05, "eagle3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"))
    told = {"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3}
    roles: dict[Role, bool] = {"aggregated": True, "decode": True, "prefill": False}
    for role, is_told in roles.items():
        args = dict(engine_args(model, tensor_parallel=(1,), max_batch=64, role=role))
        assert (json.loads(str(args["speculative_config"])) == told) if is_told else "speculative_config" not in args


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_replica_of_one_phase_is_started_as_usual_and_sends_and_receives(role: Role) -> None:
    """With the sequences that either phase may need; SGLang's, which stay in theirs, with what was planned."""
    plain = dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=None))
    args = dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=64, role=role))
    assert {name: args[name] for name in plain} == plain
    sglang = replace(MODEL, engine="sglang")
    assert dict(engine_args(sglang, tensor_parallel=(1,), max_batch=64, role=role))["max_num_seqs"] == 64
    assert json.loads(str(args["kv_transfer_config"])) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "fail",
    }
    assert bends(role, "vllm", args)
    assert not bends(role, "vllm", {**args, "max_num_seqs": 64})
    assert bends(role, "vllm", {**args, "max_num_seqs": 64, "data_parallel_size": 4})
    assert not bends(role, "sglang", args)


@pytest.mark.parametrize(
    ("role", "kv_role", "limit"), [("prefill", "kv_producer", 2048), ("decode", "kv_consumer", None)]
)
def test_an_engine_of_a_version_before_was_started_for_its_phase(role: Role, kv_role: str, limit: int | None) -> None:
    args = dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=64, role=role, bends=False))
    assert json.loads(str(args["kv_transfer_config"]))["kv_role"] == kv_role
    assert args.get("max_num_batched_tokens") == limit
    assert not bends(role, "vllm", args)


@pytest.mark.parametrize(
    ("model", "precision", "loaded", "quantization"),
    [
        ("llama-3-8b", "bf16", "meta-llama/Meta-Llama-3-8B", None),
        ("llama-3-8b", "fp8", "meta-llama/Meta-Llama-3-8B", "fp8"),
        ("qwen3-32b", "fp8", "Qwen/Qwen3-32B-FP8", None),
        ("qwen3-32b", "int4", "Qwen/Qwen3-32B-AWQ", None),
        ("deepseek-v3", "fp8", "deepseek-ai/DeepSeek-V3", None),
        ("gpt-oss-120b", "fp4", "openai/gpt-oss-120b", None),
    ],
)
def test_a_known_checkpoint_is_loaded_and_says_itself_how_it_is_quantised(
    model: str, precision: Precision, loaded: str, quantization: str | None
) -> None:
    served = replace(MODEL, spec=load_models()[model], precision=precision)
    args = dict(engine_args(served, tensor_parallel=(1,), max_batch=64))
    assert (args["model"], args.get("quantization")) == (loaded, quantization)
