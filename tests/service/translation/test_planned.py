"""What a plan says of its models and GPUs, there and back."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sutler.service.documents.fields import document_json
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_plan import gpus_of, served_models, solver_plan
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.catalog import load_models
from sutler.solver.problem import ServedModel
from tests.service.builders import NOW, a_plan, a_problem, a_workload


def translated(**others: Any) -> Translation:
    return to_problem(validate(ProblemDocument, a_problem(**others)), folder=None, now=NOW)


def read_back(translation: Translation, *models: ServedModel) -> PlanDocument:
    """Through the JSON of a plan for these models, or for the problem's own."""
    if models:
        translation = replace(translation, problem=replace(translation.problem, models=models))
    plan = issue_plan(a_plan(), translation, plan_id=UUID(int=1), created_at=NOW)
    return PlanDocument.model_validate_json(document_json(plan))


@pytest.mark.parametrize("name", load_models())
def test_every_architecture_of_the_catalogue_comes_back(name: str) -> None:
    translation = translated()
    model = replace(translation.problem.models[0], spec=load_models()[name])
    found = served_models(read_back(translation, model))[model.name]
    assert found.spec is not None
    assert model.spec is not None
    assert found.spec.id == name
    assert replace(found.spec, precisions=model.spec.precisions) == model.spec
    assert replace(found, spec=model.spec) == model


def test_limits_and_the_prefix_cache_come_back() -> None:
    [model] = a_problem()["models"]
    limited = {**model, "slo": {"ttft_p95_s": 2.0, "e2e_p50_s": 9.0}, "prefix_cache_hit_fraction": 0.4}
    translation = translated(models=[limited])
    [found] = served_models(read_back(translation)).values()
    [asked] = translation.problem.models
    assert (found.slo, found.prefix_cache_hit_fraction) == (asked.slo, 0.4)
    assert found.workloads == asked.workloads


def test_what_of_single_workloads_is_in_the_prefix_cache_comes_back() -> None:
    [model] = a_problem()["models"]
    own = [{**model["workloads"][0], "prefix_cache_hit_fraction": 0.75}, a_workload("plain")]
    translation = translated(models=[{**model, "prefix_cache_hit_fraction": 0.5, "workloads": own}])
    [found] = served_models(read_back(translation)).values()
    assert [found.cached_fraction(workload) for workload in found.workloads] == [0.75, 0.5]


def test_the_engine_its_version_and_its_guesses_come_back() -> None:
    [model] = a_problem()["models"]
    guesses = {"method": "mtp", "draft_tokens": 2, "acceptance_fraction": 0.8}
    translation = translated(models=[{**model, "speculation": guesses}], engine="sglang", engine_version="0.5.9")
    [found] = served_models(read_back(translation)).values()
    [asked] = translation.problem.models
    assert (found.engine, found.engine_version, found.speculation) == ("sglang", "0.5.9", asked.speculation)
    assert asked.speculation is not None
    assert asked.speculation.tokens_per_step == pytest.approx(2.44)


def test_a_version_is_of_the_engine_that_it_stands_beside() -> None:
    [model] = a_problem()["models"]
    versions = [
        translated(models=[{**model, **own}], engine="vllm", engine_version="0.6.3").problem.models[0].engine_version
        for own in ({}, {"engine": "vllm"}, {"engine": "sglang"}, {"engine_version": "0.19.0"})
    ]
    assert versions == ["0.6.3", "0.6.3", "", "0.19.0"]


def test_limits_of_single_workloads_come_back() -> None:
    [model] = a_problem()["models"]
    own = [{**model["workloads"][0], "slo": {"ttft_p95_s": None, "e2e_p50_s": 9.0}}, a_workload("plain")]
    translation = translated(models=[{**model, "slo": {"ttft_p95_s": 2.0, "tpot_p90_s": 0.1}, "workloads": own}])
    [found] = served_models(read_back(translation)).values()
    [asked] = translation.problem.models
    assert found.workloads == asked.workloads
    assert [len(found.limits_of(workload)) for workload in found.workloads] == [2, 2]


def test_the_load_that_a_replica_may_carry_comes_back_and_older_plans_say_nothing_of_it() -> None:
    made = read_back(translated())
    [replica] = a_plan().replicas
    plan = a_plan(replicas=(replace(replica, max_load_fraction=0.7),))
    stated = issue_plan(plan, translated(), plan_id=UUID(int=1), created_at=NOW)
    assert [one.max_load_fraction for one in solver_plan(stated).replicas] == [0.7]
    older = json.loads(document_json(made))
    for one in older["replicas"]:
        del one["max_load_fraction"]
    for one in older["models"]:
        for workload in one["workloads"]:
            del workload["slo"]
    read = PlanDocument.model_validate_json(json.dumps(older))
    assert [one.max_load_fraction for one in solver_plan(read).replicas] == [None]
    assert served_models(read) == served_models(made)


def test_requests_of_a_batch_are_no_rates() -> None:
    [model] = a_problem()["models"]
    workloads = [{**{k: v for k, v in w.items() if k != "rate_rps"}, "requests": 500} for w in model["workloads"]]
    translation = translated(objective={"kind": "min_makespan"}, models=[{**model, "workloads": workloads}])
    [planned] = read_back(translation).models
    assert {(w.rate_rps, w.requests) for w in planned.workloads} == {(None, 500.0)}


def test_the_gpus_of_the_replicas_are_there_with_their_figures() -> None:
    translation = translated()
    assert gpus_of(read_back(translation)) == {"h100-sxm": translation.problem.gpus["h100-sxm"]}


def test_what_runs_comes_back() -> None:
    plan = a_plan()
    found = solver_plan(read_back(translated()))
    assert (found.rentals, found.replicas, found.routing) == (plan.rentals, plan.replicas, plan.routing)


def test_several_precisions_come_back() -> None:
    translation = translated()
    [model] = translation.problem.models
    model = replace(model, more_precisions=(("fp8", "bf16"), ("int4", "fp8")))
    assert served_models(read_back(translation, model))[model.name].more_precisions == model.more_precisions


def test_replicas_of_plans_without_precisions_have_that_of_their_model() -> None:
    document = json.loads(document_json(read_back(translated())))
    for replica in document["replicas"]:
        del replica["precision"]
    found = solver_plan(PlanDocument.model_validate_json(json.dumps(document)))
    assert [replica.precision for replica in found.replicas] == ["bf16"]
