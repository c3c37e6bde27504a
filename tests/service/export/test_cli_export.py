"""`sutler export`: exit statuses, what goes to which stream, what files are written."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.export import export
from sutler.service.export import FORMATS, ExportFormat, exported
from tests.service.export.plans import FOLDER, a_plan, an_infeasible_plan, of_unequal_stages, stored

app = typer.Typer()
app.command()(export)


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def written(folder: Path, document: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return path


def test_the_formats_of_the_command_are_those_of_the_package() -> None:
    annotation = export.__annotations__["format"]
    assert get_args(get_args(annotation)[0]) == FORMATS == get_args(ExportFormat)


@pytest.mark.parametrize("format", FORMATS)
def test_the_export_is_all_that_goes_to_stdout(format: str) -> None:
    result = run(FOLDER / "several_machines.json", "--format", format)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == exported(a_plan("several_machines"), format).content  # type: ignore[arg-type]


def test_a_plan_can_come_from_a_pipe() -> None:
    result = run("-", "-f", "router", stdin=json.dumps(stored("single_gpu")))
    assert (result.exit_code, json.loads(result.stdout)["revision"]) == (0, 1)


def test_a_file_is_written_and_stdout_left_empty(tmp_path: Path) -> None:
    target = tmp_path / "run.sh"
    result = run(FOLDER / "single_gpu.json", "-f", "vllm", "--out", target)
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text() == exported(a_plan("single_gpu"), "vllm").content


def test_what_to_look_at_is_said_on_stderr() -> None:
    result = run(FOLDER / "mixed_pipeline.json", "-f", "vllm")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: chat-0 mixes h100-sxm and l40s: vLLM starts it")


def test_no_fleet_is_exported_without_one_of_its_replicas(tmp_path: Path) -> None:
    result = run(written(tmp_path, of_unequal_stages()), "-f", "compose")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "replicas[0]: 'chat-0': cannot be exported as compose: its stages have 2, 1 GPUs" in result.stderr
    assert "plan with engine: vllm" in result.stderr


def test_a_plan_that_runs_nothing_ends_with_3_and_the_remedy(tmp_path: Path) -> None:
    result = run(written(tmp_path, an_infeasible_plan()), "-f", "vllm")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "error: the plan is infeasible and runs nothing: raise budget_usd_per_hour to at least 9.05\n"
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "error: PLAN: []: must hold a plan"),
        (
            {"schema": "sutler/market/v1"},
            "error: schema: 'sutler/market/v1': is a market, which is not what is wanted here",
        ),
        ({**stored("single_gpu"), "rentals": 3}, "error: rentals: 3: must be a list"),
        ({**stored("single_gpu"), "extra": 3}, "error: extra: 3: unknown key"),
        ({**stored("single_gpu"), "rentals": []}, "error: replicas[0].stages[0].rental: 0: must be an index into"),
    ],
)
def test_bad_input_ends_with_2_and_names_the_field(document: Any, message: str, tmp_path: Path) -> None:
    result = run(written(tmp_path, document), "-f", "compose")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.json", "-f", "vllm"), "error: PLAN: 'gone.json': does not exist"),
        ((FOLDER / "single_gpu.json", "-f", "helm"), "'helm' is not one of"),
        ((FOLDER / "single_gpu.json",), "Missing option '--format'"),
        ((FOLDER / "single_gpu.json", "-f", "vllm", "--out", FOLDER), "is a folder: name a file in it"),
    ],
)
def test_a_wrong_call_ends_with_2(arguments: tuple[str | Path, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
