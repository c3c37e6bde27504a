"""The schedule of a plan: what each step starts, keeps and stops, on which GPUs and ports, and when it ends."""

import json
from pathlib import Path

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.offline.run_plan import run_plan
from sutler.service.documents.errors import DocumentError
from sutler.service.export import NothingToRunError
from sutler.service.json_schemas import json_schema
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.running import schedule_of, script_of
from sutler.service.offline.schedule_schema import ScheduleStep
from tests.service.offline.running_plans import ARCHITECTURE, REQUESTS, a_plan, a_stage

FLAGS = Path(__file__).parent.parent / "export" / "vllm_flags.txt"
app = typer.Typer()
app.command("run-plan")(run_plan)
app.command("other")(lambda: None)

THREE_STEPS = (
    a_stage(0, 100, {"a": [(0,), (1,)], "b": [(2, 3)]}, finished={"b": REQUESTS}),
    a_stage(100, 200, {"a": [(0,)], "c": [(1,), (2,)]}, finished={"a": 60}, until=("a", 0.5)),
    a_stage(200, 300, {"a": [(2, 3)], "c": [(1,), (0,)]}, finished={"a": REQUESTS, "c": REQUESTS}),
)


def run(*arguments: str | int | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["run-plan", *map(str, arguments)], input=stdin)


def as_json(plan: OfflinePlanDocument) -> str:
    return plan.model_dump_json(by_alias=True)


def changes(step: ScheduleStep) -> tuple[set[str], set[str], set[str]]:
    return set(step.stop), set(step.keep), {start.id for start in step.start}


def test_each_step_says_what_to_stop_what_to_keep_and_what_to_start() -> None:
    first, second, third = schedule_of(a_plan(*THREE_STEPS)).steps
    assert changes(first) == (set(), set(), {"a-tp1-0", "a-tp1-1", "b-tp2-0"})
    assert changes(second) == ({"a-tp1-1", "b-tp2-0"}, {"a-tp1-0"}, {"c-tp1-0", "c-tp1-1"})
    # a changes its size, the second replica of c moves from GPU 2 to GPU 0
    assert changes(third) == ({"a-tp1-0", "c-tp1-1"}, {"c-tp1-0"}, {"a-tp2-0", "c-tp1-1"})


def test_no_gpu_is_used_twice_at_a_time_and_no_port_of_a_host_at_all() -> None:
    schedule = schedule_of(a_plan(*THREE_STEPS), first_port=9000)
    for step in schedule.steps:
        used = [(start.host, gpu) for start in step.running for gpu in start.gpus]
        assert len(set(used)) == len(used)
    ports = [(replica.host, replica.port) for replica in schedule.replicas]
    assert sorted(ports) == [(0, port) for port in range(9000, 9000 + len(ports))]


def test_arguments_besides_are_of_every_server_and_not_those_that_the_plan_decides() -> None:
    schedule = schedule_of(a_plan(*THREE_STEPS), arguments=["enforce-eager=true", "gpu_memory_utilization=0.8"])
    for replica in schedule.replicas:
        assert replica.command[-3:] == ("--enforce-eager", "--gpu-memory-utilization", "0.8")
    with pytest.raises(DocumentError, match="is what the plan decides"):
        schedule_of(a_plan(*THREE_STEPS), arguments=["max_num_seqs=1"])


def test_a_step_ends_with_the_models_that_finish_in_the_plan_or_at_a_count_of_requests() -> None:
    first, second, third = schedule_of(a_plan(*THREE_STEPS)).steps
    assert (first.ends.expected, first.ends.until) == (("b",), None)
    assert second.ends.expected == ()
    assert second.ends.until is not None
    assert second.ends.until.requests == 60, "what was finished when the simulated stage ended"
    assert third.ends.expected == ("a", "c")


def test_a_share_that_was_not_reached_is_counted_in_requests() -> None:
    stage = a_stage(0, 100, {"a": [(0,)], "b": [(1,)]}, finished={"a": 10, "b": REQUESTS}, until=("a", 0.25))
    (step,) = schedule_of(a_plan(stage)).steps
    assert step.ends.until is not None
    assert (step.ends.expected, step.ends.until.requests) == (("b",), 25)


def test_a_server_is_started_as_the_model_needs_it() -> None:
    models = {"b": {"precision": "fp8", "kv_precision": "fp8"}}
    schedule = schedule_of(a_plan(*THREE_STEPS, models=models))
    words = {replica.id: " ".join(replica.command) for replica in schedule.replicas}
    assert words["a-tp1-0"] == (
        "vllm serve meta-llama/Llama-2-7b-hf --served-model-name a --tensor-parallel-size 1 --dtype bfloat16 "
        "--max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len auto --port 8000 --host 127.0.0.1"
    )
    assert "--tensor-parallel-size 2 --quantization fp8 --kv-cache-dtype fp8" in words["b-tp2-0"]
    assert schedule.steps[0].running[2].environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    assert [warning for warning in schedule.warnings if warning.startswith("b is planned at fp8")]
    known = {flag for line in FLAGS.read_text("utf-8").splitlines() if line[:1] != "#" for flag in line.split()}
    used = {word for replica in schedule.replicas for word in replica.command if word.startswith("--")}
    assert used <= known


def test_a_known_checkpoint_is_loaded_without_a_warning() -> None:
    known = {**ARCHITECTURE, "checkpoints": {"fp8": "org/quantised"}}
    schedule = schedule_of(a_plan(*THREE_STEPS, models={"b": {"precision": "fp8", "architecture": known}}))
    words = {replica.id: replica.command for replica in schedule.replicas}["b-tp2-0"]
    assert words[:3] == ("vllm", "serve", "org/quantised")
    assert "--quantization" not in words
    assert not [warning for warning in schedule.warnings if warning.startswith("b is planned at fp8")]


@pytest.mark.parametrize(("named", "warned"), [("vicuna-7b", True), ("llama-2-7b", False)])
def test_a_model_that_was_read_as_another_is_not_loaded_without_a_word(named: str, warned: bool) -> None:
    plan = a_plan(*THREE_STEPS)
    models = tuple(model.model_copy(update={"model": named}) for model in plan.application.models)
    renamed = plan.application.model_copy(update={"models": models})
    schedule = schedule_of(plan.model_copy(update={"application": renamed}))
    told = "a is vicuna-7b and its command names meta-llama/Llama-2-7b-hf: put in the checkpoint that you mean"
    assert any(warning.startswith(told) for warning in schedule.warnings) == warned


def test_a_gpu_without_bf16_gets_the_weights_as_fp16() -> None:
    plan = a_plan(*THREE_STEPS)
    assert plan.hardware is not None
    old = plan.hardware.figures.model_copy(update={"supports_bf16": False})
    turing = plan.model_copy(update={"hardware": plan.hardware.model_copy(update={"figures": old})})
    command = schedule_of(turing).replicas[0].command
    assert command[command.index("--dtype") + 1] == "float16"


def test_a_slow_start_is_given_longer_and_a_quick_one_some_minutes() -> None:
    quick = schedule_of(a_plan(*THREE_STEPS)).replicas[0]
    slow = schedule_of(a_plan(*THREE_STEPS, models={"a": {"load_s": {"1": 500.0}}})).replicas[0]
    assert (quick.health_limit_s, slow.health_limit_s) == (900, 5000)


@pytest.mark.parametrize("name", ["a b", "it's", "../up", "$(reboot)", ".", "-x", "é" * 200, 'a"b'])
def test_a_name_that_is_no_file_name_gets_one_of_its_own(name: str) -> None:
    stage = a_stage(0, 100, {name: [(0,)], "plain.Name_1": [(1,)]}, finished={name: REQUESTS})
    odd, plain = schedule_of(a_plan(stage)).models
    assert (odd.model, plain.file) == (name, "plain.Name_1")
    assert odd.file != name
    assert set(odd.file) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_every_host_has_a_script_of_its_own_and_the_remedy_is_named_without_one() -> None:
    hosts = ((0, (0,)), (1, (0,)))
    schedule = schedule_of(a_plan(a_stage(0, 100, {"a": [((0, 0),)], "b": [((1, 0),)]}), islands=hosts))
    assert [(replica.host, replica.port) for replica in schedule.replicas] == [(0, 8000), (1, 8000)]
    assert "127.0.0.1" not in schedule.replicas[0].command, "clients on other hosts have to reach it"
    assert "replica b-tp1-0" in script_of(schedule, host=1)
    assert "replica a-tp1-0" not in script_of(schedule, host=1)
    with pytest.raises(DocumentError, match=r"--host: is missing: hosts 0, 1 .* name one"):
        script_of(schedule)
    with pytest.raises(DocumentError, match="--host: 2: must be one of the hosts that the plan runs on: 0, 1"):
        script_of(schedule, host=2)


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ({"a": [(0,)], "b": [(0,)]}, r"stages\[0\].models\[1\].replicas\[0\].gpus: .* takes a GPU that"),
        ({"a": [(7,)]}, "must be GPUs that hardware.islands lists"),
        ({"a": [((0, 0), (1, 0))]}, "must be on one host"),
        ({"a": [(0, 1), (2,)]}, "must name as many GPUs as tensor_parallel, 2"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(placed: dict[str, list[tuple[int, ...]]], words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        schedule_of(a_plan(a_stage(0, 100, placed), islands=((0, (0, 1, 2, 3)), (1, (0,)))))


def test_a_model_to_load_that_reads_as_an_option_is_refused() -> None:
    stage = a_stage(0, 100, {"a": [(0,)]})
    architecture = {**a_plan(stage).models[0].architecture.model_dump(), "hf_id": "--trust-remote-code"}
    with pytest.raises(DocumentError, match=r"models\[0\].architecture.hf_id: .* does not begin with -"):
        schedule_of(a_plan(stage, models={"a": {"architecture": architecture}}))


def test_ports_that_do_not_exist_are_refused() -> None:
    with pytest.raises(DocumentError, match="--port: 65534: host 0 runs out of ports: begin lower"):
        schedule_of(a_plan(*THREE_STEPS), first_port=65_534)


def test_a_plan_without_stages_runs_nothing() -> None:
    conflict = {"constraint": "gpus", "needed": 8.0, "available": 4.0, "unit": "GPUs"}
    with pytest.raises(NothingToRunError, match=r"the plan is infeasible .* gpus needs 8 GPUs, there is 4"):
        schedule_of(a_plan(status="infeasible", conflicts=(conflict,)))


def test_the_command_prints_a_document_of_its_schema() -> None:
    result = run("-", stdin=as_json(a_plan(*THREE_STEPS)))
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("offline-schedule"))
    assert (document["schema"], len(document["steps"])) == ("sutler/offline-schedule/v1", 3)


def test_the_command_writes_the_script_to_a_file(tmp_path: Path) -> None:
    plan, target = a_plan(*THREE_STEPS), tmp_path / "run.sh"
    result = run("-", "-f", "sh", "--port", 9000, "--out", target, stdin=as_json(plan))
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text("utf-8") == script_of(schedule_of(plan, first_port=9000))


def test_the_command_ends_with_the_status_of_what_is_wrong(tmp_path: Path) -> None:
    empty = run("-", stdin=as_json(a_plan(status="infeasible")))
    assert (empty.exit_code, empty.stderr[:32]) == (3, "error: the plan is infeasible an")
    assert run(tmp_path / "none.json").exit_code == 2
    unneeded = run("-", "--host", 0, stdin=as_json(a_plan(*THREE_STEPS)))
    assert (unneeded.exit_code, "goes with --format sh" in unneeded.stderr) == (2, True)
