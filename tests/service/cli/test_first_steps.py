"""`sutler init` and `sutler demo`: the first commands that somebody types."""

import os
import re
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
import requests
from typer.testing import CliRunner

from sutler.service.cli.app import app
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.documents.yaml_loader import load_yaml
from tests.service.builders import a_snapshot, an_offer
from tests.service.running import PATIENCE_S, ROOT, until

ANSWERS = {"--model": "Llama 3.1 8b", "--traffic": "5 1000 300", "--latency": "2, .05", "--budget": "0"}


def init(folder: Path, *, typed: str = "", **others: str) -> Any:
    options = [word for name, value in {**ANSWERS, **others}.items() for word in (name, value)]
    return CliRunner().invoke(app, ["init", str(folder / "problem.yaml"), *options], input=typed)


def problem_in(folder: Path) -> ProblemDocument:
    return validate(ProblemDocument, load_yaml((folder / "problem.yaml").read_text("utf-8")))


def test_four_answers_make_a_problem(tmp_path: Path) -> None:
    typed = "llama-3.1-70b\n3 2000 100\n1 0.03\n12.5\n"
    done = CliRunner().invoke(app, ["init", str(tmp_path / "problem.yaml")], input=typed)
    assert done.exit_code == 0, done.stderr
    found = problem_in(tmp_path)
    assert (found.objective.kind, found.budget_usd_per_hour) == ("max_throughput", 12.5)
    [model] = found.models
    assert model.model == "llama-3.1-70b"
    assert model.workloads is not None
    assert (model.workloads[0].rate_rps, model.workloads[0].input_tokens) == (3, 2000)
    assert "sutler market poll" in done.stderr


def test_a_slip_is_asked_about_again(tmp_path: Path) -> None:
    typed = "lama\nllama-3.1-8b\n5\n5 1000 300\n\n\n"
    done = CliRunner().invoke(app, ["init", str(tmp_path / "problem.yaml")], input=typed)
    assert done.exit_code == 0, done.stderr
    assert "did you mean" in done.stderr
    assert "give requests/s, tokens in and tokens out" in done.stderr
    assert problem_in(tmp_path).models[0].model == "llama-3.1-8b"


def test_no_answer_writes_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "problem.yaml")], input="llama-3.1-8b\n")
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "give --model, --traffic, --latency and --budget" in done.stderr


def test_nothing_typed_is_what_is_usual(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "problem.yaml")], input="\n\n\n\n")
    assert done.exit_code == 0
    assert problem_in(tmp_path).objective.kind == "min_cost"


def test_what_it_writes_can_be_planned(tmp_path: Path) -> None:
    import json

    (tmp_path / "market.json").write_text(json.dumps(a_snapshot(an_offer(available=8))), encoding="utf-8")
    done = init(tmp_path, **{"--market": "market.json"})
    assert done.exit_code == 0, done.stderr
    assert f"Next: `sutler plan {tmp_path / 'problem.yaml'}`" in done.stderr
    planned = CliRunner().invoke(app, ["plan", str(tmp_path / "problem.yaml"), "--no-alternatives"])
    assert planned.exit_code == 0, planned.stderr


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--model", "lama-3.1-8b", "did you mean llama-3.1-8b"),
        ("--traffic", "5 1000", "give requests/s, tokens in and tokens out: 5 1000 300"),
        ("--traffic", "5 x 300", "give requests/s"),
        ("--latency", "2", "give two numbers of seconds"),
        ("--traffic", "-5 1000 300", "give requests/s"),
        ("--traffic", "5 200000 300", "is beyond the context of llama-3.1-8b: at most 131072"),
        ("--latency", "2 nan", "give two numbers of seconds"),
        ("--budget", "twenty", "give USD per hour, or 0"),
        ("--budget", "-3", "give USD per hour, or 0"),
        ("--market", "nothere.json", "does not exist"),
    ],
)
def test_a_wrong_answer_is_named_and_writes_nothing(tmp_path: Path, option: str, value: str, complaint: str) -> None:
    done = init(tmp_path, **{option: value})
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert not (tmp_path / "problem.yaml").exists()


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "problem.yaml").write_text("mine")
    assert init(tmp_path).exit_code == 2
    assert (tmp_path / "problem.yaml").read_text() == "mine"


@pytest.mark.slow
def test_the_demo_plans_on_played_clouds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sutler", "demo", "--seed", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^vastai +ok", done.stdout, re.MULTILINE)
    assert re.search(r"^[\d.]+ \$/h carries the load$", done.stdout, re.MULTILINE)
    assert "sutler init" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_shows_pages_until_it_is_stopped_and_leaves_nothing_behind(
    tmp_path: Path, stop: signal.Signals
) -> None:
    said = tmp_path / "said.txt"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "sutler", "demo", "--pages", "--port", str(port)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=stderr, stdin=subprocess.DEVNULL)
    try:
        until(lambda: "Open http" in said.read_text() or process.poll() is not None)
        assert process.poll() is None, said.read_text()
        page = requests.get(f"http://127.0.0.1:{port}/", timeout=60)
        assert page.url.endswith("/ui")
        assert all(name in page.text for name in ("chat", "code", "no-money"))
        serve = [child for child in psutil.Process(process.pid).children(recursive=True) if child.is_running()]
    finally:
        process.send_signal(stop)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, said.read_text()
    assert "stopped" in said.read_text()
    assert [child for child in serve if child.is_running()] == []
    assert list(tmp_path.glob("sutler-*")) == []


@pytest.mark.slow
def test_the_demo_leaves_a_service_alone_that_has_its_port(tmp_path: Path) -> None:
    """And the database that the shell is set up for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as somebody:
        asked: list[object] = []
        somebody.process_request = lambda request, address: asked.append(address)  # type: ignore[method-assign,assignment]
        thread = Thread(target=somebody.serve_forever)
        thread.start()
        command = [sys.executable, "-m", "sutler", "demo", "--pages", "--port", str(somebody.server_port)]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SUTLER_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x",
        }
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        somebody.shutdown()
        thread.join()
    assert done.returncode == 2, done.stderr
    assert "cannot listen" in done.stderr
    assert asked == []
