"""`sutler trial` as people type it, against engines over real HTTP, a real store and the real planner."""

import json
import os
import signal
import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.documents.errors import DocumentError
from sutler.service.library.trialling import concluded, measure
from sutler.service.trial.errors import TrialError
from tests.service.running import until
from tests.service.trial.builders import a_real_plan, changed, written
from tests.service.trial.fake_engine import FakeEngine, answering

SHORT = ("--seconds", "1", "--concurrency", "1", "--concurrency", "8")


def sutler(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def listed(*arguments: str | Path) -> Any:
    result = sutler(*arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_from_running_replicas_to_what_they_change(shared_store: Path, tmp_path: Path) -> None:
    plan, problem = written(tmp_path)
    out = tmp_path / "runs.csv"
    with answering(FakeEngine(step_s=0.04)) as engine:
        asked = ("trial", plan, "--at", f"chat-0={engine.url}", "--problem", problem, *SHORT, "--name", "mine")
        found = listed(*asked, "--out", out, "--json")
        assert engine.keys == {None}
    assert [(one["workload"], one["concurrency"]) for one in found["runs"]] == [
        ("question", 1),
        ("question", 8),
        ("summary", 1),
        ("summary", 8),
    ]
    for one in found["runs"]:
        ttft_s = engine.base_s + one["input_tokens"] * engine.prefill_s_per_token
        whole_s = ttft_s + (one["output_tokens"] - 1) * engine.step_s
        assert 0.5 < one["req_per_s"] * whole_s / one["concurrency"] < 1.02, "late on a busy machine, never early"
        assert one["req_per_s"] < one["planned"]["low_req_per_s"], "the engine is far slower than an H100"
        assert not one["within_band"]
    off = {
        by: sum(abs(log(one[by]["req_per_s"] / one["req_per_s"])) for one in found["runs"])
        for by in ("calibrated", "planned")
    }
    assert off["calibrated"] < 0.8 * off["planned"]
    assert (found["imported"], found["calibration"]["name"], found["calibration"]["revision"]) == (4, "mine", 1)
    assert found["calibration"]["engine_versions"] == ["0.12.0"]
    assert found["replay"]["plan_id"] == found["plan_id"] == str(a_real_plan().id)
    base, [after] = found["what_if"]["base"], found["what_if"]["variants"]
    assert after["changes"] == {"throughput.calibration": "mine"}
    assert after["cost_usd_per_hour"] > base["cost_usd_per_hour"]
    # What was kept is what the other commands know, and the table says the same runs again.
    assert [one["runs"] for one in listed("profiles", "list", "--json")] == [4]
    assert [one["name"] for one in listed("calibrate", "--list", "--json")] == ["mine"]
    again = listed("profiles", "import", out, "--json")
    assert (again[0]["kept"], again[0]["new"]) == (4, 0)


@pytest.mark.slow
def test_a_dry_run_says_the_same_and_keeps_nothing(shared_store: Path, tmp_path: Path) -> None:
    plan, _ = written(tmp_path)
    with answering(FakeEngine()) as engine:
        shown = sutler("trial", plan, "--at", f"chat-0={engine.url}", *SHORT, "--dry-run")
    assert shown.exit_code == 0, shown.stderr
    assert "0 of 4 runs within what was planned" in shown.stdout
    assert "slower" in shown.stdout
    assert "Calibration trial: 4 runs of vllm 0.12.0" in shown.stdout
    assert "done of what arrives: chat" in shown.stdout
    assert "Kept as revision" not in shown.stdout
    assert listed("profiles", "list", "--json") == []
    assert listed("calibrate", "--list", "--json") == []


@pytest.mark.slow
def test_runs_that_no_gpu_can_have_done_are_refused_and_the_others_kept(shared_store: Path, tmp_path: Path) -> None:
    plan, _ = written(tmp_path)
    with answering(FakeEngine(step_s=0.001, prefill_s_per_token=0.00001)) as engine:
        result = sutler("trial", plan, "--at", f"chat-0={engine.url}", *SHORT)
    assert result.exit_code == 2
    assert "refused: chat-0, question, 1 at once: tpot_s: " in result.stderr
    assert "is less than the" in result.stderr
    assert "no run fits" not in result.stdout
    assert listed("profiles", "list", "--json") == []


def test_at_the_plans_batch_the_plans_own_rate_is_what_counts(shared_store: Path) -> None:
    plan = a_real_plan()
    stated = next(one for one in plan.evidence if one.workload == "question")
    only = changed(plan, throughput_rps={"question": 3.0}, max_batch=4)
    with answering(FakeEngine(step_s=0.01)) as engine:
        runs = measure(only, {"chat-0": engine.url}, seconds=0.2)
    found = concluded(only, runs, name="mine", keeps=False)
    assert [run.concurrency for run in found.runs] == [1, 2, 4]
    assert (found.runs[2].planned.req_per_s, found.runs[2].planned.low_req_per_s) == (stated.rps, stated.low_rps)
    assert found.runs[1].planned.req_per_s != stated.rps


@pytest.mark.slow
def test_prompts_that_the_plan_counts_on_as_cached_are_told(shared_store: Path) -> None:
    plan = a_real_plan(prefix_cache_hit_fraction=0.5)
    with answering(FakeEngine()) as engine:
        runs = measure(plan, {"chat-0": engine.url}, seconds=0.2, concurrencies=(1,))
    found = concluded(plan, runs, name="mine", keeps=False)
    assert any("counts on prompts in the prefix cache (question, summary)" in note for note in found.notes)


@pytest.mark.slow
def test_a_key_is_shown_to_the_replica_and_to_nobody_else(
    shared_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = written(tmp_path)
    with answering(FakeEngine(key="secret-key")) as engine:
        asked = ("trial", plan, "--at", f"chat-0={engine.url}", *SHORT, "--out", tmp_path / "runs.csv", "--json")
        without = sutler(*asked)
        assert without.exit_code == 2
        assert "wants a key" in without.stderr
        assert "set SUTLER_REPLICA_KEY" in without.stderr
        monkeypatch.setenv("SUTLER_REPLICA_KEY", "secret-key")
        found = sutler(*asked)
    assert found.exit_code == 0, found.stderr
    assert "secret-key" not in found.stdout + found.stderr + (tmp_path / "runs.csv").read_text()


def test_what_is_wrong_is_said_before_anything_is_sent(own_settings: Path, tmp_path: Path) -> None:
    plan, _ = written(tmp_path)
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with answering(FakeEngine()) as engine:
        at = f"chat-0={engine.url}"
        for more, said in (
            (("--problem", bad), "objective"),
            (("--at", at), "--at: 'chat-0': give REPLICA=VALUE, each replica once"),
            (("--at", "chat-1"), "--at: 'chat-1': give REPLICA=VALUE"),
            (("--out", tmp_path / "no" / "runs.csv"), "its folder does not exist"),
        ):
            result = sutler("trial", plan, "--at", at, *more)
            assert result.exit_code == 2, result.stderr
            assert said in result.stderr
        assert not engine.prompts


def test_no_replica_is_loaded_where_another_serves_something_else() -> None:
    plan = a_real_plan()
    plain = plan.model_dump(mode="json", by_alias=True)
    plain["replicas"].append({**plain["replicas"][0], "id": "chat-1"})
    both = type(plan).model_validate_json(json.dumps(plain))
    with answering(FakeEngine()) as right, answering(FakeEngine(model="qwen")) as wrong:
        with pytest.raises(TrialError, match=r"chat-1 at .* serves qwen, not chat"):
            measure(both, {"chat-0": right.url, "chat-1": wrong.url}, seconds=1.0)
        assert not right.prompts


def test_engines_are_tried_apart() -> None:
    plan = a_real_plan()
    plain = plan.model_dump(mode="json", by_alias=True)
    plain["replicas"].append({**plain["replicas"][0], "id": "chat-1", "engine": "sglang"})
    both = type(plan).model_validate_json(json.dumps(plain))
    with pytest.raises(DocumentError, match="name replicas of one engine"):
        measure(both, {"chat-0": "http://a", "chat-1": "http://b"}, seconds=1.0)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_and_nothing_is_kept(shared_store: Path, tmp_path: Path) -> None:
    plan, _ = written(tmp_path)
    out = tmp_path / "runs.csv"
    with answering(FakeEngine()) as engine:
        command = [sys.executable, "-m", "sutler", "trial", str(plan), "--at", f"chat-0={engine.url}"]
        process = subprocess.Popen(
            [*command, "--seconds", "600", "--out", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ),
        )
        until(lambda: len(engine.prompts) > 3)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, (b"", b"interrupted\n"))
        until(lambda: engine.running == 0)
    assert not out.exists()
    assert listed("profiles", "list", "--json") == []
