"""The command line in process: exit statuses, what goes to which stream, what files are written."""

import json
import signal
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.cli.terminal import interrupts
from sutler.service.cli.terminal.exits import guarded
from sutler.service.documents.kinds import DocumentName
from sutler.service.json_schemas import DOCUMENTS, json_schema
from tests.service.builders import a_problem, a_snapshot, an_offer

EXAMPLES = Path(__file__).parents[3] / "examples"


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def written(folder: Path, **others: Any) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps(a_problem(**others)))
    return path


def test_a_plan_for_people_is_plain_text_on_stdout(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("3.0000 requests/s at the given mix\nOptimal")
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_json_is_all_that_goes_to_stdout(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("plan"))
    assert document["objective"]["value"] == pytest.approx(3.0)


def test_the_worked_example_of_the_paper_takes_28_43_s() -> None:
    """(80 + 20/1.2) / 3.4 s on one t1 and a tensor-parallel pair of t2; see examples/appendix_c.yaml."""
    result = sutler("plan", EXAMPLES / "appendix_c.yaml", "--json")
    document = json.loads(result.stdout)
    assert document["makespan_s"] == pytest.approx((80 + 20 / 1.2) / 3.4, rel=1e-3)
    assert {(r["gpu"], r["gpus"] * r["count"]) for r in document["rentals"]} == {("t1", 1), ("t2", 2)}


def test_the_same_problem_gives_the_same_plan(tmp_path: Path) -> None:
    def timeless(text: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(text)
        for key in ("id", "created_at"):
            del document[key]
        del document["market"]["age_s"], document["solver"]["seconds"], document["solver"]["phases"]
        return document

    path = EXAMPLES / "appendix_c.yaml"
    first, second = (sutler("plan", path, "--json").stdout for _ in range(2))
    assert timeless(first) == timeless(second)
    assert json.loads(first)["id"] != json.loads(second)["id"]


@pytest.mark.parametrize("budget", [0, 5.0])
def test_machines_of_ones_own_are_planned_at_no_cost(tmp_path: Path, budget: float) -> None:
    own, rented = an_offer(price_usd_per_hour=0, offer_id="rack"), an_offer()
    problem = written(tmp_path, market={"offers": a_snapshot(own, rented)}, budget_usd_per_hour=budget)
    out = tmp_path / "plan.json"
    result = sutler("plan", problem, "--out", out)
    assert result.exit_code == 0, result.output
    plan = json.loads(out.read_text(encoding="utf-8"))
    assert [(r["offer_id"], r["price_usd_per_hour"]) for r in plan["rentals"]] == [("rack", 0)]
    assert (plan["cost_usd_per_hour"], plan["usd_per_million_tokens"]) == (0, 0)
    assert "0 $/h · 0 $ per million tokens" in result.stdout


def test_a_problem_is_read_from_standard_input() -> None:
    result = sutler("plan", "-", "--json", stdin=json.dumps(a_problem()))
    assert json.loads(result.stdout)["status"] == "optimal"


def test_out_writes_the_json_beside_the_table(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")
    result = sutler("plan", written(tmp_path), "--out", target)
    assert result.exit_code == 0
    assert result.stdout.startswith("3.0000 requests/s")
    assert json.loads(target.read_text())["schema"] == "sutler/plan/v1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "problem.json"]


def test_out_keeps_a_link_and_replaces_what_it_points_at(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    sutler("plan", written(tmp_path), "--out", tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["status"] == "optimal"


def test_a_written_plan_can_be_read_like_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    sutler("plan", written(tmp_path), "--out", tmp_path / "plan.json")
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize(
    ("target", "reason"), [("", "is a folder"), ("nowhere/plan.json", "its folder does not exist")]
)
def test_out_refuses_at_once_what_it_cannot_write(tmp_path: Path, target: str, reason: str) -> None:
    result = sutler("plan", written(tmp_path), "--out", tmp_path / target)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert result.stdout == ""


def test_options_win_over_the_problems_solver_settings(tmp_path: Path) -> None:
    path = written(tmp_path, solver={"time_limit_s": 5, "relative_gap": 0.01})
    with_alternatives = json.loads(sutler("plan", path, "--json", "--time-limit-s", "7").stdout)
    without = json.loads(sutler("plan", path, "--json", "--no-alternatives").stdout)
    assert len(with_alternatives["alternatives"]) == 1
    assert without["alternatives"] == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--time-limit-s", "0"], "solver.time_limit_s: 0.0: must be above 0"),
        (["--time-limit-s", "nan"], "solver.time_limit_s: nan: must be a finite number"),
        (["--relative-gap", "2"], "solver.relative_gap: 2.0: must be at most 0.5"),
    ],
)
def test_a_wrong_option_is_bad_input(tmp_path: Path, options: list[str], field: str) -> None:
    result = sutler("plan", written(tmp_path), *options)
    assert result.exit_code == 2
    assert f"error: {field}" in result.stderr


BAD_FILES = {
    "unknown key": (b"objectives: {}", "objectives: {}: unknown key (did you mean objective?)"),
    "not a mapping": (b"- 1", "must hold a mapping"),
    "empty": (b"", "is empty"),
    "binary": (b"\x00\xff\x80", "is not UTF-8"),
    "code": (b"a: !!python/object/apply:os.system [id]", "is not allowed"),
    "bomb": (b"a: &a [*a]", "contains itself"),
    "syntax": (b"a: [1", "is not valid YAML"),
    "not finite": (b"budget_usd_per_hour: .nan", "budget_usd_per_hour: nan: must be a finite number"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_input_exits_2_with_the_field_and_no_traceback(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "problem.yaml"
    path.write_bytes(content)
    result = sutler("plan", path, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())


def test_a_missing_file_exits_2() -> None:
    result = sutler("plan", "nowhere.yaml")
    assert result.exit_code == 2
    assert "nowhere.yaml" in result.stderr


def test_an_unknown_model_exits_2(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, throughput={}, models=[{**a_problem()["models"][0], "model": "gpt-9"}]))
    assert result.exit_code == 2
    assert "models[0].model: 'gpt-9'" in result.stderr


def test_many_errors_are_cut_short(tmp_path: Path) -> None:
    snapshot = a_snapshot(*(an_offer(offer_id=str(i), gpus=0) for i in range(50)))
    result = sutler("plan", written(tmp_path, market={"offers": snapshot}))
    lines = result.stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "error: ... and 30 more of this kind"


def test_control_characters_of_a_file_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({"a\x1b[2Jb": "\x1b[31m"}))
    result = sutler("plan", path)
    assert "\x1b" not in result.stderr
    assert "unknown key" in result.stderr


def test_no_market_data_exits_4(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, market={}))
    assert (result.exit_code, result.stdout) == (4, "")
    assert "run `sutler market poll`, or name a snapshot file in market.offers" in result.stderr


def test_a_stale_market_exits_4(tmp_path: Path) -> None:
    market = {"offers": {**a_snapshot(), "taken_at": "2020-01-01T00:00:00Z"}, "filter": {"max_age_s": 900}}
    result = sutler("plan", written(tmp_path, market=market))
    assert result.exit_code == 4
    assert "take a fresh snapshot" in result.stderr


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_an_infeasible_problem_exits_3_and_says_what_must_give(tmp_path: Path, options: list[str]) -> None:
    result = sutler("plan", written(tmp_path, budget_usd_per_hour=2), *options)
    assert result.exit_code == 3
    assert "budget" in result.stdout
    if options:
        document = json.loads(result.stdout)
        assert document["status"] == "infeasible"
        assert document["conflicts"][0]["constraint"] == "budget"
        assert document["conflicts"][0]["needed"] == pytest.approx(9.0)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "calibration"])
def test_schemas_are_printed(name: DocumentName) -> None:
    result = sutler("schema", name)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json_schema(name)


def test_an_unknown_schema_is_a_usage_error() -> None:
    assert sutler("schema", "nothing").exit_code == 2


def test_the_catalogue_is_listed() -> None:
    result = sutler("catalog", "gpus", "--json")
    assert result.exit_code == 0
    assert "h100-sxm" in result.stdout


def test_every_command_explains_itself() -> None:
    result = sutler("--help")
    assert result.exit_code == 0
    for command in ("plan", "compare", "estimate", "schema", "catalog"):
        assert command in result.stdout
        assert sutler(command, "--help").exit_code == 0


def test_the_version_is_told() -> None:
    result = sutler("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("sutler ")


def test_a_defect_is_one_line_and_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    @guarded
    def broken() -> None:
        raise AssertionError("two and two\nis five")

    monkeypatch.delenv("SUTLER_DEBUG", raising=False)
    one = typer.Typer()
    one.command()(broken)
    result = CliRunner().invoke(one, [])
    assert result.exit_code == 1
    assert result.stderr == (
        "this is a defect of sutler: AssertionError: two and two is five (set SUTLER_DEBUG=1 to see the traceback)\n"
    )
    monkeypatch.setenv("SUTLER_DEBUG", "1")
    assert "Traceback" in CliRunner().invoke(one, []).stderr


def test_what_an_interrupted_import_makes_of_ctrl_c_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled modules turn the KeyboardInterrupt that reaches them while they are imported into an ImportError."""
    monkeypatch.setattr(interrupts, "_came", [])
    monkeypatch.setattr(interrupts, "_raise_again_later", lambda: None)

    @guarded
    def importing() -> None:
        try:
            interrupts._interrupt(signal.SIGINT, None)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    one = typer.Typer()
    one.command()(importing)
    result = CliRunner().invoke(one, [])
    assert (result.exit_code, result.stderr) == (130, "")
