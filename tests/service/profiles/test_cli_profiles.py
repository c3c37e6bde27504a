"""`sutler profiles`, `sutler calibrate` and problems that name a calibration, as a new user types them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from tests.service.builders import a_snapshot
from tests.service.profiles.builders import a_table
from tests.service.profiles.payloads import VLLM


def sutler(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def listed(*arguments: str | Path) -> Any:
    result = sutler(*arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(a_table(0.7))
    return path


def a_problem(folder: Path, **throughput: Any) -> Path:
    """A model whose rates are estimated, on one kind of machine."""
    workload = {"name": "w", "input_tokens": 1024, "output_tokens": 256, "rate_rps": 1.0}
    problem = {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 20,
        "models": [{"name": "chat", "model": "llama-3.1-8b", "precision": "bf16", "workloads": [workload]}],
        "market": {"offers": a_snapshot()},
        "throughput": throughput,
    }
    path = folder / "problem.json"
    path.write_text(json.dumps(problem))
    return path


@pytest.mark.slow
def test_from_result_file_to_plan(private_store: Path, runs: Path, tmp_path: Path) -> None:
    before = listed("plan", a_problem(tmp_path), "--json")
    imported = sutler("profiles", "import", runs)
    assert imported.exit_code == 0, imported.stderr
    assert "sutler calibrate" in imported.stdout
    assert [one["runs"] for one in listed("profiles", "list", "--json")] == [8]
    fitted = sutler("calibrate", "mine")
    assert fitted.exit_code == 0, fitted.stderr
    assert "throughput: {calibration: mine}" in fitted.stdout
    after = listed("plan", a_problem(tmp_path, calibration="mine"), "--json")
    assert after["throughput_rps"] == pytest.approx(0.7 * before["throughput_rps"], rel=0.06)
    assert after["evidence"][0]["source"] == "profiles"
    assert "calibration mine (revision 1)" in after["evidence"][0]["detail"]
    assert before["calibration"] is None
    assert after["calibration"]["name"] == "mine"


@pytest.mark.slow
def test_a_calibrated_plan_is_simulated_as_fast_as_it_says(shared_store: Path, runs: Path, tmp_path: Path) -> None:
    sutler("profiles", "import", runs)
    sutler("calibrate", "mine")
    plan = tmp_path / "plan.json"
    assert sutler("plan", a_problem(tmp_path, calibration="mine"), "--out", plan).exit_code == 0
    found = listed("simulate", plan, "--poisson", "--load-multiple", "1.5", "--duration-s", "120", "--json")
    rate = json.loads(plan.read_text())["throughput_rps"]
    assert found["models"][0]["throughput_rps"] == pytest.approx(rate, rel=0.1)


@pytest.mark.slow
def test_a_calibration_in_a_file_needs_no_store(
    private_store: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sutler("profiles", "import", runs)
    assert sutler("calibrate", "mine", "--dry-run", "--out", tmp_path / "mine.json").exit_code == 0
    assert listed("calibrate", "--list", "--json") == []
    monkeypatch.setenv("SUTLER_DATA_DIR", str(tmp_path / "nothing"))
    plan = listed("plan", a_problem(tmp_path, calibration={"file": "mine.json"}), "--json")
    assert plan["calibration"]["name"] == "mine"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ("yours", "throughput.calibration: 'yours': is no calibration"),
        ({"file": "nowhere.json"}, "does not exist"),
        ({"file": "problem.json"}, "holds no calibration"),
        ({"fil": "problem.json"}, "{file: path} or a whole calibration"),
        (7, "must be the name of a stored calibration"),
        ({"schema": "sutler/calibration/v1"}, "throughput.calibration.name"),
    ],
)
def test_a_calibration_that_is_not_there_is_named(
    private_store: Path, tmp_path: Path, calibration: object, said: str
) -> None:
    result = sutler("plan", a_problem(tmp_path, calibration=calibration))
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) < 20


def test_what_is_refused_is_said_and_the_rest_is_kept(shared_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(VLLM) + json.dumps({**VLLM, "max_concurrency": 8}))
    result = sutler("profiles", "import", path)
    assert result.exit_code == 2
    assert "refused: result.json, result 2: concurrency: 8 contradicts" in result.stderr
    assert [one["runs"] for one in listed("profiles", "list", "--json")] == [1]
    (profile,) = listed("profiles", "list", "--json")
    shown = sutler("profiles", "show", profile["id"])
    assert "llama-3.1-70b at fp8" in shown.stdout
    assert listed("profiles", "show", profile["id"], "--json")["measured"][0]["req_per_s"] == 2.5


def test_every_message_says_what_to_do_next(shared_store: Path, tmp_path: Path) -> None:
    assert "sutler profiles import" in sutler("profiles", "list").stdout
    assert "sutler profiles import" in sutler("calibrate", "mine").stderr
    assert "sutler calibrate NAME" in sutler("calibrate", "--list").stdout
    assert "sutler profiles list" in sutler("profiles", "show", "abc").stderr
    assert "NAME, or --list" in sutler("calibrate").stderr
    missing = sutler("profiles", "import", tmp_path / "nowhere.json")
    assert (missing.exit_code, "no such file" in missing.stderr) == (2, True)
    assert "without options" in sutler("profiles", "list", "--engine", "nope").stdout


def test_a_name_that_cannot_be_shown_is_refused(shared_store: Path, runs: Path) -> None:
    imported = sutler("profiles", "import", runs)
    assert imported.exit_code == 0, imported.stderr
    result = sutler("calibrate", "a\x1b[31mb")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "name" in result.stderr


@pytest.mark.slow
def test_an_estimate_by_a_calibration_meets_its_runs(shared_store: Path, runs: Path, tmp_path: Path) -> None:
    sutler("profiles", "import", runs)
    sutler("calibrate", "mine", "--out", tmp_path / "mine.json")
    asked = ["--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "bf16", "--concurrency", "32", "--json"]
    asked += ["--input-tokens", "2048", "--output-tokens", "512"]
    shipped = listed("estimate", *asked)["req_per_s"]
    for calibration in ("mine", tmp_path / "mine.json"):
        found = listed("estimate", *asked, "--calibration", calibration)
        assert found["req_per_s"] == pytest.approx(0.7 * shipped, rel=0.05)
        assert found["source"] == "profiles"
    predicted = sutler("estimate", "--csv", runs, "--calibration", "mine").stdout.splitlines()
    rows = [dict(zip(predicted[0].split(","), row.split(","), strict=True)) for row in predicted[1:]]
    assert [float(row["predicted_req_per_s"]) / float(row["req_per_s"]) for row in rows] == pytest.approx(
        [1.0] * 8, rel=0.08
    )
    assert sutler("estimate", *asked, "--calibration", "yours").exit_code == 2
    assert "does not exist" in sutler("estimate", *asked, "--calibration", tmp_path / "none.json").stderr
    other = sutler("estimate", *asked, "--calibration", "mine", "--engine", "sglang")
    assert (other.exit_code, "fitted to runs of vllm" in other.stderr) == (2, True)


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being(
    shared_store: Path, runs: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({**VLLM, "mean_ttft_ms": -5}))
    result = sutler("profiles", "import", broken, runs, tmp_path, "--json")
    assert result.exit_code == 2
    assert [(one["file"], one["kept"]) for one in json.loads(result.stdout)] == [
        ("broken.json", 0),
        ("runs.csv", 8),
        (tmp_path.name, 0),
    ]
    assert "mean_ttft_ms" in json.loads(result.stdout)[0]["rejected"][0]["reasons"][0]


@pytest.mark.slow
def test_names_that_yaml_takes_for_something_else_are_refused(shared_store: Path, runs: Path) -> None:
    sutler("profiles", "import", runs)
    for name in ("5", "true", "No", "a: #b", "my cal"):
        result = sutler("calibrate", name)
        assert result.exit_code == 2, name
        assert "name" in result.stderr
    assert sutler("calibrate", "l40s_v0.12-fp8").exit_code == 0


def test_a_run_that_the_others_contradict_is_named(shared_store: Path, tmp_path: Path) -> None:
    rows = a_table(0.9).splitlines()
    cells = rows[4].split(",")
    rows[4] = ",".join([*cells[:9], f"{float(cells[9]) / 3:.6g}", *(f"{float(c) * 3:.6g}" for c in cells[10:])])
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(rows))
    sutler("profiles", "import", path)
    shown = " ".join(sutler("calibrate", "mine").stdout.split())
    assert f"with {cells[6]} + {cells[7]} tokens and {cells[8]} in flight" in shown
    assert "measure it again" in shown


def test_the_plan_says_by_whose_runs_it_was_made(shared_store: Path, runs: Path, tmp_path: Path) -> None:
    sutler("profiles", "import", runs)
    sutler("calibrate", "mine")
    text = sutler("plan", a_problem(tmp_path, calibration="mine")).stdout
    assert "by calibration mine (revision 1): 8 runs of vllm 0.11.0" in " ".join(text.split())


def a_described_problem(folder: Path, **throughput: Any) -> Path:
    """The same, on a GPU and of a model that no catalogue has."""
    problem = json.loads(a_problem(folder, **throughput).read_text())
    problem["models"][0]["model"] = {
        **{"layers": 32, "hidden_size": 4096, "heads": 32, "kv_heads": 8, "intermediate_size": 14336},
        **{"vocab_size": 128256, "tied_embeddings": False},
    }
    figures = {"memory_gb": 80, "memory_bandwidth_gb_per_s": 3350, "peak_tflops_bf16_dense": 989.5}
    problem["gpus"] = {"h800-own": {"architecture": "hopper", "link_gb_per_s": 450, **figures}}
    offer = problem["market"]["offers"]["offers"][0]
    problem["market"]["offers"]["offers"] = [{**offer, "gpu": "h800-own"}]
    path = folder / "described.json"
    path.write_text(json.dumps(problem))
    return path


@pytest.mark.slow
def test_gpus_and_models_that_a_problem_describes_are_measured_and_calibrated(
    private_store: Path, tmp_path: Path
) -> None:
    runs, problem = tmp_path / "own.csv", a_described_problem(tmp_path)
    runs.write_text(a_table(0.7).replace("h100-sxm,llama-3.1-8b", "h800-own,chat"))
    refused = sutler("profiles", "import", runs)
    assert refused.exit_code == 2
    assert "'h800-own' is not in the catalogue" in refused.stderr
    assert "--problem" in refused.stderr
    assert listed("profiles", "import", runs, "--problem", problem, "--json")[0]["kept"] == 8
    (profile,) = listed("profiles", "list", "--gpu", "h800-own", "--problem", problem, "--json")
    assert (profile["gpu"], profile["model"]) == ("h800-own", "chat")
    bare, compared = (
        sutler("profiles", "show", profile["id"], *more).stdout for more in ((), ("--problem", problem))
    )
    assert ("--problem" in bare, "+43 %" in bare, "+43 %" in compared) == (True, False, True)
    assert "--problem" in sutler("calibrate", "own").stderr
    before = listed("plan", problem, "--json")
    assert sutler("calibrate", "own", "--problem", problem).exit_code == 0
    after = listed("plan", a_described_problem(tmp_path, calibration="own"), "--json")
    assert after["throughput_rps"] == pytest.approx(0.7 * before["throughput_rps"], rel=0.06)
    asked: list[str] = ["--gpu", "h800-own", "--model", "chat", "--precision", "bf16", "--input-tokens", "512"]
    asked += ["--output-tokens", "128", "--concurrency", "32", "--calibration", "own", "--problem", str(problem)]
    measured = next(line.split(",") for line in runs.read_text().splitlines() if ",512,128,32," in line)
    assert listed("estimate", *asked, "--json")["req_per_s"] == pytest.approx(float(measured[9]), rel=0.1)
