"""What engines can run decides which plans there are, and never what of a running fleet is possible."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Plan
from sutler.solver.problem import EngineName, Offer, Problem, Search, ServedModel, Speculation
from sutler.solver.replanning import Switching
from sutler.solver.verify import verify
from tests.builders import a_model, a_problem, a_workload, an_offer
from tests.solver.replanning.builders import considered

A40, L40 = "a40", "l40"
SITE: dict[str, Any] = {"site": "s", "inter_machine_gb_per_s": 12.5}
MIXED = (an_offer(A40, 2, price=2.0, **SITE), an_offer(L40, 2, price=2.0, **SITE))
UNEQUAL = (an_offer(A40, 4, price=2.0, **SITE), an_offer(L40, 2, price=2.0, **SITE))


def a_case(
    *offers: Offer,
    engine: EngineName = "any-layout",
    mixed_gpus: bool | None = None,
    demand_rps: float = 0.2,
    max_context_tokens: int | None = None,
) -> Problem:
    """Llama-3-70B at bf16, 141 GB of weights: it needs four cards of 48 GB, or a little less than that of six."""
    model: ServedModel = a_model(
        a_workload(demand=demand_rps, input_tokens=500.0, output_tokens=100.0),
        spec=load_models()["llama-3-70b"],
        engine=engine,
        max_context_tokens=max_context_tokens,
    )
    return a_problem(
        objective="min_cost",
        models=[model],
        offers=offers,
        gpus=[load_gpus()[slug] for slug in (A40, L40)],
        search=Search(mixed_gpu_pipelines=mixed_gpus),
        measured_only=False,
    )


def the_gpus_of(plan: Plan) -> set[tuple[str, int]]:
    [replica] = plan.replicas
    return {(stage.gpu, stage.tensor_parallel) for stage in replica.stages}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_gpus_are_mixed_with_one_degree_where_that_is_asked_for(engine: EngineName) -> None:
    [conflict] = solve(a_case(*MIXED, engine=engine)).conflicts
    assert conflict.unit == "pipelines of one GPU type"
    assert "search.mixed_gpu_pipelines" in conflict.remedy
    plan = solve(a_case(*MIXED, engine=engine, mixed_gpus=True))
    assert the_gpus_of(plan) == {(A40, 2), (L40, 2)} or the_gpus_of(plan) == {(A40, 1), (L40, 1)}
    [replica] = plan.replicas
    sizes = dict(replica.engine_args)
    assert replica.engine == engine
    assert sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"] == 4  # type: ignore[operator]


def test_what_only_unequal_stages_can_serve_is_said_to_need_another_engine() -> None:
    offers = (replace(MIXED[0], gpus=1), replace(MIXED[1], gpus=8))
    model = load_models()["llama-3-70b"]
    assert model.heads % 8 == 0
    cards = {**load_gpus(), L40: replace(load_gpus()[L40], memory_gb=18.0)}
    problem = a_case(*offers, engine="vllm")
    problem = replace(problem, gpus={slug: cards[slug] for slug in (A40, L40)}, search=Search(tensor_parallel=(1, 8)))
    [conflict] = solve(problem).conflicts
    assert conflict.unit == "layouts that vllm runs"
    assert "set engine to any-layout" in conflict.remedy
    freer = solve(replace(problem, models=tuple(replace(m, engine="any-layout") for m in problem.models)))
    assert the_gpus_of(freer) == {(A40, 1), (L40, 8)}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_pipeline_guesses_tokens_but_of_engines_that_run_any_layout(engine: EngineName) -> None:
    """Two machines of two cards hold the model as a pipeline alone."""
    offers = (an_offer(L40, 2, price=2.0, available=2, **SITE),)
    plain = a_case(*offers, engine=engine)
    assert len(solve(plain).replicas[0].stages) > 1
    guessing = replace(plain, models=(replace(plain.models[0], speculation=Speculation(3, 0.7, 0.05, "eagle3")),))
    [conflict] = solve(guessing).conflicts
    assert "any-layout" in conflict.remedy
    beyond = replace(guessing, models=(replace(guessing.models[0], engine="any-layout"),))
    plan = solve(beyond)
    assert len(plan.replicas[0].stages) > 1
    assert any("guess tokens" in warning for warning in plan.warnings)
    assert "that guesses tokens" in " ".join(verify(guessing, plan))
    whole = replace(guessing, offers=(an_offer(L40, 4, price=4.0, **SITE),))
    assert [len(replica.stages) for replica in solve(whole).replicas] == [1]


def test_a_plan_with_a_layout_beyond_its_engine_is_not_let_through() -> None:
    free = a_case(*MIXED)
    plan = solve(free)
    assert verify(free, plan) == ()
    broken = verify(a_case(*MIXED, engine="vllm"), plan)
    assert any("expected one GPU type unless search.mixed_gpu_pipelines is true with vllm" in one for one in broken)
    assert any(".engine: 'any-layout', expected 'vllm'" in one for one in broken)
    assert verify(a_case(*MIXED, engine="vllm"), plan, is_standing=True) == ()


def test_a_fleet_that_runs_is_kept_whatever_its_engine_could_run() -> None:
    plan = solve(a_case(*MIXED))
    found = considered(a_case(*MIXED, engine="vllm"), plan, switching=Switching(startup_s=60.0))
    assert [option.kind for option in found.options] == ["keep"]
    assert found.keep.is_valid
    assert found.keep.carries
    assert found.conflicts == ()


def test_a_fleet_that_runs_for_another_engine_is_kept_until_it_is_laid_out_anew() -> None:
    offer = an_offer(A40, 4, price=2.0)
    plan = solve(a_case(offer, engine="vllm"))
    found = considered(a_case(offer, engine="sglang"), plan, is_urgent=True, switching=Switching(startup_s=60.0))
    assert found.keep.carries
    relaid = found.options[-1].plan
    assert relaid is not None
    assert {replica.engine for replica in relaid.replicas} == {"sglang"}


def test_no_server_is_planned_that_could_not_start_with_the_context_it_is_to_accept() -> None:
    """About 42 GB on four A40 are left for keys and values, 0.33 MB a token; on eight some 200 GB."""
    four, eight = an_offer(A40, 4, price=2.0), an_offer(A40, 8, price=4.0, offer_id="eight")
    spec = load_models()["llama-3-70b"]
    assert spec.max_context_tokens == 8192
    longer = replace(spec, max_context_tokens=1_000_000)

    def problem(*offers: Offer, context: int | None) -> Problem:
        case = a_case(*offers, max_context_tokens=context)
        return replace(case, models=tuple(replace(model, spec=longer) for model in case.models))

    def the_rental(context: int | None) -> str:
        plan = solve(problem(four, eight, context=context))
        [replica] = plan.replicas
        assert dict(replica.engine_args)["max_model_len"] == (context or 2048)
        return plan.rentals[0].offer_id

    assert the_rental(None) == the_rental(30_000) == four.offer_id
    assert the_rental(400_000) == "eight"
    plan = solve(problem(four, context=None))
    strict = problem(four, context=400_000)
    assert any("expected a KV cache that holds 400000" in one for one in verify(strict, plan))
    assert considered(strict, plan, switching=Switching()).keep.is_valid
    [conflict] = solve(strict).conflicts
    assert (conflict.unit, conflict.needed) == ("tokens of context", 400_000.0)
    assert 30_000 < conflict.available < 400_000
    assert solve(problem(four, context=int(conflict.available))).status == "optimal"
