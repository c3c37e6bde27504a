"""How a replica of each role is started."""

import json

import pytest

from solver.catalog import load_models
from solver.engine_args import engine_args
from solver.problem import Role, ServedModel, Workload

MODEL = ServedModel("chat", load_models()["llama-3-8b"], "bf16", "bf16", (Workload("w", 800, 200, 1.0),))


def test_a_replica_that_does_both_phases_hands_nothing_over() -> None:
    plain = engine_args(MODEL, tensor_parallel=(1,), max_batch=64)
    assert plain == engine_args(MODEL, tensor_parallel=(1,), max_batch=64, role="aggregated")
    assert not {"kv_transfer_config", "max_num_batched_tokens"} & dict(plain).keys()


@pytest.mark.parametrize(("role", "kv_role"), [("prefill", "kv_producer"), ("decode", "kv_consumer")])
def test_a_replica_of_one_phase_is_started_as_usual_and_hands_over(role: Role, kv_role: str) -> None:
    plain = dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=64))
    args = dict(engine_args(MODEL, tensor_parallel=(1,), max_batch=64, role=role))
    assert {name: args[name] for name in plain} == plain
    assert json.loads(str(args["kv_transfer_config"])) == {
        "kv_connector": "NixlConnector",
        "kv_role": kv_role,
        "kv_load_failure_policy": "fail",
    }
    assert args.get("max_num_batched_tokens") == (2048 if role == "prefill" else None)
