"""The script of a schedule, run with bash: what it starts and stops as models finish, in whichever order."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from sutler.service.offline.running import schedule_of, script_of
from tests.service.offline.running_plans import REQUESTS, a_plan, a_stage
from tests.service.offline.running_scripts import Run, clean_up, running

pytestmark = pytest.mark.slow

# a first, then b, then c; d only at the end.
SEQUENCE = a_plan(
    a_stage(0, 100, {"a": [(0, 1)], "b": [(2,)]}, finished={"a": REQUESTS}),
    a_stage(100, 200, {"b": [(2,)], "c": [(0,), (1,)]}, finished={"b": REQUESTS}),
    a_stage(200, 300, {"c": [(0,), (1,)], "d": [(2, 3)]}, finished={"c": REQUESTS, "d": REQUESTS}),
)
NASTY = ["a b", "it's", '"quoted"', "$(touch hit)", "`touch hit`", "; touch hit ;", "-x", "../up", "*", "\\"]


def test_bash_accepts_the_script() -> None:
    text = script_of(schedule_of(SEQUENCE))
    result = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_models_that_finish_as_planned_make_way_for_those_of_the_next_step(tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE, load_s={"a": 0.3}) as run:
        run.wait_for_step(1)
        assert run.serving() == {"a": 1, "b": 1}
        run.report_done("a")
        run.wait_for_step(2)
        assert run.running() == {("b", "2"), ("c", "0"), ("c", "1")}
        run.report_done("b")
        run.wait_for_step(3)
        assert run.serving() == {"c": 2, "d": 1}
        run.report_done("c", "d")
        assert run.end() == 0
        assert sorted(run.starts()) == [("a", "0,1"), ("b", "2"), ("c", "0"), ("c", "1"), ("d", "2,3")]
        assert (run.gpus_used_twice(), run.left_over(), run.serving()) == ([], [], {})
        assert run.text.endswith("all models are finished\n")


def test_a_model_that_no_later_step_runs_keeps_its_gpus_until_it_finishes(tmp_path: Path) -> None:
    """b is first, not a: one replica of c finds a GPU that is free, the other takes b's."""
    with running(tmp_path, SEQUENCE) as run:
        run.wait_for_step(1)
        run.report_done("b")
        run.wait_for_step(2)
        assert run.running() == {("a", "0,1"), ("c", "2"), ("c", "3")}
        run.report_done("c")
        run.wait_for(lambda: "no GPUs are free yet" in run.text or ("d", "2,3") in run.running())
        run.wait_for_step(3)
        assert run.running() == {("a", "0,1"), ("d", "2,3")}
        run.report_done("a", "d")
        assert run.end() == 0
        assert run.gpus_used_twice() == []


def test_a_replica_waits_where_no_other_gpus_are_free(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)], "b": [(1,)]}, finished={"a": REQUESTS}),
        a_stage(100, 200, {"c": [(0, 1)]}, finished={"c": REQUESTS}),
        islands=((0, (0, 1)),),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        run.report_done("a")
        run.wait_for(lambda: "no GPUs are free yet for: c-tp2-0" in run.text)
        assert run.running() == {("b", "1")}
        run.report_done("b")
        run.wait_for_step(2)
        assert run.running() == {("c", "0,1")}
        run.report_done("c")
        assert run.end() == 0
        assert run.text.count("step 2 ends") == 1


def test_a_model_that_a_later_step_runs_again_gives_way(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)], "b": [(1,)]}, finished={"a": REQUESTS}),
        a_stage(100, 200, {"c": [(0, 1)]}, finished={"c": REQUESTS}),
        a_stage(200, 300, {"b": [(0, 1)]}, finished={"b": REQUESTS}),
        islands=((0, (0, 1)),),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        run.report_done("a")
        run.wait_for_step(2)
        assert run.running() == {("c", "0,1")}
        run.report_done("c")
        run.wait_for_step(3)
        run.report_done("b")
        assert run.end() == 0
        assert sorted(run.starts()) == [("a", "0"), ("b", "0,1"), ("b", "1"), ("c", "0,1")]
        assert run.gpus_used_twice() == []


def test_replicas_that_stand_in_the_way_go_back_to_their_planned_gpus(tmp_path: Path) -> None:
    """b finishes first: x goes to GPU 1 in place of 0; y needs an island, which a and x leave to it in the end."""
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)], "b": [(1,)], "k": [(3,)]}, finished={"a": REQUESTS}),
        a_stage(100, 200, {"x": [(2,)], "b": [(1,)], "k": [(3,)]}, finished={"b": REQUESTS}),
        a_stage(200, 300, {"x": [(2,)], "y": [(0, 1)], "k": [(3,)]}, finished={"x": REQUESTS}),
        islands=((0, (0, 1)), (0, (2, 3))),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        (run.run_folder / "done" / "b").touch()
        run.wait_for_step(2)
        assert ("x", "2") in run.running()
        run.report_done("a")
        run.wait_for_step(3)
        assert run.running() == {("x", "2"), ("y", "0,1"), ("k", "3")}
        run.report_done("x", "y", "k")
        assert run.end() == 0


def test_a_replica_on_others_gpus_is_moved_when_nothing_else_helps(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)], "b": [(2,)]}, finished={"a": REQUESTS}),
        a_stage(100, 200, {"x": [(0,)], "b": [(2,)]}, finished={"b": REQUESTS}),
        a_stage(200, 300, {"x": [(0,)], "y": [(2, 3)]}, finished={"x": REQUESTS, "y": REQUESTS}),
        islands=((0, (0,)), (0, (2, 3))),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        run.report_done("b")
        run.wait_for_step(2)
        assert run.running() == {("a", "0"), ("x", "2")}
        run.report_done("a")
        run.wait_for_step(3)
        assert run.running() == {("x", "0"), ("y", "2,3")}
        run.report_done("x", "y")
        assert run.end() == 0
        assert run.gpus_used_twice() == []


def test_a_step_ends_at_a_count_of_finished_requests(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)]}, finished={"a": 40}, until=("a", 0.5)),
        a_stage(100, 200, {"a": [(0,), (1,)]}, finished={"a": REQUESTS}),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        run.report_finished("a", 39)
        run.wait_for(lambda: run.serving() == {"a": 1})
        assert "step 1 ends" not in run.text
        run.report_finished("a", 40)
        run.wait_for_step(2)
        assert run.starts() == [("a", "0"), ("a", "1")], "the first replica goes on"
        run.report_done("a")
        assert run.end() == 0


def test_a_step_whose_models_all_wait_for_others_ends(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,)], "b": [(1,)]}),
        a_stage(100, 200, {"c": [(0,)]}, finished={"c": REQUESTS}),
        a_stage(200, 300, {"a": [(0,)], "b": [(1,)]}, finished={"a": REQUESTS, "b": REQUESTS}),
        islands=((0, (0, 1)),),
    )
    with running(tmp_path, plan) as run:
        run.wait_for_step(1)
        (run.run_folder / "idle" / "a").touch()
        (run.run_folder / "idle" / "b").touch()
        run.wait_for_step(2)
        assert ("c", "0") in run.running()
        run.report_done("a", "b", "c")
        assert run.end() == 0


def test_a_server_that_is_never_healthy_ends_the_run_and_all_servers(tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE, "--start-up-limit", "8", load_s={"a": None}) as run:
        assert run.end() == 1
        assert "error: a-tp2-0 is not up in time" in run.text
        assert "loading a" in run.text, "the last lines of its log"
        assert (run.left_over(), run.serving()) == ([], {})


def test_a_server_that_fails_ends_the_run_and_a_later_one_goes_on_from_there(tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE, ends=["c"]) as run:
        run.wait_for_step(1)
        run.report_done("a")
        assert run.end() == 1
        assert "ended by itself with status 1" in run.text
        assert "out of memory" in run.text
        assert run.left_over() == []
        run.begin()
        assert run.end() == 1
        assert "is not empty: name an empty folder, or add --resume" in run.text
        run.settle()
        run.begin("--resume")
        run.wait_for_step(2)
        assert run.running() == {("b", "2"), ("c", "0"), ("c", "1")}
        run.report_done("b", "c")
        run.wait_for_step(3)
        run.report_done("d")
        assert run.end() == 0


def test_what_outlived_its_last_step_is_started_again_on_resuming(tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE) as run:
        run.wait_for_step(1)
        run.report_done("b")
        run.wait_for_step(2)
        run.send(signal.SIGTERM)
        assert run.end() == 143
        run.begin("--resume")
        run.wait_for(lambda: run.text.count("all replicas of step 2 are up") == 2)
        assert {model for model, _ in run.running()} == {"a", "c"}
        run.report_done("a", "c", "d")
        assert run.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_stops_all_servers(number: signal.Signals, status: int, tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE, load_s={"b": None}, stubborn=["a"]) as run:
        run.wait_for(lambda: run.serving() == {"a": 1})
        run.send(number)
        assert run.end() == status
        assert (run.left_over(), run.serving()) == ([], {})
        assert "a-tp2-0 does not stop: killing it" in run.text
        assert "run it again with --resume" in run.text


@pytest.mark.parametrize("name", NASTY)
def test_names_of_strangers_arrive_unchanged_and_start_nothing(name: str, tmp_path: Path) -> None:
    with running(tmp_path, a_plan(a_stage(0, 1, {name: [(0,)]}, finished={name: REQUESTS}))) as run:
        run.wait_for_step(1)
        assert run.serving() == {name: 1}
        run.report_done(name)
        assert run.end() == 0
        assert not list(tmp_path.rglob("hit"))


def test_hosts_go_from_step_to_step_together(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [((0, 0),)], "b": [((1, 0),)]}, finished={"a": REQUESTS}),
        a_stage(100, 200, {"b": [((1, 0),)], "c": [((0, 0),)]}, finished={"b": REQUESTS, "c": REQUESTS}),
        islands=((0, (0,)), (1, (0,))),
    )
    here, there = Run(tmp_path, plan, host=0), Run(tmp_path, plan, host=1, load_s={"b": 0.5})
    try:
        here.begin("--address", "127.0.0.1")
        there.begin("--address", "127.0.0.1")
        here.wait_for_step(1)
        here.report_done("a")
        there.wait_for_step(2)
        here.wait_for_step(2)
        assert here.running() == {("b", "0"), ("c", "0")}
        assert list(here.endpoints("endpoints-1.json")["b"]) != []
        here.report_done("b", "c")
        assert (here.end(), there.end()) == (0, 0)
        assert here.left_over() == []
    finally:
        clean_up(here, there)


def test_a_port_of_somebody_else_is_not_taken_for_a_server(tmp_path: Path) -> None:
    run = Run(tmp_path, SEQUENCE)
    with socket.create_server(("127.0.0.1", run.schedule.replicas[0].port)):
        run.begin()
        assert run.end() == 1
    assert "is taken by a program that is not of this run" in run.text
    assert run.left_over() == []


def test_a_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, SEQUENCE)
    run.run_folder.mkdir()
    (run.run_folder / "notes.txt").touch()
    run.begin()
    assert run.end() == 1
    (run.run_folder / "notes.txt").rename(run.run_folder / "plan")
    run.begin("--resume")
    assert run.end() == 1
    assert "is not empty: name an empty folder" in run.text
    assert "belongs to plan" in run.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "name a RUN_FOLDER"),
        (("--poll",), "--poll needs a value"),
        (("--poll", "x", "run"), "--poll x: must be a number"),
        (("--address", '"', "run"), "must be a name or an IP address"),
        (("--fast", "run"), "unknown option --fast"),
        (("one", "two"), "one RUN_FOLDER is enough"),
    ],
)
def test_options_that_it_does_not_have_are_refused(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(script_of(schedule_of(SEQUENCE)), encoding="utf-8")
    result = subprocess.run(
        ["bash", str(script), *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=20
    )
    assert result.returncode == 2
    assert words in result.stderr


def test_the_names_of_files_are_said_to_clients(tmp_path: Path) -> None:
    with running(tmp_path, SEQUENCE) as run:
        run.wait_for_step(1)
        models = json.loads((run.run_folder / "models.json").read_text("utf-8"))
        assert models["a"] == {"file": "a", "requests": REQUESTS}
