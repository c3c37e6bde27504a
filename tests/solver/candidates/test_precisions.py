"""Precision as a decision: of the listed ones each replica gets the one that serves the objective best."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sutler.solver import solve
from sutler.solver.candidates.dominance import undominated
from sutler.solver.candidates.enumerate import enumerate_candidates
from sutler.solver.catalog import PRECISIONS, load_gpus, load_models
from sutler.solver.catalog.entries import Precision
from sutler.solver.errors import InvalidProblemError
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.problem import ObjectiveKind, Offer, Problem, Search, ServedModel
from sutler.solver.verify import verify
from tests.builders import (
    a_model,
    a_problem,
    a_workload,
    an_offer,
    estimated_seeds,
    measured,
    random_estimated_problem,
)
from tests.solver.replanning.builders import considered
from tests.solver.test_laws import is_no_worse

Listed = tuple[Precision, ...]


def at(problem: Problem, listed: Listed) -> Problem:
    """All models with these precisions to choose from."""
    return replace(problem, models=tuple(_with(model, listed) for model in problem.models))


def _with(model: ServedModel, listed: Listed) -> ServedModel:
    return replace(model, precision=listed[0], more_precisions=tuple((one, model.kv_precision) for one in listed[1:]))


def served(*listed: Precision, offers: tuple[Offer, ...] = (), **others: Any) -> Problem:
    """5 requests/s for a 70B model, on H100s and L40Ss."""
    cards = [load_gpus()[name] for name in ("h100-sxm", "l40s")]
    machines = [
        an_offer("h100-sxm", 8, price=18.0, available=2, divisible=True),
        an_offer("l40s", 8, price=7.2, available=2),
    ]
    model = a_model(a_workload(demand=5.0), spec=load_models()["llama-3.3-70b"])
    others.setdefault("objective", "min_cost")
    problem = a_problem(models=[model], offers=offers or machines, gpus=cards, measured_only=False, **others)
    return at(problem, listed)


def precisions_of(plan: Plan) -> set[str | None]:
    return {replica.precision for replica in plan.replicas}


@pytest.mark.slow
@given(estimated_seeds, st.sampled_from(["max_throughput", "min_cost"]))
@settings(derandomize=True, max_examples=2, database=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_list_is_never_worse_than_each_of_its_values(seed: int, objective: ObjectiveKind) -> None:
    problem = random_estimated_problem(seed, objective)
    listed = solve(at(problem, ("bf16", "fp8", "int4")))
    assert verify(at(problem, ("bf16", "fp8", "int4")), listed) == ()
    for one in ("bf16", "fp8", "int4"):
        assert is_no_worse(listed, solve(at(problem, (one,))))


def test_the_cheapest_precision_is_chosen_and_started_from_its_checkpoint() -> None:
    plan = solve(served("bf16", "fp8"))
    alone = solve(served("fp8"))
    assert plan.value == pytest.approx(alone.value)
    assert (plan.value or 0.0) < 0.8 * (solve(served("bf16")).value or 0.0)
    [first, *_] = plan.replicas
    assert (first.precision, first.checkpoint) == ("fp8", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    assert dict(first.engine_args)["model"] == first.checkpoint


def test_each_gpu_runs_the_precision_that_suits_it() -> None:
    """An L40S machine holds the 70B model in no less than 8 bits, a lone H100 in 4."""
    offers = (an_offer("h100-sxm", 1, price=2.0), an_offer("l40s", 4, price=2.0))
    problem = served("int4", "fp8", offers=offers, objective="max_throughput", budget_usd_per_hour=4.0)
    plan = solve(problem)
    by_gpu = {replica.stages[0].gpu: replica.precision for replica in plan.replicas}
    assert by_gpu == {"h100-sxm": "int4", "l40s": "fp8"}
    assert [dict(replica.engine_args).get("quantization") for replica in plan.replicas] == [
        "awq_marlin" if replica.precision == "int4" else None for replica in plan.replicas
    ]


@pytest.mark.parametrize("other", [*PRECISIONS, None])
def test_a_replica_at_another_precision_than_it_was_rated_at_is_rejected(other: Precision | None) -> None:
    problem = served("bf16", "fp8")
    plan = solve(problem)
    assert precisions_of(plan) == {"fp8"}
    changed = replace(plan, replicas=tuple(replace(r, precision=other) for r in plan.replicas))
    found = verify(problem, changed)
    if other == "fp8":
        assert found == ()
    else:
        assert any(("precision" if other != "bf16" else "replica 'chat-0'") in each for each in found)


def test_storage_is_that_of_the_precision_and_keeps_the_cheaper_of_two_that_are_as_fast() -> None:
    """Priced disk: of equal pieces the faster does not push out what stores less."""
    disk: dict[str, Any] = {"disk_gb": 2000.0, "disk_usd_per_gb_month": 0.2}
    problem = served("bf16", "fp8", offers=(an_offer("h100-sxm", 4, price=9.0, available=2, **disk),))
    candidates = enumerate_candidates(problem, build_supply(problem))
    both = {PRECISIONS[p]: candidates.storage_usd_per_hour[candidates.precision == p] for p in (0, 2)}
    assert both["bf16"].min() > 1.8 * both["fp8"].max() / 4
    kept = candidates.take(undominated(candidates))
    cheapest = kept.storage_usd_per_hour.min()
    assert cheapest == candidates.storage_usd_per_hour.min()
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.rentals[0].storage_gb == pytest.approx(len(plan.replicas) / plan.rentals[0].count * 77.5, rel=0.05)


def test_a_running_replica_keeps_its_precision_and_another_one_is_another_replica() -> None:
    plan = solve(served("bf16"))
    found = considered(served("bf16", "fp8"), plan)
    assert found.keep.plan is not None
    assert precisions_of(plan) == precisions_of(found.keep.plan) == {"bf16"}
    moved = [option.plan for option in found.options if option.plan and precisions_of(option.plan) == {"fp8"}]
    assert moved
    for other in moved:
        assert {replica.id for replica in other.replicas}.isdisjoint(replica.id for replica in plan.replicas)
        assert (other.value or 0.0) < (plan.value or 0.0)


def test_a_precision_that_is_not_listed_any_more_runs_on_but_no_change_keeps_it() -> None:
    plan = solve(served("bf16"))
    found = considered(served("fp8"), plan)
    assert found.keep.plan is not None
    assert precisions_of(found.keep.plan) == {"bf16"}
    assert dict(found.keep.plan.replicas[0].engine_args)["dtype"] == "bfloat16"
    assert {"fp8"} in [precisions_of(option.plan) for option in found.options if option.plan is not None]


def test_a_measured_row_counts_for_its_precision_alone() -> None:
    row = replace(measured("h100-sxm:2", {"w1": 50.0}), precision="fp8")
    problem = replace(served("bf16", "fp8"), measured=(row,))
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert {(r.precision, r.stages[0].tensor_parallel) for r in plan.replicas} == {("fp8", 2)}
    assert [evidence.source for evidence in plan.evidence] == ["measured"]
    other = solve(replace(problem, measured=(replace(row, precision="bf16"),)))
    assert {(r.precision, r.stages[0].tensor_parallel) for r in other.replicas} == {("bf16", 2)}


def test_what_several_precisions_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="estimated rates"):
        solve(replace(served("bf16", "fp8"), measured_only=True))
    apart = served("bf16", "fp8", search=Search(disaggregation="auto"))
    model = replace(apart.models[0], more_precisions=(("fp8", "fp8"),))
    with pytest.raises(InvalidProblemError, match="set kv_precision"):
        solve(replace(apart, models=(model,)))
