"""From a plan's replicas to what is simulated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.errors import InvalidProblemError
from sutler.solver.estimate import one_layout
from sutler.solver.plan import Plan
from sutler.solver.problem import Objective, Problem, ServedModel, Workload
from sutler.solver.simulation.fleet import SimulatedReplica, closed_loop
from sutler.solver.simulation.replicas import lengths_of, simulated_replicas
from sutler.solver.simulation.requests import RequestKind, Requests, poisson, requests_of, sampled
from sutler.solver.simulation.step_times import Lengths, step_times
from sutler.solver.throughput.refit import refit
from sutler.solver.throughput.roofline import Roofline
from tests.builders import an_offer, measured
from tests.solver.throughput.test_refit import a_run, as_if

GPU, MODEL = "h100-sxm", "llama-3-8b"
NO_TOKENS = np.zeros(0, dtype=np.int64)


def a_problem(**others: Any) -> Problem:
    """Llama-3-8B on one H100, or as the other fields say; its rates estimated."""
    model = ServedModel("chat", load_models()[MODEL], "bf16", "bf16", (Workload("w", 800, 200, 1.0),))
    given: dict[str, Any] = {
        "objective": Objective("max_throughput"),
        "models": (model,),
        "offers": (replace(an_offer(GPU, price=2.5), intra_machine_gb_per_s=450.0),),
        "gpus": {GPU: load_gpus()[GPU]},
        "budget_usd_per_hour": 2.6,
    }
    return Problem(**{**given, **others})


def replicas_of(plan: Plan, problem: Problem, **others: Any) -> tuple[SimulatedReplica, ...]:
    models = {model.name: model for model in problem.models}
    lengths = {name: lengths_of(model, NO_TOKENS, NO_TOKENS) for name, model in models.items()}
    return simulated_replicas(
        plan.replicas, models=models, gpus=problem.gpus, evidence=plan.evidence, lengths=lengths, **others
    )


def saturated_rps(replica: SimulatedReplica) -> float:
    """Requests/s of 800 in and 200 out between the first waves and the last."""
    batch = replica.settings.max_sequences
    count = 12 * batch
    asked = Requests(
        (RequestKind("chat", "w", 800, 200, 1.0),),
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
        np.full(count, 800),
        np.full(count, 200),
    )
    ends_s = np.sort(closed_loop(replica, asked, concurrency=batch).finish_s)
    first, last = count // 4, count * 5 // 6
    return float((last - first) / (ends_s[last] - ends_s[first]))


def test_a_replica_sustains_what_its_plan_counts_on() -> None:
    problem = a_problem()
    plan = solve(problem)
    [replica] = replicas_of(plan, problem)
    assert replica.settings.max_sequences == plan.replicas[0].max_batch
    assert saturated_rps(replica) == pytest.approx(plan.throughput_rps, rel=0.03)


def test_a_replica_whose_rate_was_measured_is_as_fast_as_that() -> None:
    problem = a_problem(measured=(measured(GPU, {"w": 4.0}),))
    plan = solve(problem)
    assert plan.throughput_rps == pytest.approx(4.0)
    [replica] = replicas_of(plan, problem)
    assert saturated_rps(replace(replica, outside_s=0.0)) == pytest.approx(4.0, rel=0.03)


def test_a_plan_of_measured_rates_alone_is_simulated_as_fast_as_they_are() -> None:
    problem = a_problem(measured=(measured(GPU, {"w": 4.0}),), measured_only=True)
    plan = solve(problem)
    [replica] = replicas_of(plan, problem)
    assert saturated_rps(replace(replica, outside_s=0.0)) == pytest.approx(4.0, rel=0.03)


def test_equal_replicas_share_their_tables() -> None:
    problem = a_problem(offers=(an_offer(GPU, price=2.5, available=3),), budget_usd_per_hour=8.0)
    replicas = replicas_of(solve(problem), problem)
    assert len(replicas) == 3
    assert len({id(replica.times) for replica in replicas}) == 1


def test_stages_say_over_which_links_they_were_estimated() -> None:
    offer = replace(an_offer(GPU, 2, price=5.0), intra_machine_gb_per_s=450.0)
    model = ServedModel("chat", load_models()["llama-3-70b"], "fp8", "bf16", (Workload("w", 800, 200, 1.0),))
    problem = a_problem(offers=(offer,), models=(model,), budget_usd_per_hour=6.0)
    plan = solve(problem)
    [replica] = plan.replicas
    assert {stage.intra_gb_per_s for stage in replica.stages} == {450.0}
    assert [stage.hop_gb_per_s for stage in replica.stages] == [450.0] * (len(replica.stages) - 1) + [None]


def test_a_plan_without_an_architecture_cannot_be_simulated() -> None:
    model = ServedModel("chat", None, "bf16", "bf16", (Workload("w", 800, 200, 1.0),))
    problem = a_problem(models=(model,), measured=(measured(GPU, {"w": 4.0}),), measured_only=True)
    plan = solve(problem)
    with pytest.raises(InvalidProblemError, match=r"chat-0.*architecture"):
        replicas_of(plan, problem)


def test_a_measured_layout_that_the_estimate_cannot_place_is_named() -> None:
    """Llama-3-70B in bf16 needs 141 GB; somebody measured it on 80."""
    model = ServedModel("chat", load_models()["llama-3-70b"], "bf16", "bf16", (Workload("w", 800, 200, 1.0),))
    problem = a_problem(models=(model,), measured=(measured(GPU, {"w": 4.0}),))
    plan = solve(problem)
    with pytest.raises(InvalidProblemError, match="does not fit"):
        replicas_of(plan, problem)


KINDS = (
    RequestKind("chat", "short", 100, 10.5, 2.0),
    RequestKind("chat", "long", 4000, 200, 1.0),
    RequestKind("code", "w", 50, 50, 0.5),
)


def test_poisson_arrivals_keep_rates_and_mean_lengths() -> None:
    asked = poisson(KINDS, duration_s=20_000.0, seed=1, load_multiple=2.0)
    rates = np.bincount(asked.kind) / 20_000.0
    assert rates.tolist() == pytest.approx([4.0, 2.0, 1.0], rel=0.02)
    assert float(asked.output_tokens[asked.kind == 0].mean()) == pytest.approx(10.5, rel=0.01)
    assert (np.diff(asked.arrival_s) >= 0).all()
    gaps_s = np.diff(asked.arrival_s)
    assert float(gaps_s.std() / gaps_s.mean()) == pytest.approx(1.0, rel=0.02)


def test_recorded_requests_belong_to_the_nearest_workload_of_their_model() -> None:
    asked = requests_of(KINDS, "chat", np.array([3.0, 1.0]), np.array([3000, 120]), np.array([150, 12]))
    assert asked.kind.tolist() == [0, 1]
    assert asked.arrival_s.tolist() == [1.0, 3.0]


def test_requests_for_a_model_that_the_plan_does_not_serve_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="other"):
        requests_of(KINDS, "other", np.array([1.0]), np.array([10]), np.array([10]))


def test_sampled_requests_have_recorded_lengths_in_their_pairs() -> None:
    asked = sampled(KINDS, "chat", np.array([10, 5000]), np.array([1, 300]), rate_rps=5.0, duration_s=1000.0, seed=2)
    pairs = set(zip(asked.input_tokens.tolist(), asked.output_tokens.tolist(), strict=True))
    assert pairs == {(10, 1), (5000, 300)}
    assert len(asked) == pytest.approx(5000, rel=0.05)


def test_requests_are_checked_when_they_are_made() -> None:
    with pytest.raises(InvalidProblemError, match="at least one token"):
        Requests(KINDS, np.zeros(1, np.int64), np.zeros(1), np.array([0]), np.array([1]))
    with pytest.raises(InvalidProblemError, match="sort"):
        Requests(KINDS, np.zeros(2, np.int64), np.array([1.0, 0.0]), np.array([1, 1]), np.array([1, 1]))


def test_a_calibration_says_the_same_of_few_sequences_however_many_there_may_be() -> None:
    """Runs of few in flight on a slow stack: their step times hold at light load with room for many more."""
    problem = a_problem()
    model, layouts = problem.models[0], one_layout(load_gpus()[GPU], tensor_parallel=1, pipeline_parallel=1)
    lengths = {"input_tokens": 800, "output_tokens": 200}
    asked = [a_run(spec=load_models()[MODEL], concurrency=c, **lengths) for c in (1, 2, 4, 8)]
    roofline = Roofline(refit(as_if(asked, 0.4), [], shipped_calibration()).calibration, "vllm", "roofline")
    layouts = replace(layouts, layers=np.array([[32]]))
    step_s = []
    for most in (8, 256):
        times = step_times(model, layouts, roofline.stages(model), Lengths(1000, 900), max_sequences=most)
        slowed = times.slowed(roofline.slower(model, layouts, max_batch=most).tolist())
        step_s.append(slowed.line(4, 900).at(900))
    assert step_s[0] == pytest.approx(step_s[1], rel=1e-6)
    plain = Roofline().stages(model)
    assert step_s[0] > 1.8 * step_times(model, layouts, plain, Lengths(1000, 900), max_sequences=8).line(4, 900).at(
        900
    )
