"""Which replicas run, as how many processes, on which GPUs and ports."""

import pytest

from service.export import FORMATS, NothingToRunError, exported
from service.export.layout import layout_of
from tests.service.export.plans import a_plan, an_infeasible_plan, plan_of, stored, with_values


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


def test_stages_of_unequal_width_are_left_out_and_said_so() -> None:
    layout = layout_of(a_plan("mixed_pipeline"))
    assert [serving.replica.id for serving in layout.servings] == ["code-0"]
    assert layout.warnings[0].startswith("chat-0 is left out: its stages have 2, 4 GPUs")
    assert layout.warnings[1].startswith("code-0 mixes h100-sxm and l40s")


def test_a_pipeline_for_prefill_alone_is_left_out_and_said_so() -> None:
    document = with_values("uneven_pipeline", (("replicas", 0, "role"), "prefill"))
    layout = layout_of(plan_of(document))
    assert "is a prefill replica of" in layout.warnings[0]
    assert "max_pipeline_stages: 1" in layout.warnings[0]


@pytest.mark.parametrize("format", FORMATS)
def test_the_warnings_stand_in_the_result(format: str) -> None:
    plan = a_plan("mixed_pipeline")
    if format == "skypilot":
        with pytest.raises(NothingToRunError, match=r"chat-0 is left out.*code-0 left out: all nodes"):
            exported(plan, "skypilot")
    else:
        result = exported(plan, format)  # type: ignore[arg-type]
        assert [warning.split()[0] for warning in result.warnings] == ["chat-0", "code-0"]
        if format != "router":
            assert all(warning in result.content for warning in result.warnings)


@pytest.mark.parametrize("format", FORMATS)
def test_an_infeasible_plan_is_no_export_but_says_what_must_give(format: str) -> None:
    with pytest.raises(NothingToRunError, match=r"infeasible and runs nothing: raise budget_usd_per_hour to"):
        exported(plan_of(an_infeasible_plan()), format)  # type: ignore[arg-type]


def test_a_plan_not_found_in_time_is_no_export() -> None:
    document = {**an_infeasible_plan(), "status": "unknown", "conflicts": []}
    with pytest.raises(NothingToRunError, match=r"raise solver\.time_limit_s"):
        exported(plan_of(document), "vllm")


def test_a_plan_whose_replicas_all_stay_out_is_exported_as_weights_only() -> None:
    document = stored("single_gpu")
    for replica in document["replicas"]:
        [stage] = replica["stages"]
        replica["role"] = "prefill"
        replica["stages"] = [stage, {**stage, "gpu_indices": [1]}]
        replica["engine_args"]["pipeline_parallel_size"] = 2
    document["rentals"] = [{**rental, "gpus": 2} for rental in document["rentals"]]
    plan = plan_of(document)
    with pytest.raises(NothingToRunError, match="no replica can be started: chat-0 is left out"):
        exported(plan, "vllm")
    left_out = [warning for warning in exported(plan, "router").warnings if "left out" in warning]
    assert len(left_out) == len(stored("single_gpu")["replicas"])
