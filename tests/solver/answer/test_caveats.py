"""Warnings that a plan carries beside its numbers."""

from dataclasses import replace

import pytest

from sutler.solver import solve
from sutler.solver.answer.caveats import caveats
from sutler.solver.catalog import load_models
from sutler.solver.catalog.entries import Precision
from sutler.solver.plan import Replica
from sutler.solver.problem import SolveOptions
from tests.builders import a_model, a_problem, an_offer, appendix_c, measured


def test_a_plain_problem_has_no_warnings() -> None:
    assert solve(appendix_c()).warnings == ()


def test_machines_of_three_gpus_are_said_not_to_be_fully_searched() -> None:
    problem = a_problem(offers=[an_offer("a", 3, price=3.0)], rows=[measured("a", {"w1": 1.0})])
    (warning,) = solve(problem).warnings
    assert "offers of 3 GPUs" in warning
    assert "proof" in warning


def test_a_measured_replica_of_three_gpus_is_said_to_take_up_four() -> None:
    """Eight divisible GPUs at 1 $/h each: one replica of three stages is charged for four."""
    problem = a_problem(
        offers=[an_offer("a", 8, price=8.0, divisible=True)],
        rows=[measured(["a", "a", "a"], {"w1": 1.0})],
        budget_usd_per_hour=4.0,
        options=SolveOptions(alternatives=False),
    )
    plan = solve(problem)
    assert plan.cost_usd_per_hour == 4.0
    assert any("takes up 4" in warning for warning in plan.warnings)


def test_unequal_stages_are_said_to_need_an_engine_that_places_them() -> None:
    offers = [replace(an_offer(gpu, 2), site="s", inter_machine_gb_per_s=12.5) for gpu in ("a", "b")]
    plan = solve(a_problem(offers=offers, rows=[measured(["a:2", "b:1"], {"w1": 1.0})]))
    [replica] = plan.replicas
    assert replica.engine == "any-layout"
    assert not {"tensor_parallel_size", "pipeline_parallel_size"} & dict(replica.engine_args).keys()
    assert any(warning.startswith("chat-0: stages that differ") for warning in plan.warnings)


@pytest.mark.parametrize(
    ("model", "precision", "warned"),
    [
        ("llama-3-8b", "bf16", False),
        ("llama-3-8b", "fp8", True),
        ("qwen3-8b", "fp8", False),
        ("qwen3-8b", "int8", True),
        ("deepseek-v2-lite", "bf16", False),
        ("minimax-m2", "bf16", True),
        ("minimax-m2", "fp8", False),
    ],
)
def test_a_precision_without_a_known_checkpoint_is_said(model: str, precision: Precision, warned: bool) -> None:
    served = replace(a_model(spec=load_models()[model]), precision=precision)
    problem = replace(a_problem(offers=[an_offer("a")], rows=[]), models=(served,), measured_only=False)
    replica = Replica("chat-0", "chat", "aggregated", (), None, 0.5, ())
    found = caveats(problem, [], [replica])
    assert [warning.startswith("chat: engine_args name ") for warning in found] == [True] * warned
