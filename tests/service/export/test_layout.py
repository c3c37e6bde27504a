"""Which replicas run, as how many processes, on which GPUs and ports."""

import json

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.export import FORMATS, ROUTERS, ExportFormat, NothingToRunError, exported
from sutler.service.export.layout import layout_of
from tests.service.export.plans import a_plan, an_infeasible_plan, of_unequal_stages, plan_of, with_values


def test_a_replica_on_three_machines_is_three_processes_in_pipeline_order() -> None:
    (serving,) = layout_of(a_plan("several_machines")).servings
    places = [(process.rank, process.machine.index, process.gpu_indices) for process in serving.processes]
    assert places == [(0, 0, (0, 1)), (1, 1, (0, 1)), (2, 2, (0, 1))]


def on_machines(*machines: int) -> dict[str, object]:
    """The replica of several_machines with one GPU a stage, on these machines."""
    document = with_values("several_machines", (("rentals", 0, "count"), 9), (("rentals", 0, "gpus"), 4))
    stage = document["replicas"][0]["stages"][0]
    stages = [
        {**stage, "tensor_parallel": 1, "machine": machine, "gpu_indices": [machines[:number].count(machine)]}
        for number, machine in enumerate(machines)
    ]
    document["replicas"][0]["stages"] = stages
    document["replicas"][0]["engine_args"] = {"model": "org/model"}
    return document


@pytest.mark.parametrize(
    ("machines", "gpus_by_process"),
    [
        ((0, 0, 0), [(0, 1, 2)]),
        ((0, 0, 1, 1), [(0, 1), (0, 1)]),
        ((0, 0, 1), [(0,), (1,), (0,)]),  # vLLM gives every node the same number of ranks
        ((0, 1, 0, 1), [(0,), (0,), (1,), (1,)]),  # and ranks that follow each other
    ],
)
def test_processes_have_equally_many_stages_that_follow_each_other(
    machines: tuple[int, ...], gpus_by_process: list[tuple[int, ...]]
) -> None:
    (serving,) = layout_of(plan_of(on_machines(*machines))).servings
    assert [process.gpu_indices for process in serving.processes] == gpus_by_process


def test_heads_on_one_machine_get_ports_of_their_own() -> None:
    servings = layout_of(a_plan("shared_machine")).servings
    assert len({serving.port for serving in servings}) == len({s.master_port for s in servings}) == len(servings)


def test_heads_on_different_machines_keep_the_usual_port() -> None:
    assert {serving.port for serving in layout_of(a_plan("single_gpu")).servings} == {8000}


def a_pipeline_that_prefills() -> PlanDocument:
    return plan_of(with_values("uneven_pipeline", (("replicas", 0, "role"), "prefill")))


def for_tensorrt_llm() -> PlanDocument:
    return plan_of(with_values("single_gpu", (("replicas", 0, "engine"), "tensorrt-llm")))


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in ROUTERS])
@pytest.mark.parametrize(
    ("plan", "reason", "remedy"),
    [
        (plan_of(of_unequal_stages()), "its stages have 2, 1 GPUs", "engine: vllm"),
        (a_pipeline_that_prefills(), "is a prefill replica of", "max_pipeline_stages: 1"),
        (for_tensorrt_llm(), "is for tensorrt-llm", "export the router format"),
    ],
)
def test_nothing_is_exported_without_what_cannot_be_started(
    format: ExportFormat, plan: PlanDocument, reason: str, remedy: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        exported(plan, format)
    [problem] = caught.value.problems
    assert problem.field == "replicas[0]"
    assert problem.value == repr(plan.replicas[0].id)
    assert f"cannot be exported as {format}: " in problem.remedy
    assert reason in problem.remedy
    assert remedy in problem.remedy


@pytest.mark.parametrize("plan", [plan_of(of_unequal_stages()), a_pipeline_that_prefills(), for_tensorrt_llm()])
def test_weights_are_exported_for_whatever_engine(plan: PlanDocument) -> None:
    assert json.loads(exported(plan, "router").content)["replicas"].keys() == {r.id for r in plan.replicas}


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "skypilot"])
def test_the_warnings_stand_in_the_result(format: ExportFormat) -> None:
    result = exported(a_plan("mixed_pipeline"), format)
    assert [warning.split()[:2] for warning in result.warnings] == [["chat-0", "mixes"], ["code-0", "mixes"]]
    if format not in ("router", "envoy"):  # whose JSON has no comments
        assert all(warning in result.content for warning in result.warnings)


def test_a_skypilot_task_has_no_machines_that_differ() -> None:
    with pytest.raises(DocumentError, match=r"'code-0': cannot be exported as skypilot: all nodes .* are alike"):
        exported(a_plan("mixed_pipeline"), "skypilot")


@pytest.mark.parametrize("format", FORMATS)
def test_an_infeasible_plan_is_no_export_but_says_what_must_give(format: str) -> None:
    with pytest.raises(NothingToRunError, match=r"infeasible and runs nothing: raise budget_usd_per_hour to"):
        exported(plan_of(an_infeasible_plan()), format)  # type: ignore[arg-type]


def test_a_plan_not_found_in_time_is_no_export() -> None:
    document = {**an_infeasible_plan(), "status": "unknown", "conflicts": []}
    with pytest.raises(NothingToRunError, match=r"raise solver\.time_limit_s"):
        exported(plan_of(document), "vllm")


def test_servers_count_on_from_the_port_that_is_asked_for() -> None:
    plan = a_plan("shared_machine")
    ports = [serving.port for serving in layout_of(plan, first_port=9100).servings]
    assert ports == [serving.port + 1100 for serving in layout_of(plan).servings]
    assert "--port 9100" in exported(plan, "vllm", port=9100).content
    with pytest.raises(DocumentError, match=r"port.*address of its own"):
        exported(plan, "kubernetes", port=9100)


@pytest.mark.parametrize("format", ["vllm", "compose", "kubernetes", "skypilot"])
def test_further_arguments_go_to_every_server(format: ExportFormat) -> None:
    plan = a_plan("single_gpu")
    content = exported(plan, format, arguments=("gpu-memory-utilization=0.85", "enforce_eager=true")).content
    assert content.count("--gpu-memory-utilization") == len(plan.replicas)
    assert content.count("0.85") == len(plan.replicas)
    assert content.count("--enforce-eager") == len(plan.replicas)


@pytest.mark.parametrize(
    "text", ["enforce_eager", "=1", "Max Len=1", "a;b=1", "x=\0", "max_num_seqs=4", "model=other"]
)
def test_arguments_that_are_none_or_the_plans_own_are_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="argument"):
        exported(a_plan("single_gpu"), "vllm", arguments=(text,))
