"""A replica with attention data parallelism from the problem to servers, keys, Terraform, diffs and simulation."""

import json
import shlex
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.export import exported
from sutler.service.simulation.corrections import deratings
from sutler.service.simulation.simulated import Choices, configuration_of, simulated
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.simulation.validation import of_configurations
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_plan import solver_plan
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.service.wording.words import layout
from sutler.solver import solve
from tests.service.builders import DELETE, NOW, Path, a_snapshot, an_offer, changed
from tests.service.cli.test_estimate import run_one
from tests.service.deployments.test_terraform import misfits, state
from tests.service.export.commands import in_shell
from tests.service.export.plans import plan_of

REPLICA: Path = ("replicas", 0)


def asked_of(**search: Any) -> dict[str, Any]:
    """Reasoning with a mixture of 235B parameters on four H200."""
    workload = {"name": "think", "input_tokens": 500, "output_tokens": 3000, "rate_rps": 1.0}
    model = {"name": "chat", "model": "qwen3-235b-a22b-2507", "precision": "fp8", "workloads": [workload]}
    return {
        "objective": {"kind": "max_throughput"},
        "models": [{**model, "slo": {"ttft_p90_s": 5.0, "tpot_p90_s": 0.08}}],
        "market": {"offers": a_snapshot(an_offer(gpu="h200-sxm", gpus=4, price_usd_per_hour=14.0))},
        "budget_usd_per_hour": 15,
        "search": search,
    }


def translated(**search: Any) -> Translation:
    return to_problem(validate(ProblemDocument, asked_of(**search)), folder=None, now=NOW)


def planned(translation: Translation) -> PlanDocument:
    return issue_plan(solve(translation.problem), translation, plan_id=UUID(int=1), created_at=NOW)


def edited(plan: PlanDocument, *changes: tuple[Path, object]) -> PlanDocument:
    """As it comes back from a file in which somebody changed this."""
    document = json.loads(plan.model_dump_json(by_alias=True))
    for place, value in changes:
        document = changed(document, place, value)
    return plan_of(document)


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return planned(translated())


def test_the_plan_says_so_and_can_be_read_again(plan: PlanDocument) -> None:
    [replica] = plan.replicas
    assert (replica.data_parallel, replica.expert_parallel, replica.stages[0].tensor_parallel) == (4, 4, 1)
    assert layout(replica.stages, replica.data_parallel) == "h200-sxm DP4·EP4"
    assert edited(plan) == plan
    [again] = solver_plan(plan).replicas
    assert (again.data_parallel, again.expert_parallel, again.stages[0].gpus) == (4, 4, 4)


def test_the_search_can_leave_it_out() -> None:
    [replica] = planned(translated(expert_parallel=False)).replicas
    assert (replica.data_parallel, replica.expert_parallel, replica.stages[0].tensor_parallel) == (1, 1, 4)
    with pytest.raises(DocumentError, match=r"search.expert_parallel: .*true or false"):
        translated(expert_parallel=3)


def test_vllm_gets_its_flags(plan: PlanDocument) -> None:
    [(variables, words)] = in_shell(exported(plan, "vllm").content)
    wanted = "--tensor-parallel-size 1 --pipeline-parallel-size 1 --data-parallel-size 4 --enable-expert-parallel"
    assert wanted in " ".join(words)
    assert int(words[words.index("--max-num-seqs") + 1]) * 4 == plan.replicas[0].max_batch
    assert "CUDA_VISIBLE_DEVICES" not in variables


def test_sglang_counts_over_all_ranks(plan: PlanDocument) -> None:
    script = exported(edited(plan, ((*REPLICA, "engine"), "sglang")), "vllm").content
    [line] = [line for line in script.splitlines() if "sglang.launch_server" in line]
    words = shlex.split(line.removesuffix("&"))
    flags = {"--tp-size": "4", "--dp-size": "4", "--ep-size": "4", "--chunked-prefill-size": "8192"}
    flags["--max-running-requests"] = str(plan.replicas[0].max_batch)
    assert {flag: words[words.index(flag) + 1] for flag in flags} == flags
    assert "--enable-dp-attention" in words
    assert "--enable-expert-parallel" not in words


def test_flags_are_there_where_the_arguments_were_edited_away(plan: PlanDocument) -> None:
    names = ("data_parallel_size", "enable_expert_parallel", "tensor_parallel_size")
    without = edited(plan, *(((*REPLICA, "engine_args", name), DELETE) for name in names))
    [(_, words)] = in_shell(exported(without, "vllm").content)
    assert words[words.index("--data-parallel-size") + 1] == "4"
    assert "--enable-expert-parallel" in words


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((*REPLICA, "data_parallel"), 2, "must name as many GPUs as tensor_parallel x data_parallel, 2"),
        ((*REPLICA, "data_parallel"), 1, "must name as many GPUs as tensor_parallel, 1"),
        ((*REPLICA, "engine_args", "data_parallel_size"), 8, "data_parallel_size: 8: must be 4, as in the replica"),
        ((*REPLICA, "engine_args", "enable_expert_parallel"), False, "enable_expert_parallel: False: must be True"),
    ],
)
def test_an_edited_plan_that_contradicts_itself_is_refused(
    plan: PlanDocument, place: Path, value: Any, message: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        exported(edited(plan, (place, value)), "vllm")
    assert message in str(caught.value)


def test_its_key_and_its_engine_are_not_those_of_one_gpu(plan: PlanDocument) -> None:
    [replica] = keyed(plan).replicas
    assert replica.key.startswith("chat/aggregated/1xh200-sxm*dp4/")
    alike = difference(plan, plan, reason="a test")
    assert not alike.start
    [kept] = difference(planned(translated(expert_parallel=False)), plan, reason="a test").keep
    assert kept.restart == ("chat-0",)


def test_terraform_has_it_with_its_type(plan: PlanDocument) -> None:
    output = state(plan)["outputs"]["replicas"]
    [replica] = output["value"].values()
    assert (replica["data_parallel"], replica["expert_parallel"]) == (4, 4)
    assert not misfits(output["value"], output["type"])


def test_what_validation_finds_of_it_holds_for_its_ranks_alone(plan: PlanDocument) -> None:
    translation = translated()
    own = configuration_of(plan.replicas[0])
    found = simulated(plan, PoissonTraffic(600.0), Choices())
    assert found.resource.meets_all_limits
    derated = replace(translation.problem, derated=deratings({(own, "think"): 0.5}))
    [replica] = planned(replace(translation, problem=derated)).replicas
    assert configuration_of(replica) != own
    same = planned(replace(translation, problem=of_configurations(translation.problem, {own})))
    assert {configuration_of(replica) for replica in same.replicas} == {own}


def test_an_estimate_may_have_ranks() -> None:
    asked = {"model": "qwen3-235b-a22b-2507", "tensor_parallel": "1", "data_parallel": "4"}
    found = json.loads(run_one("--json", **asked).stdout)
    assert (found["data_parallel"], "DP4·EP4" in found["detail"]) == (4, True)
    assert "TP 1, PP 1, DP 4" in run_one(**asked).stdout
    for changes, message in (
        ({"model": "llama-3.1-70b"}, "no experts to spread"),
        ({"pipeline_parallel": "2"}, "goes with one pipeline stage"),
        ({"data_parallel": "0"}, "dp"),
    ):
        refused = run_one(**{**asked, **changes})
        assert refused.exit_code == 2
        assert message in refused.stderr
