"""What a plan says of 8-bit weights where 16-bit ones are asked for."""

from dataclasses import replace

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.catalog.entries import Precision
from sutler.solver.plan import PrecisionAlternative
from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, a_model, a_problem, a_workload, an_offer, measured


def served(
    name: str = "llama-3.3-70b", precision: Precision = "bf16", objective: ObjectiveKind = "min_cost"
) -> Problem:
    demand = 5.0 if name == "llama-3.3-70b" else 30.0
    model = replace(a_model(a_workload(demand=demand), spec=load_models()[name]), precision=precision)
    return a_problem(
        objective=objective,
        models=[model],
        offers=[an_offer("h100-sxm", 8, price=18.0, available=2, divisible=True), an_offer("l40s", 8, price=7.2)],
        gpus=[load_gpus()[card] for card in ("h100-sxm", "l40s")],
        budget_usd_per_hour=None if objective in ("min_cost", "min_power") else 20.0,
        measured_only=False,
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_8_bits_would_bring_is_no_more_than_they_do(objective: ObjectiveKind) -> None:
    plan, other = solve(served(objective=objective)), solve(served(precision="fp8", objective=objective))
    found = plan.precision_alternative
    assert found is not None
    assert found.precision == "fp8"
    assert found.checkpoints == (("chat", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"),)
    assert other.bound is not None
    assert plan.value is not None
    if objective == "max_throughput":
        assert found.value <= other.bound * (1 + 1e-9)
        assert found.better_by_fraction == pytest.approx(found.value / plan.value - 1)
    else:
        assert found.value >= other.bound * (1 - 1e-9)
        assert found.better_by_fraction == pytest.approx(1 - found.value / plan.value)
    assert found.better_by_fraction > 0.1


def test_a_small_model_without_a_checkpoint_is_quantised_by_the_engine() -> None:
    found = solve(served("llama-3-8b", objective="max_throughput")).precision_alternative
    assert found is not None
    assert found.checkpoints == (("chat", None),)


@pytest.mark.parametrize(
    "problem",
    [
        served(precision="fp8"),
        replace(served(), options=replace(served().options, alternatives=False)),
        replace(served(), options=replace(served().options, robustness=False)),
        replace(served(), measured=(measured("h100-sxm:2", {"w1": 4.0}),)),
        replace(served(), models=(replace(served().models[0], more_precisions=(("fp8", "bf16"),)),)),
    ],
    ids=["at fp8", "no alternatives", "a look", "measured", "a list"],
)
def test_nothing_is_said_where_nobody_asked_or_nobody_knows(problem: Problem) -> None:
    assert solve(problem).precision_alternative is None


def test_a_saving_of_nothing_is_not_mentioned() -> None:
    """One machine carries the load either way."""
    problem = served("llama-3-8b")
    quiet = replace(problem.models[0], workloads=(a_workload(demand=0.1),))
    assert solve(replace(problem, models=(quiet,))).precision_alternative is None


def test_figures_that_do_not_follow_are_rejected() -> None:
    problem = served()
    plan = solve(problem)
    found = plan.precision_alternative
    assert found is not None
    wrong: list[PrecisionAlternative] = [
        replace(found, better_by_fraction=found.better_by_fraction * 1.1),
        replace(found, value=2 * (plan.value or 0.0), better_by_fraction=-1.0),
        replace(found, checkpoints=(("code", None),)),
        replace(found, checkpoints=()),
    ]
    for other in wrong:
        assert verify(problem, replace(plan, precision_alternative=other))
