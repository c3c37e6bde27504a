"""Plans that contradict themselves: every contradiction is named by field, value and remedy."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.export import exported
from tests.service.builders import Path as Place
from tests.service.export.plans import NAMES, a_plan, plan_of, with_values

STAGE: Place = ("replicas", 0, "stages", 0)
ARGUMENTS: Place = ("replicas", 0, "engine_args")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((*STAGE, "rental"), 5, "replicas[0].stages[0].rental: 5: must be an index into the 1 rentals"),
        ((*STAGE, "rental"), -1, "replicas[0].stages[0].rental: -1: must be an index into the 1 rentals"),
        ((*STAGE, "machine"), 3, "replicas[0].stages[0].machine: 3: must be below the rental's count of 1"),
        ((*STAGE, "gpu_indices"), [0], "replicas[0].stages[0].gpu_indices: [0]: must name as many GPUs as tensor"),
        ((*STAGE, "gpu_indices"), [0, 0], "replicas[0].stages[0].gpu_indices: [0, 0]: must name as many GPUs as"),
        ((*STAGE, "gpu_indices"), [0, 8], "replicas[0].stages[0].gpu_indices: [0, 8]: must be below 8, the GPUs"),
        (("replicas", 0, "stages"), [], "replicas[0].stages: must not be empty"),
        (("replicas", 1, "id"), "large-0", "replicas[1].id: 'large-0': is used twice"),
        ((*ARGUMENTS, "model"), "", "replicas[0].engine_args.model: '': must name the model to load"),
        ((*ARGUMENTS, "model"), "--api-key=x", "replicas[0].engine_args.model: '--api-key=x': must name the model"),
        ((*ARGUMENTS, "model"), "a\0b", "replicas[0].engine_args.model: 'a\\x00b': contains a NUL character"),
        ((*ARGUMENTS, "x --api-key"), 1, "replicas[0].engine_args: 'x --api-key': is no argument of vLLM"),
        ((*ARGUMENTS, "tensor_parallel_size"), 4, "replicas[0].engine_args.tensor_parallel_size: 4: must be 2, as"),
        ((*ARGUMENTS, "pipeline_parallel_size"), 4, "replicas[0].engine_args.pipeline_parallel_size: 4: must be 1"),
        (("replicas", 0, "engine_env"), {"A;B": "x"}, "replicas[0].engine_env: 'A;B': is no name of an environment"),
        (("replicas", 0, "engine_env"), {"A": "\0"}, "replicas[0].engine_env.A: '\\x00': contains a NUL character"),
        (("routing", 0, "fractions"), {"small-0": 1.0}, "routing[0].fractions: 'small-0': must be replicas of model"),
        (("routing", 0, "fractions"), {"gone": 1.0}, "routing[0].fractions: 'gone': must be replicas of model 'lar"),
    ],
)
def test_a_contradiction_is_refused_by_name(place: Place, value: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        exported(plan_of(with_values("shared_machine", (place, value))), "vllm")
    assert any(line.startswith(message) for line in str(caught.value).splitlines()), str(caught.value)


def test_two_stages_on_one_gpu_are_refused() -> None:
    document = with_values("shared_machine", (("replicas", 1, "stages", 0, "gpu_indices"), [1, 2]))
    with pytest.raises(DocumentError, match=r"takes a GPU that replicas\[0\].stages\[0\] has"):
        exported(plan_of(document), "vllm")


def test_a_workload_routed_twice_is_refused() -> None:
    document = with_values("shared_machine")
    document["routing"].append(document["routing"][0])
    with pytest.raises(DocumentError, match=r"routing\[2\].workload: 'chat': is routed twice"):
        exported(plan_of(document), "router")


def test_a_plan_without_engine_arguments_is_refused_since_nothing_says_what_to_load() -> None:
    document = with_values("single_gpu", (("replicas", 0, "engine_args"), {}))
    with pytest.raises(DocumentError, match=r"replicas\[0\].engine_args.model: must name the model to load"):
        exported(plan_of(document), "vllm")


@pytest.mark.parametrize("name", NAMES)
def test_plans_of_the_solver_have_no_contradiction(name: str) -> None:
    assert exported(a_plan(name), "router").content
